"""Find and claim an allocation candidate for a flavor."""

import random
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import os_traits
from oslo_log import log as logging

from wharfinger.allocations.allocation_writer import Allocations, Consumer, Consumers, was_refused
from wharfinger.conf import SchedulingSection
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentUpdate,
    InvalidRequest,
    NoCandidates,
    PlacementError,
)
from wharfinger.objects import ComputeNode, ComputeNodeList, Context, Flavor
from wharfinger.providers import ownership
from wharfinger.scheduling import ResourceRequest, requested_names
from wharfinger.scheduling.candidate import sum_amounts
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.flavor_request import from_flavor
from wharfinger.scheduling.profile_sources import read_profile
from wharfinger.scheduling.request_filters import Candidate, RequestFilter, Surroundings, loader
from wharfinger.tracker.overlaid_nodes import overlaid_nodes

LOG: Final = logging.getLogger(__name__)
SHARES: Final = os_traits.MISC_SHARES_VIA_AGGREGATE
#: Limit of candidates in one search.
_CHOICE: Final = 50
#: How many candidates of one search are tried, and how many searches one claim makes.
_TRIED: Final = 10
_SEARCHES: Final = 5
#: How many places of free candidates an error names.
_PLACES_SHOWN: Final = 3
#: The name of the filter Places. Names of configured request filters have no space.
_PLACES: Final = "the node"

#: Returns whether an instance may be placed on a node.
Suits = Callable[[ComputeNode], bool]
#: A candidate, and the node that it is on.
Choice = tuple[Allocations, ComputeNode]


def anywhere(_node: ComputeNode) -> bool:
    """Accept every node."""
    return True


def place_of(node: ComputeNode) -> tuple[str, str]:
    """Return the service host and the name of a node."""
    return node.host, node.hypervisor_hostname


def nodes_of(context: Context, roots: Iterable[str]) -> list[ComputeNode]:
    """Return the nodes with these root uuids. Raises ObjectError and StateError."""
    wanted = sorted(roots)
    rows = ComputeNodeList.get_by_filters(context, uuid=wanted) if wanted else ()
    found = [one for one in rows if "host" in one and "hypervisor_hostname" in one]
    unknown = sorted(set(wanted) - {one.uuid for one in rows})
    return found + (overlaid_nodes(context, provider_uuid=unknown) if unknown else [])


class Places(RequestFilter):
    """Request filter that accepts candidates on suitable nodes.

    Use it for one search only, since it caches the nodes.
    """

    def __init__(self, context: Context, suits: Suits) -> None:
        self._context: Final = context
        self._suits: Final = suits
        self._nodes: Final[dict[str, list[ComputeNode]]] = {}
        #: The places of refused candidates.
        self.elsewhere: Final[dict[str, None]] = {}

    def nodes(self, candidate: Candidate) -> list[ComputeNode]:
        """Return the nodes that a candidate is on. If it is suitable, that is one node."""
        roots = _roots(candidate)
        if not roots <= self._nodes.keys():
            trees = {one.root_provider_uuid for one in candidate.providers.values()}
            unknown = trees - self._nodes.keys()
            self._nodes.update((root, []) for root in unknown)
            for one in nodes_of(self._context, unknown):
                self._nodes[one.uuid].append(one)
        return [node for root in sorted(roots) for node in self._nodes[root]]

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Return where an unsuitable candidate is, as text; None if it suits."""
        nodes = self.nodes(candidate)
        if len(nodes) == 1 and self._suits(nodes[0]):
            return None
        if nodes:
            places = {f"node {one.hypervisor_hostname} of host {one.host}" for one in nodes}
            place = f"on {' and '.join(sorted(places))}"
            if len(nodes) > 1:
                place += ", but an instance has one node"
        else:
            roots = ", ".join(sorted(_roots(candidate)))
            place = f"of root provider {roots}, which is not a node of a driver instance"
        self.elsewhere[place] = None
        return place


def _roots(candidate: Candidate) -> set[str]:
    providers = [candidate.providers[uuid] for uuid in candidate.allocations]
    own = [one for one in providers if SHARES not in one.traits]
    return {one.root_provider_uuid for one in own or providers}


class FlavorSearch:
    """Finds and claims candidates for flavors."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Load the request filters; raises ConfigurationError."""
        names = SchedulingSection.read(surroundings.conf).request_filters
        self.surroundings: Final = surroundings
        self.consumers: Final = Consumers(surroundings.placement)
        self._filters: Final = loader.load(names, surroundings)

    def fits(self, flavor: Flavor, allocations: Allocations) -> bool:
        """Return whether amounts equal a flavor's, and no owner differs.

        Raises DeviceProfileError, InvalidRequest and PlacementError.
        """
        groups = self._request(flavor).groups
        if sum_amounts(allocations.values()) != sum_amounts(group.resources for group in groups):
            return False
        for provider, amounts in allocations.items():
            owners = ownership.owners(self.surroundings.placement.get_traits(provider).traits)
            wanted = {one.owner for one in groups if not one.resources.keys().isdisjoint(amounts)}
            if owners and owners.isdisjoint(wanted):
                return False
        return True

    def where(self, allocations: Allocations) -> ComputeNode | None:
        """Return the node of allocations; None if there is not exactly one."""
        # As in a search, sharing providers count only if there are no others.
        roots = self._roots(allocations, f"!{SHARES}") or self._roots(allocations)
        nodes = nodes_of(self.surroundings.objects, roots)
        return nodes[0] if len(nodes) == 1 else None

    def _roots(self, providers: Iterable[str], *required: str) -> set[str]:
        return {
            one.root_provider_uuid
            for uuid in providers
            for one in self.surroundings.placement.list_providers(uuid=uuid, required=required)
        }

    def take(
        self, consumer: Consumer, flavor: Flavor, suits: Suits, claim: Callable[[Allocations], None]
    ) -> Choice:
        """Allocate a free candidate with ``claim``; return its allocations and its node.

        Raises NoCandidates if no candidate can be claimed, and ConcurrentUpdate if ``consumer`` has
        changed. Also raises AllocationRefused, InvalidRequest, DeviceProfileError and
        RequestFilterError.
        """
        if flavor.disabled:
            raise AllocationRefused(
                instance=consumer.uuid,
                problem=f"flavor {flavor.name} is disabled.",
                remedy="Use another flavor.",
            )
        gone: PlacementError | None = None
        for _ in range(_SEARCHES):
            if isinstance(gone, ConcurrentUpdate) and consumer.generation is None:
                self.consumers.note_left(consumer.uuid)
            choices, problem = self._find(flavor, suits)
            if not choices:
                break
            # After the first, try random candidates, so that concurrent claims try different ones.
            others = random.sample(choices[1:], min(len(choices), _TRIED) - 1)
            for choice in (choices[0], *others):
                try:
                    claim(choice[0])
                    return choice
                except PlacementError as error:
                    if not self._is_gone(consumer, error):
                        raise
                    LOG.info(
                        "Instance %s: an allocation candidate cannot be claimed: %s",
                        consumer.uuid,
                        error,
                    )
                    gone = error
        explain = shlex.join(["wharfinger", "candidate", "explain", "--flavor", flavor.name])
        remedy = f"Run `{explain}` to see why."
        if gone is not None:
            problem = f"other consumers have taken all free candidates: {gone}."
            remedy = "Repeat the command."
        raise NoCandidates(
            instance=consumer.uuid, flavor=flavor.name, problem=problem, remedy=remedy
        )

    def _find(self, flavor: Flavor, suits: Suits) -> tuple[list[Choice], str]:
        client = self.surroundings.placement
        places = Places(self.surroundings.objects, suits)
        request = self._request(flavor)
        try:
            found = CandidateSearch(client, {**self._filters, _PLACES: places}).find(
                replace(request, limit=_CHOICE)
            )
        except PlacementError as error:
            if error.status != HTTPStatus.BAD_REQUEST:
                raise
            requested_names.check_known(client, *requested_names.of_flavor(flavor, request))
            raise InvalidRequest(
                subject=f"flavor {flavor.name}",
                key="extra_specs",
                value=flavor.extra_specs,
                problem="Placement refuses the request that these extra specs make. Correct the "
                f"extra specs. Placement's answer: {error.detail}",
            ) from error
        if not found.candidates and not found.dropped:
            # Placement does not report all unknown names: it may stop before it reads a name.
            requested_names.check_known(client, *requested_names.of_flavor(flavor, request))
        choices = [(one.allocations, places.nodes(one)[0]) for one in found.candidates]
        return choices, _why_none(found.dropped.get(_PLACES, 0), list(places.elsewhere))

    def _request(self, flavor: Flavor) -> ResourceRequest:
        return from_flavor(flavor, lambda name: read_profile(self.surroundings.conf, name))

    def _is_gone(self, consumer: Consumer, error: PlacementError) -> bool:
        if isinstance(error, ConcurrentUpdate):  # a provider or the consumer has changed
            return self.consumers.get(consumer.uuid).generation == consumer.generation
        return was_refused(error)


def _why_none(count: int, places: Sequence[str]) -> str:
    if not count:
        return "no candidate is free."
    more = len(places) - _PLACES_SHOWN
    named = [*places[:_PLACES_SHOWN], *([f"{more} other places"] if more > 0 else [])]
    what = "free candidate is" if count == 1 else "free candidates are"
    return f"no candidate is free on a suitable node: {count} {what} elsewhere: {'; '.join(named)}."
