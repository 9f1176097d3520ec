"""Base classes, table cells and argument types of commands that use the database."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from cliff.lister import Lister
from cliff.show import ShowOne

from wharfinger.cli.command import Json, WharfingerCommand
from wharfinger.exceptions import (
    CommandFailed,
    FieldUnset,
    InvalidName,
    WharfingerError,
    printable,
    shown,
)

if TYPE_CHECKING:
    from wharfinger.objects import Context, WharfingerObject
    from wharfinger.placement.model import ProviderSummary

#: The cell of an unset field.
UNSET: Final = "?"
_NUMBER: Final = re.compile(r"[0-9]{1,10}\Z")


class ObjectCommand(WharfingerCommand):
    """Base class of commands that use the database."""

    @cached_property
    def objects(self) -> "Context":
        """The context with the open database. Raises ConfigurationError and StateError."""
        from wharfinger.objects import connect

        return connect(self.conf)

    @property
    def down_time(self) -> timedelta:
        """The option service_down_time. Raises ConfigurationError."""
        from wharfinger.conf import DefaultSection

        return DefaultSection.read(self.conf).service_down_time

    @property
    def has_opened(self) -> bool:
        """Return whether the command has opened the database."""
        return "objects" in vars(self)

    def run(self, parsed_args: argparse.Namespace) -> int:
        try:
            return super().run(parsed_args)
        finally:
            if self.has_opened:
                self.objects.close()


class ObjectLister(ObjectCommand, Lister):
    """Base class of commands that list objects."""


class ObjectShow(ObjectCommand, ShowOne):
    """Base class of commands that show an object."""

    def shown(self, one: "WharfingerObject") -> tuple[Sequence[str], Sequence[Any]]:
        """Return the names and cells of all fields."""
        fields = self._data(one)
        return tuple(fields), tuple(map(_cell, fields.values()))

    def _data(self, value: Any) -> Any:
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


def known(read: Callable[[], Any]) -> Any:
    """Return what ``read`` returns, or UNSET if it reads an unset field."""
    try:
        return read()
    except FieldUnset:
        return UNSET


def given(**filters: Any) -> dict[str, Any]:
    """Return the filters whose values are not empty."""
    return {name: value for name, value in filters.items() if value}


def values(one: "WharfingerObject", *names: str) -> list[Any]:
    """Return the values of these fields; UNSET for unset fields."""
    return [known(partial(getattr, one, name)) for name in names]


def row(*cells: Any) -> tuple[Any, ...]:
    """Return values as table cells."""
    return tuple(map(_cell, cells))


def as_uuid(name: str) -> str | None:
    """Return a uuid in its stored form; None for other texts."""
    try:
        return uuid(name)
    except argparse.ArgumentTypeError:
        return None


def ambiguous(kind: str, name: str, descriptions: Iterable[str]) -> WharfingerError:
    """Return the error for a name that several objects have."""
    return CommandFailed(
        reason=f"there are several objects of kind {kind} with the name {name}. Name one by its "
        f"uuid: {' or '.join(descriptions)}"
    )


def number(least: int) -> Callable[[str], int]:
    """Return the argument type of whole numbers."""

    def take(text: str) -> int:
        from wharfinger.objects.field_types import MAX_COUNT

        if not _NUMBER.match(text) or not least <= int(text) <= MAX_COUNT:
            raise argparse.ArgumentTypeError(
                f"{shown(text)} is not a whole number from {least} to {MAX_COUNT}"
            )
        return int(text)

    return take


def text(longest: int = 255, shortest: int = 1) -> Callable[[str], str]:
    """Return the argument type of texts of limited length."""

    def take(given: str) -> str:
        from wharfinger.objects.field_types import ColumnText

        try:
            ColumnText(longest, shortest).coerce(None, "", given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from None
        return given

    return take


def uuid(text: str) -> str:
    """Argument type of a uuid."""
    from wharfinger.objects.field_types import Identifier

    try:
        found: str = Identifier().coerce(None, "", text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a uuid") from None
    return found


def owner(text: str) -> str:
    """Argument type of an owner trait."""
    from wharfinger.providers.ownership import check_owner

    try:
        return check_owner(text)
    except InvalidName as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """Argument type of a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return number


def full_name(provider: "ProviderSummary") -> str:
    """Return the name of a provider with its uuid."""
    return f"{provider.name} ({provider.uuid})"


def print_done(provider: "ProviderSummary", done: str) -> None:
    """Print the result for a provider."""
    sys.stdout.write(f"{printable(f'{full_name(provider)}: {done}')}\n")


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return Json(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return printable(value) if isinstance(value, str) else value
