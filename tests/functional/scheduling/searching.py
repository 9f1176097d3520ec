"""Searches for candidates as programs make them, and a clock that tests advance."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import fixtures
from cachetools import TTLCache

from tests.lab.brute_force import Request
from tests.lab.cycles import make_state
from tests.lab.objects import KeptInFile
from tests.lab.placement import PlacementFixture
from tests.lab.samples import service, uuid
from wharfinger.conf import SchedulingSection, load
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.request_filters import RequestFilter, Surroundings, loader

NOVA, CYBORG, ACME = "OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME"
#: Seconds for which a search caches owner traits and gates.
CACHE_TIME = 30
BEFORE = OWNER_TAG_VERSION - 1


class Clock(fixtures.Fixture):
    """The clock of the caches of owner traits and gates.

    The gate of an owner is on if all services of the owner tag their providers.
    """

    def _setUp(self) -> None:
        self.now = 0.0
        for module in ("scheduling.owner_tagging_gates", "placement.owner_trait_reader"):
            name = f"wharfinger.{module}.TTLCache"
            self.useFixture(fixtures.MonkeyPatch(name, partial(TTLCache, timer=lambda: self.now)))

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Seeing(RequestFilter):
    """A request filter that accepts all candidates and collects them in ``candidates``."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.candidates: list[Candidate] = []

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        self.candidates.append(candidate)
        return None


class Searching(fixtures.Fixture):
    """Searches in a Placement, with a database of services."""

    def __init__(self, placement: PlacementFixture, directory: Path) -> None:
        super().__init__()
        self.placement = placement
        self.directory = directory

    def _setUp(self) -> None:
        self.clock = self.useFixture(Clock())
        make_state(self.directory)
        self.kept = self.useFixture(KeptInFile(self.directory))

    def surroundings(self, *lines: str) -> Surroundings:
        """Return what filters need: these options of [scheduling], a new client, the database."""
        path = self.directory / "scheduling.conf"
        path.write_text("\n".join(["[scheduling]", f"cache_time = {CACHE_TIME}", *lines, ""]))
        client = self.placement.new_client()
        return Surroundings(load([str(path)]), client, self.kept.context)

    def search(self, *lines: str) -> CandidateSearch:
        """Return a search with the configured filters; clear the list of requests."""
        its = self.surroundings(*lines)
        names = SchedulingSection.read(its.conf).request_filters
        search = CandidateSearch(its.placement, loader.load(names, its))
        assert its.placement.microversion  # a client requests the version only once; do it now
        self.placement.requests.clear()
        return search

    def order(self, request: ResourceRequest, *lines: str) -> list[Candidate]:
        """Return the unfiltered candidates for a request, in Placement's order.

        The order stays the same for the same providers in one process.
        """
        its = self.surroundings(*lines)
        seeing = Seeing(its)
        filters = loader.load(SchedulingSection.read(its.conf).request_filters, its)
        CandidateSearch(its.placement, {"seeing": seeing, **filters}).find(request)
        return seeing.candidates

    def has_services(self, *services: tuple[Iterable[str], int]) -> None:
        """Store services, each with its owners and its version."""
        for number, (owners, version) in enumerate(services):
            service(self.kept.context, number, owners=list(owners), version=version).create()

    def asked(self) -> list[str]:
        """Return the requests since the last call, or since ``search()``."""
        seen = list(self.placement.requests.seen)
        self.placement.requests.clear()
        return seen


def asking(
    *said: str, suffix: str = "", owner: str | None = None, **resources: int
) -> RequestGroup:
    """Return a request group for these amounts, with these conditions on traits."""
    return RequestGroup(
        suffix=suffix, resources=resources, traits=TraitConditions.parse(said), owner=owner
    )


def wanted(*groups: RequestGroup, **values: Any) -> ResourceRequest:
    policy = "none" if sum(bool(group.suffix) for group in groups) > 1 else None
    return ResourceRequest(groups=groups, **({"group_policy": policy} | values))


def asked(request: Request, limit: int | None = None) -> ResourceRequest:
    """Return the requests since the last call, or since the search was created."""
    return ResourceRequest(
        groups=tuple(
            RequestGroup(
                suffix=suffix,
                resources=group.resources,
                traits=TraitConditions(
                    required=group.required,
                    any_of=frozenset(group.any_of),
                    forbidden=group.forbidden,
                ),
                member_of=group.member_of,
                forbidden_aggregates=group.forbidden_aggregates,
                in_tree=group.in_tree,
                owner=None if group.owner in group.required else group.owner,
            )
            for suffix, group in request.groups.items()
        ),
        group_policy=request.group_policy,  # type: ignore[arg-type]
        same_subtree=request.same_subtree,
        root=TraitConditions(required=request.root_required, forbidden=request.root_forbidden),
        limit=limit,
    )


def takers(candidates: Iterable[Candidate], *names: str) -> list[str]:
    """Return, for each candidate, those of the named providers that it uses."""
    return [
        " ".join(name for name in names if uuid(name) in candidate.allocations)
        for candidate in candidates
    ]
