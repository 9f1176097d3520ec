"""Allocation candidates, decoded from Placement's answer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from wharfinger.exceptions import UnexpectedAnswer
from wharfinger.placement.model import AllocationCandidates, CandidateProvider
from wharfinger.scheduling.request import UNNUMBERED, RequestGroup, ResourceRequest


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to allocate the requested resources.

    ``allocations`` are amounts by provider uuid and resource class. ``mappings`` are provider uuids
    by suffix of a group, empty before Placement 1.34. ``providers`` are all provider summaries of
    the answer, by uuid.
    """

    allocations: dict[str, dict[str, int]]
    mappings: Mapping[str, tuple[str, ...]]
    providers: Mapping[str, CandidateProvider]

    def sources(self, suffix: str) -> Iterable[str]:
        """Return the uuids of the providers that serve a group.

        Without mappings, return the providers of all groups.
        """
        return self.mappings[suffix] if self.mappings else self.allocations

    def is_isolated(self) -> bool:
        """Return whether each provider serves at most one group with a suffix."""
        alone = [
            uuid
            for suffix, uuids in self.mappings.items()
            if suffix != UNNUMBERED
            for uuid in uuids
        ]
        return len(set(alone)) == len(alone)

    def is_whole(self, groups: Sequence[RequestGroup], *, has_mappings: bool) -> bool:
        """Return whether the mappings fit the groups, and all providers have summaries."""
        takers = {group.suffix for group in groups if group.resources}
        mapped = {uuid for suffix in takers for uuid in self.mappings.get(suffix, ())}
        sources = mapped | self.allocations.keys()
        roots = {self.providers[one].root_provider_uuid for one in sources & self.providers.keys()}
        if not sources | roots <= self.providers.keys():
            return False
        if not has_mappings:
            return not self.mappings
        return self.mappings.keys() == {one.suffix for one in groups} and mapped == sources


def sum_amounts(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    """Return the total amounts, by resource class."""
    total: Counter[str] = Counter()
    for amounts in parts:
        total.update(amounts)
    return total


def from_answer(
    request: ResourceRequest, answer: AllocationCandidates, *, has_mappings: bool
) -> list[Candidate]:
    """Return the candidates in Placement's answer to a request. Raises UnexpectedAnswer."""
    candidates = _candidates(answer)
    asked = sum_amounts(group.resources for group in request.groups)
    for candidate in candidates:
        if not candidate.is_whole(request.groups, has_mappings=has_mappings):
            raise _unexpected(
                "a candidate has a provider without a provider summary, or its mappings do not "
                "fit the groups of the request. It has allocations of "
                f"{', '.join(candidate.allocations)}."
            )
        if (given := sum_amounts(candidate.allocations.values())) != asked:
            raise _unexpected(f"a candidate has {dict(given)}, but {dict(asked)} is requested.")
    return candidates


def _unexpected(detail: str) -> UnexpectedAnswer:
    return UnexpectedAnswer(
        request="GET /allocation_candidates", status=HTTPStatus.OK, code="", detail=detail
    )


def _candidates(answer: AllocationCandidates) -> list[Candidate]:
    return [
        Candidate(
            allocations={uuid: its["resources"] for uuid, its in one.allocations.items()},
            mappings={suffix: tuple(uuids) for suffix, uuids in one.mappings.items()},
            providers=answer.provider_summaries,
        )
        for one in answer.allocation_requests
    ]
