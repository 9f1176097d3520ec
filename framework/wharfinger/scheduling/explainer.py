"""Explain why a request has candidates or none."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling import fact_collector, part_funnel, request_funnel
from wharfinger.scheduling.candidates import Candidates, CandidateSearch
from wharfinger.scheduling.explanation import (
    NAMED,
    Explanation,
    Misfit,
    Part,
    Reason,
    Short,
    TreeStage,
    TreeStep,
)
from wharfinger.scheduling.part_funnel import MayTake, Wanted
from wharfinger.scheduling.provider_facts import Facts
from wharfinger.scheduling.request import UNNUMBERED, ResourceRequest, policy_needed
from wharfinger.scheduling.request_filters import RequestFilter
from wharfinger.scheduling.request_filters.compute_status import OF_ROOTS, ComputeStatusFilter
from wharfinger.scheduling.request_filters.owner import OwnerFilter

#: The largest number of candidates that are counted, unless the request has a higher limit.
MOST: Final = 10_000


class Explaining:
    """Explains why a request has candidates or none."""

    def __init__(
        self, client: PlacementClient, filters: Mapping[str, RequestFilter], objects: Context | None
    ) -> None:
        self._client: Final = client
        self._search: Final = CandidateSearch(client, filters)
        self._objects: Final = objects
        owner = next((one for one in filters.values() if isinstance(one, OwnerFilter)), None)
        self._may_take: Final[MayTake | None] = None if owner is None else owner.may_take
        self._minds_status: Final = any(
            isinstance(one, ComputeStatusFilter) for one in filters.values()
        )

    def explain(self, request: ResourceRequest) -> Explanation:
        """Return the explanation of a request.

        Raises InvalidRequest, PlacementError, RequestFilterError, ObjectError, StateError, and
        errors of filters.
        """
        final = self._find(request)
        root = request.root & OF_ROOTS if self._minds_status else request.root
        wanted = part_funnel.wanted(request)
        facts = fact_collector.gather(
            self._client,
            self._objects,
            wanted,
            request,
            root,
            reads_owners=self._may_take is not None,
        )
        facts, parts = self._parts(wanted, facts)
        stages = request_funnel.before_asking(request, root, parts, facts)
        stages += self._asked(request, final, facts, stages[-1].roots)
        found = len(final.candidates)
        return Explanation(
            request=request,
            parts=parts,
            trees=tuple(stages),
            tree_misses=request_funnel.misses(
                stages, root, request_funnel.within(request, parts, facts), parts, facts
            ),
            candidates=found if request.limit is None else min(found, request.limit),
            dropped=final.dropped,
            owners=frozenset(chain(*facts.owners.values())),
            not_looked_at=facts.not_reached,
        )

    def _parts(self, wanted: Sequence[Wanted], facts: Facts) -> tuple[Facts, tuple[Part, ...]]:
        parts = [part_funnel.explain(one, facts, self._may_take) for one in wanted]
        if short := list(_without_figures(parts)):
            facts = fact_collector.with_figures(self._client, facts, short)
            parts = [part_funnel.explain(one, facts, self._may_take) for one in wanted]
        left = frozenset[str]().union(*(part.survivors for part in parts))
        return fact_collector.with_reach(self._client, facts, left), tuple(parts)

    def _find(self, request: ResourceRequest) -> Candidates:
        return self._search.find(replace(request, limit=_most(request)))

    def _asked(
        self, request: ResourceRequest, final: Candidates, facts: Facts, left: frozenset[str]
    ) -> Iterator[TreeStage]:
        for step, less in _requests_by_step(request):
            if not left:
                return
            found = final if less is request else self._find(less)
            left = request_funnel.holding(found.candidates, facts, left)
            count = len(found.candidates)
            yield TreeStage(step, left, count, count < _most(request), found.dropped)


def _most(request: ResourceRequest) -> int:
    return max(request.limit or 0, MOST)


def _requests_by_step(request: ResourceRequest) -> Iterator[tuple[TreeStep, ResourceRequest]]:
    takers = tuple(group for group in request.groups if group.resources)
    suffixed = sum(group.suffix != UNNUMBERED for group in takers)
    together = replace(request, groups=takers, same_subtree=(), group_policy=policy_needed(takers))
    steps = [(TreeStep.TOGETHER, together)]
    if request.group_policy == "isolate" and suffixed > 1:
        steps.append((TreeStep.POLICY, replace(together, group_policy="isolate")))
    if request.same_subtree:
        steps.append((TreeStep.SUBTREE, request))
    *before, (last, _same) = steps
    yield from before
    yield last, request


def _without_figures(parts: Sequence[Part]) -> Iterator[str]:
    misses = chain(*(part.misses[:NAMED] for part in parts))
    yield from {miss.uuid: None for miss in misses if any(map(_lacks_figures, miss.all_reasons))}


def _lacks_figures(reason: Reason) -> bool:
    match reason:
        case Short(used=used):
            return used is None
        case Misfit(figure=figure):
            return not figure
    return False
