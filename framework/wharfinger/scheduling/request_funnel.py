"""Count the trees that each condition of a request excludes. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import part_funnel
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.explanation import Part, TreeMiss, TreeStage, TreeStep
from wharfinger.scheduling.provider_facts import Facts
from wharfinger.scheduling.request import UNNUMBERED, RequestGroup, ResourceRequest

#: The suitable providers of each part of the request, by uuid of the tree's root.
Within = Mapping[str, Sequence[Collection[str]]]
_ORDER: Final = {step: number for number, step in enumerate(TreeStep)}


def before_asking(
    request: ResourceRequest, root: TraitConditions, parts: Sequence[Part], facts: Facts
) -> list[TreeStage]:
    """Return the stages that need no candidates of Placement."""
    left = frozenset(uuid for uuid in facts.providers if facts.root(uuid) == uuid)
    stages = [TreeStage(TreeStep.ALL, left)]
    if root:
        left = frozenset(uuid for uuid in left if not part_funnel.traits(facts, root, uuid))
        stages.append(TreeStage(TreeStep.ROOT, left))
    there = within(request, parts, facts)
    left = frozenset(uuid for uuid in left if uuid in there and all(there[uuid]))
    stages.append(TreeStage(TreeStep.PARTS, left))
    if group := _together(request):
        of_group = [number for number, part in enumerate(parts) if part.suffix == UNNUMBERED]
        left = frozenset(
            uuid
            for uuid in left
            if _can_have_all_traits(group, [there[uuid][number] for number in of_group], facts)
        )
        stages.append(TreeStage(TreeStep.TRAITS, left))
    return stages


def within(request: ResourceRequest, parts: Sequence[Part], facts: Facts) -> Within:
    """Return, by root, the providers for each group or class."""
    found: dict[str, list[set[str]]] = {}
    barred = _excluded_roots(request, facts)
    for number, part in enumerate(parts):
        for uuid in part.survivors:
            for root in facts.reached.get(uuid, frozenset()) | {facts.root(uuid)}:
                if part.suffix != UNNUMBERED or root not in barred:
                    found.setdefault(root, [set() for _ in parts])[number].add(uuid)
    return found


def holding(candidates: Iterable[Candidate], facts: Facts, roots: frozenset[str]) -> frozenset[str]:
    """Return the roots whose trees have a candidate."""
    found: set[str] = set()
    for candidate in candidates:
        uuids = set(candidate.allocations).union(*candidate.mappings.values())
        trees = [
            facts.reached.get(uuid, frozenset()) | {facts.root(uuid)}
            for uuid in uuids
            if uuid in facts.providers
        ]
        if trees:
            found |= frozenset.intersection(*trees)
    return roots & found


def misses(
    stages: Sequence[TreeStage],
    root: TraitConditions,
    there: Within,
    parts: Sequence[Part],
    facts: Facts,
) -> tuple[TreeMiss, ...]:
    """Return excluded trees that can serve a part of the request, the most suitable first."""
    out = {
        uuid: after.step
        for before, after in pairwise(stages)
        for uuid in before.roots - after.roots
        if uuid in there
    }
    found = []
    nearest = [{facts.root(one.uuid): one for one in reversed(part.misses)} for part in parts]
    unseen = facts.sharing - facts.reached.keys() if facts.not_reached else frozenset()
    for uuid, step in out.items():
        without = tuple(number for number, givers in enumerate(there[uuid]) if not givers)
        if any(parts[number].survivors & unseen for number in without):
            continue  # a sharing provider whose trees are unknown may share with this tree
        near = tuple(nearest[number][uuid] for number in without if uuid in nearest[number])
        reasons = part_funnel.traits(facts, root, uuid)
        found.append(TreeMiss(uuid, facts.providers[uuid].name, step, without, near, reasons))
    return tuple(sorted(found, key=_distance))


def _distance(one: TreeMiss) -> tuple[int, int, int, str, str]:
    lacking = len(one.parts) + len(one.reasons)
    return lacking, -len(one.part_misses), -_ORDER[one.step], one.name, one.uuid


def _excluded_roots(request: ResourceRequest, facts: Facts) -> frozenset[str]:
    group = next((one for one in request.groups if one.suffix == UNNUMBERED), None)
    if group is None:
        return frozenset()
    barred = facts.members.get(group.forbidden_aggregates, frozenset())
    if group.in_tree is not None and group.in_tree in facts.providers:
        barred |= facts.providers.keys() - {facts.root(group.in_tree)}
    return barred


def _together(request: ResourceRequest) -> RequestGroup | None:
    # Each class of the group may come from another provider, and each trait must be on one of them.
    for group in request.groups:
        if group.suffix == UNNUMBERED and len(group.resources) > 1 and group.traits.wanted:
            return group
    return None


def _can_have_all_traits(
    group: RequestGroup, givers: Sequence[Collection[str]], facts: Facts
) -> bool:
    choices = [*group.traits.any_of, *(frozenset([one]) for one in group.traits.required)]
    had = {frozenset[int]()}
    for some in givers:
        new = {frozenset(_choices_of(choices, uuid, facts)) for uuid in some}
        had = {one | other for one in had for other in new}
    return frozenset(range(len(choices))) in had


def _choices_of(choices: Sequence[frozenset[str]], uuid: str, facts: Facts) -> Iterator[int]:
    return (number for number, one in enumerate(choices) if uuid in facts.with_one_of[one])
