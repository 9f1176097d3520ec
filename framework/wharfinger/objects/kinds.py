"""Kinds of fields: stricter than oslo.versionedobjects', which make text of anything.

Each function gives a field; ``nullable`` ones are None unless they are set.
"""

import math
import uuid as uuids
from datetime import UTC, datetime
from typing import Any, Final

from oslo_utils import timeutils
from oslo_versionedobjects import fields

from wharfinger.db.tables import NAME
from wharfinger.exceptions import shown

#: MySQL's first, and the first of four digits.
_FIRST_YEAR: Final = 1000
#: What databases take for an integer, and Placement for an amount.
MAX_COUNT: Final = 2**31 - 1


class Text(fields.String):
    """Text, and nothing that could be made text."""

    def coerce(self, _obj: object, attr: str, value: Any) -> str:
        """Check a value; raises ValueError."""
        if not isinstance(value, str):
            raise _wrong(attr, value, "text")
        return value


class ColumnText(Text):
    """Text, without what databases do not take, up to a number of characters."""

    def __init__(self, longest: int | None = None, shortest: int = 0) -> None:
        self._longest = longest
        self._shortest = shortest
        super().__init__()

    def coerce(self, obj: object, attr: str, value: Any) -> str:
        """Check a value; raises ValueError."""
        text: str = super().coerce(obj, attr, value)
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise _wrong(attr, text, "text without null characters and halves of characters")
        longest = math.inf if self._longest is None else self._longest
        if not self._shortest <= len(text) <= longest:
            raise _wrong(attr, text, f"text of {self._shortest} to {self._longest} characters")
        return text


class Identifier(fields.UUID):
    """A uuid, as text with dashes."""

    def coerce(self, _obj: object, attr: str, value: Any) -> str:
        """Check a value; raises ValueError."""
        try:
            return str(uuids.UUID(value))
        except (AttributeError, TypeError, ValueError):
            raise _wrong(attr, value, "a uuid") from None


class Word(fields.Enum):
    """One of several words."""

    def coerce(self, _obj: object, attr: str, value: Any) -> str:
        """Check a value; raises ValueError."""
        if not isinstance(value, str) or value not in self._valid_values:
            raise _wrong(attr, value, f"one of {', '.join(self._valid_values)}")
        return value


class Count(fields.NonNegativeInteger):
    """A whole number from 0 to MAX_COUNT."""

    def coerce(self, _obj: object, attr: str, value: Any) -> int:
        """Check a value; raises ValueError."""
        if type(value) is not int or not 0 <= value <= MAX_COUNT:
            raise _wrong(attr, value, f"a whole number from 0 to {MAX_COUNT}")
        return value


class Ratio(fields.Float):
    """A number above 0, or from 0 on."""

    def coerce(self, _obj: object, attr: str, value: Any) -> float:
        """Check a value; raises ValueError."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(attr, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not 0 <= number < math.inf:
            raise _wrong(attr, value, "a number, 0 or above")
        return number


class Flag(fields.Boolean):
    """True or false; databases have 0 and 1."""

    def coerce(self, _obj: object, attr: str, value: Any) -> bool:
        """Check a value; raises ValueError."""
        if value not in (True, False):
            raise _wrong(attr, value, "true or false")
        return bool(value)


class Moment(fields.DateTime):
    """A time in UTC, in whole seconds: what each database and each primitive can hold."""

    def coerce(self, _obj: object, attr: str, value: Any) -> datetime:
        """Check a value; raises ValueError. A time without zone is UTC's."""
        try:
            moment = timeutils.parse_isotime(value) if isinstance(value, str) else value
        except ValueError:
            raise _wrong(attr, value, "a time") from None
        if not isinstance(moment, datetime):
            raise _wrong(attr, value, "a time")
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        try:
            whole = zoned.astimezone(UTC).replace(microsecond=0)
        except OverflowError:
            raise _wrong(attr, value, "a time that there is in UTC") from None
        if whole.year < _FIRST_YEAR:
            raise _wrong(attr, value, f"a time after the year {_FIRST_YEAR}")
        return whole

    def from_primitive(self, obj: Any, attr: str, value: Any) -> datetime:
        """The time that an ISO 8601 text says; raises ValueError."""
        return self.coerce(obj, attr, value)


def now() -> datetime:
    """This moment."""
    return datetime.now(UTC).replace(microsecond=0)


def text(longest: int | None = None, **kwargs: Any) -> fields.Field[str]:
    """Text of at most so many characters, or of any length."""
    return _field(ColumnText(longest), kwargs)


def name(**kwargs: Any) -> fields.Field[str]:
    """Text of 1 to 255 characters."""
    return _field(ColumnText(NAME, shortest=1), kwargs)


def uuid(**kwargs: Any) -> fields.Field[str]:
    """A uuid."""
    return _field(Identifier(), kwargs)


def count(**kwargs: Any) -> fields.Field[int]:
    """A whole number from 0 on."""
    return _field(Count(), kwargs)


def ratio(**kwargs: Any) -> fields.Field[float]:
    """A number from 0 on."""
    return _field(Ratio(), kwargs)


def flag(**kwargs: Any) -> fields.Field[bool]:
    """True or false."""
    return _field(Flag(), kwargs)


def moment(**kwargs: Any) -> fields.Field[datetime]:
    """A time in UTC, in whole seconds."""
    return _field(Moment(), kwargs)


def one_of(*values: str, **kwargs: Any) -> fields.Field[str]:
    """One of these words."""
    return _field(Word(values), kwargs)


class Document(fields.Field[Any]):
    """A field of several values, which is kept as JSON text."""

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        """Check a value; raises ValueError."""
        try:
            return super().coerce(obj, attr, value)
        except fields.KeyTypeError as error:
            raise ValueError(f"{attr}: {error}") from error

    def from_primitive(self, obj: Any, attr: str, value: Any) -> Any:
        """What a primitive says, which is no less strict; raises ValueError."""
        if value is None and not self.nullable:
            raise _wrong(attr, value, "of its type")
        return self.coerce(obj, attr, value)


def texts(**kwargs: Any) -> Document:
    """A list of texts."""
    return Document(fields.List(Text()), **kwargs)


def counts_by_name(**kwargs: Any) -> Document:
    """Whole numbers by name."""
    return Document(fields.Dict(Count()), **kwargs)


def ratios_by_name(**kwargs: Any) -> Document:
    """Numbers from 0 on, by name."""
    return Document(fields.Dict(Ratio()), **kwargs)


def flags_by_name(**kwargs: Any) -> Document:
    """True or false by name."""
    return Document(fields.Dict(Flag()), **kwargs)


def texts_by_name(**kwargs: Any) -> Document:
    """Texts by name."""
    return Document(fields.Dict(Text()), **kwargs)


def _field(kind: Any, kwargs: dict[str, Any]) -> fields.Field[Any]:
    if kwargs.get("nullable"):
        kwargs.setdefault("default", None)
    return fields.Field(kind, **kwargs)


def _wrong(attr: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"{attr}: {shown(value)} is not {wanted}")
