"""Show reservations as text and as JSON data."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from wharfinger.exceptions import printable
from wharfinger.providers import full_reservation
from wharfinger.scheduling.provider_details import UNKNOWN, Details, Reserved

#: Seconds in each unit, the largest first.
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60}


def age(since: datetime | str, now: datetime) -> str:
    """Return the time since ``since`` in its largest unit, such as 40s, or UNKNOWN."""
    if not isinstance(since, datetime):
        return UNKNOWN
    seconds = max(0, int((now - since).total_seconds()))  # clocks differ
    for unit, length in _UNITS.items():
        if seconds >= length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def moment(value: datetime | str | None) -> str | None:
    """Return a time as ISO 8601 text; return other values unchanged."""
    return value.isoformat() if isinstance(value, datetime) else value


def is_overdue(end: datetime | str | None, now: datetime) -> bool:
    """Return whether the expected end of a reservation has passed."""
    return isinstance(end, datetime) and end <= now


def lines(provider: Details, now: datetime) -> Iterator[str]:
    """Yield lines on the reservations of a provider, also those of other programs."""
    for one in provider.reservations or ():
        yield printable(
            f"reserved: {one.reason}, {age(one.since, now)}{_until(one, now)} ({one.holder})"
        )
    if provider.reserved_by_others:
        line = f"reserved by other programs: {', '.join(sorted(provider.reserved_by_others))}"
        if provider.is_releasable:
            line += f" (to end this: `{full_reservation.release_command(provider.summary.uuid)}`)"
        yield line


def as_data(one: Reserved) -> dict[str, Any]:
    """Return a reservation as JSON data; times are ISO 8601 texts."""
    return {
        "reason": one.reason,
        "holder": one.holder,
        "since": moment(one.since),
        "expected_end": moment(one.expected_end),
    }


def _until(one: Reserved, now: datetime) -> str:
    if one.expected_end is None:
        return ""
    overdue = ", overdue" if is_overdue(one.expected_end, now) else ""
    return f", until {moment(one.expected_end)}{overdue}"
