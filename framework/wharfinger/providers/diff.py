"""The three-way diff: what a driver wants, what Placement has, what we last applied.

What others put on our providers stays; what we put there and no longer want goes. A
provider is removed only when it is absent from what is wanted and this instance's own
records name it, never because it stands in Placement and nobody mentions it.

Pure and linear in the number of providers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from wharfinger.exceptions import (
    InvalidTree,
    NameTaken,
    OwnershipConflict,
    ProviderMissing,
    WharfingerError,
)
from wharfinger.providers import ownership, reservation
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.ownership import Publisher, Standing
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    Identity,
    PendingRemoval,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.record import Record

_NOTHING = Record()

#: Allocations by consumer uuid, as the Placement API has them.
Allocations = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Removals:
    """What decides whether an absent provider is gone.

    ``now`` in seconds since the epoch; ``delay``, in seconds, how far two complete
    listings that lack it have to be apart; ``allocated`` the uuids of providers that are
    due and have allocations.
    """

    now: float
    delay: float
    allocated: frozenset[str] = frozenset()

    def is_due(self, record: Record) -> bool:
        """Whether an absent provider has been absent before, and long enough."""
        since = record.absent_since
        return since is not None and since < self.now and self.now - since >= self.delay

    def removes(self, uuid: str, record: Record) -> bool:
        """Whether an absent provider is to be deleted now, as far as it goes by itself."""
        return (
            record.mode is PublishingMode.OWN and self.is_due(record) and uuid not in self.allocated
        )


@dataclass(slots=True)
class _Trees:
    """A plan in the making."""

    publisher: Publisher
    live: Mapping[str, Provider]
    before: Mapping[str, Record]
    elsewhere: Mapping[str, Provider]
    identities: list[Step] = field(default_factory=list)
    inventories: list[SetInventories] = field(default_factory=list)
    deletions: list[Step] = field(default_factory=list)
    records: dict[str, Record | None] = field(default_factory=dict)
    pending: list[PendingRemoval] = field(default_factory=list)
    problems: list[WharfingerError] = field(default_factory=list)
    #: Uuids of what cannot be published in this plan.
    unpublished: set[str] = field(default_factory=set)
    #: Names that providers still have which are to be removed, but not yet.
    taken: set[str] = field(default_factory=set)

    def publish(self, before: Provider | None, after: Provider, record: Record) -> None:
        """Add the steps from one state of a provider to the next."""
        self.records[after.uuid] = record
        self.identities += _identity_steps(before, after)
        have = before.inventories if before else {}
        if have != after.inventories:
            self.inventories.append(
                SetInventories(**_which(after), before=have, after=after.inventories)
            )

    def leave(self, uuid: str) -> None:
        """Leave a provider as it is, and remember how that is beside what we did to it."""
        if uuid in self.live:
            record = self.before.get(uuid, _NOTHING)
            self.records[uuid] = replace(record, live=self.live[uuid])


def plan_trees(
    publisher: Publisher,
    desired: Sequence[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    *,
    removals: Removals,
    elsewhere: Mapping[str, Provider] = MappingProxyType({}),
    reshape: tuple[Allocations, Allocations] | None = None,
) -> Plan:
    """The plan for one or more whole trees.

    ``desired`` has parents before children. ``live`` is, by uuid, what Placement has of
    these trees, and ``records`` what is remembered of them; the records of a tree of which
    nothing is desired make it absent. ``elsewhere`` are, by name, providers in other trees
    with names that are wanted here. ``reshape`` are the allocations before and after a driver
    edited them.

    Steps come in this order: each provider, parents first, is created, moved, tagged and
    put into its aggregates before it has anything to give; then inventories shrink, then
    inventories grow, so that nothing is ever offered twice; then what is gone is deleted,
    children first. What is gone and has left its name to another is deleted before all that.
    """
    wanted_uuids = {wanted.provider.uuid for wanted in desired}
    absent = [
        uuid
        for uuid, record in records.items()
        if uuid not in wanted_uuids and record.is_ours and uuid in live
    ]
    trees = _Trees(
        publisher,
        live,
        records,
        {name: taken for name, taken in elsewhere.items() if taken.uuid not in absent},
    )
    trees.taken = {live[uuid].name for uuid in absent if not removals.removes(uuid, records[uuid])}
    for wanted in desired:
        _publish(trees, wanted, records.get(wanted.provider.uuid, _NOTHING))
    _remove(trees, absent, removals)
    for uuid in live.keys() - trees.records.keys():
        trees.leave(uuid)
        if publisher.traits <= live[uuid].traits:
            trees.pending.append(orphan(uuid, live[uuid].name))
    for uuid in records.keys() - trees.records.keys():
        trees.records[uuid] = None
    if reshape is not None and trees.problems:
        # Half a reshape would leave allocations without inventory.
        return Plan(problems=tuple(trees.problems))
    trees.inventories.sort(key=_grows)
    inventories: Sequence[Step] = trees.inventories
    if reshape is not None:
        inventories = [_reshape_step(trees, desired[0].provider, *reshape)]
    first, last = _split_deletions(trees)
    steps = (*first, *trees.identities, *inventories, *last)
    touched = {uuid for step in steps for uuid in step.touched}
    return Plan(
        steps=steps,
        records={
            uuid: record
            for uuid, record in trees.records.items()
            if uuid in touched or record != records.get(uuid)
        },
        pending=tuple(trees.pending),
        problems=tuple(trees.problems),
    )


def orphan(uuid: str, name: str) -> PendingRemoval:
    """A provider with our mark of which neither the driver nor our records know."""
    return PendingRemoval(
        uuid=uuid,
        name=name,
        reason="it has this instance's mark, but the driver does not report it, and it is not "
        "in the records of what was applied: left as it is",
    )


def own_view(live: Provider, record: Record | None) -> Provider:
    """A provider as Placement has it, with its own ``reserved`` figures, not ours."""
    if record is None or not record.own_reserved:
        return live
    return replace(live, inventories=reservation.release(live.inventories, record.own_reserved))


def _publish(trees: _Trees, wanted: DesiredProvider, record: Record) -> None:
    mine, publisher = wanted.provider, trees.publisher
    live = trees.live.get(mine.uuid)
    if not wanted.stated:
        if live is not None and not record.is_ours:
            return
        mode = record.mode if record.is_ours else PublishingMode.OVERLAY
        wanted = replace(wanted, mode=mode)
    if mine.parent_uuid in trees.unpublished or (live is None and mine.name in trees.taken):
        trees.unpublished.add(mine.uuid)
        return
    problem = (
        _problem_of_absence(publisher, wanted, trees.elsewhere)
        if live is None
        else _problem_of_ownership(publisher, wanted, live, record)
    ) or _problem_of_tree(publisher, wanted, live)
    if problem is not None:
        if live is None:
            trees.unpublished.add(mine.uuid)
        trees.problems.append(problem)
        trees.leave(mine.uuid)
        return
    after, remembered = _merge(publisher, wanted, live, record)
    trees.publish(live, after, remembered)


def _merge(
    publisher: Publisher, wanted: DesiredProvider, live: Provider | None, record: Record
) -> tuple[Provider, Record]:
    """What a provider becomes, and what is then remembered of it."""
    mine = wanted.provider
    is_own = wanted.mode is PublishingMode.OWN
    there = live or Provider(uuid=mine.uuid, name=mine.name, root_uuid=mine.root_uuid)
    own_traits = mine.traits | publisher.traits
    traits = own_traits | (there.traits - record.claimed_traits)
    claimed_traits = _claims(own_traits, there.traits, record.claimed_traits) | publisher.traits
    own_aggregates = mine.aggregates if is_own else frozenset()
    aggregates = own_aggregates | (there.aggregates - record.claimed_aggregates)
    own_classes = dict(mine.inventories) if is_own else {}
    others = {
        name: inventory
        for name, inventory in there.inventories.items()
        if name not in own_classes and (not is_own or name not in record.claimed_classes)
    }
    inventories = reservation.release(others, record.own_reserved) | own_classes
    claimed_classes = _claimed_classes(own_classes, own_view(there, record), record)
    own_reserved = {}
    if wanted.reservations:
        own_reserved = {name: item.reserved for name, item in inventories.items()}
        inventories = reservation.reserve_fully(inventories)
    after = Provider(
        uuid=mine.uuid,
        name=mine.name if is_own else there.name,
        root_uuid=mine.root_uuid,
        parent_uuid=mine.parent_uuid if is_own else there.parent_uuid,
        generation=there.generation,
        inventories=inventories,
        traits=traits,
        aggregates=aggregates,
    )
    applied = replace(
        after,
        generation=None,
        inventories={name: inventories[name] for name in claimed_classes},
        traits=claimed_traits,
        aggregates=_claims(own_aggregates, there.aggregates, record.claimed_aggregates),
    )
    return after, Record(
        applied=applied,
        live=after,
        own_reserved=own_reserved,
        reservations=wanted.reservations,
        mode=wanted.mode,
    )


def _claims(wanted: frozenset[str], there: frozenset[str], ours: frozenset[str]) -> frozenset[str]:
    """Of what is wanted, what is ours to take away again: not what others had put there."""
    return frozenset(name for name in wanted if name in ours or name not in there)


def _claimed_classes(wanted: Mapping[str, Inventory], there: Provider, record: Record) -> list[str]:
    """Of the classes that are wanted, those that are ours to take away again.

    A driver that edits a tree hands back others' classes as it found them: that does not
    make them ours. A provider that we see for the first time is ours with all that the
    driver reports of it.
    """
    return [
        name
        for name, inventory in wanted.items()
        if not record.is_ours
        or name in record.claimed_classes
        or there.inventories.get(name) != inventory
    ]


def _problem_of_absence(
    publisher: Publisher, wanted: DesiredProvider, elsewhere: Mapping[str, Provider]
) -> WharfingerError | None:
    name, instance = wanted.provider.name, publisher.instance
    if wanted.mode is PublishingMode.OVERLAY:
        return ProviderMissing(provider=name, uuid=wanted.provider.uuid, instance=instance)
    taken = elsewhere.get(name)
    if taken is None or taken.uuid == wanted.provider.uuid:
        return None
    return NameTaken(
        provider=name,
        instance=instance,
        uuid=taken.uuid,
        other=", ".join(sorted(ownership.owners(taken.traits))) or "nobody known",
        root_uuid=taken.root_uuid,
    )


def _problem_of_ownership(
    publisher: Publisher, wanted: DesiredProvider, live: Provider, record: Record
) -> WharfingerError | None:
    match ownership.standing(live, publisher.owner):
        case Standing.FOREIGN:
            other = ", ".join(sorted(ownership.owners(live.traits) - {publisher.owner}))
            remedy = "Publish under another name, or remove the other's provider first."
        case Standing.UNTAGGED if not (
            wanted.mode is PublishingMode.OVERLAY
            or record.is_ours
            or ownership.may_adopt(live, wanted.provider)
        ):
            other = "nobody known (it is untagged, and not ours)"
            remedy = (
                "Its name, parent and resource classes would have to be those that the driver "
                "reports."
            )
        case _:
            return None
    return OwnershipConflict(
        provider=live.name,
        uuid=live.uuid,
        owner=publisher.owner,
        other=other,
        instance=publisher.instance,
        remedy=remedy,
    )


def _problem_of_tree(
    publisher: Publisher, wanted: DesiredProvider, live: Provider | None
) -> WharfingerError | None:
    mine = wanted.provider
    added = mine.traits - publisher.traits - (live.traits if live else frozenset())
    marks = ownership.owners(added) | set(filter(ownership.is_instance_trait, added))
    if marks:
        problem = (
            f"the driver added {', '.join(sorted(marks))}; these traits are the framework's to "
            f"add, and this instance's are {', '.join(sorted(publisher.traits))}"
        )
    elif (
        wanted.mode is PublishingMode.OWN
        and mine.parent_uuid is None
        and "VCPU" in mine.inventories
        and publisher.owner != ownership.NOVA
    ):
        problem = (
            f"a root with VCPU is scheduled to by nova and has to be {ownership.NOVA}'s; this "
            f"instance publishes as {publisher.owner}"
        )
    else:
        return None
    return InvalidTree(driver=publisher.instance, provider=mine.name, problem=problem)


def _remove(trees: _Trees, absent: Sequence[str], removals: Removals) -> None:
    """Plan the removal of what is absent, children first, or say what it waits for."""
    if not absent:
        return
    children: dict[str | None, set[str]] = {}
    for provider in trees.live.values():
        moved = trees.records.get(provider.uuid)
        parent = ((moved and moved.live) or provider).parent_uuid
        children.setdefault(parent, set()).add(provider.uuid)
    for uuid in sorted(absent, key=lambda uuid: _depth(trees.live, uuid), reverse=True):
        live, record = trees.live[uuid], trees.before[uuid]
        if ownership.standing(live, trees.publisher.owner) is Standing.FOREIGN:
            trees.leave(uuid)
        elif record.mode is PublishingMode.OVERLAY:
            _pend(trees, record, live, "it is published by someone else, and theirs to delete")
        elif not removals.is_due(record):
            since = record.absent_since or removals.now
            _pend(
                trees,
                replace(record, absent_since=since),
                live,
                f"absent for {removals.now - since:.0f} s; removed when a listing at least "
                f"{removals.delay:.0f} s after the first lacks it too",
            )
        elif uuid in removals.allocated:
            _reserve_absent(trees, record, live)
        elif children.get(uuid):
            _pend(trees, record, live, "it has children that are not removed")
        else:
            children.get(live.parent_uuid, set()).discard(uuid)
            trees.deletions.append(DeleteProvider(**_which(live)))
            trees.records[uuid] = None


def _pend(trees: _Trees, record: Record, live: Provider, reason: str) -> None:
    trees.pending.append(PendingRemoval(uuid=live.uuid, name=live.name, reason=reason))
    trees.records[live.uuid] = replace(record, live=live)


def _reserve_absent(trees: _Trees, record: Record, live: Provider) -> None:
    figures = reservation.own_reserved(live.inventories, record.own_reserved)
    after = replace(live, inventories=reservation.reserve_fully(live.inventories))
    trees.pending.append(
        PendingRemoval(
            uuid=live.uuid, name=live.name, reason="it has allocations: fully reserved and kept"
        )
    )
    trees.publish(live, after, replace(record, live=after, own_reserved=figures))


def _split_deletions(trees: _Trees) -> tuple[list[Step], list[Step]]:
    """The deletions that make room for a provider of the same name, and the others.

    What is below one of the former has to go before it.
    """
    created = {step.name for step in trees.identities if isinstance(step, CreateProvider)}
    first: list[Step] = []
    last: list[Step] = []
    makes_room: set[str | None] = set()
    for step in reversed(trees.deletions):  # parents first
        if step.name in created or trees.live[step.uuid].parent_uuid in makes_room:
            makes_room.add(step.uuid)
            first.insert(0, step)
        else:
            last.insert(0, step)
    return first, last


def _depth(live: Mapping[str, Provider], uuid: str) -> int:
    depth = 0
    provider = live.get(uuid)
    while provider is not None and provider.parent_uuid is not None:
        depth += 1
        provider = live.get(provider.parent_uuid)
    return depth


def _identity_steps(before: Provider | None, after: Provider) -> Iterable[Step]:
    which = _which(after)
    if before is None:
        yield CreateProvider(**which, parent_uuid=after.parent_uuid)
    else:
        here = Identity(name=before.name, parent_uuid=before.parent_uuid)
        there = Identity(name=after.name, parent_uuid=after.parent_uuid)
        if here != there:
            yield UpdateProvider(**which, before=here, after=there)
    traits = before.traits if before else frozenset()
    if traits != after.traits:
        yield SetTraits(**which, before=traits, after=after.traits)
    aggregates = before.aggregates if before else frozenset()
    if aggregates != after.aggregates:
        yield SetAggregates(**which, before=aggregates, after=after.aggregates)


def _grows(step: SetInventories) -> bool:
    """Whether a change only adds; one that takes anything away comes first."""
    return all(
        name in step.after
        and step.after[name].total - step.after[name].reserved >= old.total - old.reserved
        for name, old in step.before.items()
    )


def _reshape_step(
    trees: _Trees, root: Provider, before: Allocations, after: Allocations
) -> Reshape:
    return Reshape(
        **_which(root),
        inventories=tuple(trees.inventories),
        allocations={
            consumer: allocation
            for consumer, allocation in after.items()
            if allocation != before.get(consumer)
        },
    )


def _which(provider: Provider) -> dict[str, str]:
    return {"uuid": provider.uuid, "name": provider.name, "root_uuid": provider.root_uuid}
