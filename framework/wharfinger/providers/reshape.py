"""Inventories and allocations of a tree that move together, in one request, all or nothing.

What POST /reshaper checks was read in Placement and tried with it: every allocation of a consumer
that is sent is checked anew, those that did not move as well, against what its provider has when
the request is done. Pure.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from wharfinger.exceptions import InvalidTree
from wharfinger.providers import full_reservation
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.ownership import Standing
from wharfinger.providers.plan import Reshape, SetInventories, Step
from wharfinger.providers.plan_draft import TreeDraft, step_target
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode

#: Allocations by consumer uuid, as the Placement API has them.
Allocations = Mapping[str, Mapping[str, Any]]

#: Amounts by provider uuid and resource class.
_Used = Counter[tuple[str, str]]
#: Less than one unit: nobody can have it, and it is more than a database's rounding.
_TOO_LITTLE: Final = 0.5


def dropped(
    desired: Sequence[DesiredProvider],
    live: Mapping[str, Provider],
    before: Allocations,
    after: Allocations,
) -> dict[str, frozenset[str]]:
    """By provider uuid, the classes that a driver has moved away from a provider it reports.

    Those go, whoever put them there: else it would offer them beside the provider that they have
    moved to. A class from which allocations were moved is one, and so is one that nobody uses and
    that another provider of the tree offers.
    """
    then, now = _used(before), _used(after)
    own = [one for one in desired if one.stated and one.mode is PublishingMode.OWN]
    offered = {name for one in own for name in one.provider.inventories}

    def has_left(uuid: str, name: str) -> bool:
        place = uuid, name
        return now[place] < then[place] or (name in offered and not now[place])

    return {
        mine.uuid: frozenset(
            name
            for name in _inventories(live, mine.uuid).keys() - mine.inventories.keys()
            if has_left(mine.uuid, name)
        )
        for mine in (one.provider for one in own if one.reported)
    }


def steps(
    draft: TreeDraft,
    root: Provider,
    before: Allocations,
    after: Allocations,
    reported: Collection[str] = frozenset(),
) -> list[Step]:
    """One Reshape, and what sets figures that would have kept Placement from taking it.

    All providers of ours that a changed consumer uses are in it, so that their generations are
    checked. A class of which less is to be had than is used, since it is reserved, has just as
    much for that one moment. ``reported`` are the uuids of the providers whose figures their driver
    says each time.
    """
    moved = _moved(before, after)
    used = _used(after)
    changes = {change.uuid: change for change in draft.inventories}
    full: list[Step] = []
    for uuid in dict.fromkeys(uuid for its in moved.values() for uuid in its["allocations"]):
        provider = _ours(draft, uuid)
        if provider is None:
            continue
        interim = _interim(draft, provider, used, is_reported=uuid in reported)
        change = changes.get(uuid) or SetInventories(
            **step_target(provider),
            before=_inventories(draft.live, uuid),
            after=provider.inventories,
        )
        changes[uuid] = replace(change, after=interim)
        if interim != provider.inventories:
            full.append(replace(change, before=interim, after=provider.inventories))
    if not changes and not moved:
        return []
    reshape = Reshape(**step_target(root), inventories=tuple(changes.values()), allocations=moved)
    return [reshape, *full]


def problems(draft: TreeDraft, before: Allocations, after: Allocations) -> Iterator[InvalidTree]:
    """What Placement would refuse of a reshape, with the consumers that it does not name.

    One for each provider and class. Nothing of the tree is to be written then, not even a child.
    """
    moved = _moved(before, after)
    then = _used(before)
    for (uuid, name), held in sorted(_holders(after).items()):
        if uuid not in draft.records:
            continue  # of another tree, and Placement's to judge
        sent = {consumer: amount for consumer, amount in held.items() if consumer in moved}
        used = sum(held.values())
        planned = draft.records[uuid]
        provider = planned.live if planned else draft.live.get(uuid)
        inventory = planned and provider and provider.inventories.get(name)
        if not inventory:
            wrong, reason = held, "it will have none"
        elif wrong := {one: amount for one, amount in sent.items() if _misfits(inventory, amount)}:
            reason = (
                f"amounts have to be from {inventory.min_unit} to {inventory.max_unit}, in steps "
                f"of {inventory.step_size}"
            )
        elif sent and used > then[uuid, name]:
            kept = _ours(draft, uuid) is None or name in _foreign(draft, uuid)
            most = inventory if kept else replace(inventory, reserved=0)
            wrong = held if most.capacity < used else {}
            reason = f"its capacity is {most.capacity:g}"
        if wrong:
            used_by = ", ".join(
                f"{amount} by consumer {one}" for one, amount in sorted(wrong.items())
            )
            yield InvalidTree(
                driver=draft.publisher.instance,
                provider=provider.name if provider else uuid,
                problem=f"POST /reshaper would be refused: {name} of it would be in use "
                f"({used_by}), and {reason}",
            )


def admitting(inventory: Inventory, used: int, *, exactly: bool = False) -> Inventory:
    """The inventory with as much reserved as still admits what is used, 0 at least.

    One unit that is not reserved admits several where the ratio is above 1; with ``exactly``, the
    ratio is lowered too, so that nobody can have more.
    """
    if inventory.capacity >= used:
        return inventory
    ratio, total = inventory.allocation_ratio, inventory.total
    units = ceil(min(total, used / ratio)) if ratio > 0 else total
    # The division may have been rounded, up or down.
    if units < total and units * ratio < used:
        units += 1
    elif units > 1 and (units - 1) * ratio >= used:
        units -= 1
    if exactly:
        ratio = min(ratio, (used + _TOO_LITTLE) / units)
    return replace(inventory, reserved=total - units, allocation_ratio=ratio)


def _interim(
    draft: TreeDraft, provider: Provider, used: _Used, *, is_reported: bool
) -> dict[str, Inventory]:
    """The provider's inventories, with as much to be had of each as is used."""
    record = draft.records[provider.uuid]
    stated = record.applied.inventories if is_reported and record and record.applied else {}
    foreign = _foreign(draft, provider.uuid)
    return {
        name: inventory
        if name in foreign
        else admitting(inventory, used[provider.uuid, name], exactly=name in stated)
        for name, inventory in provider.inventories.items()
    }


def _ours(draft: TreeDraft, uuid: str) -> Provider | None:
    """A provider as planned, if this instance may write it."""
    record, live = draft.records.get(uuid), draft.live.get(uuid)
    if record is None or not record.is_ours:
        return None
    if live is not None and draft.standing(live) is Standing.FOREIGN:
        return None
    return record.live


def _foreign(draft: TreeDraft, uuid: str) -> frozenset[str]:
    """The classes of a provider that somebody else has reserved: their figures are kept."""
    record = draft.records.get(uuid)
    if record is None or record.live is None:
        return frozenset()
    return full_reservation.foreign(record.live.inventories, record)


def _misfits(inventory: Inventory, amount: int) -> bool:
    """Whether a single allocation cannot be so large, or so small."""
    fits = inventory.min_unit <= amount <= inventory.max_unit
    return not fits or amount % inventory.step_size != 0


def _moved(before: Allocations, after: Allocations) -> dict[str, Mapping[str, Any]]:
    """The consumers whose allocations the driver changed: each is sent whole."""
    return {consumer: its for consumer, its in after.items() if its != before.get(consumer)}


def _used(allocations: Allocations) -> _Used:
    return Counter({place: sum(held.values()) for place, held in _holders(allocations).items()})


def _holders(allocations: Allocations) -> dict[tuple[str, str], dict[str, int]]:
    """By provider uuid and resource class, what each consumer has of it."""
    holders: dict[tuple[str, str], dict[str, int]] = {}
    for consumer, its in allocations.items():
        for uuid, part in its["allocations"].items():
            for name, amount in part["resources"].items():
                holders.setdefault((uuid, name), {})[consumer] = amount
    return holders


def _inventories(live: Mapping[str, Provider], uuid: str) -> Mapping[str, Inventory]:
    return live[uuid].inventories if uuid in live else {}
