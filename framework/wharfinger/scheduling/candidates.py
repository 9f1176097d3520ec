"""The search for allocation candidates: a request is narrowed, sent, and what comes is checked."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from oslo_log import log as logging

from wharfinger.exceptions import (
    PlacementError,
    RequestFilterError,
    WharfingerError,
    printable,
    shown,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.model import AllocationCandidates
from wharfinger.placement.query_features import encoded
from wharfinger.scheduling.candidate import Candidate, from_answer
from wharfinger.scheduling.request import MAX_AMOUNT, UNNUMBERED, ResourceRequest
from wharfinger.scheduling.request_filters.base import RequestFilter
from wharfinger.scheduling.request_query import encode

LOG: Final = logging.getLogger(__name__)
#: How many are asked for at least where filters may drop some: a lower limit saves Placement
#: nothing, as measured with 10,000 hosts, and a second request does all of its work again.
_FEWEST: Final = 100
#: How many times more are asked for when some were dropped and others may have been cut off.
_MORE: Final = 10
#: What candidates are dropped by that are not isolated, if Placement cannot be left to do it.
_GROUP_POLICY: Final = "group_policy"


@dataclass(frozen=True, slots=True)
class Candidates:
    """What was found, in Placement's order.

    ``dropped`` says how many candidates a filter objected to, by the filter's name; and how many
    "group_policy" has dropped, where Placement could not be left to it.
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
        more. Raises InvalidRequest, PlacementError, RequestFilterError, and what filters raise.
        """
        has_mappings = self._client.microversion >= Feature.MAPPINGS.value
        isolates = has_mappings and _is_mixed_up(request)
        asked = replace(request, group_policy="none") if isolates else request
        for limit in self._limits(request.limit):
            narrowed, told = self._ask(replace(asked, limit=limit))
            answer = from_answer(narrowed, told, has_mappings=has_mappings)
            good, dropped = self._checked(narrowed, answer, isolates=isolates)
            is_all = limit is None or len(answer) < limit
            if is_all or not dropped or len(good) >= (request.limit or 0):
                break
        return Candidates(tuple(good[: request.limit]), dropped)

    def _limits(self, limit: int | None) -> Iterator[int | None]:
        """What limits to ask with, one after the other."""
        if limit is not None:
            first = max(limit, _FEWEST) if self._filters else limit
            yield first
            yield min(first * _MORE, MAX_AMOUNT)
        yield None

    def _ask(self, request: ResourceRequest) -> tuple[ResourceRequest, AllocationCandidates]:
        """The request as it was sent, and its answer."""
        try:
            return self._send(request)
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST or not self._filters:
                raise
            # A trait that a filter remembers may have been deleted.
            for name, one in self._filters.items():
                with _confined(name):
                    one.forget()
            return self._send(request)

    def _send(self, request: ResourceRequest) -> tuple[ResourceRequest, AllocationCandidates]:
        narrowed = self._narrowed(request)
        query = encode(narrowed)
        answer = self._client.get_allocation_candidates(query)
        LOG.info("asked for candidates: %s", encoded(query))
        return narrowed, answer

    def _narrowed(self, request: ResourceRequest) -> ResourceRequest:
        for name, one in self._filters.items():
            with _confined(name):
                request = one.apply(request)
            if not isinstance(request, ResourceRequest):
                raise RequestFilterError(name=name, reason=f"apply gave {shown(request)}")
        return request

    def _checked(
        self, request: ResourceRequest, answer: list[Candidate], *, isolates: bool
    ) -> tuple[list[Candidate], Mapping[str, int]]:
        good = []
        dropped: Counter[str] = Counter()
        for candidate in answer:
            if isolates and not candidate.is_isolated():
                dropped[_GROUP_POLICY] += 1
                continue
            for name, one in self._filters.items():
                with _confined(name):
                    reason = one.objection(request, candidate)
                if reason:
                    if not dropped[name]:
                        told = printable(str(reason))
                        LOG.info("filter %s drops candidates; the first: %s", name, told)
                    dropped[name] += 1
                    break
            else:
                good.append(candidate)
        if dropped:
            counts = ", ".join(f"{count} by {name}" for name, count in dropped.items())
            LOG.info("of %d allocation candidates, dropped: %s", len(answer), counts)
        return good, dropped


def _is_mixed_up(request: ResourceRequest) -> bool:
    """Whether Placement would get the amounts wrong.

    Placement 16, as observed: with groups that are kept apart, and a class that is also asked for
    in the group without a suffix. Without a policy it gets them right.
    """
    if request.group_policy != "isolate":
        return False
    unnumbered = [group for group in request.groups if group.suffix == UNNUMBERED]
    suffixed = [group for group in request.groups if group.suffix != UNNUMBERED]
    return len(suffixed) > 1 and any(
        one.resources.keys() & other.resources.keys() for one in unnumbered for other in suffixed
    )


@contextmanager
def _confined(name: str) -> Iterator[None]:
    """Have a filter that fails be named."""
    try:
        yield
    except (WharfingerError, KeyboardInterrupt):
        raise
    except BaseException as error:  # one that calls sys.exit() too
        reason = f"{type(error).__name__}: {error}"
        raise RequestFilterError(name=name, reason=reason) from error
