"""Phases of stored reservations in a cycle.

A provider that a consumer has released is reserved until it has been cleaned: a snapshot that began
after the allocation was deleted shows cleaning, and a later one that it has ended; or the driver
states that none will come.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime

from wharfinger.objects import Reservation
from wharfinger.providers import DesiredProvider, full_reservation

#: A reservation and its new phase; None: it ends.
Phases = tuple[tuple[Reservation, str | None], ...]


def stored_figures(rows: Iterable[Reservation]) -> dict[str, int]:
    """Return the own figures of a provider that its reservations have stored, by class."""
    return full_reservation.figures_of(one.own_reserved for one in rows if "own_reserved" in one)


def next_phases(
    rows: Mapping[str, tuple[Reservation, ...]],
    desired: Mapping[str, DesiredProvider],
    before_snapshot: Set[tuple[str, int]],
    *,
    is_clean: Callable[[str, datetime], bool],
    is_given_back: Callable[[str, str], bool],
) -> tuple[set[str], Phases]:
    """Return the providers that stay reserved, and the reservations that change.

    ``rows`` are the stored reservations by provider uuid. Only those ``before_snapshot`` (uuid and
    revision) can change: the driver's snapshot is older than the others. ``is_clean`` returns
    whether a provider needs no cleaning any more, ``is_given_back`` whether a consumer has no
    allocation of a provider any more.
    """
    held: set[str] = set()
    phases: list[tuple[Reservation, str | None]] = []
    for uuid, its in rows.items():
        wanted = desired.get(uuid)
        for one in its:
            before = _phase(one)
            after = before
            if wanted is not None and wanted.stated and _key(one) in before_snapshot:
                after = _next(one, bool(wanted.reservations), is_clean, is_given_back)
            if after != before:
                phases.append((one, after))
            if after is not None or before is None:
                held.add(uuid)
    return held, tuple(phases)


def released_since(
    rows: Mapping[str, tuple[Reservation, ...]], before_snapshot: Set[tuple[str, int]]
) -> frozenset[str]:
    """Return the providers that were released too late for the driver's snapshot."""
    return frozenset(
        uuid
        for uuid, its in rows.items()
        if any(_phase(one) and _key(one) not in before_snapshot for one in its)
    )


def _next(
    one: Reservation,
    is_reserved: bool,
    is_clean: Callable[[str, datetime], bool],
    is_given_back: Callable[[str, str], bool],
) -> str | None:
    """Return the phase of a reservation after a snapshot; None where it ends.

    A reservation that cannot be read stays as it is.
    """
    phase = _phase(one)
    match phase:
        case "releasing" if (
            "consumer_uuid" in one
            and one.consumer_uuid
            and is_given_back(one.provider_uuid, one.consumer_uuid)
        ):
            return "released"
        case "released" if is_reserved:
            return "cleaning"
        case "released" if "since" in one and is_clean(one.provider_uuid, one.since):
            return None
        case "cleaning" if not is_reserved:
            return None
    return phase


def _phase(one: Reservation) -> str | None:
    return one.phase if "phase" in one else None


def _key(one: Reservation) -> tuple[str, int] | None:
    return (one.uuid, one.revision) if "uuid" in one and "revision" in one else None
