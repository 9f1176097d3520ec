"""The three-way diff: what a driver wants, what Placement has, what we last applied.

A provider is removed only when it is absent from what is wanted and this instance's own
records name it, never because it stands in Placement and nobody mentions it.

Pure and linear in the number of providers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from wharfinger.providers import ownership, publish_checks
from wharfinger.providers import reshape as reshaping
from wharfinger.providers.draft import Draft
from wharfinger.providers.merge import merge
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Plan, SetInventories, Step
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.record import Record
from wharfinger.providers.removal import Removals, orphan, remove
from wharfinger.providers.reshape import Allocations


def plan_trees(
    publisher: Publisher,
    desired: Sequence[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    *,
    removals: Removals,
    allocated: Collection[str] = frozenset(),
    held: Collection[str] = frozenset(),
    elsewhere: Mapping[str, Provider] = MappingProxyType({}),
    reshape: tuple[Allocations, Allocations] | None = None,
) -> Plan:
    """The plan for one or more whole trees.

    ``desired`` has parents before children. ``live`` is, by uuid, what Placement has of
    these trees, and ``records`` what is remembered of them; the records of a tree of which
    nothing is desired make it absent. ``allocated`` are the uuids of those with allocations,
    as far as that matters: of what is absent, and of what changes its owner. ``held`` are the uuids
    of those that are fully reserved whatever their driver says. ``elsewhere`` are,
    by name, providers in other trees with names that are wanted here. ``reshape`` are the
    allocations before and after a driver edited them.

    Steps come in this order: each provider, parents first, is created, moved, tagged and
    put into its aggregates before it has anything to give; then inventories shrink, then
    inventories grow, so that nothing is ever offered twice; then what is gone is deleted,
    children first. A provider that takes the name of one that is gone waits until that has
    been deleted.
    """
    records = {
        uuid: ownership.without_lost(record, live.get(uuid), publisher)
        for uuid, record in records.items()
    }
    draft = Draft(publisher, live, records, removals.now, held)
    wanted_uuids = {wanted.provider.uuid for wanted in desired}
    desired, refused = _refuse_misuse(draft, desired)
    absent = {
        uuid: live[uuid]
        for uuid, record in records.items()
        if uuid not in wanted_uuids
        and record.is_ours
        and uuid in live
        and live[uuid].root_uuid not in refused
    }
    dropped = reshaping.dropped(desired, live, *reshape) if reshape else {}
    _publish(draft, desired, absent, allocated, elsewhere, dropped=dropped)
    if removals.is_listing:
        remove(draft, list(absent), removals, allocated)
    else:
        for uuid, gone in absent.items():
            draft.keep_absent(gone, draft.record(uuid).absence)
    for uuid in live.keys() - draft.records.keys():
        draft.leave(uuid)
        if (
            publisher.traits <= live[uuid].traits
            and uuid not in wanted_uuids
            and live[uuid].root_uuid not in refused
        ):
            draft.pending.append(orphan(uuid, live[uuid].name))
    for uuid in records.keys() - draft.records.keys():
        draft.records[uuid] = None
    if reshape is None:
        draft.inventories.sort(key=_only_grows)
        return _plan(draft, draft.inventories)
    draft.problems = draft.problems or list(reshaping.problems(draft, *reshape))
    if draft.problems:
        # Half a reshape would leave allocations without inventory.
        roots = frozenset(one.provider.root_uuid for one in desired)
        return Plan(problems=tuple(draft.problems), troubled=roots)
    reported = {one.provider.uuid for one in desired if one.reported}
    return _plan(draft, reshaping.steps(draft, desired[0].provider, *reshape, reported))


def _refuse_misuse(
    draft: Draft, desired: Sequence[DesiredProvider]
) -> tuple[list[DesiredProvider], set[str]]:
    """Leave out trees in which a driver did what it must not; returns their roots, too."""
    refused: set[str] = set()
    for one in desired:
        problem = publish_checks.misuse(draft.publisher, one, draft.live.get(one.provider.uuid))
        if one.stated and problem:
            draft.refuse(one.provider.root_uuid, problem)
            refused.add(one.provider.root_uuid)
    return [one for one in desired if one.provider.root_uuid not in refused], refused


def _publish(
    draft: Draft,
    desired: Sequence[DesiredProvider],
    absent: Mapping[str, Provider],
    allocated: Collection[str],
    elsewhere: Mapping[str, Provider],
    *,
    dropped: Mapping[str, Collection[str]],
) -> None:
    """Plan what is wanted, provider by provider, less what cannot be."""
    leaving = {gone.name for gone in absent.values() if draft.is_ours(gone)}
    unpublished: set[str | None] = set()
    aside = _aside(desired, draft.live)
    for one in desired:
        mine = one.provider
        live, record = draft.live.get(mine.uuid), draft.proven(mine.uuid)
        if mine.uuid in aside:
            one = replace(one, provider=replace(mine, name=mine.uuid))  # noqa: PLW2901
        if not one.stated and live is not None and not record.is_ours:
            continue  # somebody else's, and nobody said anything of it
        if mine.parent_uuid in unpublished or (live is None and mine.name in leaving):
            unpublished.add(mine.uuid)
            continue
        wanted = one if one.stated else _as_it_was(one, record)
        problem = publish_checks.problem(
            draft.publisher,
            wanted,
            live,
            record,
            is_allocated=mine.uuid in allocated,
            elsewhere=elsewhere,
            dropped=dropped.get(mine.uuid, ()),
        )
        if problem is None:
            after, remembered = merge(
                draft.publisher,
                wanted,
                live,
                record,
                now=draft.now,
                is_held=mine.uuid in draft.held,
                dropped=dropped.get(mine.uuid, ()),
            )
            draft.change(live, after, remembered)
            draft.note_foreign(after, remembered)
            continue
        draft.refuse(mine.root_uuid, problem)
        draft.leave(mine.uuid)
        if live is None:
            unpublished.add(mine.uuid)


def _aside(desired: Sequence[DesiredProvider], live: Mapping[str, Provider]) -> set[str]:
    """One of each ring of providers that want each other's names.

    It is called by its uuid until the next cycle: names are unique in Placement.
    """
    wanted = {
        one.provider.uuid: one.provider.name
        for one in desired
        if one.stated
        and one.mode is PublishingMode.OWN
        and one.provider.uuid in live
        and live[one.provider.uuid].name != one.provider.name
    }
    holders = {live[uuid].name: uuid for uuid in wanted}
    found: set[str] = set()
    for first in sorted(wanted):
        way = [first] if first in wanted else []
        while way and (after := holders.get(wanted.pop(way[-1]))) is not None:
            if after not in wanted:
                found |= {after} & set(way)
                break
            way.append(after)
    return found


def _as_it_was(wanted: DesiredProvider, record: Record) -> DesiredProvider:
    """What a driver says nothing of: published as before, or else by someone else."""
    return replace(wanted, mode=record.mode if record.is_ours else PublishingMode.OVERLAY)


def _plan(draft: Draft, inventories: Sequence[Step]) -> Plan:
    steps = (*draft.identities, *inventories, *draft.deletions)
    touched = {uuid for step in steps for uuid in step.touched}
    return Plan(
        steps=steps,
        records={
            uuid: record
            for uuid, record in draft.records.items()
            if uuid in touched or record != draft.known.get(uuid)
        },
        pending=tuple(draft.pending),
        gone=frozenset(draft.gone),
        troubled=frozenset(draft.troubled),
        foreign=tuple(draft.foreign),
        problems=tuple(draft.problems),
    )


def _only_grows(step: SetInventories) -> bool:
    """Whether a change takes nothing away; one that does comes first."""
    return not step.shrunk and step.before.keys() <= step.after.keys()
