"""Phases of reservations: releasing, released, cleaning.

A released provider that its driver cleans stays reserved until it is clean.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable
from datetime import datetime

from wharfinger.objects import Reservation
from wharfinger.reconcile.cycle_state import CycleState

#: Reservations with their new phases; None: the reservation ends.
Phases = tuple[tuple[Reservation, str | None], ...]


def stored_figures(rows: Iterable[Reservation]) -> dict[str, int]:
    """Return the ``reserved`` figures to restore from these reservations, by resource class."""
    return dict(ChainMap(*(one.own_reserved for one in rows if "own_reserved" in one)))


def next_phases(
    state: CycleState,
    *,
    is_clean: Callable[[str, datetime], bool],
    is_released: Callable[[str, str], bool],
) -> tuple[set[str], Phases]:
    """Return the providers that stored reservations keep reserved, and the new phases.

    The new phase None ends its reservation.
    """
    held: set[str] = set()
    phases: list[tuple[Reservation, str | None]] = []
    for uuid, its in state.reservations.items():
        wanted = state.stated(uuid)
        for one in its:
            before = after = one.known("phase")
            is_settled = one.known("uuid") in state.settled
            if is_settled:
                after = state.settled[one.uuid]
            elif wanted is not None and _is_in_snapshot(state, one):
                consumer = one.known("consumer_uuid")
                match before, bool(wanted.reservations):
                    case "releasing", _ if consumer and is_released(uuid, consumer):
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


def released_since(state: CycleState) -> frozenset[str]:
    """Return providers with a release or cleaning saved after the driver's snapshot began."""
    return frozenset(
        uuid
        for uuid, its in state.reservations.items()
        if any(one.known("phase") and not _is_in_snapshot(state, one) for one in its)
    )


def _is_in_snapshot(state: CycleState, one: Reservation) -> bool:
    return (one.known("uuid"), one.known("revision")) in state.snapshot_reservations
