"""Plan trees: compare desired providers with Placement and with our records."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from wharfinger.exceptions import ProviderMissing
from wharfinger.providers import ownership, publish_checks
from wharfinger.providers.plan import Step, TreePlan
from wharfinger.providers.plan_draft import PlanFacts, TreeDraft
from wharfinger.providers.provider import Absence, DesiredProvider, Provider, PublishingMode, Record
from wharfinger.providers.removal import orphan, remove
from wharfinger.providers.reshape import AllocationChange


def plan_trees(
    facts: PlanFacts,
    desired: Iterable[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    is_planned: Callable[[str | None], bool] = lambda _root: True,
) -> tuple[TreePlan, ...]:
    """Return the plans of the trees that need a plan.

    ``desired`` has parents before children.
    """
    drafts = _draft_trees(facts, list(desired), live, records, is_planned)
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
        gone.name
        for draft in drafts
        for gone in draft.absent.values()
        if draft.standing(gone) is ownership.Standing.OURS
    }
    planned = [one for draft in drafts if not draft.problems for one in draft.desired.values()]
    renamed_for_now = _renamed_for_now(planned, live)
    plans: list[TreePlan] = []
    for draft in drafts:
        change = None
        if draft.problems:
            for uuid in draft.live:
                draft.leave(uuid)
        else:
            if reshape := facts.reshapes.get(draft.root_uuid):
                change = AllocationChange(*reshape)
                draft.dropped = change.dropped(draft)
            _publish(draft, leaving_names, renamed_for_now)
            remove(draft)
            _leave_others(draft)
        plan = _tree_plan(draft, change)
        if plan.steps or plan.records or plan.pending or plan.problems:
            plans.append(plan)
    return tuple(plans)


def _draft_trees(
    facts: PlanFacts,
    desired: Sequence[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    is_planned: Callable[[str | None], bool],
) -> list[TreeDraft]:
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

    # A provider has to be moved before its old parent is deleted, so their trees share a draft.
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
    unpublished: set[str | None] = set()
    detached_roots: dict[str | None, str] = {}
    for wanted in draft.desired.values():
        mine = wanted.provider
        live, record = draft.live.get(mine.uuid), draft.proven_record(mine.uuid)
        if live is None and mine.uuid in draft.known:
            record = replace(record, absence=record.absence or Absence(draft.facts.now))
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
            after, remembered = draft.published(wanted, record)
            placed = _placed(draft, after, detached_roots)
            if placed is not after:  # ``applied`` keeps the parent to which the provider returns
                remembered = replace(remembered, live=placed)
            draft.change(live, placed, remembered)


def _placed(draft: TreeDraft, after: Provider, detached_roots: dict[str | None, str]) -> Provider:
    if draft.stays_root(after.uuid):
        detached_roots[after.uuid] = after.uuid
        return replace(after, parent_uuid=None, root_uuid=after.uuid)
    if after.parent_uuid in detached_roots:
        detached_roots[after.uuid] = detached_roots[after.parent_uuid]
        return replace(after, root_uuid=detached_roots[after.uuid])
    return after


def _leave_others(draft: TreeDraft) -> None:
    for uuid in draft.live.keys() - draft.records.keys():
        draft.leave(uuid)
        provider = draft.live[uuid]
        if draft.facts.publisher.traits <= provider.traits and uuid not in draft.desired:
            draft.pending.append(orphan(uuid, provider.name))
    lost = {uuid for uuid in draft.known if draft.records.get(uuid) is None}
    kept = {uuid for uuid in lost if _is_record_needed(draft, uuid)}
    roots = lost & {draft.record(uuid).root_uuid for uuid in kept}
    for uuid in lost:
        draft.records[uuid] = None
    for uuid in kept:
        record = draft.record(uuid)
        # This does not prove that a later provider with the same uuid is ours.
        draft.records[uuid] = Record(intended=record.applied or record.intended, mode=record.mode)
    for uuid in roots:  # the record has the name of the child's node
        draft.note_missing(uuid, draft.record(uuid))


def _is_record_needed(draft: TreeDraft, uuid: str) -> bool:
    # The next child then gets the uuid and the reservations of this child.
    record = draft.record(uuid)
    if draft.record(record.root_uuid or "").is_own:
        return False
    ours = record.applied or record.intended
    is_child = record.is_own and ours is not None and ours.parent_uuid is not None
    is_wanted = uuid in draft.desired or uuid in draft.facts.held
    return is_child and (is_wanted or record.root_uuid in draft.missing)


def _renamed_for_now(desired: Iterable[DesiredProvider], live: Mapping[str, Provider]) -> set[str]:
    # Names are unique in Placement: one provider of each exchange is named after its uuid for now.
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
        problems=tuple(draft.problems),
    )
