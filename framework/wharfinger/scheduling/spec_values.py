"""Kinds of values that extra specs accept. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from oslo_utils import strutils


@dataclass(frozen=True, slots=True)
class Values:
    """The values that an extra spec accepts.

    ``read`` returns the usual form of a value, or None for a wrong value.
    """

    #: Completes "it has to be ...".
    says: str
    read: Callable[[str], str | None]


def one_of(*values: str) -> Values:
    """Return Values that accept only these words."""
    *others, last = values
    says = f"{', '.join(others)} or {last}"
    return Values(says, lambda value: value if value in values else None)


def whole(least: int | None = None, most: int | None = None) -> Values:
    """Return Values that accept whole numbers; None is no limit."""

    def read(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return None
        is_low = least is not None and number < least
        is_high = most is not None and number > most
        return None if is_low or is_high else str(number)

    limits = ("" if least is None else f" from {least}") + ("" if most is None else f" to {most}")
    return Values(f"a whole number{limits}", read)


def matching(pattern: str, says: str) -> Values:
    """Return Values that accept texts of this pattern."""
    compiled = re.compile(pattern)
    return Values(says, lambda value: value if compiled.fullmatch(value) else None)


def _flag(value: str) -> str | None:
    try:
        return str(strutils.bool_from_string(value, strict=True)).lower()
    except ValueError:
        return None


FLAG: Final = Values("true or false", _flag)
TEXT: Final = Values("any text", lambda value: value)
#: At most ten digits, because Python refuses to parse very long numbers.
_CPUS: Final = r"\^?\d{1,10}(-\d{1,10})?"
CPUS: Final = matching(
    f"{_CPUS}(,{_CPUS})*", "CPUs of the guest, such as 0-3,6 or, to leave some out, ^0 or 0-3,^1"
)
