"""Request filters in a search: they narrow the request or drop candidates; the search counts these.

tests/unit/scheduling/test_filter_loader.py tests how filters are loaded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, publish, publish_owners
from tests.functional.scheduling.searching import (
    CYBORG,
    NOVA,
    Searching,
    asking,
    takers,
    wanted,
)
from tests.lab.placement import PlacementFixture, lower
from wharfinger.exceptions import InvalidRequest, RequestFilterError
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import ResourceRequest
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.candidates import Candidates, CandidateSearch
from wharfinger.scheduling.request_filters import RequestFilter, loader

DISABLED = "COMPUTE_STATUS_DISABLED"
AVX = "HW_CPU_X86_AVX"
FAST = "CUSTOM_FAST"
ONLY_STATUS = "request_filters = compute_status"
GPU = wanted(asking(owner=NOVA, VCPU=1, VGPU=1))


class Checks(RequestFilter):
    """A filter that drops candidates with the trait CUSTOM_FAST."""

    def __init__(self) -> None: ...

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        fast = any(FAST in candidate.providers[one].traits for one in candidate.allocations)
        return "too fast" if fast else None


class Narrows(RequestFilter):
    """A filter that forbids the trait CUSTOM_FAST in the request."""

    def __init__(self) -> None: ...

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        slow = TraitConditions(forbidden=frozenset([FAST]))
        groups = (replace(one, traits=one.traits & slow) for one in request.groups)
        return replace(request, groups=tuple(groups))


@dataclass
class Sees(RequestFilter):
    """A filter that keeps the requests that it receives, and raises ``error`` if it is set."""

    error: Exception | None = None
    seen: list[ResourceRequest] = field(default_factory=list)

    def apply(self, request: ResourceRequest) -> ResourceRequest:
        self.seen.append(request)
        if self.error:
            raise self.error
        return request


@pytest.fixture
def searching(placement: PlacementFixture, tmp_path: Path) -> Iterator[Searching]:
    """A search setup in which no provider exists and nova's gate is on."""
    with Searching(placement, tmp_path) as fixture:
        fixture.has_services(([NOVA], OWNER_TAG_VERSION))
        yield fixture


@pytest.fixture
def host(searching: Searching) -> Searching:
    """The providers of ``publish_owners``: n of nova, which is fast, u untagged, and others."""
    publish_owners(searching.placement.client)
    return searching


def find(searching: Searching, request: ResourceRequest, **filters: RequestFilter) -> Candidates:
    """Search with these filters, in this order."""
    search = CandidateSearch(searching.placement.client, filters)
    searching.asked()
    return search.find(request)


def ours(searching: Searching, *names: str) -> dict[str, RequestFilter]:
    return loader.load(names, searching.surroundings())


def test_filter_that_checks_drops_and_filter_that_narrows_drops_nothing(
    host: Searching,
) -> None:
    checked = find(host, GPU, mine=Checks())
    narrowed = find(host, GPU, mine=Narrows())

    for found in (checked, narrowed):
        assert sorted(takers(found.candidates, *"nyau")) == ["a", "u", "y"]
    assert checked.dropped == {"mine": 1}
    assert narrowed.dropped == {}
    [query] = host.asked()
    assert "required=!CUSTOM_FAST" in query


def test_candidate_is_dropped_once_by_the_first_filter_that_objects(host: Searching) -> None:
    owner = ours(host, "owner")["owner"]
    for filters in ({"owner": owner, "mine": Checks()}, {"mine": Checks(), "owner": owner}):
        found = find(host, GPU, **filters)
        assert (found.candidates, found.dropped) == ((), {"owner": 1, "mine": 1})
    found = find(host, GPU, second=Checks(), first=Checks())
    assert (len(found.candidates), found.dropped) == (3, {"second": 1})


def test_each_filter_receives_the_request_of_those_before_it(host: Searching) -> None:
    for names in ([], ["compute_status"], ["owner"], ["owner", "compute_status"]):
        sees = Sees()
        find(host, GPU, **ours(host, *names), mine=sees, narrows=Narrows())

        [request] = sees.seen
        [group] = request.groups
        assert (CYBORG in group.traits.forbidden) is ("owner" in names)
        assert request.root.forbidden == ({DISABLED} if "compute_status" in names else set())
        assert FAST not in group.traits.forbidden


def test_filter_that_raises_ends_the_search_before_candidates_are_requested(
    host: Searching,
) -> None:
    wrong = InvalidRequest(subject="request", key="required", value="", problem="Not so.")

    with pytest.raises(InvalidRequest, match="Not so"):
        find(host, GPU, **ours(host, "owner"), mine=Sees(wrong))

    assert not any("candidates" in one for one in host.asked())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def apply(self, request): return None", "request filter mine: apply returned None "),
        ("def apply(self, request): return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def objection(self, request, candidate): raise SystemExit(0)", "SystemExit: 0"),
        ("def objection(self, request, candidate): return [].pop()", "IndexError: pop from"),
    ],
)
def test_filter_that_fails_ends_the_search_with_its_name(
    host: Searching, body: str, told: str
) -> None:
    namespace: dict[str, Any] = {"RequestFilter": RequestFilter}
    exec(f"class Filter(RequestFilter):\n    {body}", namespace)

    with pytest.raises(RequestFilterError, match=re.escape(told)) as caught:
        find(host, GPU, mine=namespace["Filter"](host.surroundings()))

    assert caught.value.name == "mine"


# The filter compute_status, and the filter of the documentation.


def test_child_of_a_disabled_root_on_an_older_server_is_dropped(
    searching: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(searching.placement.client, "off", {"VCPU": 1}, DISABLED, NOVA)
    publish(searching.placement.client, "gpu", {"VGPU": 1}, NOVA, below="off")
    lower(monkeypatch, "1.34")

    found = searching.search(ONLY_STATUS).find(wanted(asking(owner=NOVA, VGPU=1)))

    assert not found.candidates
    assert found.dropped == {"compute_status": 1}
    assert "root_required" not in searching.asked()[0]


def test_root_conditions_of_request_and_filter_are_combined(
    searching: Searching,
) -> None:
    for name, trait in (("fast", AVX), ("slow", NOVA), ("off", DISABLED)):
        publish(searching.placement.client, name, {"VCPU": 1}, trait)
    request, search = wanted(asking(VCPU=1)), searching.search(ONLY_STATUS)

    def with_root(trait: str) -> ResourceRequest:
        return replace(request, root=TraitConditions(required=frozenset([trait])))

    assert takers(search.find(with_root(AVX)).candidates, "fast", "slow") == ["fast"]
    assert len(search.find(request).candidates) == 2
    searching.asked()
    with pytest.raises(InvalidRequest, match="filter compute_status forbids this trait") as caught:
        search.find(with_root(DISABLED))
    assert (caught.value.key, caught.value.value) == ("root_required", DISABLED)
    assert not searching.asked()


def test_filter_of_the_documentation_works(searching: Searching) -> None:
    page = (Path(__file__).parents[3] / "docs/explanation/asking-for-resources.rst").read_text()
    [code] = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", page)
    namespace: dict[str, Any] = {}
    exec(dedent(code), namespace)
    client = searching.placement.client
    client.create_trait("CUSTOM_SSD")
    publish(client, "fast", {"VCPU": 1, "DISK_GB": 9}, "CUSTOM_SSD", aggregate=AGGREGATE)
    publish(client, "slow", {"DISK_GB": 9}, "MISC_SHARES_VIA_AGGREGATE", aggregate=AGGREGATE)
    publish(client, "old", {"VCPU": 1, "DISK_GB": 9})
    ssd = namespace["SsdFilter"](searching.surroundings())

    found = find(searching, wanted(asking(VCPU=1, DISK_GB=1)), ssd=ssd)

    assert takers(found.candidates, "fast", "slow", "old") == ["fast"]
    assert found.dropped == {"ssd": 1}
    assert len(find(searching, wanted(asking(VCPU=1)), ssd=ssd).candidates) == 2
