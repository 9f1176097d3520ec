"""What an instance of a flavor can have: candidates are tried in turn, until one is still free."""

import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from oslo_log import log as logging

from wharfinger.allocations.allocation_writer import (
    Allocations,
    Consumer,
    Consumers,
    amounts_of,
    was_refused,
)
from wharfinger.allocations.candidate_nodes import Places, Suits
from wharfinger.conf import SchedulingSection
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentUpdate,
    InvalidRequest,
    NoCandidates,
    PlacementError,
)
from wharfinger.objects import ComputeNode, Flavor
from wharfinger.providers import ownership
from wharfinger.scheduling import ResourceRequest, requested_names
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.extra_specs import from_flavor
from wharfinger.scheduling.filters import Surroundings, loader
from wharfinger.scheduling.profile_sources import read_profile

LOG: Final = logging.getLogger(__name__)
#: Candidates of one search; of those that go, others take some at the same time.
_CHOICE: Final = 50
#: How many of them are tried before candidates are asked for anew, and how often that is done.
_TRIED: Final = 10
_SEARCHES: Final = 5
#: In the place of a request filter's name, which has no space in it.
_PLACES: Final = "the node"


@dataclass(frozen=True, slots=True)
class Choice:
    """A candidate, and the node that it is on."""

    allocations: Allocations
    node: ComputeNode


class FlavorSearch:
    """Finds what instances of flavors can have, by the configured request filters."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Raises ConfigurationError."""
        names = SchedulingSection.read(surroundings.conf).request_filters
        self._surroundings: Final = surroundings
        self.consumers: Final = Consumers(surroundings.placement)
        self._filters: Final = loader.load(names, surroundings)

    def fits(self, flavor: Flavor, allocations: Allocations) -> bool:
        """Whether allocations may be a flavor's: its amounts, of the owners that it asks."""
        request = self._request(flavor)
        return amounts_of(allocations) == _total(request) and all(
            self._is_of(provider, _owners(request, amounts))
            for provider, amounts in allocations.items()
        )

    def _is_of(self, provider: str, owners: Set[str | None]) -> bool:
        found = ownership.owners(self._surroundings.placement.get_traits(provider).traits)
        return not found or not found.isdisjoint(owners)

    def take(
        self,
        consumer: Consumer,
        flavor: Flavor,
        suits: Suits,
        claim: Callable[[Choice], None],
    ) -> Choice:
        """Claim what is free for an instance; ``claim`` raises what Placement says to it.

        Raises NoCandidates where nothing is free, or everything was gone again; ConcurrentUpdate
        where the ``consumer`` is not as it was read; and what a search raises.
        """
        if flavor.disabled:
            raise AllocationRefused(
                instance=consumer.uuid,
                problem=f"flavor {flavor.name} is disabled.",
                remedy="Name another one.",
            )
        gone: PlacementError | None = None
        for _ in range(_SEARCHES):
            if isinstance(gone, ConcurrentUpdate) and consumer.generation is None:
                self.consumers.note_left(consumer.uuid)
            choices, dropped = self._find(flavor, suits)
            if not choices:
                raise _none(consumer, flavor, dropped, gone)
            for choice in _in_turn(choices):
                try:
                    claim(choice)
                except PlacementError as error:
                    if not self._is_gone(consumer, error):
                        raise
                    LOG.info("instance %s: the next candidate: %s", consumer.uuid, error)
                    gone = error
                else:
                    return choice
        raise _none(consumer, flavor, {}, gone)

    def _find(self, flavor: Flavor, suits: Suits) -> tuple[list[Choice], Mapping[str, int]]:
        """What is free, in Placement's order, and how many candidates each filter drops."""
        places = Places(self._surroundings.objects, suits)
        request = self._request(flavor)
        search = CandidateSearch(self._surroundings.placement, {**self._filters, _PLACES: places})
        try:
            found = search.find(replace(request, limit=_CHOICE))
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            self._check_names(flavor, request)
            raise InvalidRequest(
                subject=f"flavor {flavor.name}",
                key="extra_specs",
                value=flavor.extra_specs,
                problem=f"Placement refuses what they ask for: {error.detail}",
            ) from error
        if not found.candidates and not found.dropped:
            # Placement may answer without a look at a name that it does not know.
            self._check_names(flavor, request)
        choices = [
            Choice(one.allocations, node)
            for one in found.candidates
            if (node := places.node(one)) is not None
        ]
        return choices, found.dropped

    def _check_names(self, flavor: Flavor, request: ResourceRequest) -> None:
        """Raise InvalidRequest for a trait or a resource class that Placement does not know."""
        requested_names.check_known(
            self._surroundings.placement, *requested_names.of_flavor(flavor, request)
        )

    def _request(self, flavor: Flavor) -> ResourceRequest:
        return from_flavor(flavor, lambda name: read_profile(self._surroundings.conf, name))

    def _is_gone(self, consumer: Consumer, error: PlacementError) -> bool:
        """Whether it is the candidate that is gone, and not the consumer that has changed."""
        if isinstance(error, ConcurrentUpdate):  # of a provider that many write to, perhaps
            return self.consumers.get(consumer.uuid).generation == consumer.generation
        return was_refused(error)


def _total(request: ResourceRequest) -> Counter[str]:
    total: Counter[str] = Counter()
    for group in request.groups:
        total.update(group.resources)
    return total


def _owners(request: ResourceRequest, amounts: Iterable[str]) -> set[str | None]:
    """Whose resources of these classes are asked for."""
    return {one.owner for one in request.groups if not one.resources.keys().isdisjoint(amounts)}


def _in_turn(choices: list[Choice]) -> Iterator[Choice]:
    """The first, and then any: who comes at the same time is not to go the same way."""
    yield choices[0]
    others = choices[1:]
    yield from random.sample(others, min(len(others), _TRIED - 1))


def _none(
    consumer: Consumer, flavor: Flavor, dropped: Mapping[str, int], gone: PlacementError | None
) -> NoCandidates:
    problem = "nothing is free for it."
    if elsewhere := dropped.get(_PLACES):
        problem = (
            "nothing is free for it where it may go: what is free is on its own node, on another "
            f"than was said, or on what no driver instance publishes (candidates: {elsewhere})."
        )
    if gone is not None:
        problem = f"what was free for it went to others: {gone}."
    return NoCandidates(
        instance=consumer.uuid,
        flavor=flavor.name,
        problem=problem,
        remedy=f"`{shlex.join(['wharfinger', 'candidate', 'explain', '--flavor', flavor.name])}` "
        "says why.",
    )
