"""Detached providers: children that are roots of their own until their node has a new root.

The program that publishes a root cannot delete it while a child of ours has allocations. A stored
reservation is the mark of a detached child: it keeps the child fully reserved, and names the root
that the child does not go back to.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from wharfinger.objects import Reservation
from wharfinger.providers import Provider
from wharfinger.reconcile.cycle_state import CycleState

REASON: Final = "it waits for a new root"
_HOLDER: Final = re.compile(r"detached from (?P<name>.+) \((?P<uuid>[0-9a-f-]{36})\)\Z")


class FormerRoot(NamedTuple):
    """The root from which a provider was detached."""

    name: str
    uuid: str

    @property
    def holder(self) -> str:
        """The holder of the reservation that marks the provider as detached."""
        return f"detached from {self.name} ({self.uuid})"


class Detached(NamedTuple):
    """Former roots of detached providers, by provider uuid.

    ``staying`` are the uuids of those that stay roots of their own. ``ended`` are the marks of the
    others, which go below a new root.
    """

    roots: Mapping[str, FormerRoot]
    staying: frozenset[str]
    ended: tuple[Reservation, ...]


def former_root(held: Reservation) -> FormerRoot | None:
    """Return the root that a reservation names; None for one that marks no detached provider."""
    found = _HOLDER.match(held.holder) if "holder" in held else None
    return FormerRoot(found["name"], found["uuid"]) if found else None


def former_roots(reservations: Mapping[str, tuple[Reservation, ...]]) -> dict[str, FormerRoot]:
    """Return the former roots of detached providers, by provider uuid."""
    found = {}
    for uuid, its in reservations.items():
        for root in filter(None, map(former_root, its)):
            found[uuid] = root
    return found


def detached(state: CycleState) -> Detached:
    """Return which detached providers wait, and which go below a new root of their node."""
    roots = former_roots(state.reservations)
    leaving = {uuid for uuid, former in roots.items() if _has_new_root(state, uuid, former)}
    marks = [one for uuid in leaving for one in state.reservations[uuid] if former_root(one)]
    return Detached(roots, frozenset(roots.keys() - leaving), tuple(marks))


def _has_new_root(state: CycleState, uuid: str, former: FormerRoot) -> bool:
    """Return whether a driver wants a detached provider below a root that is not the former one.

    A former root that was missing, or whose generation has fallen, was deleted and created again.
    """
    wanted = state.desired.get(uuid)
    root = state.live.get(wanted.provider.root_uuid) if wanted else None
    if root is None or root.uuid == uuid:
        return False
    record = state.records.get(root.uuid)
    if root.uuid != former.uuid or record is None:
        return root.uuid != former.uuid
    return record.absence is not None or _has_fallen(record.live, root)


def _has_fallen(before: Provider | None, now: Provider) -> bool:
    if before is None or before.generation is None or now.generation is None:
        return False
    return now.generation < before.generation
