"""Find the recorded uuids of a root's children, to use them again."""

import shlex
from collections.abc import Mapping

from wharfinger.exceptions import ChildReplaced
from wharfinger.objects import JOB_HOLDER, Reservation
from wharfinger.providers import DesiredProvider, PublishingMode
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.detachment import former_roots

#: The uuids of children, by root (uuid or name) and child name. Those in Placement come first.
KnownChildren = Mapping[str, Mapping[str, list[str]]]


def known_children(state: CycleState) -> KnownChildren:
    """Return the uuids that this driver instance has recorded for its own children."""
    found: dict[str, dict[str, list[str]]] = {}
    former = former_roots(state.reservations)
    for uuid, record in state.records.items():
        if record.mode is not PublishingMode.OWN:
            continue
        for child in (record.applied, record.intended):
            if child is None or child.parent_uuid is None:
                continue
            keys = {child.root_uuid, _name_of_root(state, child.root_uuid)}
            for key in {*keys, former[uuid].name} if uuid in former else keys:
                uuids = found.setdefault(key or "", {}).setdefault(child.name, [])
                if uuid not in uuids:
                    uuids.insert(0 if uuid in state.live else len(uuids), uuid)
    return found


def _name_of_root(state: CycleState, uuid: str) -> str | None:
    record = state.record(uuid)
    if record.is_own:
        return None
    root = record.applied or record.live or state.live.get(uuid)
    return root.name if root else None


def problems_of_replaced(
    reservations: Mapping[str, tuple[Reservation, ...]],
    desired: Mapping[str, DesiredProvider],
    children: KnownChildren,
) -> dict[str, ChildReplaced]:
    """Return a problem by the uuid of each child that replaces a reserved one.

    ``children`` are by root uuid.
    """
    found = {}
    for uuid, wanted in desired.items():
        mine = wanted.provider
        known = children.get(mine.root_uuid, {}).get(mine.name, ())
        former = [one for one in known if one not in desired]
        held = [one for other in former for one in reservations.get(other, ())]
        if held and wanted.stated and wanted.mode is PublishingMode.OWN:
            found[uuid] = ChildReplaced(
                provider=mine.name,
                uuid=uuid,
                former=", ".join(former),
                commands=" and ".join(f"`{_release_command(one)}`" for one in held),
            )
    return found


def _release_command(held: Reservation) -> str:
    holder = held.known("holder") or "HOLDER"
    if holder == JOB_HOLDER:
        return f"wharfinger device resolve {held.provider_uuid} ..."
    option = "" if holder == "operator" else f" --holder {shlex.quote(holder)}"
    return f"wharfinger provider release {held.provider_uuid}{option}"
