"""Facts for the planner, and drafts of the plans of trees.

A draft keeps the traits of other programs.
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from wharfinger.exceptions import WharfingerError
from wharfinger.providers import fights, full_reservation, ownership
from wharfinger.providers.plan import PendingRemoval, Reshapes, SetInventories, Step, steps_between
from wharfinger.providers.provider import (
    NO_RECORD,
    Absence,
    DesiredProvider,
    Provider,
    PublishingMode,
    Record,
    Uptime,
)

#: The reason of the reservation of an absent provider while it waits for its removal.
REPLACED: Final = "absent, and another provider offers its resources"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """Facts of a cycle for the planner.

    Mappings and sets are by provider uuid, except ``name_owners``.
    """

    publisher: ownership.Publisher
    #: In seconds since the epoch.
    now: float = 0.0
    #: Whether this is a full cycle. Other cycles remove no provider.
    is_listing: bool = False
    #: Providers that stored reservations keep fully reserved.
    held: Set[str] = frozenset()
    #: Detached children that stay roots, with the holder of the reservation of each.
    detached: Mapping[str, str] = field(default_factory=dict)
    #: Providers with allocations, if the plan depends on that.
    allocated: Set[str] = frozenset()
    #: Providers in Placement with the names of desired providers, by name.
    name_owners: Mapping[str, Provider] = field(default_factory=dict)
    reshapes: Reshapes = field(default_factory=dict)

    # About removals:
    #: Seconds for which complete listings must have lacked a provider.
    removal_delay: float = 0.0
    #: Whether absent children may have moved to a node that could not be read.
    children_may_be_elsewhere: bool = False
    #: Whether absent roots may be the roots of nodes that could not be read.
    roots_may_be_elsewhere: bool = False
    #: Providers with children that the planner does not know.
    parents: frozenset[str] = frozenset()
    #: Whether too many providers are absent at once, so none is removed.
    withheld: bool = False
    #: The moment of the listing, None if it is unknown.
    uptime: Uptime | None = None
    #: Reasons to keep absent providers.
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TreeDraft:
    """Draft of the plan of a tree.

    Mappings are by provider uuid.
    """

    facts: PlanFacts
    root_uuid: str

    #: The providers that the driver wants, parents first.
    desired: dict[str, DesiredProvider] = field(default_factory=dict)
    #: The providers in Placement, and our records of them.
    live: dict[str, Provider] = field(default_factory=dict)
    known: dict[str, Record] = field(default_factory=dict)
    #: Our providers in Placement that the driver does not want.
    absent: Mapping[str, Provider] = field(default_factory=dict)
    #: Resource classes that the driver has moved to other providers.
    dropped: Mapping[str, Collection[str]] = field(default_factory=dict)

    # The result:
    #: Steps that create, move and tag providers.
    identities: list[Step] = field(default_factory=list)
    inventories: list[SetInventories] = field(default_factory=list)
    deletions: list[Step] = field(default_factory=list)
    records: dict[str, Record | None] = field(default_factory=dict)
    pending: list[PendingRemoval] = field(default_factory=list)
    #: Providers to remove or reserve, since their backend lacks them.
    gone: set[str] = field(default_factory=set)
    problems: list[WharfingerError] = field(default_factory=list)
    #: Providers that another program has to create again.
    missing: set[str] = field(default_factory=set)

    def record(self, uuid: str) -> Record:
        """Return our record of a provider, or an empty record."""
        return self.known.get(uuid, NO_RECORD)

    def stays_root(self, uuid: str) -> bool:
        """Return whether a provider is a root because an operator has detached it."""
        return uuid in self.facts.detached and uuid in self.live

    def proven_record(self, uuid: str) -> Record:
        """Return our record, without our values for an unproven own provider."""
        record, live = self.record(uuid), self.live.get(uuid)
        if live is None or record.mode is not PublishingMode.OWN:
            return record
        is_proven = self.standing(live) is not ownership.Standing.UNPROVEN
        return record if is_proven else replace(record, applied=None, intended=None)

    def standing(self, live: Provider) -> ownership.Standing:
        """Return the relation of a provider to this driver instance."""
        return ownership.standing(live, self.facts.publisher, self.record(live.uuid))

    def change(self, before: Provider | None, after: Provider, record: Record) -> None:
        """Add a provider's new record, and the steps that change the provider."""
        self.records[after.uuid] = record
        for step in steps_between(before, after):
            if isinstance(step, SetInventories):
                self.inventories.append(step)
            else:
                self.identities.append(step)

    def note_missing(self, uuid: str, record: Record) -> None:
        """Note that another program has to create a provider again."""
        self.missing.add(uuid)
        live = record.live and replace(record.live, generation=None, inventories={})
        self.records[uuid] = replace(record, live=live)

    def leave(self, uuid: str) -> None:
        """Leave a provider unchanged, and record its present state."""
        if uuid in self.live:
            self.records[uuid] = _seen(self.proven_record(uuid), self.live[uuid])

    def keep_absent(self, live: Provider, absence: Absence | None, reason: str = "") -> None:
        """Keep an absent provider for now; with ``reason``, always reserve it fully."""
        known, after = self.record(live.uuid), live
        record = _seen(known, live, absence)
        is_held = live.uuid in self.facts.held
        if reason or (is_held and self.standing(live) is ownership.Standing.OURS):
            figures = full_reservation.own_reserved(live.inventories, known)
            after = replace(live, inventories=full_reservation.reserve_fully(live.inventories))
            record = replace(record, live=after, own_reserved=figures)
        if reason:
            if after != live and reason != REPLACED:
                self.gone.add(live.uuid)
            since = {reason: known.reserved_since.get(reason, self.facts.now)}
            record = replace(record, reservations=(reason,), reserved_since=since)
        self.change(live, after, record)

    def published(self, wanted: DesiredProvider, record: Record) -> tuple[Provider, Record]:
        """Return a provider as the plan shall leave it, and its new record."""
        uuid, facts = wanted.provider.uuid, self.facts
        live = self.live.get(uuid)
        after, planned = merge(facts, wanted, live, record, self.dropped.get(uuid, ()))
        if live is None or facts.is_listing or not fights.has_to_wait(planned, live, after):
            return after, planned
        return live, replace(
            _seen(self.record(uuid), live),
            reservations=planned.reservations,
            reserved_since=planned.reserved_since,
            undone=planned.undone,
        )


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


def _seen(record: Record, live: Provider, absence: Absence | None = None) -> Record:
    has_figures = record.own_reserved and record.is_ours  # restore no figures of other owners
    figures = full_reservation.own_reserved(live.inventories, record) if has_figures else {}
    return replace(record, live=live, own_reserved=figures, absence=absence)
