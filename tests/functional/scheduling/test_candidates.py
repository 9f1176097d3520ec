"""The search for candidates in the real Placement: results, dropped candidates and requests."""

import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, publish, publish_owners
from tests.functional.scheduling.searching import (
    ACME,
    BEFORE,
    CACHE_TIME,
    CYBORG,
    NOVA,
    Searching,
    asking,
    takers,
    wanted,
)
from tests.lab.placement import PlacementFixture, lower
from tests.lab.samples import service, uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import MicroversionUnsupported, PlacementError
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest, candidates
from wharfinger.scheduling.candidates import CandidateSearch

SHARES = "MISC_SHARES_VIA_AGGREGATE"
DISABLED = "COMPUTE_STATUS_DISABLED"
FAST = "CUSTOM_FAST"
OWN_FILTERS = "request_filters = owner"
NEW = "CUSTOM_OWNER_NEWBORN"
#: Each owner and the owner's GPU on the host of ``publish_owners``.
OWNERS = [(NOVA, "n"), (CYBORG, "y"), (ACME, "a"), (None, "u")]
OWNER_READS = [
    "GET /traits?name=startswith:OWNER_",
    "GET /traits?name=startswith:CUSTOM_OWNER_",
]


@pytest.fixture
def searching(placement: PlacementFixture, tmp_path: Path) -> Iterator[Searching]:
    """A search setup in which the gates of all owners are on."""
    with Searching(placement, tmp_path) as fixture:
        fixture.has_services(([NOVA, CYBORG, ACME], OWNER_TAG_VERSION))
        yield fixture


@pytest.fixture(autouse=True)
def as_few_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a search first request exactly the limit of the request."""
    monkeypatch.setattr(candidates, "_LOWEST_LIMIT", 1)


@pytest.fixture
def client(searching: Searching) -> WritingClient:
    for trait in (FAST, ACME):
        searching.placement.client.create_trait(trait)
    return searching.placement.client


@pytest.fixture
def newborn(client: WritingClient, placement: PlacementFixture) -> Iterator[Callable[[], str]]:
    """A function that creates an owner trait. The trait is deleted after the test."""

    def born() -> str:
        client.create_trait(NEW)
        return NEW

    yield born
    for one in client.list_providers(required=(NEW,)):
        client.set_traits(one.uuid, one.generation, [])
    answer = placement.adapter.request(f"/traits/{NEW}", "DELETE", microversion="1.39")
    assert answer.status_code == 204


@pytest.fixture
def host(searching: Searching) -> WritingClient:
    """The host of ``publish_owners``: GPUs n of nova, y of Cyborg, a of ACME, and u untagged."""
    publish_owners(searching.placement.client)
    return searching.placement.client


def candidate_requests(asked: list[str]) -> list[str]:
    return [one for one in asked if one.startswith("GET /allocation_candidates")]


def limits(asked: list[str]) -> list[str]:
    """Return the limits of the requests for candidates."""
    found = [re.search(r"limit=(\d+)", one) for one in candidate_requests(asked)]
    return [match[1] if match else "none" for match in found]


# Results.


def test_candidate_has_allocations_mappings_and_summaries(
    searching: Searching, host: WritingClient
) -> None:
    request = wanted(
        asking(owner=NOVA, VCPU=2, DISK_GB=10),
        asking(suffix="_N", owner=NOVA, VGPU=1),
        asking(suffix="_Y", owner=CYBORG, VGPU=1),
        asking(ACME, suffix="_A", VGPU=1),
        asking(suffix="_P", VGPU=1),
    )

    [found] = searching.search().find(request).candidates

    assert found.allocations == {
        uuid("cn"): {"VCPU": 2},
        uuid("s"): {"DISK_GB": 10},
        **{uuid(name): {"VGPU": 1} for name in "nyau"},
    }
    assert {suffix: set(uuids) for suffix, uuids in found.mappings.items()} == {
        "": {uuid("cn"), uuid("s")},
        **{f"_{name}": {uuid(its)} for name, its in zip("NYAP", "nyau", strict=True)},
    }
    assert found.providers[uuid("n")].traits == {NOVA, FAST}
    assert found.providers[uuid("n")].root_provider_uuid == uuid("cn")


def test_candidates_are_in_placements_order(searching: Searching, client: WritingClient) -> None:
    request = wanted(asking(owner=NOVA, VCPU=1))
    nothing = searching.search().find(replace(request, limit=5))
    assert (nothing.candidates, nothing.dropped) == ((), {})
    assert limits(searching.asked()) == ["5"]
    for number in range(5):
        publish(client, f"cn-{number}", {"VCPU": 8}, NOVA)
    order = [one.allocations for one in searching.order(request)]

    for limit, found in ((None, 5), (5, 5), (9, 5), (2, 2)):
        answer = searching.search().find(replace(request, limit=limit))
        assert [one.allocations for one in answer.candidates] == order[:found]
        assert answer.dropped == {}


def test_request_that_placement_refuses_is_an_error(
    searching: Searching, host: WritingClient
) -> None:
    with pytest.raises(PlacementError, match=r"400.*No such trait.*CUSTOM_UNHEARD_OF"):
        searching.search().find(wanted(asking("CUSTOM_UNHEARD_OF", owner=NOVA, VGPU=1)))


# Owners and groups.


@pytest.mark.parametrize("suffix", ["", "_GPU"])
def test_group_uses_providers_of_its_owner_and_without_owner_untagged_ones(
    searching: Searching, host: WritingClient, suffix: str
) -> None:
    search, allowing = searching.search(OWN_FILTERS), searching.search("untagged = allow")
    for owner, gpu in OWNERS:
        plain = wanted(asking(suffix=suffix, owner=owner, VGPU=1))
        named = wanted(asking(*([owner] if owner else []), suffix=suffix, VGPU=1))
        for request in (plain, named):
            assert takers(search.find(request).candidates, *"nyau") == [gpu]
        found = allowing.find(plain)
        assert sorted(takers(found.candidates, *"nyau")) == sorted({gpu, "u"})
        assert found.dropped == {}

    everything = wanted(asking(owner=NOVA, VCPU=1, VGPU=1))
    without_filters = CandidateSearch(host, {}).find(everything).candidates
    assert sorted(takers(without_filters, *"nyau")) == ["a", "n", "u", "y"]
    assert takers(search.find(everything).candidates, *"nyau") == ["n"]
    foreign = wanted(asking(owner=CYBORG, VCPU=1, VGPU=1))
    assert search.find(foreign).candidates == ()


def test_provider_with_two_owner_traits_is_never_offered(
    searching: Searching, client: WritingClient
) -> None:
    publish(client, "cn", {"VCPU": 8}, NOVA)
    publish(client, "both", {"VGPU": 4}, NOVA, CYBORG, below="cn")
    publish(client, "sharing", {"VGPU": 4}, NOVA, CYBORG, SHARES, aggregate=AGGREGATE)

    for line in ("untagged = forbid", "untagged = allow"):
        search = searching.search(line)
        for (owner, _gpu), suffix in product(OWNERS, ("", "_GPU")):
            found = search.find(wanted(asking(suffix=suffix, owner=owner, VGPU=1)))
            assert found.candidates == (), (line, owner, suffix)


def test_sharing_provider_is_used_by_its_owner_and_if_untagged_by_all(
    searching: Searching, client: WritingClient
) -> None:
    publish(client, "cn", {"VCPU": 8}, NOVA, aggregate=AGGREGATE)
    disks = {"nobodys": [], "own": [NOVA], "foreign": [CYBORG], "both": [NOVA, CYBORG]}
    for name, traits in disks.items():
        publish(client, name, {"DISK_GB": 100}, SHARES, *traits, aggregate=AGGREGATE)
    search = searching.search()
    apart = asking(owner=NOVA, VCPU=1), asking(suffix="_DISK", owner=NOVA, DISK_GB=1)
    for request in (wanted(asking(owner=NOVA, VCPU=1, DISK_GB=1)), wanted(*apart)):
        assert sorted(takers(search.find(request).candidates, *disks)) == ["nobodys", "own"]
    for suffix in ("", "_DISK"):
        of_nobody = search.find(wanted(asking(suffix=suffix, DISK_GB=1)))
        assert takers(of_nobody.candidates, *disks) == ["nobodys"]
    # A request that forbids sharing providers gets the node itself.
    itself = wanted(asking(f"!{SHARES}", owner=NOVA, VCPU=1))
    assert takers(search.find(itself).candidates, "cn") == ["cn"]


def test_group_without_resources_may_match_any_owner(
    searching: Searching, client: WritingClient
) -> None:
    publish(client, "cn", {"VCPU": 8}, NOVA)
    publish(client, "numa", {"MEMORY_MB": 512}, CYBORG, "HW_NUMA_ROOT", below="cn")
    publish(client, "gpu", {"VGPU": 4}, NOVA, below="numa")
    request = wanted(
        asking(suffix="_GPU", owner=NOVA, VGPU=1),
        asking("HW_NUMA_ROOT", suffix="_NUMA", owner=NOVA),
        same_subtree=(frozenset({"_GPU", "_NUMA"}),),
    )

    [found] = searching.search().find(request).candidates

    assert found.mappings == {"_GPU": (uuid("gpu"),), "_NUMA": (uuid("numa"),)}


def test_provider_that_is_only_in_a_subtree_needs_no_summary(
    searching: Searching, client: WritingClient
) -> None:
    """Placement summarises only trees with allocations; here only the other tree has one."""
    publish(client, "cn", {"VCPU": 1}, FAST, NOVA, aggregate=AGGREGATE)
    publish(client, "s", {"DISK_GB": 9}, SHARES, aggregate=AGGREGATE)
    request = wanted(
        asking(suffix="_A", owner=NOVA, DISK_GB=1),
        asking(FAST, suffix="_T", owner=NOVA),
        same_subtree=(frozenset({"_T"}),),
    )

    found = searching.search(OWN_FILTERS).find(request)

    assert takers(found.candidates, "cn", "s") == ["s"]


def test_owner_unknown_to_placement_is_offered_shared_providers(
    searching: Searching, host: WritingClient
) -> None:
    """The owner's gate is on, but Placement would refuse a request with the owner's trait."""
    service(searching.kept.context, 9, owners=[NEW], version=OWNER_TAG_VERSION).create()
    search = searching.search()

    assert takers(search.find(wanted(asking(owner=NEW, DISK_GB=1))).candidates, "s") == ["s"]
    assert search.find(wanted(asking(owner=NEW, VGPU=1))).candidates == ()


def test_disabled_host_is_not_offered(searching: Searching, client: WritingClient) -> None:
    for name, traits in (("cn-1", [NOVA, DISABLED]), ("cn-2", [NOVA])):
        publish(client, name, {"VCPU": 8}, *traits)
        publish(client, f"{name}-gpu", {"VGPU": 4}, NOVA, below=name)
    request = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_GPU", owner=NOVA, VGPU=1))

    assert takers(searching.search().find(request).candidates, "cn-1", "cn-2") == ["cn-2"]
    assert [one.count("root_required=!") for one in candidate_requests(searching.asked())] == [1]
    both = searching.search(OWN_FILTERS).find(request).candidates
    assert sorted(takers(both, "cn-1", "cn-2")) == ["cn-1", "cn-2"]


# Requests and log lines.


def gpu(limit: int | None) -> ResourceRequest:
    """Return a request for two resources of nova; the search must check its candidates."""
    return wanted(asking(owner=NOVA, VCPU=1, VGPU=1), limit=limit)


def many(searching: Searching, untagged: int, owned: int) -> list[str]:
    """Publish untagged GPUs and GPUs of nova on a host; return their names.

    In Placement's order, the untagged GPUs come first.
    """
    client = searching.placement.client
    publish(client, "cn", {"VCPU": 8}, NOVA)
    names = {uuid(name): name for name in (f"gpu-{one}" for one in range(untagged + owned))}
    for name in names.values():
        publish(client, name, {"VGPU": 4}, below="cn")
    order = [its for one in searching.order(gpu(None)) for its in one.allocations if its in names]
    for one in order[untagged:]:
        client.set_traits(one, client.get_traits(one).resource_provider_generation, [NOVA])
    return [names[one] for one in order]


@pytest.mark.parametrize(
    ("untagged", "owned", "cases"),
    [
        # By limit: the requested limits, and the numbers of found and of dropped candidates.
        (0, 3, {None: (["none"], 3, 0), 2: (["2"], 2, 0), 3: (["3"], 3, 0), 4: (["4"], 3, 0)}),
        (2, 1, {4: (["4"], 1, 2), 3: (["3", "30"], 1, 2), 2**31 - 1: (["2147483647"], 1, 2)}),
        (3, 3, {None: (["none"], 3, 3), 2: (["2", "20"], 2, 3)}),
        (11, 2, {1: (["1", "10", "none"], 1, 11)}),
        (11, 0, {1: (["1", "10", "none"], 0, 11)}),
    ],
)
def test_limited_search_asks_again_with_higher_limits(
    searching: Searching,
    untagged: int,
    owned: int,
    cases: dict[int | None, tuple[list[str], int, int]],
) -> None:
    names = many(searching, untagged, owned)
    for limit, (asked, found, dropped) in cases.items():
        search = searching.search()

        answer = search.find(gpu(limit))

        requests = searching.asked()
        assert limits(requests) == asked
        assert len(requests) == len(asked) + 2  # two more requests read the owner traits
        assert takers(answer.candidates, *names) == names[untagged:][:found]
        assert answer.dropped == ({"owner": dropped} if dropped else {})


def test_low_limit_is_raised_if_filters_may_drop_candidates(
    searching: Searching, host: WritingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    search = searching.search(OWN_FILTERS)

    found = search.find(gpu(1))

    assert (len(found.candidates), found.dropped) == (1, {"owner": 1})
    assert limits(searching.asked()) == ["100"]
    CandidateSearch(host, {}).find(gpu(1))
    assert limits(searching.asked()) == ["1"]


def test_candidates_of_separate_groups_need_no_check(searching: Searching) -> None:
    names = many(searching, untagged=5, owned=1)
    request = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_GPU", owner=NOVA, VGPU=1), limit=1)

    found = searching.search().find(request)

    assert takers(found.candidates, *names) == names[-1:]
    assert (limits(searching.asked()), found.dropped) == (["1"], {})


def test_dropped_candidates_are_counted_and_the_first_is_explained(
    searching: Searching, caplog: pytest.LogCaptureFixture
) -> None:
    names = many(searching, untagged=2, owned=1)
    search = searching.search()
    caplog.set_level(logging.INFO, logger="wharfinger.scheduling.candidates")

    search.find(wanted(asking(owner=NOVA, VCPU=1)))
    assert not any("drop" in line for line in caplog.messages)
    search.find(gpu(None))

    first, counts = (line for line in caplog.messages if "drop" in line)
    for told in ("Request filter owner", "VGPU", NOVA, uuid(names[0])):
        assert told in first
    assert counts == "Of 3 allocation candidates, Wharfinger dropped 2 by owner"


# Caches.


def test_owner_traits_are_read_once_within_the_cache_time(
    searching: Searching, host: WritingClient
) -> None:
    search = searching.search()
    for _ in range(3):
        search.find(wanted(asking(owner=NOVA, VGPU=1)))
        searching.clock.advance(CACHE_TIME / 3 - 0.1)

    asked = searching.asked()
    assert [one for one in asked if "traits?" in one] == OWNER_READS
    assert len(asked) == 5

    searching.clock.advance(CACHE_TIME)
    search.find(wanted(asking(owner=NOVA, VGPU=1)))
    assert [one for one in searching.asked() if "traits?" in one] == OWNER_READS


@pytest.mark.parametrize(("suffix", "untagged"), [("", "forbid"), ("_GPU", "allow")])
def test_new_owner_is_excluded_at_once_and_forbidden_from_then_on(
    searching: Searching,
    client: WritingClient,
    suffix: str,
    untagged: str,
    newborn: Callable[[], str],
) -> None:
    publish(client, "cn", {"VCPU": 8, "VGPU": 4}, NOVA)
    search = searching.search(f"untagged = {untagged}")
    request = wanted(
        *([asking(owner=NOVA, VCPU=1)] if suffix else []),
        asking(suffix=suffix, owner=NOVA, VGPU=1, **({} if suffix else {"VCPU": 1})),
    )
    assert takers(search.find(request).candidates, "cn", "new") == ["cn"]
    newborn()
    publish(client, "new", {"VGPU": 4}, NEW, below="cn")
    # A provider with a known owner trait, too, would otherwise satisfy the request.
    publish(client, "both", {"VGPU": 4}, NEW, NOVA, below="cn")
    searching.asked()

    first = search.find(request)
    [first_query] = candidate_requests(searching.asked())
    second = search.find(request)
    [second_query] = candidate_requests(searching.asked())

    for found in (first, second):
        assert takers(found.candidates, "cn", "new", "both") == ["cn"]
    assert first.dropped["owner"] >= 1
    assert second.dropped == {}
    assert NEW not in first_query
    assert f"!{NEW}" in second_query


def test_new_owner_gets_candidates_after_the_cache_time(
    searching: Searching, client: WritingClient, newborn: Callable[[], str]
) -> None:
    searching.kept.write("services", {"owners": f'["{NEW}"]'})
    search = searching.search()
    request = wanted(asking(owner=NEW, VGPU=1))
    assert search.find(request).candidates == ()
    newborn()
    publish(client, "new", {"VGPU": 4}, NEW)

    searching.clock.advance(CACHE_TIME)

    assert takers(search.find(request).candidates, "new") == ["new"]


def test_search_with_a_deleted_owner_trait_in_the_cache_tries_once_more(
    searching: Searching, host: WritingClient, placement: PlacementFixture
) -> None:
    host.create_trait(NEW)
    search = searching.search(OWN_FILTERS)
    request = wanted(asking(owner=NOVA, VCPU=1))
    assert len(search.find(request).candidates) == 1
    answer = placement.adapter.request(f"/traits/{NEW}", "DELETE", microversion="1.39")
    assert answer.status_code == 204
    searching.asked()

    assert len(search.find(request).candidates) == 1

    assert [one.partition("?")[0] for one in searching.asked()] == [
        "GET /allocation_candidates",
        *["GET /traits"] * 2,
        "GET /allocation_candidates",
    ]


def test_sixteen_threads_share_a_search(searching: Searching, host: WritingClient) -> None:
    search = searching.search()
    owners = OWNERS * 8

    with ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda one: search.find(wanted(asking(owner=one[0], VGPU=1))), owners)
        )

    assert [takers(one.candidates, *"nyau") for one in found] == [[gpu] for _owner, gpu in owners]
    asked = searching.asked()
    assert [one for one in asked if "traits?" in one] == OWNER_READS
    assert len(asked) == len(owners) + 2


def test_isolated_groups_beside_a_group_without_suffix_have_correct_amounts(
    searching: Searching, host: WritingClient
) -> None:
    """With one request for all groups, Placement 16 would mix up the amounts."""
    for name in ("n2", "n3"):
        publish(host, name, {"VGPU": 4}, NOVA, below="cn")
    groups = [asking(suffix=suffix, owner=NOVA, VGPU=1) for suffix in ("", "_1", "_2")]

    found = searching.search(OWN_FILTERS).find(wanted(*groups, group_policy="isolate"))

    assert len(found.candidates) == 3 * 3 * 2
    for one in found.candidates:
        assert sum(its["VGPU"] for its in one.allocations.values()) == 3
        assert set(one.sources("_1")) != set(one.sources("_2"))


def test_too_many_owners_for_a_url_are_excluded_by_the_check(
    searching: Searching, host: WritingClient, placement: PlacementFixture
) -> None:
    many = [f"CUSTOM_OWNER_NUMBER_{number:03}" for number in range(100)]
    for name in many:
        host.create_trait(name)
    try:
        found = searching.search(OWN_FILTERS).find(wanted(asking(owner=NOVA, VCPU=1, VGPU=1)))
        assert takers(found.candidates, "n", "y", "a", "u") == ["n"]
        assert max(map(len, searching.asked())) < 1000
    finally:
        for name in many:
            placement.adapter.request(f"/traits/{name}", "DELETE", microversion="1.39")


# Older servers, which lack "in:" for traits, root traits or mappings.


OLDER = ["1.38", "1.34", "1.33", "1.29"]


@pytest.fixture
def at(searching: Searching, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], CandidateSearch]:
    """A function that returns a search in a Placement of a lower microversion."""

    def search_at(newest: str) -> CandidateSearch:
        monkeypatch.undo()
        monkeypatch.setattr(candidates, "_LOWEST_LIMIT", 1)
        lower(monkeypatch, newest)
        return searching.search()

    return search_at


At = Callable[[str], CandidateSearch]


@pytest.mark.parametrize("newest", OLDER)
def test_older_server_offers_each_owner_its_providers(
    searching: Searching, host: WritingClient, at: At, newest: str
) -> None:
    search = at(newest)
    for (owner, gpu), suffix in product(OWNERS, ("", "_GPU")):
        found = search.find(wanted(asking(suffix=suffix, owner=owner, VGPU=1)))
        assert takers(found.candidates, *"nyau") == [gpu]
        assert sum(found.dropped.values()) == (1 if owner else 0)  # the untagged GPU is dropped
    assert all("required=in:" not in one for one in searching.asked())
    several = wanted(
        asking(owner=NOVA, VCPU=1, DISK_GB=1),
        asking(FAST, suffix="_A", owner=NOVA, VGPU=1),
        asking(suffix="_B", owner=NOVA, VGPU=1),
        limit=1,
    )
    assert takers(search.find(several).candidates, "cn", "s", *"nyau") == ["cn s n"]

    searching.kept.write("services", {"version": BEFORE})
    gate_off = at(newest).find(wanted(asking(owner=NOVA, VGPU=1)))
    assert sorted(takers(gate_off.candidates, *"nyau")) == ["n", "u"]


def test_request_of_several_owners_needs_mappings(
    searching: Searching, host: WritingClient, at: At
) -> None:
    owned = asking(suffix="_N", owner=NOVA, VGPU=1)
    others = asking(suffix="_Y", owner=CYBORG, VGPU=1), asking(suffix="_P", VGPU=1)

    [found] = at("1.34").find(wanted(owned, *others)).candidates

    assert found.mappings == {"_N": (uuid("n"),), "_Y": (uuid("y"),), "_P": (uuid("u"),)}
    search = at("1.33")
    for other in others:
        with pytest.raises(MicroversionUnsupported) as caught:
            search.find(wanted(owned, other))
        assert "a request for several owners' resources" in caught.value.request
        assert "needs microversion 1.34, the server has 1.33" in caught.value.detail
        assert searching.asked() == []
    # A group without resources has no owner, so only the subtree condition is refused.
    top = asking(FAST, suffix="_TOP")
    with pytest.raises(MicroversionUnsupported, match=r"1\.36.*1\.33"):
        search.find(wanted(owned, top, same_subtree=(frozenset({"_N", "_TOP"}),)))


TOO_NEW = [
    ("1.38", "1.39", wanted(asking(f"in:{FAST},{ACME}_X", VGPU=1))),
    ("1.38", "1.39", wanted(asking(f"in:{FAST},T1", suffix="_A", owner=NOVA, VGPU=1))),
    (
        "1.35",
        "1.36",
        wanted(asking(suffix="_A", owner=NOVA, VGPU=1), same_subtree=(frozenset({"_A"}),)),
    ),
    ("1.34", "1.35", wanted(asking(VGPU=1), root=TraitConditions.parse([FAST]))),
    (
        "1.31",
        "1.32",
        wanted(
            RequestGroup(
                resources={"VGPU": 1}, owner=NOVA, forbidden_aggregates=frozenset({AGGREGATE})
            )
        ),
    ),
    ("1.30", "1.31", wanted(RequestGroup(resources={"VGPU": 1}, owner=NOVA, in_tree=uuid("cn")))),
    ("1.28", "1.29", wanted(asking(owner=NOVA, VGPU=1))),
]


def test_request_that_an_older_server_would_misread_is_refused_before_it_is_sent(
    searching: Searching, at: At
) -> None:
    for newest, needed, request in TOO_NEW:
        search = at(newest)
        with pytest.raises(MicroversionUnsupported) as caught:
            search.find(request)
        assert f"needs microversion {needed}, the server has {newest}" in caught.value.detail
        assert candidate_requests(searching.asked()) == []


@pytest.mark.parametrize("newest", ["1.35", "1.34", "1.29"])
def test_older_server_never_offers_a_disabled_host(
    searching: Searching, client: WritingClient, at: At, newest: str
) -> None:
    hosts = "cn-1", "cn-2"
    for name in hosts:
        publish(client, name, {"VCPU": 8}, NOVA)
    request = wanted(asking(suffix="_CPU", owner=NOVA, VCPU=1), limit=1)
    search = at(newest)
    [first, *_] = takers(searching.order(replace(request, limit=None)), *hosts)
    generation = client.get_traits(uuid(first)).resource_provider_generation
    client.set_traits(uuid(first), generation, [NOVA, DISABLED])
    searching.asked()

    found = search.find(request)

    assert takers(found.candidates, *hosts) == [name for name in hosts if name != first]
    # A server that supports the root condition returns no candidate that has to be dropped.
    assert limits(searching.asked()) == (["1"] if newest == "1.35" else ["1", "10"])
    assert found.dropped == ({} if newest == "1.35" else {"compute_status": 1})
