"""What the commands on objects share: how fields are shown, and what arguments have to be."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from cliff.lister import Lister
from cliff.show import ShowOne

from wharfinger.cli.command import Json, WharfingerCommand
from wharfinger.exceptions import FieldUnset, InvalidName, WharfingerError, printable, shown

if TYPE_CHECKING:
    from wharfinger.objects import Context, WharfingerObject
    from wharfinger.placement.model import ProviderSummary

#: What stands for a field of which nothing is known.
UNSET: Final = "?"
_NUMBER: Final = re.compile(r"[0-9]{1,10}\Z")


class ObjectCommand(WharfingerCommand):
    """A command on objects, which lets go of the database when it is done."""

    @cached_property
    def objects(self) -> "Context":
        """Where objects are kept; raises ConfigurationError, StateError."""
        from wharfinger.objects import connect

        return connect(self.conf)

    @property
    def has_opened(self) -> bool:
        """Whether the database has been opened."""
        return "objects" in vars(self)

    def run(self, parsed_args: argparse.Namespace) -> int:
        try:
            return super().run(parsed_args)
        finally:
            if self.has_opened:
                self.objects.close()


class ObjectLister(ObjectCommand, Lister):
    """A command that lists objects."""


class ObjectShow(ObjectCommand, ShowOne):
    """A command that shows all fields of an object."""

    def shown(self, one: "WharfingerObject") -> tuple[Sequence[str], Sequence[Any]]:
        """Its fields; warns of those of which nothing is known, and says why."""
        fields = self._data(one)
        return tuple(fields), tuple(map(_cell, fields.values()))

    def _data(self, value: Any) -> Any:
        """A value as JSON has it."""
        from wharfinger.objects import PciDeviceList, WharfingerObject

        if isinstance(value, datetime):
            return value.isoformat()
        if isinstance(value, PciDeviceList):
            return [self._data(one) for one in value.objects]
        if isinstance(value, WharfingerObject):
            return {name: self._field(value, name) for name in value.fields}
        return value

    def _field(self, one: "WharfingerObject", name: str) -> Any:
        try:
            return self._data(getattr(one, name))
        except FieldUnset as unset:
            self.app.LOG.warning("%s", unset)
            return UNSET


def known(value: Callable[[], Any]) -> Any:
    """A value that depends on fields; UNSET where nothing is known of one."""
    try:
        return value()
    except FieldUnset:
        return UNSET


def given(**filters: Any) -> dict[str, Any]:
    """The filters of a list that were given as arguments."""
    return {name: value for name, value in filters.items() if value}


def values(one: "WharfingerObject", *names: str) -> list[Any]:
    """Fields of an object; UNSET for those of which nothing is known."""
    return [known(partial(getattr, one, name)) for name in names]


def row(*cells: Any) -> tuple[Any, ...]:
    """A row of a list, of values as they come."""
    return tuple(map(_cell, cells))


def as_uuid(name: str) -> str | None:
    """A uuid as it is kept; None for what is none."""
    try:
        return uuid(name)
    except argparse.ArgumentTypeError:
        return None


def ambiguous(kind: str, name: str, those: Iterable[str]) -> WharfingerError:
    """The error of a name that several objects have."""
    return WharfingerError(reason=f"{name} is more than one {kind}: name {' or '.join(those)}")


def number(least: int) -> Callable[[str], int]:
    """What takes a whole number from there on, as an argument."""

    def take(text: str) -> int:
        from wharfinger.objects.field_types import MAX_COUNT

        if not _NUMBER.match(text) or not least <= int(text) <= MAX_COUNT:
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not a whole number from {least} to {MAX_COUNT}"
            )
        return int(text)

    return take


def text(longest: int = 255, shortest: int = 1) -> Callable[[str], str]:
    """What takes a text that can be kept, as an argument."""

    def take(given: str) -> str:
        from wharfinger.objects.field_types import ColumnText

        try:
            ColumnText(longest, shortest).coerce(None, "", given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from None
        return given

    return take


def uuid(text: str) -> str:
    """Take a uuid, as an argument."""
    from wharfinger.objects.field_types import Identifier

    try:
        found: str = Identifier().coerce(None, "", text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a uuid") from None
    return found


def owner(text: str) -> str:
    """Take an owner trait, as an argument."""
    from wharfinger.providers.ownership import check_owner

    try:
        return check_owner(text)
    except InvalidName as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """Take a number of seconds, as an argument."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, 0 or above")
    return number


def which(provider: "ProviderSummary") -> str:
    """A provider by both of its names."""
    return f"{provider.name} ({provider.uuid})"


def print_done(provider: "ProviderSummary", done: str) -> None:
    """Say what has become of a provider."""
    sys.stdout.write(f"{printable(f'{which(provider)}: {done}')}\n")


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return Json(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return printable(value) if isinstance(value, str) else value
