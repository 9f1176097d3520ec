"""Phases of stored reservations in a cycle.

A provider that a consumer has released is reserved until it has been cleaned: a snapshot that began
after the allocation was deleted shows cleaning, and a later one that it has ended; or the driver
states that none will come.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime
from types import MappingProxyType

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
    settled: Mapping[str, str | None] = MappingProxyType({}),
) -> tuple[set[str], Phases]:
    """Return the providers that stay reserved, and the reservations that change.

    ``rows`` are the stored reservations by provider uuid. ``before_snapshot`` has the uuid and
    revision of each reservation that was stored before the driver's snapshot. Only these change.
    A reservation that cannot be read stays as it is. ``is_clean`` returns whether a provider needs
    no more cleaning. ``is_given_back`` returns whether a consumer has no more allocation from it.
    ``settled`` has new phases that are known already, by the uuids of reservations.
    """
    held: set[str] = set()
    phases: list[tuple[Reservation, str | None]] = []
    for uuid, its in rows.items():
        wanted = desired.get(uuid)
        for one in its:
            before = after = _phase(one)
            is_settled = "uuid" in one and one.uuid in settled
            if is_settled:
                after = settled[one.uuid]
            elif wanted is not None and wanted.stated and _key(one) in before_snapshot:
                consumer = one.consumer_uuid if "consumer_uuid" in one else None
                match before, bool(wanted.reservations):
                    case "releasing", _ if consumer and is_given_back(uuid, consumer):
                        after = "released"
                    case "released", True:
                        after = "cleaning"
                    case "released", False if "since" in one and is_clean(uuid, one.since):
                        after = None
                    case "cleaning", False:
                        after = None
            if is_settled or after != before:
                phases.append((one, after))
            if after is not None or (before is None and not is_settled):
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


def _phase(one: Reservation) -> str | None:
    return one.phase if "phase" in one else None


def _key(one: Reservation) -> tuple[str, int] | None:
    return (one.uuid, one.revision) if "uuid" in one and "revision" in one else None
