"""Reshapes: one request moves inventories and allocations between providers.

Placement checks all allocations of the consumers, even allocations that do not move.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Final

from wharfinger.exceptions import InvalidTree
from wharfinger.providers import full_reservation
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.ownership import Standing
from wharfinger.providers.plan import Allocations, Reshape, SetInventories, Step, step_target
from wharfinger.providers.plan_draft import TreeDraft
from wharfinger.providers.provider import Provider, PublishingMode, Record

#: Less than one unit, so it cannot be allocated, but more than a database's rounding error.
_TOO_LITTLE: Final = 0.5


class AllocationChange:
    """Allocations of a tree before and after its driver edited them."""

    def __init__(self, before: Allocations, after: Allocations) -> None:
        self._moved = {uuid: new for uuid, new in after.items() if new != before.get(uuid)}
        self._holders = _holders(after)
        self._used = _sums(self._holders)
        self._used_before = _sums(_holders(before))

    def dropped(self, draft: TreeDraft) -> dict[str, frozenset[str]]:
        """Return the classes that the driver has moved away, by provider uuid."""
        own = [
            one for one in draft.desired.values() if one.stated and one.mode is PublishingMode.OWN
        ]
        offered = {name for one in own for name in one.provider.inventories}

        def has_left(place: tuple[str, str]) -> bool:
            used = self._used[place]
            return used < self._used_before[place] or (place[1] in offered and not used)

        return {
            mine.uuid: frozenset(
                name
                for name in _inventories(draft, mine.uuid).keys() - mine.inventories.keys()
                if has_left((mine.uuid, name))
            )
            for mine in (one.provider for one in own if one.reported)
        }

    def steps(self, draft: TreeDraft) -> list[Step]:
        """Return the reshape, and steps for figures that a reshape cannot set."""
        reported = {one.provider.uuid for one in draft.desired.values() if one.reported}
        changes = {change.uuid: change for change in draft.inventories}
        full: list[Step] = []
        for uuid in dict.fromkeys(
            uuid for moved in self._moved.values() for uuid in moved["allocations"]
        ):
            ours = _ours(draft, uuid)
            if ours is None:
                continue
            provider, record = ours
            foreign = full_reservation.foreign(provider.inventories, record)
            exact = record.applied.inventories if record.applied else {}
            # Placement refuses less capacity than is used, so a later step lowers it.
            interim = {
                name: inventory
                if name in foreign
                else admitting(
                    inventory, self._used[uuid, name], exactly=uuid in reported and name in exact
                )
                for name, inventory in provider.inventories.items()
            }
            change = changes.get(uuid) or SetInventories(
                **step_target(provider),
                before=_inventories(draft, uuid),
                after=provider.inventories,
            )
            changes[uuid] = replace(change, after=interim)
            if interim != provider.inventories:
                full.append(replace(change, before=interim, after=provider.inventories))
        if not changes and not self._moved:
            return []
        target = step_target(next(iter(draft.desired.values())).provider)
        changed = tuple(changes.values())
        return [Reshape(**target, inventories=changed, allocations=self._moved), *full]

    def problems(self, draft: TreeDraft) -> Iterator[InvalidTree]:
        """Yield errors in the draft for which Placement refuses the reshape."""
        for (uuid, name), held in sorted(self._holders.items()):
            if uuid not in draft.records:
                continue  # in another tree, so only Placement can check it
            sent = {one: amount for one, amount in held.items() if one in self._moved}
            used = self._used[uuid, name]
            planned = draft.records[uuid]
            provider = planned.live if planned else draft.live.get(uuid)
            inventory = planned and provider and provider.inventories.get(name)
            if not inventory:
                wrong, reason = held, f"the provider will have no {name}"
            elif wrong := {
                one: amount
                for one, amount in sent.items()
                if not inventory.min_unit <= amount <= inventory.max_unit
                or amount % inventory.step_size
            }:
                reason = (
                    f"amounts have to be from {inventory.min_unit} to {inventory.max_unit}, in "
                    f"steps of {inventory.step_size}"
                )
            elif sent and used > self._used_before[uuid, name]:
                ours = _ours(draft, uuid)
                kept = ours is None or name in full_reservation.foreign(
                    ours[0].inventories, ours[1]
                )
                most = inventory if kept else replace(inventory, reserved=0)
                wrong = held if most.capacity < used else {}
                reason = f"the capacity is {most.capacity:g}"
            if wrong:
                used_by = ", ".join(
                    f"{amount} by consumer {one}" for one, amount in sorted(wrong.items())
                )
                yield InvalidTree(
                    driver=draft.facts.publisher.instance,
                    provider=provider.name if provider else uuid,
                    problem="Placement would refuse the reshape (POST /reshaper): after it, "
                    f"consumers would use {name} ({used_by}), but {reason}",
                )


def admitting(inventory: Inventory, used: int, *, exactly: bool = False) -> Inventory:
    """Return the inventory with enough capacity for the used amount, if possible."""
    if inventory.capacity >= used:
        return inventory
    ratio, total = inventory.allocation_ratio, inventory.total
    units = ceil(min(total, used / ratio)) if ratio > 0 else total
    # The division may have been rounded up or down.
    if units < total and units * ratio < used:
        units += 1
    elif units > 1 and (units - 1) * ratio >= used:
        units -= 1
    if exactly:
        ratio = min(ratio, (used + _TOO_LITTLE) / units)
    return replace(inventory, reserved=total - units, allocation_ratio=ratio)


def _ours(draft: TreeDraft, uuid: str) -> tuple[Provider, Record] | None:
    record, live = draft.records.get(uuid), draft.live.get(uuid)
    is_foreign = live is not None and draft.standing(live) is Standing.FOREIGN
    if record is None or not record.is_ours or record.live is None or is_foreign:
        return None
    return record.live, record


def _holders(allocations: Allocations) -> dict[tuple[str, str], dict[str, int]]:
    holders: dict[tuple[str, str], dict[str, int]] = {}
    for consumer, held in allocations.items():
        for uuid, part in held["allocations"].items():
            for name, amount in part["resources"].items():
                holders.setdefault((uuid, name), {})[consumer] = amount
    return holders


def _sums(holders: Mapping[tuple[str, str], Mapping[str, int]]) -> Counter[tuple[str, str]]:
    return Counter({place: sum(held.values()) for place, held in holders.items()})


def _inventories(draft: TreeDraft, uuid: str) -> Mapping[str, Inventory]:
    return draft.live[uuid].inventories if uuid in draft.live else {}
