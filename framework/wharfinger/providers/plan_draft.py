"""Facts for the planner, and drafts of the plans of trees."""

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from wharfinger.exceptions import WharfingerError
from wharfinger.providers import full_reservation
from wharfinger.providers.ownership import Publisher, Standing, standing
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

    publisher: Publisher
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
        is_proven = self.standing(live) is not Standing.UNPROVEN
        return record if is_proven else replace(record, applied=None, intended=None)

    def standing(self, live: Provider) -> Standing:
        """Return the relation of a provider to this driver instance."""
        return standing(live, self.facts.publisher, self.record(live.uuid))

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
        if reason or (live.uuid in self.facts.held and self.standing(live) is Standing.OURS):
            figures = full_reservation.own_reserved(live.inventories, known)
            after = replace(live, inventories=full_reservation.reserve_fully(live.inventories))
            record = replace(record, live=after, own_reserved=figures)
        if reason:
            if after != live and reason != REPLACED:
                self.gone.add(live.uuid)
            since = {reason: known.reserved_since.get(reason, self.facts.now)}
            record = replace(record, reservations=(reason,), reserved_since=since)
        self.change(live, after, record)

    def waiting(self, live: Provider, planned: Record) -> Record:
        """Return the record of a provider whose write waits for a later cycle."""
        return replace(
            _seen(self.record(live.uuid), live),
            reservations=planned.reservations,
            reserved_since=planned.reserved_since,
            undone=planned.undone,
        )


def _seen(record: Record, live: Provider, absence: Absence | None = None) -> Record:
    has_figures = record.own_reserved and record.is_ours  # restore no figures of other owners
    figures = full_reservation.own_reserved(live.inventories, record) if has_figures else {}
    return replace(record, live=live, own_reserved=figures, absence=absence)
