"""The search for candidates in real Placement: what is found, what is dropped, what it costs."""

import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from wharfinger.exceptions import MicroversionUnsupported, PlacementError, UnexpectedAnswer
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement import model
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest, candidates
from wharfinger.scheduling.candidate import Candidate, from_answer
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.encoding import encode

SHARES = "MISC_SHARES_VIA_AGGREGATE"
DISABLED = "COMPUTE_STATUS_DISABLED"
FAST = "CUSTOM_FAST"
OWN_FILTERS = "request_filters = owner"
NEW = "CUSTOM_OWNER_NEWBORN"


@pytest.fixture
def searching(placement: PlacementFixture, tmp_path: Path) -> Iterator[Searching]:
    """All owners' gates are on."""
    with Searching(placement, tmp_path) as fixture:
        fixture.has_services(([NOVA, CYBORG, ACME], OWNER_TAG_VERSION))
        yield fixture


@pytest.fixture(autouse=True)
def as_few_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask with the limit of the request first."""
    monkeypatch.setattr(candidates, "_FEWEST", 1)


@pytest.fixture
def client(searching: Searching) -> PlacementClient:
    for trait in (FAST, ACME):
        searching.placement.client.create_trait(trait)
    return searching.placement.client


@pytest.fixture
def newborn(client: PlacementClient, placement: PlacementFixture) -> Iterator[Callable[[], str]]:
    """Has an owner be born; Placement keeps names, but forgets this one when the test is over."""

    def born() -> str:
        client.create_trait(NEW)
        return NEW

    yield born
    for one in client.list_providers(required=(NEW,)):
        client.set_traits(one.uuid, one.generation, [])
    answer = placement.adapter.request(f"/traits/{NEW}", "DELETE", microversion="1.39")
    assert answer.status_code == 204


@pytest.fixture
def host(searching: Searching) -> PlacementClient:
    """The host of ``hosts``: GPUs n of nova's, y of Cyborg's, a of ACME's, u untagged."""
    publish_owners(searching.placement.client)
    return searching.placement.client


def candidate_requests(asked: list[str]) -> list[str]:
    return [one for one in asked if one.startswith("GET /allocation_candidates")]


def limits(asked: list[str]) -> list[str]:
    """The limits of the requests for candidates."""
    found = [re.search(r"limit=(\d+)", one) for one in candidate_requests(asked)]
    return [match[1] if match else "none" for match in found]


# What is found.


def test_a_candidate_says_what_is_taken_from_whom_and_what_is_known_of_them(
    searching: Searching, host: PlacementClient
) -> None:
    request = wanted(
        asking(owner=NOVA, VCPU=2, DISK_GB=10), asking(suffix="_GPU", owner=NOVA, VGPU=1)
    )

    [found] = searching.search().find(request).candidates

    assert found.allocations == {
        uuid("cn"): {"VCPU": 2},
        uuid("s"): {"DISK_GB": 10},
        uuid("n"): {"VGPU": 1},
    }
    assert {suffix: set(uuids) for suffix, uuids in found.mappings.items()} == {
        "": {uuid("cn"), uuid("s")},
        "_GPU": {uuid("n")},
    }
    assert found.providers[uuid("n")].traits == {NOVA, FAST}
    assert found.providers[uuid("n")].root_provider_uuid == uuid("cn")


def test_candidates_are_in_placements_order(searching: Searching, client: PlacementClient) -> None:
    for number in range(5):
        publish(client, f"cn-{number}", {"VCPU": 8}, NOVA)
    order = [one.allocations for one in searching.order(wanted(asking(owner=NOVA, VCPU=1)))]

    for limit, found in ((None, 5), (5, 5), (9, 5), (2, 2)):
        answer = searching.search().find(wanted(asking(owner=NOVA, VCPU=1), limit=limit))
        assert [one.allocations for one in answer.candidates] == order[:found]
        assert answer.dropped == {}


def test_nothing_is_found_where_there_is_nothing(searching: Searching) -> None:
    found = searching.search().find(wanted(asking(owner=NOVA, VCPU=1), limit=5))

    assert (found.candidates, found.dropped) == ((), {})
    assert limits(searching.asked()) == ["5"]


def test_without_filters_all_that_placement_has_is_found(
    searching: Searching, host: PlacementClient
) -> None:
    search = CandidateSearch(host, {})

    found = search.find(wanted(asking(owner=NOVA, VCPU=1, VGPU=1)))

    assert sorted(takers(found.candidates, *"nyau")) == ["a", "n", "u", "y"]


def test_what_placement_refuses_is_an_error(searching: Searching, host: PlacementClient) -> None:
    with pytest.raises(PlacementError, match=r"400.*No such trait.*CUSTOM_UNHEARD_OF"):
        searching.search().find(wanted(asking("CUSTOM_UNHEARD_OF", owner=NOVA, VGPU=1)))


# Who gives to whom.


@pytest.mark.parametrize(("owner", "gpu"), [(NOVA, "n"), (CYBORG, "y"), (ACME, "a"), (None, "u")])
@pytest.mark.parametrize("suffix", ["", "_GPU"])
def test_a_group_takes_from_its_owner_and_one_without_from_nobodys(
    searching: Searching, host: PlacementClient, owner: str | None, gpu: str, suffix: str
) -> None:
    search = searching.search(OWN_FILTERS)
    plain = wanted(asking(suffix=suffix, owner=owner, VGPU=1))
    named = wanted(asking(*([owner] if owner else []), suffix=suffix, VGPU=1))

    for request in (plain, named):
        assert takers(search.find(request).candidates, *"nyau") == [gpu]


def test_each_group_takes_from_its_own_owner(searching: Searching, host: PlacementClient) -> None:
    request = wanted(
        asking(owner=NOVA, VCPU=1, DISK_GB=1),
        asking(suffix="_N", owner=NOVA, VGPU=1),
        asking(suffix="_Y", owner=CYBORG, VGPU=1),
        asking(ACME, suffix="_A", VGPU=1),
        asking(suffix="_P", VGPU=1),
    )

    [found] = searching.search().find(request).candidates

    assert found.mappings == {
        "": found.mappings[""],
        "_N": (uuid("n"),),
        "_Y": (uuid("y"),),
        "_A": (uuid("a"),),
        "_P": (uuid("u"),),
    }


def test_two_groups_of_an_owner_take_from_one_provider_unless_they_are_isolated(
    searching: Searching, host: PlacementClient
) -> None:
    groups = asking(suffix="_1", owner=NOVA, VGPU=1), asking(suffix="_2", owner=NOVA, VGPU=2)

    together = searching.search().find(wanted(*groups)).candidates
    apart = searching.search().find(wanted(*groups, group_policy="isolate")).candidates

    assert [one.allocations for one in together] == [{uuid("n"): {"VGPU": 3}}]
    assert apart == ()


@pytest.mark.parametrize("owner", [NOVA, CYBORG, ACME, None])
@pytest.mark.parametrize("suffix", ["", "_GPU"])
def test_a_provider_with_two_owner_traits_is_for_nobody(
    searching: Searching, client: PlacementClient, owner: str | None, suffix: str
) -> None:
    publish(client, "cn", {"VCPU": 8}, NOVA)
    publish(client, "both", {"VGPU": 4}, NOVA, CYBORG, below="cn")
    publish(client, "sharing", {"VGPU": 4}, NOVA, CYBORG, SHARES, aggregate=AGGREGATE)

    for line in ("untagged = forbid", "untagged = allow"):
        found = searching.search(line).find(wanted(asking(suffix=suffix, owner=owner, VGPU=1)))
        assert found.candidates == ()


@pytest.mark.parametrize("suffix", ["", "_DISK"])
@pytest.mark.parametrize(
    ("traits", "takes"),
    [([], True), ([NOVA], True), ([CYBORG], False), ([NOVA, CYBORG], False)],
    ids=["untagged", "own", "foreign", "both"],
)
def test_what_is_shared_is_taken_from_ones_own_and_from_nobodys(
    searching: Searching, client: PlacementClient, suffix: str, traits: list[str], takes: bool
) -> None:
    publish(client, "cn", {"VCPU": 8}, NOVA, aggregate=AGGREGATE)
    publish(client, "s", {"DISK_GB": 100}, SHARES, *traits, aggregate=AGGREGATE)
    groups = (
        [asking(owner=NOVA, VCPU=1), asking(suffix=suffix, owner=NOVA, DISK_GB=1)]
        if suffix
        else [asking(owner=NOVA, VCPU=1, DISK_GB=1)]
    )

    found = searching.search().find(wanted(*groups)).candidates

    assert takers(found, "cn", "s") == (["cn s"] if takes else [])


@pytest.mark.parametrize("suffix", ["", "_DISK"])
def test_a_group_without_an_owner_shares_with_nobody_but_nobody(
    searching: Searching, client: PlacementClient, suffix: str
) -> None:
    for name, traits in (("s", []), ("t", [NOVA])):
        publish(client, name, {"DISK_GB": 100}, SHARES, *traits, aggregate=AGGREGATE)

    found = searching.search().find(wanted(asking(suffix=suffix, DISK_GB=1))).candidates

    assert takers(found, "s", "t") == ["s"]


@pytest.mark.parametrize(
    ("owner", "gpus"),
    [(NOVA, ["n", "u"]), (CYBORG, ["u", "y"]), (ACME, ["a", "u"]), (None, ["u"])],
)
@pytest.mark.parametrize("suffix", ["", "_GPU"])
def test_untagged_providers_are_offered_where_that_is_allowed(
    searching: Searching, host: PlacementClient, owner: str | None, gpus: list[str], suffix: str
) -> None:
    search = searching.search("untagged = allow")

    found = search.find(wanted(asking(suffix=suffix, owner=owner, VGPU=1)))

    assert sorted(takers(found.candidates, *"nyau")) == gpus
    assert found.dropped == {}


def test_a_group_that_takes_nothing_may_be_anybodys(
    searching: Searching, client: PlacementClient
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


def test_an_owner_of_whom_nobody_has_heard_is_offered_what_is_shared(
    searching: Searching, host: PlacementClient
) -> None:
    searching.kept.write("services", {"owners": f'["{NOVA}", "{NEW}"]'})
    new = wanted(asking(owner=NEW, DISK_GB=1))
    gpu = wanted(asking(owner=NEW, VGPU=1))

    assert takers(searching.search().find(new).candidates, "s") == ["s"]
    assert searching.search().find(gpu).candidates == ()


def test_an_owner_may_forbid_what_is_shared_and_be_asked_for_all_the_same(
    searching: Searching, host: PlacementClient
) -> None:
    request = wanted(asking(f"!{SHARES}", owner=NOVA, VGPU=1))

    assert takers(searching.search().find(request).candidates, *"nyau") == ["n"]


def test_nothing_is_placed_on_a_host_that_is_disabled(
    searching: Searching, client: PlacementClient
) -> None:
    for name, traits in (("cn-1", [NOVA, DISABLED]), ("cn-2", [NOVA])):
        publish(client, name, {"VCPU": 8}, *traits)
        publish(client, f"{name}-gpu", {"VGPU": 4}, NOVA, below=name)
    request = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_GPU", owner=NOVA, VGPU=1))

    assert takers(searching.search().find(request).candidates, "cn-1", "cn-2") == ["cn-2"]
    assert [one.count("root_required=!") for one in candidate_requests(searching.asked())] == [1]
    both = searching.search(OWN_FILTERS).find(request).candidates
    assert sorted(takers(both, "cn-1", "cn-2")) == ["cn-1", "cn-2"]


# What it costs, and what is told.


def gpu(limit: int | None) -> ResourceRequest:
    """For whose answer it takes a check: that the host is nova's will do for the whole group."""
    return wanted(asking(owner=NOVA, VCPU=1, VGPU=1), limit=limit)


def many(searching: Searching, untagged: int, owned: int) -> list[str]:
    """The GPUs of a host of nova's, in the order of Placement's candidates: untagged ones first."""
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
    ("untagged", "owned", "limit", "asked", "found", "dropped"),
    [
        pytest.param(0, 3, None, ["none"], 3, 0, id="without limit"),
        pytest.param(3, 3, None, ["none"], 3, 3, id="without limit, with some to drop"),
        pytest.param(0, 3, 2, ["2"], 2, 0, id="enough at once"),
        pytest.param(0, 3, 3, ["3"], 3, 0, id="just enough"),
        pytest.param(0, 3, 4, ["4"], 3, 0, id="all there are"),
        pytest.param(2, 1, 4, ["4"], 1, 2, id="all there are, with some to drop"),
        pytest.param(2, 1, 3, ["3", "30"], 1, 2, id="perhaps not all there are"),
        pytest.param(3, 3, 2, ["2", "20"], 2, 3, id="cut off"),
        pytest.param(9, 2, 1, ["1", "10"], 1, 9, id="the last of ten"),
        pytest.param(11, 2, 1, ["1", "10", "none"], 1, 11, id="cut off twice"),
        pytest.param(11, 0, 1, ["1", "10", "none"], 0, 11, id="none at all"),
    ],
)
def test_a_limited_answer_is_never_starved(
    searching: Searching,
    *,
    untagged: int,
    owned: int,
    limit: int | None,
    asked: list[str],
    found: int,
    dropped: int,
) -> None:
    names = many(searching, untagged, owned)
    search = searching.search()

    answer = search.find(gpu(limit))

    requests = searching.asked()
    assert limits(requests) == asked
    assert len(requests) == len(asked) + 2  # and which owners there are
    assert takers(answer.candidates, *names) == names[untagged:][:found]
    assert len(answer.candidates) == found
    assert answer.dropped == ({"owner": dropped} if dropped else {})


def test_what_is_asked_for_again_is_never_more_than_placement_can_count(
    searching: Searching,
) -> None:
    many(searching, untagged=1, owned=1)
    largest = 2**31 - 1

    assert len(searching.search().find(gpu(largest)).candidates) == 1
    assert limits(searching.asked()) == [str(largest)]


def test_a_group_of_its_own_needs_no_check(searching: Searching) -> None:
    names = many(searching, untagged=5, owned=1)
    request = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_GPU", owner=NOVA, VGPU=1), limit=1)

    found = searching.search().find(request)

    assert takers(found.candidates, *names) == names[-1:]
    assert (limits(searching.asked()), found.dropped) == (["1"], {})


def test_who_drops_candidates_says_how_many_and_why_the_first(
    searching: Searching, caplog: pytest.LogCaptureFixture
) -> None:
    names = many(searching, untagged=2, owned=1)
    search = searching.search()
    caplog.set_level(logging.INFO, logger="wharfinger.scheduling.candidates")

    search.find(gpu(None))

    lines = [line for line in caplog.messages if "drop" in line]
    assert lines == [
        "filter owner drops candidates; the first: it takes VGPU for OWNER_NOVA from "
        f"{uuid(names[0])}, which belongs to nobody",
        "of 3 allocation candidates, dropped: 2 by owner",
    ]


def test_who_drops_nothing_says_nothing(
    searching: Searching, caplog: pytest.LogCaptureFixture
) -> None:
    many(searching, untagged=0, owned=2)
    search = searching.search()
    caplog.set_level(logging.INFO, logger="wharfinger.scheduling.candidates")

    search.find(gpu(1))

    assert not any("drop" in line for line in caplog.messages)


# What is remembered.


OWNER_READS = [
    "GET /traits?name=startswith:OWNER_",
    "GET /traits?name=startswith:CUSTOM_OWNER_",
]


def test_which_owners_there_are_is_asked_once_within_the_time(
    searching: Searching, host: PlacementClient
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


@pytest.mark.parametrize("suffix", ["", "_GPU"])
@pytest.mark.parametrize("untagged", ["forbid", "allow"])
def test_an_owner_that_is_born_after_that_is_kept_out_at_once_and_known_from_then_on(
    searching: Searching,
    client: PlacementClient,
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
    # Tagged with one that is known too, it would pass what is asked of Placement in any group.
    publish(client, "both", {"VGPU": 4}, NEW, NOVA, below="cn")
    searching.asked()

    found = search.find(request)

    assert takers(found.candidates, "cn", "new", "both") == ["cn"]
    assert found.dropped["owner"] >= 1
    [query] = candidate_requests(searching.asked())
    assert NEW not in query

    found = search.find(request)

    assert takers(found.candidates, "cn", "new", "both") == ["cn"]
    assert found.dropped == {}
    [query] = candidate_requests(searching.asked())
    assert f"!{NEW}" in query


def test_an_owner_that_is_born_after_that_does_not_starve_a_limited_answer(
    searching: Searching, client: PlacementClient, newborn: Callable[[], str]
) -> None:
    names = [f"gpu-{number}" for number in range(13)]
    for name in names:
        publish(client, name, {"VGPU": 4})
    search = searching.search()
    search.find(wanted(asking(VGPU=1)))
    newborn()
    *news, nobodys = takers(searching.order(wanted(asking(VGPU=1))), *names)
    for name in news:
        generation = client.get_traits(uuid(name)).resource_provider_generation
        client.set_traits(uuid(name), generation, [NEW])
    searching.asked()

    found = search.find(wanted(asking(VGPU=1), limit=1))

    assert takers(found.candidates, *names) == [nobodys]
    assert found.dropped == {}
    assert limits(searching.asked()) == ["1", "10"]


def test_an_owner_that_was_not_known_yet_is_served_when_it_is(
    searching: Searching, client: PlacementClient, newborn: Callable[[], str]
) -> None:
    searching.has_services()
    searching.kept.write("services", {"owners": f'["{NEW}"]'})
    search = searching.search()
    request = wanted(asking(owner=NEW, VGPU=1))
    assert search.find(request).candidates == ()
    newborn()
    publish(client, "new", {"VGPU": 4}, NEW)

    searching.clock.advance(CACHE_TIME)

    assert takers(search.find(request).candidates, "new") == ["new"]


def test_sixteen_threads_share_a_search(searching: Searching, host: PlacementClient) -> None:
    search = searching.search()
    owners = [(NOVA, "n"), (CYBORG, "y"), (ACME, "a"), (None, "u")] * 16

    with ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda one: search.find(wanted(asking(owner=one[0], VGPU=1))), owners)
        )

    assert [takers(one.candidates, *"nyau") for one in found] == [[gpu] for _owner, gpu in owners]
    asked = searching.asked()
    assert [one for one in asked if "traits?" in one] == OWNER_READS
    assert len(asked) == len(owners) + 2


# Answers that cannot be checked.


def answer(
    allocations: dict[str, dict[str, int]],
    mappings: dict[str, list[str]] | None = None,
    providers: tuple[str, ...] = ("cn", "gpu"),
) -> model.AllocationCandidates:
    """What Placement might answer; the GPU is below the host."""
    parts = {
        "allocation_requests": [
            {
                "allocations": {uuid(name): {"resources": it} for name, it in allocations.items()},
                **(
                    {}
                    if mappings is None
                    else {
                        "mappings": {
                            suffix: [uuid(name) for name in names]
                            for suffix, names in mappings.items()
                        }
                    }
                ),
            }
        ],
        "provider_summaries": {
            uuid(name): {
                "resources": {},
                "traits": [NOVA],
                "root_provider_uuid": uuid("cn"),
                "parent_provider_uuid": None,
            }
            for name in providers
        },
    }
    return msgspec.convert(parts, model.AllocationCandidates)


BOTH = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_GPU", owner=NOVA, VGPU=1))
TAKEN = {"cn": {"VCPU": 1}, "gpu": {"VGPU": 1}}


@pytest.mark.parametrize("mappings", [None, {"": ["cn"], "_GPU": ["gpu"]}])
def test_what_can_be_checked_is_a_candidate(mappings: dict[str, list[str]] | None) -> None:
    [found] = from_answer(BOTH, answer(TAKEN, mappings), has_mappings=mappings is not None)

    assert found.allocations == {uuid(name): amounts for name, amounts in TAKEN.items()}


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(answer(TAKEN, providers=("cn",)), id="no summary of what is taken from"),
        pytest.param(answer(TAKEN, providers=("gpu",)), id="no summary of the root"),
        pytest.param(
            answer({"gpu": {"VGPU": 1}}, {"": ["gpu"], "_GPU": ["gpu"]}, ("gpu",)),
            id="no summary of a root that gives nothing",
        ),
        pytest.param(
            answer(TAKEN, {"": ["cn"], "_GPU": ["gpu", "another"]}),
            id="no summary of what is mapped",
        ),
        pytest.param(answer(TAKEN, {"": ["cn", "gpu"]}), id="nothing of a group"),
        pytest.param(answer(TAKEN, {"_GPU": ["cn", "gpu"]}), id="nothing of the unnumbered group"),
        pytest.param(answer(TAKEN, {"": ["cn"], "_GPU": ["cn"]}), id="for no group"),
        pytest.param(answer(TAKEN, {"": [], "_GPU": []}), id="for no group at all"),
    ],
)
def test_what_cannot_be_checked_is_no_candidate(bad: model.AllocationCandidates) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        from_answer(BOTH, bad, has_mappings=bool(bad.allocation_requests[0].mappings))
    assert caught.value.request == "GET /allocation_candidates"
    assert "a candidate takes from a provider without a summary, or for no group: " in (
        caught.value.detail
    )
    assert uuid("gpu") in caught.value.detail


def test_what_is_taken_for_a_group_that_nobody_asked_for_is_no_candidate() -> None:
    """Its provider would be nobody's to check."""
    bad = answer(TAKEN, {"": ["cn"], "_GPU": ["cn"], "_MORE": ["gpu"]})

    with pytest.raises(UnexpectedAnswer):
        from_answer(BOTH, bad, has_mappings=True)


def test_other_amounts_than_were_asked_for_are_no_candidate() -> None:
    bad = answer({"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}, {"": ["cn"], "_GPU": ["gpu"]})

    with pytest.raises(UnexpectedAnswer, match=r"'VGPU': 2.* where .*'VGPU': 1"):
        from_answer(BOTH, bad, has_mappings=True)


def test_what_only_stands_in_a_subtree_may_be_without_a_summary(searching: Searching) -> None:
    """Placement sums up the trees from which something is taken; the disk is in another."""
    client = searching.placement.client
    client.create_trait(FAST)
    publish(client, "cn", {"VCPU": 1}, FAST, NOVA, aggregate=AGGREGATE)
    publish(client, "s", {"DISK_GB": 9}, SHARES, aggregate=AGGREGATE)
    request = wanted(
        asking(suffix="_A", owner=NOVA, DISK_GB=1),
        asking(FAST, suffix="_T", owner=NOVA),
        same_subtree=(frozenset({"_T"}),),
    )

    found = searching.search(OWN_FILTERS).find(request)

    assert takers(found.candidates, "cn", "s") == ["s"]


@pytest.mark.parametrize("has_mappings", [True, False])
def test_who_takes_for_which_group_is_said_by_those_servers_that_can(has_mappings: bool) -> None:
    bad = answer(TAKEN, None if has_mappings else {"": ["cn"], "_GPU": ["gpu"]})

    with pytest.raises(UnexpectedAnswer):
        from_answer(BOTH, bad, has_mappings=has_mappings)


def test_who_takes_for_a_group_that_is_not_said_takes_for_all() -> None:
    [found] = from_answer(BOTH, answer(TAKEN), has_mappings=False)

    for suffix in ("", "_GPU"):
        assert set(found.sources(suffix)) == {uuid("cn"), uuid("gpu")}


# Servers that know less.


At = Callable[..., CandidateSearch]


@pytest.fixture
def at(searching: Searching, monkeypatch: pytest.MonkeyPatch) -> At:
    """A search in a Placement that knows nothing newer."""

    def search_at(newest: str, *lines: str) -> CandidateSearch:
        lower(monkeypatch, newest)
        return searching.search(*lines)

    return search_at


OLDER = ["1.38", "1.35", "1.34", "1.33", "1.32", "1.30", "1.29"]


@pytest.mark.parametrize("newest", OLDER)
@pytest.mark.parametrize(("owner", "gpu"), [(NOVA, "n"), (CYBORG, "y"), (ACME, "a"), (None, "u")])
def test_an_older_server_never_offers_another_owners(
    searching: Searching,
    host: PlacementClient,
    *,
    at: At,
    newest: str,
    owner: str | None,
    gpu: str,
) -> None:
    search = at(newest)

    for suffix in ("", "_GPU"):
        found = search.find(wanted(asking(suffix=suffix, owner=owner, VGPU=1)))
        assert takers(found.candidates, *"nyau") == [gpu]
        assert sum(found.dropped.values()) == (1 if owner else 0)  # what is untagged
    assert all("required=in:" not in one for one in searching.asked())


@pytest.mark.parametrize("newest", OLDER)
def test_an_older_server_offers_several_groups_of_one_owner(
    searching: Searching, host: PlacementClient, at: At, newest: str
) -> None:
    request = wanted(
        asking(owner=NOVA, VCPU=1, DISK_GB=1),
        asking(FAST, suffix="_A", owner=NOVA, VGPU=1),
        asking(suffix="_B", owner=NOVA, VGPU=1),
        limit=1,
    )

    found = at(newest).find(request)

    assert takers(found.candidates, "cn", "s", *"nyau") == ["cn s n"]


@pytest.mark.parametrize("newest", ["1.38", "1.34"])
def test_an_older_server_offers_several_owners_groups_where_it_says_which_is_whose(
    searching: Searching, host: PlacementClient, at: At, newest: str
) -> None:
    request = wanted(
        asking(suffix="_N", owner=NOVA, VGPU=1),
        asking(suffix="_Y", owner=CYBORG, VGPU=1),
        asking(suffix="_P", VGPU=1),
    )

    [found] = at(newest).find(request).candidates

    assert found.mappings == {"_N": (uuid("n"),), "_Y": (uuid("y"),), "_P": (uuid("u"),)}


@pytest.mark.parametrize("newest", ["1.33", "1.30"])
@pytest.mark.parametrize("other", [CYBORG, None])
def test_a_server_that_does_not_say_whose_is_which_is_not_asked_for_several_owners(
    searching: Searching, host: PlacementClient, at: At, newest: str, other: str | None
) -> None:
    search = at(newest)
    request = wanted(asking(owner=NOVA, VCPU=1), asking(suffix="_Y", owner=other, VGPU=1))

    with pytest.raises(MicroversionUnsupported) as caught:
        search.find(request)

    assert "a request for several owners' resources" in caught.value.request
    assert f"needs microversion 1.34, the server has {newest}" in caught.value.detail
    assert searching.asked() == []


def test_a_group_that_takes_nothing_is_no_second_owner(
    searching: Searching, host: PlacementClient, at: At
) -> None:
    # What is refused is refused for its subtree.
    request = wanted(
        asking(suffix="_GPU", owner=NOVA, VGPU=1),
        asking(FAST, suffix="_TOP"),
        same_subtree=(frozenset({"_GPU", "_TOP"}),),
    )

    with pytest.raises(MicroversionUnsupported, match=r"1\.36.*1\.33"):
        at("1.33").find(request)


@pytest.mark.parametrize(
    ("newest", "needed", "request_"),
    [
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
        (
            "1.30",
            "1.31",
            wanted(RequestGroup(resources={"VGPU": 1}, owner=NOVA, in_tree=uuid("cn"))),
        ),
        ("1.28", "1.29", wanted(asking(owner=NOVA, VGPU=1))),
    ],
    ids=[
        "a choice",
        "a choice in a group",
        "a subtree",
        "a root",
        "not in aggregates",
        "in a tree",
        "anything",
    ],
)
def test_what_an_older_server_would_get_wrong_is_refused_before_it_is_asked(
    searching: Searching, at: At, newest: str, needed: str, request_: ResourceRequest
) -> None:
    search = at(newest)

    with pytest.raises(MicroversionUnsupported) as caught:
        search.find(request_)

    assert f"needs microversion {needed}, the server has {newest}" in caught.value.detail
    assert candidate_requests(searching.asked()) == []


@pytest.mark.parametrize("newest", OLDER)
def test_an_older_server_never_offers_a_host_that_is_disabled(
    searching: Searching, client: PlacementClient, at: At, newest: str
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
    # A server that can be told has nothing that would have to be dropped.
    told = newest in ("1.38", "1.35")
    assert limits(searching.asked()) == (["1"] if told else ["1", "10"])
    assert found.dropped == ({} if told else {"compute_status": 1})


@pytest.mark.parametrize("newest", ["1.38", "1.33"])
def test_an_older_server_offers_what_is_untagged_while_the_gate_is_off(
    searching: Searching, host: PlacementClient, at: At, newest: str
) -> None:
    searching.kept.write("services", {"version": BEFORE})

    found = at(newest).find(wanted(asking(owner=NOVA, VGPU=1)))

    assert sorted(takers(found.candidates, *"nyau")) == ["n", "u"]


# Requests of any kind.


CLASSES = st.dictionaries(
    st.sampled_from(["VCPU", "VGPU", "DISK_GB"]), st.integers(1, 2), min_size=1, max_size=2
)
NAMES = st.frozensets(st.sampled_from([FAST, "HW_CPU_X86_VMX", SHARES, DISABLED]), max_size=2)
CHOICES = st.sampled_from(
    [frozenset(names) for names in ([FAST], [FAST, SHARES], [SHARES, DISABLED])]
)
UUIDS = st.frozensets(st.sampled_from([AGGREGATE, uuid("cn"), uuid("s")]), min_size=1, max_size=2)


@st.composite
def conditions(draw: st.DrawFn) -> TraitConditions:
    required = draw(NAMES)
    forbidden = draw(NAMES) - required
    some = draw(st.lists(CHOICES, max_size=2))
    kept = frozenset(choice for choice in some if not choice <= forbidden)
    return TraitConditions(required=required, any_of=kept, forbidden=forbidden)


@st.composite
def requests(draw: st.DrawFn) -> ResourceRequest:
    """Anything that can be asked for, of names that Placement knows."""
    suffixes = draw(
        st.lists(st.sampled_from(["", "1", "_A", "-b"]), min_size=1, max_size=3, unique=True)
    )
    groups = [
        RequestGroup(
            suffix=suffix,
            resources=draw(CLASSES),
            traits=draw(conditions()),
            member_of=tuple(draw(st.lists(UUIDS, max_size=2))),
            forbidden_aggregates=draw(st.just(frozenset()) | UUIDS),
            in_tree=draw(st.none() | st.just(uuid("cn"))),
            owner=draw(st.sampled_from([NOVA, CYBORG, ACME, None])),
        )
        for suffix in suffixes
    ]
    granular = [suffix for suffix in suffixes if suffix]
    subtrees: list[frozenset[str]] = []
    if draw(st.booleans()) and granular:
        together = draw(st.frozensets(st.sampled_from(granular), min_size=1))
        subtrees.append(together)
        if draw(st.booleans()):
            groups.append(RequestGroup(suffix="_TOP", traits=TraitConditions.parse([FAST])))
            subtrees[0] |= {"_TOP"}
            granular.append("_TOP")
    return ResourceRequest(
        groups=tuple(groups),
        group_policy=draw(
            st.sampled_from(["none", "isolate"] if len(granular) > 1 else ["none", None])
        ),
        same_subtree=tuple(subtrees),
        root=TraitConditions(forbidden=draw(NAMES)),
        limit=draw(st.none() | st.integers(1, 3)),
    )


def test_what_a_request_may_be_placement_understands_narrowed_or_not(
    searching: Searching, host: PlacementClient
) -> None:
    search = searching.search()

    @settings(max_examples=60, deadline=None)
    @given(requests())
    def check(request: ResourceRequest) -> None:
        plain = from_answer(
            request, host.get_allocation_candidates(encode(request)), has_mappings=True
        )
        found = search.find(request).candidates
        if request.limit is None:
            assert set(map(_taken, found)) <= set(map(_taken, plain))
        else:
            assert len(found) <= request.limit

    check()


def _taken(candidate: Candidate) -> Any:
    return frozenset(
        (uuid, frozenset(amounts.items())) for uuid, amounts in candidate.allocations.items()
    )


def test_a_low_limit_is_not_what_placement_is_asked_for_where_filters_may_drop_some(
    searching: Searching, host: PlacementClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    request = wanted(asking(owner=NOVA, VCPU=1, VGPU=1), limit=1)
    search = searching.search(OWN_FILTERS)

    found = search.find(request)

    assert (len(found.candidates), found.dropped) == (1, {"owner": 1})
    assert limits(searching.asked()) == ["100"]
    CandidateSearch(host, {}).find(request)
    assert limits(searching.asked()) == ["1"]


def test_a_trait_that_was_deleted_since_it_was_remembered_costs_one_more_try(
    searching: Searching, host: PlacementClient, placement: PlacementFixture
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


def test_groups_are_kept_apart_and_get_what_they_ask_for_though_one_without_a_suffix_asks_too(
    searching: Searching, host: PlacementClient
) -> None:
    """Placement 16 would mix the amounts up."""
    for name in ("n2", "n3"):
        publish(host, name, {"VGPU": 4}, NOVA, below="cn")
    groups = [asking(suffix=suffix, owner=NOVA, VGPU=1) for suffix in ("", "_1", "_2")]

    found = searching.search(OWN_FILTERS).find(wanted(*groups, group_policy="isolate"))

    assert len(found.candidates) == 3 * 3 * 2
    for one in found.candidates:
        assert sum(its["VGPU"] for its in one.allocations.values()) == 3
        assert set(one.sources("_1")) != set(one.sources("_2"))


def test_so_many_owners_that_a_url_would_not_hold_them_are_kept_apart_by_the_check(
    searching: Searching, host: PlacementClient, placement: PlacementFixture
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


def test_an_owner_that_placement_has_never_heard_of_has_nothing(
    searching: Searching, host: PlacementClient
) -> None:
    """Its gate is on, and to name it would be a bad request."""
    service(searching.kept.context, 9, owners=[NEW], version=OWNER_TAG_VERSION).create()

    found = searching.search(OWN_FILTERS).find(wanted(asking(owner=NEW, VGPU=1)))

    assert not found.candidates
