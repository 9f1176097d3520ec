"""Plan trees: the three-way diff of desired, live and applied providers.

A provider is removed only if it is absent from the desired tree and our own record shows that this
instance applied it. A provider that is merely present in Placement is never removed.

Pure, and linear in the number of providers.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from wharfinger.providers import ownership, publish_checks
from wharfinger.providers import reshape as reshaping
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import SetInventories, Step, TreePlan
from wharfinger.providers.plan_draft import TreeDraft
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.provider_merge import merge
from wharfinger.providers.provider_record import Record
from wharfinger.providers.removal import Removals, orphan, remove
from wharfinger.providers.reshape import Allocations

#: Allocations before and after a driver edited them, by root uuid.
Reshapes = Mapping[str, tuple[Allocations, Allocations]]


def plan_trees(
    publisher: Publisher,
    desired: Iterable[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    *,
    removals: Removals,
    allocated: Collection[str] = frozenset(),
    held: Collection[str] = frozenset(),
    name_owners: Mapping[str, Provider] = MappingProxyType({}),
    reshapes: Reshapes = MappingProxyType({}),
    is_planned: Callable[[str | None], bool] = lambda _root: True,
) -> tuple[TreePlan, ...]:
    """Return the plans of whole trees; a tree in which nothing changes has none.

    ``desired`` has parents before children. ``live`` has the providers of these trees in
    Placement, and ``records`` our records of them, both by uuid. A provider with a record that is
    not desired is absent. ``allocated`` are the uuids of the absent providers, and of those that
    change their owner, that have allocations. ``held`` are the uuids of the providers that are
    fully reserved whatever their driver reports. ``name_owners`` are providers by name, whose names
    are wanted here. ``is_planned`` returns whether the tree of a root is to be planned.

    The steps of a tree come in this order: each provider, parents first, is created, moved, tagged
    and put into its aggregates before it has inventory. Then inventories shrink, then inventories
    grow, so that nothing is offered twice. Then absent providers are deleted, children first. A
    provider that takes the name of one that is deleted waits for the next cycle.
    """
    drafts = [
        _draft(publisher, tree, removals, held)
        for tree in _partition(desired, live, records, reshapes, is_planned)
    ]
    absent = [_absent(draft) for draft in drafts]
    leaving = {
        gone.name
        for draft, its in zip(drafts, absent, strict=True)
        for gone in its.values()
        if draft.is_ours(gone)
    }
    aside = _names_set_aside((one for draft in drafts for one in draft.desired), live)
    plans = (
        _plan(
            draft,
            gone,
            removals,
            allocated=allocated,
            name_owners=name_owners,
            leaving=leaving,
            aside=aside,
            reshape=reshapes.get(draft.root_uuid),
        )
        for draft, gone in zip(drafts, absent, strict=True)
    )
    return tuple(plan for plan in plans if _has_content(plan))


class _Tree:
    """The providers and records of one tree, or of several that a moving provider joins.

    ``roots`` are the roots of all of these, the first one's first.
    """

    __slots__ = ("desired", "live", "records", "roots")

    def __init__(self, root_uuid: str) -> None:
        self.roots = [root_uuid]
        self.desired: list[DesiredProvider] = []
        self.live: dict[str, Provider] = {}
        self.records: dict[str, Record] = {}

    def take(self, other: "_Tree") -> None:
        self.roots += other.roots
        self.desired += other.desired
        self.live |= other.live
        self.records |= other.records


def _partition(
    desired: Iterable[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    reshapes: Reshapes,
    is_planned: Callable[[str | None], bool],
) -> list[_Tree]:
    """Return the trees that are planned. A provider that moves is planned in its new tree.

    The tree that it leaves is planned together with the new one: the provider has to be moved
    before its old parent is deleted. A tree with a reshape is planned alone.
    """
    trees: dict[str, _Tree] = {}
    place: dict[str, str | None] = {}

    def tree_of(root: str | None) -> _Tree | None:
        if not is_planned(root):
            return None
        key = root or ""
        return trees.get(key) or trees.setdefault(key, _Tree(key))

    for wanted in desired:
        uuid, root = wanted.provider.uuid, wanted.provider.root_uuid
        place[uuid] = root
        if tree := tree_of(root):
            tree.desired.append(wanted)
    for uuid, provider in live.items():
        if tree := tree_of(place.setdefault(uuid, provider.root_uuid)):
            tree.live[uuid] = provider
    for uuid, record in records.items():
        if tree := tree_of(place.get(uuid, record.root_uuid)):
            tree.records[uuid] = record
    for uuid, planned in place.items():
        now = live[uuid].root_uuid if uuid in live else planned
        if now != planned and not {now, planned} & reshapes.keys():
            _join(trees, planned or "", now or "")
    return list({id(tree): tree for tree in trees.values()}.values())


def _join(trees: dict[str, _Tree], one: str, other: str) -> None:
    """Have two roots share one tree, if both are planned."""
    first, second = trees.get(one), trees.get(other)
    if first is None or second is None or first is second:
        return
    first.take(second)
    trees.update(dict.fromkeys(second.roots, first))


def _draft(
    publisher: Publisher, tree: _Tree, removals: Removals, held: Collection[str]
) -> TreeDraft:
    """Begin the plan of a tree, without what a driver must not do and without lost records."""
    records = {
        uuid: ownership.without_lost(record, tree.live.get(uuid), publisher)
        for uuid, record in tree.records.items()
    }
    draft = TreeDraft(
        publisher,
        tree.roots[0],
        tree.desired,
        tree.live,
        records,
        removals.now,
        held,
        wanted={one.provider.uuid for one in tree.desired},
    )
    for one in tree.desired:
        problem = publish_checks.misuse(publisher, one, tree.live.get(one.provider.uuid))
        if one.stated and problem:
            draft.problems.append(problem)
            draft.refused.add(one.provider.root_uuid)
    if draft.refused:
        draft.desired = [one for one in tree.desired if one.provider.root_uuid not in draft.refused]
    return draft


def _absent(draft: TreeDraft) -> dict[str, Provider]:
    """Return the providers that our records show as ours, and that are no longer desired."""
    live = draft.live
    return {
        uuid: live[uuid]
        for uuid, record in draft.known.items()
        if uuid not in draft.wanted
        and record.is_ours
        and uuid in live
        and live[uuid].root_uuid not in draft.refused
    }


def _plan(
    draft: TreeDraft,
    absent: Mapping[str, Provider],
    removals: Removals,
    *,
    allocated: Collection[str],
    name_owners: Mapping[str, Provider],
    leaving: Collection[str],
    aside: Collection[str],
    reshape: tuple[Allocations, Allocations] | None,
) -> TreePlan:
    dropped = reshaping.dropped(draft.desired, draft.live, *reshape) if reshape else {}
    _publish(draft, allocated, name_owners, leaving, aside, dropped=dropped)
    if removals.is_listing:
        remove(draft, list(absent), removals, allocated)
    else:
        for uuid, gone in absent.items():
            draft.keep_absent(gone, draft.record(uuid).absence)
    _leave_others(draft)
    for uuid in draft.known.keys() - draft.records.keys():
        draft.records[uuid] = None
    if reshape is None:
        draft.inventories.sort(key=_only_grows)
        return _tree_plan(draft, draft.inventories)
    draft.problems = draft.problems or list(reshaping.problems(draft, *reshape))
    if draft.problems:
        # Half a reshape would leave allocations without inventory.
        return TreePlan(root_uuid=draft.root_uuid, problems=tuple(draft.problems))
    reported = {one.provider.uuid for one in draft.desired if one.reported}
    steps = reshaping.steps(draft, draft.desired[0].provider, *reshape, reported)
    return _tree_plan(draft, steps)


def _leave_others(draft: TreeDraft) -> None:
    """Keep all other providers of the tree; report those with our marks as orphans."""
    for uuid in draft.live.keys() - draft.records.keys():
        draft.leave(uuid)
        provider = draft.live[uuid]
        if (
            draft.publisher.traits <= provider.traits
            and uuid not in draft.wanted
            and provider.root_uuid not in draft.refused
        ):
            draft.pending.append(orphan(uuid, provider.name))


def _publish(
    draft: TreeDraft,
    allocated: Collection[str],
    name_owners: Mapping[str, Provider],
    leaving: Collection[str],
    aside: Collection[str],
    *,
    dropped: Mapping[str, Collection[str]],
) -> None:
    """Plan the desired providers, without those that may not be published."""
    unpublished: set[str | None] = set()
    for one in draft.desired:
        mine = one.provider
        live, record = draft.live.get(mine.uuid), draft.proven(mine.uuid)
        if mine.uuid in aside:
            one = replace(one, provider=replace(mine, name=mine.uuid))  # noqa: PLW2901
        if not one.stated and live is not None and not record.is_ours:
            continue  # another program's, and the driver reports nothing about it
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
            elsewhere=name_owners,
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
        draft.problems.append(problem)
        draft.leave(mine.uuid)
        if live is None:
            unpublished.add(mine.uuid)


def _names_set_aside(desired: Iterable[DesiredProvider], live: Mapping[str, Provider]) -> set[str]:
    """Return one provider of each ring of providers that want each other's names.

    That provider is named after its uuid until the next cycle: names are unique in Placement.
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
    """Return a provider about which the driver reports nothing, in its former publishing mode."""
    return replace(wanted, mode=record.mode if record.is_ours else PublishingMode.OVERLAY)


def _tree_plan(draft: TreeDraft, inventories: Sequence[Step]) -> TreePlan:
    steps = (*draft.identities, *inventories, *draft.deletions)
    touched = {uuid for step in steps for uuid in step.touched}
    return TreePlan(
        root_uuid=draft.root_uuid,
        steps=steps,
        live={uuid: draft.live[uuid] for uuid in touched if uuid in draft.live},
        records={
            uuid: record
            for uuid, record in draft.records.items()
            if uuid in touched or record != draft.known.get(uuid)
        },
        pending=tuple(draft.pending),
        gone=frozenset(draft.gone),
        foreign=tuple(draft.foreign),
        problems=tuple(draft.problems),
    )


def _has_content(plan: TreePlan) -> bool:
    return bool(plan.steps or plan.records or plan.pending or plan.foreign or plan.problems)


def _only_grows(step: SetInventories) -> bool:
    """Return whether a step takes nothing away; steps that do come first."""
    return not step.shrunk and step.before.keys() <= step.after.keys()
