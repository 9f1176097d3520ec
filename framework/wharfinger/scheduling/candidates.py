"""The search for allocation candidates: a request is narrowed, sent, and what comes is checked."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from oslo_log import log as logging

from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling.candidate import Candidate, from_answer
from wharfinger.scheduling.encoding import encode
from wharfinger.scheduling.filters.base import RequestFilter
from wharfinger.scheduling.request import MAX_AMOUNT, ResourceRequest

LOG: Final = logging.getLogger(__name__)
#: How many times more are asked for when some were dropped and others may have been cut off.
_MORE: Final = 10


@dataclass(frozen=True, slots=True)
class Candidates:
    """What was found, in Placement's order.

    ``dropped`` says how many candidates a filter objected to, by the filter's name.
    """

    candidates: tuple[Candidate, ...]
    dropped: Mapping[str, int]


class CandidateSearch:
    """Searches with the same filters, by name, in their order; safe for several threads."""

    def __init__(self, client: PlacementClient, filters: Mapping[str, RequestFilter]) -> None:
        self._client: Final = client
        self._filters: Final = dict(filters)

    def find(self, request: ResourceRequest) -> Candidates:
        """The candidates that all filters let through, as many as there are up to the limit.

        One request, unless a limited answer had candidates that were dropped: then up to two
        more. Raises InvalidRequest, PlacementError, and what filters raise.
        """
        for limit in _limits(request.limit):
            narrowed = replace(request, limit=limit)
            for one in self._filters.values():
                narrowed = one.apply(narrowed)
            answer = from_answer(narrowed, self._client.get_allocation_candidates(encode(narrowed)))
            good, dropped = self._checked(narrowed, answer)
            is_all = limit is None or len(answer) < limit
            if is_all or not dropped or len(good) >= (request.limit or 0):
                break
        return Candidates(tuple(good[: request.limit]), dropped)

    def _checked(
        self, request: ResourceRequest, answer: list[Candidate]
    ) -> tuple[list[Candidate], Mapping[str, int]]:
        good = []
        dropped: Counter[str] = Counter()
        for candidate in answer:
            for name, one in self._filters.items():
                if reason := one.objection(request, candidate):
                    if not dropped[name]:
                        LOG.info("filter %s drops candidates; the first: %s", name, reason)
                    dropped[name] += 1
                    break
            else:
                good.append(candidate)
        if dropped:
            counts = ", ".join(f"{count} by {name}" for name, count in dropped.items())
            LOG.info("of %d allocation candidates, dropped: %s", len(answer), counts)
        return good, dropped


def _limits(limit: int | None) -> Iterator[int | None]:
    """What limits to ask with, one after the other."""
    if limit is not None:
        yield limit
        yield min(limit * _MORE, MAX_AMOUNT)
    yield None
