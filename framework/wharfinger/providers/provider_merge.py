"""Merge a desired provider with its present state in Placement.

Traits of other programs stay.
"""

from collections.abc import Collection
from dataclasses import replace

from wharfinger.providers import fights, full_reservation, ownership
from wharfinger.providers.plan_draft import PlanFacts
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode, Record


def own_view(live: Provider, record: Record) -> Provider:
    """Return a provider without our full reservation, and with the name that we gave it."""
    if record.own_reserved:
        live = replace(live, inventories=full_reservation.release(live.inventories, record))
    applied = record.applied
    if applied and record.mode is PublishingMode.OWN and applied.name != live.name:
        live = replace(live, name=applied.name)
    return live


def merge(
    facts: PlanFacts,
    wanted: DesiredProvider,
    live: Provider | None,
    record: Record,
    dropped: Collection[str] = frozenset(),
) -> tuple[Provider, Record]:
    """Return a provider as the plan shall leave it, and its new record."""
    mine, publisher = wanted.provider, facts.publisher
    is_own = wanted.mode is PublishingMode.OWN
    there = live or Provider(uuid=mine.uuid, name=mine.name, root_uuid=mine.root_uuid)
    # Another owner trait in the driver's tree is the former owner trait of this instance.
    own_traits = mine.traits - ownership.owners(mine.traits) | publisher.traits
    own_aggregates = mine.aggregates if is_own else frozenset()
    own_classes = mine.inventories if is_own else {}
    leaving = {*record.claimed_classes, *dropped} if is_own else frozenset()
    seen = full_reservation.release(there.inventories, record)
    others = {name: inventory for name, inventory in seen.items() if name not in leaving}
    foreign = full_reservation.foreign(there.inventories, record)
    if (
        foreign
        and ownership.is_adoption(publisher, there, wanted, record)
        and ownership.explains_reserved(there, wanted, is_allocated=mine.uuid in facts.allocated)
    ):
        foreign = frozenset()
    inventories = {**others, **own_classes}
    for name in foreign & own_classes.keys():
        inventories[name] = replace(own_classes[name], reserved=own_classes[name].total)
    own_reserved = {}
    if wanted.reservations or mine.uuid in facts.held:
        own_reserved = {
            name: item.reserved for name, item in inventories.items() if name not in foreign
        }
        inventories = full_reservation.reserve_fully(inventories)
    after = Provider(
        uuid=mine.uuid,
        name=mine.name if is_own else there.name,
        root_uuid=mine.root_uuid,
        parent_uuid=mine.parent_uuid if is_own else there.parent_uuid,
        generation=there.generation,
        inventories=inventories,
        traits=own_traits | (there.traits - record.claimed_traits),
        aggregates=own_aggregates | (there.aggregates - record.claimed_aggregates),
    )
    applied = replace(
        after,
        # The name that the driver knows: another program may have renamed its provider.
        name=mine.name,
        generation=None,
        inventories={
            name: inventory if name in foreign else inventories[name]
            for name, inventory in own_classes.items()
            # A class that another program has set, and that the driver returns as it is, stays that
            # program's. Without a record, all classes that the driver reports are ours.
            if (wanted.reported and not record.is_ours)
            or name in record.claimed_classes
            or seen.get(name) != inventory
        },
        traits=own_traits - (there.traits - record.claimed_traits) | publisher.traits,
        aggregates=own_aggregates - (there.aggregates - record.claimed_aggregates),
    )
    return after, Record(
        applied=applied,
        live=after,
        own_reserved=own_reserved,
        reservations=wanted.reservations,
        reserved_since={
            reason: record.reserved_since.get(reason, facts.now) for reason in wanted.reservations
        },
        mode=wanted.mode,
        undone=fights.note_undone(record, there, after, is_full_cycle=facts.is_listing)
        if live
        else {},
    )
