"""Detached providers: children that are roots until their node has a new root.

A reservation of each provider names its former root.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from wharfinger.objects import Reservation
from wharfinger.providers import ownership
from wharfinger.reconcile.cycle_state import CycleState

REASON: Final = "it waits for a new root"
_HOLDER: Final = re.compile(r"detached from (?P<name>.+) \((?P<uuid>[0-9a-f-]{36})\)\Z")


class FormerRoot(NamedTuple):
    """The root from which a provider was detached."""

    name: str
    uuid: str

    @property
    def holder(self) -> str:
        """The ``holder`` of the reservation of a provider detached from this root."""
        return f"detached from {self.name} ({self.uuid})"


def former_root(held: Reservation) -> FormerRoot | None:
    """Return the former root that a reservation names, or None."""
    found = _HOLDER.match(held.known("holder") or "")
    return FormerRoot(found["name"], found["uuid"]) if found else None


def former_roots(reservations: Mapping[str, tuple[Reservation, ...]]) -> dict[str, FormerRoot]:
    """Return the former roots of detached providers, by provider uuid."""
    return {
        uuid: root
        for uuid, its in reservations.items()
        for root in map(former_root, its)
        if root is not None
    }


def with_detached(state: CycleState) -> CycleState:
    """Return the state with the providers that stay detached, and the reservations to end."""
    roots = former_roots(state.reservations)
    leaving = {uuid for uuid, former in roots.items() if _has_new_root(state, uuid, former)}
    holders = {uuid: former.holder for uuid, former in roots.items() if uuid not in leaving}
    marks = [one for uuid in leaving for one in state.reservations[uuid] if former_root(one)]
    ended = dict.fromkeys((one.uuid for one in marks), None)
    return replace(state, detached=holders, settled={**state.settled, **ended})


def _has_new_root(state: CycleState, uuid: str, former: FormerRoot) -> bool:
    wanted = state.desired.get(uuid)
    root = state.live.get(wanted.provider.root_uuid) if wanted else None
    if root is None or root.uuid == uuid:
        return False
    record = state.records.get(root.uuid)
    if root.uuid != former.uuid or record is None:
        return root.uuid != former.uuid
    return record.absence is not None or ownership.was_created_again(record.live, root)
