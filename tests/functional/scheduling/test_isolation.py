"""Requests never mix owners and lose no valid candidate.

Random requests go through the owner filter to a real Placement with random trees of providers
(forests). The results are compared with a search by brute force, which shares no code with the
filter and uses only Placement's API. Requests without owners are also compared with Placement's
answer.

WHARFINGER_FORESTS is the number of forests. A long run has 2000 and draws other forests each time;
the default run always draws the same.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.functional.scheduling.searching import asked
from tests.lab import forests
from tests.lab.brute_force import (
    UNNUMBERED,
    Candidate,
    Group,
    Providers,
    Request,
    Rule,
    candidates,
    owner_rule,
)
from tests.lab.drawing import Draw
from tests.lab.objects import KeptInFile
from tests.lab.placement import PlacementFixture
from tests.lab.samples import service
from wharfinger.conf import parse
from wharfinger.objects import OWNER_TAG_VERSION, Context
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidates import Candidates, CandidateSearch
from wharfinger.scheduling.request_filters import Surroundings
from wharfinger.scheduling.request_filters.owner import OwnerFilter

FORESTS = int(os.environ.get("WHARFINGER_FORESTS") or 0)
SHORT_VERSION = 120
REQUESTS_OF_EACH = 5

NOVA, CYBORG, ACME, NEWBORN = forests.OWNERS
CURRENT, FORMER = OWNER_TAG_VERSION, OWNER_TAG_VERSION - 1
#: Sets of services by name; each service has owners and a version.
SERVICES = {
    "all tag": [((NOVA, CYBORG), CURRENT), ((ACME,), CURRENT), ((NEWBORN,), CURRENT)],
    "some tag": [((NOVA,), CURRENT), ((CYBORG, ACME), CURRENT), ((CYBORG,), FORMER)],
    "there are none": [],
}
#: By set of services: the owners whose gates are on.
GATES = {
    "all tag": frozenset(forests.OWNERS),
    "some tag": frozenset((NOVA, ACME)),
    "there are none": frozenset[str](),
}

ANY_REQUEST = ResourceRequest(groups=(RequestGroup(resources={"VCPU": 1}, owner=NOVA),))


@dataclass(frozen=True, repr=False)
class World:
    """A Placement with a forest, and what the owner filter needs."""

    placement: PlacementFixture
    objects: dict[str, Context]

    def get(self, path: str) -> Any:
        answer = self.placement.adapter.request(path, "GET", microversion="1.39", raise_exc=False)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    def plain_candidates(self, request: Request) -> list[Candidate]:
        """Return Placement's candidates without regard to owners."""
        query = urlencode(list(_query(request)))
        return [
            Candidate(
                frozenset(
                    (uuid, kind, amount)
                    for uuid, its in one["allocations"].items()
                    for kind, amount in its["resources"].items()
                ),
                _mapped(one["mappings"]),
            )
            for one in self.get(f"/allocation_candidates?{query}")["allocation_requests"]
        ]

    def new_filter(self, services: str, untagged: str) -> OwnerFilter:
        """Return an owner filter whose cache is empty and does not expire during a test."""
        conf = parse([])
        conf.set_override("untagged", untagged, "scheduling")
        conf.set_override("cache_time", 86400, "scheduling")
        return OwnerFilter(Surroundings(conf, self.placement.client, self.objects[services]))

    def search(self, owner_filter: OwnerFilter) -> CandidateSearch:
        """Return a search with that filter alone."""
        return CandidateSearch(self.placement.client, {"owner": owner_filter})


@pytest.fixture(scope="module")
def world(
    placement_service: EmbeddedPlacement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with PlacementFixture(placement_service) as placement:
        kept = {
            name: placement.useFixture(KeptInFile(tmp_path_factory.mktemp("objects")))
            for name in SERVICES
        }
        for name, services in SERVICES.items():
            for number, (owners, version) in enumerate(services):
                service(kept[name].context, number, owners=[*owners], version=version).create()
        yield World(placement, {name: one.context for name, one in kept.items()})
        forests.empty()


def test_owner_filter_never_mixes_owners_and_drops_nothing_else(world: World, draw: Draw) -> None:
    seen: Counter[str] = Counter()

    @settings(
        max_examples=FORESTS or draw.number(SHORT_VERSION, some=6),
        derandomize=not FORESTS,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def in_any_forest(data: st.DataObject) -> None:
        seen["forests"] += 1
        for found in _asked_in_a_forest(world, data):
            seen[found] += 1

    in_any_forest()
    print(", ".join(f"{count} {what}" for what, count in seen.items()))
    # The test proves little if few requests could have mixed owners or lost candidates.
    assert min(seen["mixed"], seen["unmixed"], seen["several, some mixed"]) > seen["forests"] / 10


def _asked_in_a_forest(world: World, data: st.DataObject) -> Iterator[str]:
    """Send requests in a random forest; yield the type of each answer."""
    forest = data.draw(forests.forests(), "forest")
    services = data.draw(st.sampled_from(sorted(SERVICES)), "services")
    untagged = data.draw(st.sampled_from(("forbid", "allow")), "untagged")
    rules = Rules(untagged == "allow", GATES[services])
    owner_filter = world.new_filter(services, untagged)
    forests.empty()
    if is_unheard_of := data.draw(st.booleans(), "the newborn is unheard of"):
        owner_filter.apply(ANY_REQUEST)
    forests.publish(forest)
    search = world.search(owner_filter)
    providers = Providers.read(world.get)
    for _ in range(REQUESTS_OF_EACH):
        request = data.draw(forests.requests(forest), "request")
        offered = world.plain_candidates(request)
        assert len(set(offered)) == len(offered)
        assert set(offered) == candidates(providers, request)
        if not offered:
            yield "unanswered"
            continue
        limit = data.draw(st.sampled_from((None, None, None, 1, 2, 3)), "limit")
        if len(request.groups.keys() - {UNNUMBERED}) > 1 and data.draw(st.booleans(), "isolate"):
            # Isolate only some requests: Placement cannot answer each isolated request correctly.
            request = replace(request, group_policy="isolate")
        expected = candidates(providers, request, rules.owner_rule())
        answer = search.find(asked(request, limit))
        found = _found(answer)
        assert len(found) == len(answer.candidates)
        assert not _mixed(providers, request, found)
        if limit is None:
            assert found == expected
        else:
            assert found <= expected
            assert len(found) == min(limit, len(expected))
        if limit is None and not is_unheard_of:
            near = candidates(providers, rules.narrowed(request))
            assert answer.dropped.get("owner", 0) == len(near) - len(expected)
        yield _kind(len(offered), len(expected))


def _kind(offered: int, right: int) -> str:
    if right == offered:
        return "unmixed"
    return "several, some mixed" if right else "mixed"


@dataclass(frozen=True)
class Rules:
    """Settings of the owner filter: whether untagged providers are allowed, and the gates.

    ``gates`` are the owners whose gates are on.
    """

    untagged_allowed: bool
    gates: frozenset[str]

    def owner_rule(self) -> Rule:
        return owner_rule(
            untagged_allowed=self.untagged_allowed, gate_of=lambda owner: owner in self.gates
        )

    def narrowed(self, request: Request) -> Request:
        """Return the request with the part of the owner rule that Placement can check.

        The filter checks the other part and drops candidates.
        """
        return replace(
            request,
            groups={
                suffix: self._narrowed(group) if group.resources else group
                for suffix, group in request.groups.items()
            },
        )

    def _narrowed(self, group: Group) -> Group:
        others = frozenset(forests.OWNERS) - {group.owner}
        any_of = group.any_of
        if group.owner in self.gates and not self.untagged_allowed:
            any_of += (frozenset((group.owner, forests.SHARES)),)
        return replace(group, forbidden=group.forbidden | others, any_of=any_of)


def _mixed(providers: Providers, request: Request, found: set[Candidate]) -> list[str]:
    """Return the groups with an owner, and the providers of other owners that they use."""
    return [
        f"{request.groups[suffix].owner} from {uuid}"
        for one in found
        for suffix, uuids in one.mappings
        for uuid in uuids
        if request.groups[suffix].resources
        and providers.by_uuid[uuid].owners - {request.groups[suffix].owner}
    ]


def _found(answer: Candidates) -> set[Candidate]:
    return {
        Candidate(
            frozenset(
                (uuid, kind, amount)
                for uuid, resources in one.allocations.items()
                for kind, amount in resources.items()
            ),
            _mapped(one.mappings),
        )
        for one in answer.candidates
    }


def _mapped(mappings: Any) -> frozenset[tuple[str, frozenset[str]]]:
    return frozenset((suffix, frozenset(uuids)) for suffix, uuids in mappings.items())


def _query(request: Request) -> Iterator[tuple[str, str]]:
    for suffix, group in request.groups.items():
        for key, value in _conditions(group):
            yield f"{key}{suffix}", value
    if request.group_policy:
        yield "group_policy", request.group_policy
    for suffixes in request.same_subtree:
        yield "same_subtree", ",".join(suffixes)
    if root := [*request.root_required, *(f"!{trait}" for trait in request.root_forbidden)]:
        yield "root_required", ",".join(root)


def _conditions(group: Group) -> Iterator[tuple[str, str]]:
    if group.resources:
        yield "resources", ",".join(f"{kind}:{amount}" for kind, amount in group.resources.items())
    if traits := [*group.required, *(f"!{trait}" for trait in group.forbidden)]:
        yield "required", ",".join(traits)
    for choice in group.any_of:
        yield "required", f"in:{','.join(choice)}"
    for aggregates in group.member_of:
        yield "member_of", f"in:{','.join(aggregates)}"
    for aggregate in group.forbidden_aggregates:
        yield "member_of", f"!{aggregate}"
    if group.in_tree:
        yield "in_tree", group.in_tree
