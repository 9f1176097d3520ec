"""Allocation candidates, as they are checked and handed on."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from wharfinger.exceptions import UnexpectedAnswer
from wharfinger.placement.model import AllocationCandidates, CandidateProvider
from wharfinger.scheduling.request import UNNUMBERED, RequestGroup, ResourceRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to allocate what was asked for.

    ``allocations`` are amounts by resource class, by provider uuid; ``mappings`` the uuids of the
    providers that each group takes from, by its suffix (none before Placement 1.34); ``providers``
    what is known of all providers of the trees, by uuid.
    """

    allocations: Mapping[str, Mapping[str, int]]
    mappings: Mapping[str, tuple[str, ...]]
    providers: Mapping[str, CandidateProvider]

    def sources(self, suffix: str) -> Iterable[str]:
        """The providers that a group takes from; those of all, where it is not said."""
        return self.mappings[suffix] if self.mappings else self.allocations

    def amounts(self) -> Counter[str]:
        """What is taken in all, by resource class."""
        total: Counter[str] = Counter()
        for amounts in self.allocations.values():
            total.update(amounts)
        return total

    def is_isolated(self) -> bool:
        """Whether no provider is there for two groups with suffixes."""
        alone = [
            uuid
            for suffix, uuids in self.mappings.items()
            if suffix != UNNUMBERED
            for uuid in uuids
        ]
        return len(set(alone)) == len(alone)

    def is_whole(self, groups: Sequence[RequestGroup], *, has_mappings: bool) -> bool:
        """Whether it says all that a candidate has to say for these groups.

        What nothing is taken from, for a group without resources, may be without a summary.
        """
        takers = {group.suffix for group in groups if group.resources}
        mapped = {uuid for suffix in takers for uuid in self.mappings.get(suffix, ())}
        sources = mapped | self.allocations.keys()
        roots = {self.providers[one].root_provider_uuid for one in sources & self.providers.keys()}
        if not sources | roots <= self.providers.keys():
            return False
        if not has_mappings:
            return not self.mappings
        return self.mappings.keys() == {one.suffix for one in groups} and mapped == sources


def from_answer(
    request: ResourceRequest, answer: AllocationCandidates, *, has_mappings: bool
) -> list[Candidate]:
    """The candidates that Placement answers to a request, in its order.

    ``has_mappings``: the server says which group takes what (from 1.34). Raises UnexpectedAnswer
    where a candidate cannot be checked, or is none for the request.
    """
    candidates = _candidates(answer)
    asked: Counter[str] = Counter()
    for group in request.groups:
        asked.update(group.resources)
    for candidate in candidates:
        if not candidate.is_whole(request.groups, has_mappings=has_mappings):
            raise _unexpected(
                "a candidate takes from a provider without a summary, or for no group: "
                f"{', '.join(candidate.allocations)}."
            )
        if (given := candidate.amounts()) != asked:
            raise _unexpected(f"a candidate has {dict(given)} where {dict(asked)} is asked for.")
    return candidates


def _unexpected(detail: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        request="GET /allocation_candidates", status=HTTPStatus.OK, code="", detail=detail
    )


def _candidates(answer: AllocationCandidates) -> list[Candidate]:
    return [
        Candidate(
            allocations={uuid: its.resources for uuid, its in one.allocations.items()},
            mappings={suffix: tuple(uuids) for suffix, uuids in one.mappings.items()},
            providers=answer.provider_summaries,
        )
        for one in answer.allocation_requests
    ]
