"""Plan trees: compare the desired providers with Placement, and with what we have written."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from wharfinger.exceptions import ProviderMissing
from wharfinger.providers import fights, ownership, publish_checks
from wharfinger.providers.plan import Step, TreePlan
from wharfinger.providers.plan_draft import PlanFacts, TreeDraft
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.provider_merge import merge
from wharfinger.providers.provider_record import Absence, Record
from wharfinger.providers.removal import orphan, remove
from wharfinger.providers.reshape import AllocationChange


def plan_trees(
    facts: PlanFacts,
    desired: Iterable[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    is_planned: Callable[[str | None], bool] = lambda _root: True,
) -> tuple[TreePlan, ...]:
    """Return the plans of trees; a tree with nothing to write, store or report has no plan.

    ``desired`` has parents before children.

    In each tree, providers are created and moved first. Then inventories shrink, other inventories
    grow, and absent providers are deleted.
    """
    drafts = _partition(facts, list(desired), live, records, is_planned)
    for draft in drafts:
        draft.problems += [
            problem
            for uuid, one in draft.desired.items()
            if one.stated
            and (problem := publish_checks.misuse(facts.publisher, one, draft.live.get(uuid)))
        ]
        if not draft.problems:
            draft.absent = {
                uuid: draft.live[uuid]
                for uuid, record in draft.known.items()
                if record.is_ours and uuid in draft.live and uuid not in draft.desired
            }
    leaving_names = {
        gone.name for draft in drafts for gone in draft.absent.values() if draft.is_ours(gone)
    }
    planned = [one for draft in drafts if not draft.problems for one in draft.desired.values()]
    renamed_for_now = _renamed_for_now(planned, live)
    plans: list[TreePlan] = []
    for draft in drafts:
        if draft.problems:
            for uuid in draft.live:
                draft.leave(uuid)
            plans.append(_tree_plan(draft, None))
            continue
        reshape = facts.reshapes.get(draft.root_uuid)
        change = AllocationChange(*reshape) if reshape else None
        if change:
            draft.dropped = change.dropped(draft)
        _publish(draft, leaving_names, renamed_for_now)
        remove(draft)
        _leave_others(draft)
        plan = _tree_plan(draft, change)
        if plan.steps or plan.records or plan.pending or plan.foreign or plan.problems:
            plans.append(plan)
    return tuple(plans)


def _partition(
    facts: PlanFacts,
    desired: Sequence[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    is_planned: Callable[[str | None], bool],
) -> list[TreeDraft]:
    """Return the drafts of the trees. Two trees between which a provider moves share a draft.

    The provider has to be moved before its old parent is deleted.
    """
    before = {uuid: record.root_uuid for uuid, record in records.items()}
    before |= {uuid: provider.root_uuid for uuid, provider in live.items()}
    roots = before | {one.provider.uuid: one.provider.root_uuid for one in desired}
    joined: dict[str | None, str | None] = {}
    drafts: dict[str | None, TreeDraft] = {}

    def first(root: str | None) -> str | None:
        while root in joined:
            joined[root] = joined.get(joined[root], joined[root])  # shorten the path
            root = joined[root]
        return root

    def draft_of(uuid: str) -> TreeDraft | None:
        if not is_planned(roots[uuid]):
            return None
        root = first(roots[uuid])
        return drafts.get(root) or drafts.setdefault(root, TreeDraft(facts, root or ""))

    for uuid, root in before.items():
        ends = {roots[uuid], root} - {None}
        if len(ends) > 1 and all(map(is_planned, ends)) and not ends & facts.reshapes.keys():
            new, old = first(roots[uuid]), first(root)
            if new != old:
                joined[old] = new
    for one in desired:
        if draft := draft_of(one.provider.uuid):
            draft.desired[one.provider.uuid] = one
    for uuid, provider in live.items():
        if draft := draft_of(uuid):
            draft.live[uuid] = provider
    for uuid, record in records.items():
        if draft := draft_of(uuid):
            draft.known[uuid] = ownership.without_lost(record, live.get(uuid), facts.publisher)
    return list(drafts.values())


def _publish(
    draft: TreeDraft, leaving_names: Collection[str], renamed_for_now: Collection[str]
) -> None:
    """Plan the desired providers, except providers that may not be published or have to wait.

    A new provider waits if an absent provider still has its name (``leaving_names``). Providers in
    ``renamed_for_now`` are named after their uuids.
    """
    facts = draft.facts
    unpublished: set[str | None] = set()
    detached_roots: dict[str | None, str] = {}
    for wanted in draft.desired.values():
        mine = wanted.provider
        live, record = draft.live.get(mine.uuid), draft.proven_record(mine.uuid)
        if live is None and mine.uuid in draft.known:
            record = replace(record, absence=record.absence or Absence(facts.now))
        if not wanted.stated and live is not None and not record.is_ours:
            continue  # it is another program's provider, and the driver reports nothing about it
        waits = mine.parent_uuid in unpublished and not draft.stays_root(mine.uuid)
        if waits or (live is None and mine.name in leaving_names):
            unpublished.add(mine.uuid)
            continue
        if mine.uuid in renamed_for_now:
            wanted = replace(wanted, provider=replace(mine, name=mine.uuid))  # noqa: PLW2901
        if not wanted.stated:
            mode = record.mode if record.is_ours else PublishingMode.OVERLAY
            wanted = replace(wanted, mode=mode)  # noqa: PLW2901
        if problem := publish_checks.problem(draft, wanted, record):
            draft.problems.append(problem)
            draft.leave(mine.uuid)
            if live is None:
                unpublished.add(mine.uuid)
            if isinstance(problem, ProviderMissing) and mine.uuid in draft.known:
                draft.note_missing(mine.uuid, record)
        else:
            dropped = draft.dropped.get(mine.uuid, ())
            after, remembered = merge(facts, wanted, live, record, dropped)
            if live and not facts.is_listing and fights.has_to_wait(remembered, live, after):
                after, remembered = live, draft.waiting(live, remembered)
            placed = _placed(draft, after, detached_roots)
            if placed is not after:  # ``applied`` keeps the parent to which the provider returns
                remembered = replace(remembered, live=placed)
            draft.change(live, placed, remembered)
            draft.note_foreign(placed, remembered)


def _placed(draft: TreeDraft, after: Provider, detached_roots: dict[str | None, str]) -> Provider:
    """Return the provider; a detached child stays a root, and providers below it stay in its tree.

    Add the root of such a provider to ``detached_roots``, by the provider's uuid.
    """
    if draft.stays_root(after.uuid):
        detached_roots[after.uuid] = after.uuid
        return replace(after, parent_uuid=None, root_uuid=after.uuid)
    if after.parent_uuid in detached_roots:
        detached_roots[after.uuid] = detached_roots[after.parent_uuid]
        return replace(after, root_uuid=detached_roots[after.uuid])
    return after


def _leave_others(draft: TreeDraft) -> None:
    """Plan no change of providers that have no new record yet, and report orphans among them.

    Delete the records of providers that Placement lacks or will lack, unless ``_is_needed``.
    """
    for uuid in draft.live.keys() - draft.records.keys():
        draft.leave(uuid)
        provider = draft.live[uuid]
        if draft.facts.publisher.traits <= provider.traits and uuid not in draft.desired:
            draft.pending.append(orphan(uuid, provider.name))
    lost = {uuid for uuid in draft.known if draft.records.get(uuid) is None}
    kept = {uuid for uuid in lost if _is_needed(draft, uuid)}
    roots = lost & {draft.record(uuid).root_uuid for uuid in kept}
    for uuid in lost:
        draft.records[uuid] = None
    for uuid in kept:
        record = draft.record(uuid)
        # This does not prove that a later provider with the same uuid is ours.
        draft.records[uuid] = Record(intended=record.applied or record.intended, mode=record.mode)
    for uuid in roots:  # the record has the name of the child's node
        draft.note_missing(uuid, draft.record(uuid))


def _is_needed(draft: TreeDraft, uuid: str) -> bool:
    """Return whether to keep the record of a child that Placement lacks.

    It is kept below another program's root, if the driver wants the child, a reservation exists, or
    the root is missing, too. The next child then gets the uuid and reservations of this one.
    """
    record = draft.record(uuid)
    if draft.record(record.root_uuid or "").is_own:
        return False
    ours = record.applied or record.intended
    is_child = ours is not None and ours.parent_uuid is not None
    is_own = is_child and record.mode is PublishingMode.OWN
    is_wanted = uuid in draft.desired or uuid in draft.facts.held
    return is_own and (is_wanted or record.root_uuid in draft.missing)


def _renamed_for_now(desired: Iterable[DesiredProvider], live: Mapping[str, Provider]) -> set[str]:
    """Return the uuid of one provider in each group of providers that exchange their names.

    Names are unique in Placement. So this provider is named after its uuid until the next cycle.
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


def _tree_plan(draft: TreeDraft, change: AllocationChange | None) -> TreePlan:
    # The steps that take something away come first.
    draft.inventories.sort(
        key=lambda step: not step.shrunk and step.before.keys() <= step.after.keys()
    )
    inventories: Sequence[Step] = draft.inventories
    if change:
        draft.problems = draft.problems or list(change.problems(draft))
        if draft.problems:
            return TreePlan(root_uuid=draft.root_uuid, problems=tuple(draft.problems))
        inventories = change.steps(draft)
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
