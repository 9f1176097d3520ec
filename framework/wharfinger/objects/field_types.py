"""Fields of versioned objects for single values, and functions that create fields."""

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
#: The largest number in an integer column, and the largest amount in Placement.
MAX_COUNT: Final = 2**31 - 1


class Text(Field[str]):
    """A field for text."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> str:
        if not isinstance(value, str):
            raise wrong(attr, value, "text")
        return value


class ColumnText(Text):
    """A field for text without null characters and surrogates."""

    def __init__(self, longest: int | None = None, shortest: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._longest = longest
        self._shortest = shortest

    def _coerce(self, obj: Any, attr: str, value: Any) -> str:
        text = super()._coerce(obj, attr, value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise wrong(attr, text, "text without null characters and surrogates")
        longest = math.inf if self._longest is None else self._longest
        if not self._shortest <= len(text) <= longest:
            raise wrong(attr, text, f"text of {self._shortest} to {self._longest} characters")
        return text


class Identifier(Field[str]):
    """A field for a uuid, stored as text with dashes."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> str:
        try:
            return str(uuids.UUID(value))
        except (AttributeError, TypeError, ValueError):
            raise wrong(attr, value, "a uuid") from None


class Word(Field[str]):
    """A field for one of a few words."""

    def __init__(self, values: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.values: Final = tuple(values)

    def _coerce(self, _obj: Any, attr: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.values:
            raise wrong(attr, value, f"one of {', '.join(self.values)}")
        return value


class Count(Field[int]):
    """A field for a whole number from 0 to MAX_COUNT."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise wrong(attr, value, f"a whole number from 0 to {MAX_COUNT}")
        return value


class Ratio(Field[float]):
    """A field for a finite number of at least 0, stored as float."""

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
    """A field for True or False; it also accepts 0 and 1."""

    def _coerce(self, _obj: Any, attr: str, value: Any) -> bool:
        if value not in (True, False):
            raise wrong(attr, value, "true or false")
        return bool(value)


class Moment(Field[datetime]):
    """A field for a time, stored in UTC and whole seconds.

    A time without a time zone counts as UTC.
    """

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
            raise wrong(attr, value, f"a time in the year {_FIRST_YEAR} or later")
        return whole

    def _to_primitive(self, value: datetime) -> str:
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")


def now() -> datetime:
    """Return the time in UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def text(longest: int | None = None, **kwargs: Any) -> Field[str]:
    """Return a field for text, by default of any length."""
    return ColumnText(longest, **kwargs)


def name(**kwargs: Any) -> Field[str]:
    """Return a field for text of 1 to 255 characters."""
    return ColumnText(NAME, shortest=1, **kwargs)


def uuid(**kwargs: Any) -> Field[str]:
    """Return a field for a uuid."""
    return Identifier(**kwargs)


def count(**kwargs: Any) -> Field[int]:
    """Return a field for a whole number from 0 to MAX_COUNT."""
    return Count(**kwargs)


def ratio(**kwargs: Any) -> Field[float]:
    """Return a field for a number of at least 0."""
    return Ratio(**kwargs)


def flag(**kwargs: Any) -> Field[bool]:
    """Return a field for True or False."""
    return Flag(**kwargs)


def moment(**kwargs: Any) -> Field[datetime]:
    """Return a field for a time."""
    return Moment(**kwargs)


def one_of(*values: str, **kwargs: Any) -> Field[str]:
    """Return a field for one of these words."""
    return Word(values, **kwargs)


def texts(**kwargs: Any) -> Field[list[str]]:
    """Return a field for a list of texts."""
    return List(Text(), **kwargs)


def counts_by_name(**kwargs: Any) -> Field[dict[str, int]]:
    """Return a field for a dict from names to counts."""
    return Dict(Count(), **kwargs)


def amounts_by_provider(**kwargs: Any) -> Field[dict[str, dict[str, int]]]:
    """Return a field for amounts by provider uuid and resource class."""
    return Dict(Dict(Count()), **kwargs)


def ratios_by_name(**kwargs: Any) -> Field[dict[str, float]]:
    """Return a field for a dict from names to numbers of at least 0."""
    return Dict(Ratio(), **kwargs)


def flags_by_name(**kwargs: Any) -> Field[dict[str, bool]]:
    """Return a field for a dict from names to True or False."""
    return Dict(Flag(), **kwargs)


def texts_by_name(**kwargs: Any) -> Field[dict[str, str]]:
    """Return a field for a dict from names to texts."""
    return Dict(Text(), **kwargs)
