"""Search for allocation candidates that all request filters accept."""

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
#: The lowest limit to send with filters. A lower limit saves Placement nothing, and a second
#: request repeats all of the work.
_LOWEST_LIMIT: Final = 100
#: The factor of the limit in a second request.
_LIMIT_FACTOR: Final = 10
#: The name in ``dropped`` for candidates with one provider for several groups.
_GROUP_POLICY: Final = "group_policy"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The accepted candidates, in Placement's order.

    ``dropped`` counts refused candidates by filter name, or under "group_policy".
    """

    candidates: tuple[Candidate, ...]
    dropped: Mapping[str, int]


class CandidateSearch:
    """Search for allocation candidates; several threads can use one object."""

    def __init__(self, client: PlacementClient, filters: Mapping[str, RequestFilter]) -> None:
        self._client: Final = client
        self._filters: Final = dict(filters)

    def find(self, request: ResourceRequest) -> Candidates:
        """Return the candidates that all filters accept, up to the request's limit.

        Raises InvalidRequest, PlacementError, RequestFilterError, and errors of filters.
        """
        has_mappings = self._client.microversion >= Feature.MAPPINGS.value
        isolates = has_mappings and _gets_wrong_amounts(request)
        asked = replace(request, group_policy="none") if isolates else request
        for limit in self._limits(request.limit):
            narrowed, found = self._ask(replace(asked, limit=limit))
            answer = from_answer(narrowed, found, has_mappings=has_mappings)
            good, dropped = self._checked(narrowed, answer, isolates=isolates)
            is_all = limit is None or len(answer) < limit
            if is_all or not dropped or len(good) >= (request.limit or 0):
                break
        return Candidates(tuple(good[: request.limit]), dropped)

    def _limits(self, limit: int | None) -> Iterator[int | None]:
        if limit is not None:
            first = max(limit, _LOWEST_LIMIT) if self._filters else limit
            yield first
            yield min(first * _LIMIT_FACTOR, MAX_AMOUNT)
        yield None

    def _ask(self, request: ResourceRequest) -> tuple[ResourceRequest, AllocationCandidates]:
        try:
            return self._send(request)
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST or not self._filters:
                raise
            # A trait that a filter has cached may have been deleted.
            for name, one in self._filters.items():
                with _naming_filter(name):
                    one.forget()
            return self._send(request)

    def _send(self, request: ResourceRequest) -> tuple[ResourceRequest, AllocationCandidates]:
        narrowed = self._narrowed(request)
        query = encode(narrowed)
        answer = self._client.get_allocation_candidates(query)
        LOG.info("Requested allocation candidates from Placement: %s", encoded(query))
        return narrowed, answer

    def _narrowed(self, request: ResourceRequest) -> ResourceRequest:
        for name, one in self._filters.items():
            with _naming_filter(name):
                request = one.apply(request)
            if not isinstance(request, ResourceRequest):
                reason = f"apply returned {shown(request)} instead of a ResourceRequest"
                raise RequestFilterError(name=name, reason=reason)
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
                with _naming_filter(name):
                    reason = one.objection(request, candidate)
                if reason:
                    if not dropped[name]:
                        first = printable(str(reason))
                        LOG.info(
                            "Request filter %s drops allocation candidates. Reason for the first "
                            "one: %s",
                            name,
                            first,
                        )
                    dropped[name] += 1
                    break
            else:
                good.append(candidate)
        if dropped:
            counts = ", ".join(f"{count} by {name}" for name, count in dropped.items())
            LOG.info("Of %d allocation candidates, Wharfinger dropped %s", len(answer), counts)
        return good, dropped


def _gets_wrong_amounts(request: ResourceRequest) -> bool:
    # This is a fault of Placement 16.
    if request.group_policy != "isolate":
        return False
    unnumbered = [group for group in request.groups if group.suffix == UNNUMBERED]
    suffixed = [group for group in request.groups if group.suffix != UNNUMBERED]
    return len(suffixed) > 1 and any(
        one.resources.keys() & other.resources.keys() for one in unnumbered for other in suffixed
    )


@contextmanager
def _naming_filter(name: str) -> Iterator[None]:
    try:
        yield
    except (WharfingerError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a filter may also call sys.exit()
        reason = f"{type(error).__name__}: {error}"
        raise RequestFilterError(name=name, reason=reason) from error
