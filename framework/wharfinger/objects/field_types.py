"""Kinds of fields; they are strict and do not convert values between types.

Each function returns a field; a ``nullable`` field is None by default.
"""

import math
import uuid as uuids
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

from oslo_utils import timeutils

from wharfinger.db.tables import NAME
from wharfinger.objects.field_base import Dict, Field, List, wrong

#: The first year that MySQL supports, and the first with four digits.
_FIRST_YEAR: Final = 1000
#: The largest integer of databases, and the largest amount of Placement.
MAX_COUNT: Final = 2**31 - 1


class Text(Field[str]):
    """Text; no other type is converted."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> str:
        if not isinstance(value, str):
            raise wrong(attr, value, "text")
        return value


class ColumnText(Text):
    """Text of a limited length, without characters that databases refuse."""

    def __init__(self, longest: int | None = None, shortest: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._longest = longest
        self._shortest = shortest

    def _coerce(self, obj: Any, attr: str, value: Any) -> str:
        text = super()._coerce(obj, attr, value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise wrong(attr, text, "text without null characters and halves of characters")
        longest = math.inf if self._longest is None else self._longest
        if not self._shortest <= len(text) <= longest:
            raise wrong(attr, text, f"text of {self._shortest} to {self._longest} characters")
        return text


class Identifier(Field[str]):
    """A uuid, as text with dashes."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> str:
        try:
            return str(uuids.UUID(value))
        except (AttributeError, TypeError, ValueError):
            raise wrong(attr, value, "a uuid") from None


class Word(Field[str]):
    """A word out of a fixed set."""

    def __init__(self, values: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.values: Final = tuple(values)

    def _coerce(self, _obj: Any, attr: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.values:
            raise wrong(attr, value, f"one of {', '.join(self.values)}")
        return value


class Count(Field[int]):
    """A whole number from 0 to MAX_COUNT."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise wrong(attr, value, f"a whole number from 0 to {MAX_COUNT}")
        return value


class Ratio(Field[float]):
    """A number, 0 or more."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(attr, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not 0 <= number < math.inf:
            raise wrong(attr, value, "a number, 0 or more")
        return number


class Flag(Field[bool]):
    """True or false; databases have 0 and 1."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> bool:
        if value not in (True, False):
            raise wrong(attr, value, "true or false")
        return bool(value)


class Moment(Field[datetime]):
    """A time in UTC, in whole seconds, since databases and primitives can hold no more."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> datetime:
        try:
            moment = timeutils.parse_isotime(value) if isinstance(value, str) else value
        except ValueError:
            raise wrong(attr, value, "a time") from None
        if not isinstance(moment, datetime):
            raise wrong(attr, value, "a time")
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        try:
            whole = zoned.astimezone(UTC).replace(microsecond=0)
        except OverflowError:
            raise wrong(attr, value, "a time that exists in UTC") from None
        if whole.year < _FIRST_YEAR:
            raise wrong(attr, value, f"a time after the year {_FIRST_YEAR}")
        return whole

    def _to_primitive(self, value: datetime) -> str:
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")


def now() -> datetime:
    """Return the present time, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def text(longest: int | None = None, **kwargs: Any) -> Field[str]:
    """Text of at most ``longest`` characters, or of any length."""
    return ColumnText(longest, **kwargs)


def name(**kwargs: Any) -> Field[str]:
    """Text of 1 to 255 characters."""
    return ColumnText(NAME, shortest=1, **kwargs)


def uuid(**kwargs: Any) -> Field[str]:
    """A uuid."""
    return Identifier(**kwargs)


def count(**kwargs: Any) -> Field[int]:
    """A whole number, 0 or more."""
    return Count(**kwargs)


def ratio(**kwargs: Any) -> Field[float]:
    """A number, 0 or more."""
    return Ratio(**kwargs)


def flag(**kwargs: Any) -> Field[bool]:
    """True or false."""
    return Flag(**kwargs)


def moment(**kwargs: Any) -> Field[datetime]:
    """A time in UTC, in whole seconds."""
    return Moment(**kwargs)


def one_of(*values: str, **kwargs: Any) -> Field[str]:
    """A field for a word out of these."""
    return Word(values, **kwargs)


def texts(**kwargs: Any) -> Field[list[str]]:
    """A list of texts."""
    return List(Text(), **kwargs)


def counts_by_name(**kwargs: Any) -> Field[dict[str, int]]:
    """Whole numbers by name."""
    return Dict(Count(), **kwargs)


def amounts_by_provider(**kwargs: Any) -> Field[dict[str, dict[str, int]]]:
    """Whole numbers by resource class, by provider uuid."""
    return Dict(Dict(Count()), **kwargs)


def ratios_by_name(**kwargs: Any) -> Field[dict[str, float]]:
    """Numbers, 0 or more, by name."""
    return Dict(Ratio(), **kwargs)


def flags_by_name(**kwargs: Any) -> Field[dict[str, bool]]:
    """True or false by name."""
    return Dict(Flag(), **kwargs)


def texts_by_name(**kwargs: Any) -> Field[dict[str, str]]:
    """Texts by name."""
    return Dict(Text(), **kwargs)
