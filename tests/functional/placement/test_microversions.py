"""Each supported microversion, and each feature with the first version that has it and without it.

The tests limit the real Placement to the microversions up to a given one.
"""

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from placement import microversion

from tests.lab import inprocess
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import also, flat, moves_vgpus, with_children, with_gpu_below
from tests.lab.placement import PlacementFixture, Requests, lower
from tests.lab.program import Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import ConcurrentUpdate, MicroversionUnsupported
from wharfinger.placement.microversions import HIGHEST, LOWEST, Feature, Microversion
from wharfinger.placement.query_features import Query
from wharfinger.providers import Inventory

SUPPORTED = [f"1.{minor}" for minor in range(LOWEST.minor, HIGHEST.minor + 1)]
EVERY = microversion.VERSIONS
MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}

At = Callable[[str], WritingClient]


@pytest.fixture
def at(placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch) -> At:
    """A function that limits Placement to this microversion and returns a new client."""

    def client_at(newest: str) -> WritingClient:
        monkeypatch.undo()
        lower(monkeypatch, newest)
        client = placement.new_client()
        assert str(client.microversion) == newest
        placement.requests.clear()
        return client

    return client_at


def before(feature: Feature) -> str:
    """Return the newest microversion without a feature."""
    return str(Microversion(feature.value.major, feature.value.minor - 1))


def since(feature: Feature) -> str:
    return str(feature.value)


def refused(placement: PlacementFixture, feature: Feature, call: Callable[[], object]) -> None:
    """Assert that a call fails because the server lacks the feature, before a request is sent."""
    with pytest.raises(MicroversionUnsupported) as caught:
        call()
    assert since(feature) in str(caught.value)
    assert before(feature) in str(caught.value)
    assert not placement.requests.seen


# Whole cycles.


@pytest.mark.drawn(2, keep=["1.26", "1.29", "1.30", "1.39"])
@pytest.mark.parametrize("newest", SUPPORTED)
def test_sync_publishes_to_every_supported_server(
    publishing: Publishing, placement: PlacementFixture, at: At, newest: str
) -> None:
    at(newest)
    publishing.driver.nodes |= {
        "cn": with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}, "fpga": {"FPGA": 1}}),
        "metal-0": flat(CUSTOM_GOLD=1),
        "metal-1": flat(CUSTOM_GOLD=1),
    }

    assert not publishing.cycle.sync().problems
    found = contents(placement)
    assert {name: one["inventories"] for name, one in found.items()} == {
        "cn": {"VCPU": (8, 0)},
        "gpu": {"VGPU": (4, 0)},
        "fpga": {"FPGA": (1, 0)},
        "metal-0": {"CUSTOM_GOLD": (1, 0)},
        "metal-1": {"CUSTOM_GOLD": (1, 0)},
    }
    assert all(one["traits"] == MARKS for one in found.values())
    assert publishing.restarted().sync().steps == ()

    publishing.driver.nodes |= {
        "cn": with_children({"VCPU": 9}, {"gpu": {"VGPU": 5}}),
        "metal-0": also(lambda tree: tree.reserve("metal-0", "cleaning"))(flat(CUSTOM_GOLD=1)),
    }
    at("1.37")
    allocate(placement, str(uuid.uuid4()), "1.37", **{"metal-1": {"CUSTOM_GOLD": 1}})
    at(newest)
    del publishing.driver.nodes["metal-1"]
    outcomes = [publishing.restarted().sync(), publishing.restarted().sync()]

    assert not any(outcome.problems for outcome in outcomes)
    assert {name: one["inventories"] for name, one in contents(placement).items()} == {
        "cn": {"VCPU": (9, 0)},
        "gpu": {"VGPU": (5, 0)},
        "metal-0": {"CUSTOM_GOLD": (1, 1)},
        "metal-1": {"CUSTOM_GOLD": (1, 1)},
    }
    batched = "POST /reshaper" in placement.requests.seen
    assert batched is (newest >= str(Feature.RESHAPE.value))


def test_newer_server_is_used_with_the_highest_known_microversion(
    placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microversion, "VERSIONS", [*microversion.VERSIONS, "1.40"])
    client = placement.new_client()

    assert client.list_providers() == []
    assert client.microversion == HIGHEST


def test_cycle_on_a_server_without_full_reservation_is_refused(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "1.25")
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    for act in (publishing.cycle.plan, publishing.cycle.sync):
        with pytest.raises(MicroversionUnsupported, match=r"1\.25.*1\.26"):
            act()

    assert not placement.requests.seen


def test_program_on_a_server_without_full_reservation_is_refused(
    tmp_path: Path, placement_url: tuple[str, Requests], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, requests = placement_url
    lower(monkeypatch, "1.25")

    done = inprocess.run(Program(tmp_path, url), "sync")

    assert done.code == 1
    assert "1.25" in done.err
    assert "1.26" in done.err
    assert "Traceback" not in done.err
    assert not requests.seen


# Writes of a plan.


def test_inventories_are_set_in_one_request_or_one_by_one(
    publishing: Publishing, placement: PlacementFixture, at: At
) -> None:
    publishing.driver.nodes |= {f"node-{number}": flat(CUSTOM_GOLD=1) for number in range(3)}
    publishing.cycle.sync()
    uuids = [found["uuid"] for found in contents(placement).values()]
    for total, newest, writes in (
        (
            2,
            before(Feature.RESHAPE),
            {f"PUT /resource_providers/{one}/inventories" for one in uuids},
        ),
        (3, since(Feature.RESHAPE), {"POST /reshaper"}),
    ):
        at(newest)
        publishing.driver.nodes |= dict.fromkeys(publishing.driver.nodes, flat(CUSTOM_GOLD=total))

        assert not publishing.restarted().sync().problems

        assert set(placement.requests.writes) == writes
        assert len(placement.requests.writes) == len(writes)


def test_reshape_of_allocations_on_an_older_server_is_refused_and_other_trees_are_written(
    publishing: Publishing, placement: PlacementFixture, at: At
) -> None:
    publishing.driver.nodes |= {"cn": flat(VCPU=8, VGPU=4), "other": flat(VCPU=1)}
    publishing.cycle.sync()
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, cn={"VGPU": 1})
    was = contents(placement)
    publishing.driver.nodes |= {"cn": moves_vgpus, "other": flat(VCPU=2)}

    at(before(Feature.RESHAPE))
    (problem,) = publishing.restarted().sync().problems
    assert isinstance(problem, MicroversionUnsupported)
    assert "1.30" in str(problem)
    found = contents(placement)
    assert found.pop("other")["inventories"] == {"VCPU": (2, 0)}
    assert found == {"cn": was["cn"]}

    at(since(Feature.RESHAPE))
    assert not publishing.restarted().sync().problems
    gpu = contents(placement)["gpu"]
    assert gpu["inventories"] == {"VGPU": (4, 0)}
    assert list(placement.new_client().get_allocations(consumer)["allocations"]) == [gpu["uuid"]]


def test_move_on_an_older_server_is_refused_and_other_trees_are_written(
    publishing: Publishing, placement: PlacementFixture, at: At
) -> None:
    publishing.driver.nodes |= {
        "cn": with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}}),
        "other": flat(VCPU=1),
    }
    publishing.cycle.sync()
    was = contents(placement)
    publishing.driver.nodes |= {"cn": with_gpu_below("card"), "other": flat(VCPU=2)}

    at(before(Feature.REPARENT))
    (problem,) = publishing.restarted().sync().problems
    assert isinstance(problem, MicroversionUnsupported)
    assert "gpu" in str(problem)
    assert "1.37" in str(problem)
    found = contents(placement)
    assert found.pop("other")["inventories"] == {"VCPU": (2, 0)}
    assert found == {"cn": was["cn"], "gpu": was["gpu"]}

    at(since(Feature.REPARENT))
    assert not publishing.restarted().sync().problems
    assert contents(placement)["gpu"]["parent"] == "card"


def test_rename_works_on_the_oldest_server(
    publishing: Publishing, placement: PlacementFixture, at: At
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    was = contents(placement)
    client = at(str(LOWEST))
    client.update_provider(was["cn"]["uuid"], "renamed", None)
    client.update_provider(was["gpu"]["uuid"], "renamed too", was["cn"]["uuid"])

    assert not publishing.restarted().sync().problems

    assert contents(placement) == was


# Lists and candidates: the host cn has two GPUs of different owners; cn2 is another host.


@pytest.fixture
def hosts(placement: PlacementFixture) -> dict[str, str]:
    """The uuids of providers by name: the host cn with the children n and y, and the host cn2."""
    client = placement.client
    uuids: dict[str, str] = {}
    for name, parent, traits, inventory in (
        ("cn", None, ["OWNER_NOVA", "HW_CPU_X86_AVX"], {"VCPU": Inventory(total=8)}),
        ("n", "cn", ["OWNER_NOVA", "CUSTOM_FAST"], {"VGPU": Inventory(total=4)}),
        ("y", "cn", ["OWNER_CYBORG"], {"VGPU": Inventory(total=4), "FPGA": Inventory(total=1)}),
        ("cn2", None, ["OWNER_NOVA"], {"VCPU": Inventory(total=8), "VGPU": Inventory(total=4)}),
    ):
        client.create_trait("CUSTOM_FAST")
        made = client.create_provider(str(uuid.uuid4()), name, uuids[parent] if parent else None)
        uuids[name] = made.uuid
        generation = client.set_traits(made.uuid, made.generation, traits)
        generation = client.set_aggregates(made.uuid, generation, [AGGREGATES[name]])
        client.set_inventories(made.uuid, generation, inventory)
    return uuids


AGGREGATES = {name: str(uuid.uuid5(uuid.NAMESPACE_DNS, name)) for name in ("cn", "n", "y", "cn2")}

LISTS: list[tuple[Feature, dict[str, Any], set[str]]] = [
    (Feature.ANY_TRAITS, {"required": ("in:CUSTOM_FAST,OWNER_CYBORG",)}, {"n", "y"}),
    (Feature.ANY_TRAITS, {"required": ("OWNER_NOVA", "!CUSTOM_FAST")}, {"cn", "cn2"}),
    (
        Feature.ANY_TRAITS,
        {"required": ("in:OWNER_NOVA,OWNER_CYBORG", "in:CUSTOM_FAST,HW_CPU_X86_AVX", "OWNER_NOVA")},
        {"cn", "n"},
    ),
    (Feature.FORBIDDEN_AGGREGATES, {"member_of": (f"!{AGGREGATES['cn']}",)}, {"n", "y", "cn2"}),
    (
        Feature.FORBIDDEN_AGGREGATES,
        {"member_of": (f"!in:{AGGREGATES['cn']},{AGGREGATES['n']}",), "resources": {"VGPU": 1}},
        {"y", "cn2"},
    ),
]


def test_list_by_each_filter_is_right_or_refused_on_each_server(
    placement: PlacementFixture, hosts: dict[str, str], at: At
) -> None:
    for feature, filters, expected in LISTS:
        client = at(since(feature))
        assert {one.name for one in client.list_providers(**filters)} == expected, filters

        older = at(before(feature))
        refused(placement, feature, partial(older.list_providers, **filters))


def test_oldest_supported_server_lists_by_the_filters_that_it_knows(
    placement: PlacementFixture, hosts: dict[str, str], at: At
) -> None:
    client = at(str(LOWEST))

    def named(**filters: Any) -> set[str]:
        return {one.name for one in client.list_providers(**filters)}

    assert named(in_tree=hosts["n"]) == {"cn", "n", "y"}
    assert named(required=("OWNER_NOVA,!CUSTOM_FAST",)) == {"cn", "cn2"}
    assert named(member_of=(f"in:{AGGREGATES['n']},{AGGREGATES['y']}",)) == {"n", "y"}
    assert named(resources={"VGPU": 1}, required=("!OWNER_CYBORG",)) == {"n", "cn2"}


def _candidates(client: WritingClient, query: Query, hosts: dict[str, str]) -> set[frozenset[str]]:
    """Return the providers of each candidate, by name."""
    names = {uuid_: name for name, uuid_ in hosts.items()}
    found = client.get_allocation_candidates(query)
    return {
        frozenset(names[one] for one in request.allocations)
        for request in found.allocation_requests
    }


BOTH = [("resources", "VCPU:1"), ("resources1", "VGPU:1"), ("required1", "OWNER_CYBORG")]
CANDIDATES: list[tuple[Feature, Query, set[frozenset[str]]]] = [
    (Feature.NESTED_CANDIDATES, BOTH, {frozenset({"cn", "y"})}),
    (
        Feature.NESTED_CANDIDATES,
        [("resources", "VCPU:1,VGPU:1")],
        {frozenset({"cn", "n"}), frozenset({"cn", "y"}), frozenset({"cn2"})},
    ),
    (
        Feature.ROOT_REQUIRED,
        [("resources", "VGPU:1"), ("root_required", "HW_CPU_X86_AVX")],
        {frozenset({"n"}), frozenset({"y"})},
    ),
    (
        Feature.SAME_SUBTREE,
        [
            ("resources_A", "VGPU:1"),
            ("resources_B", "FPGA:1"),
            ("same_subtree", "_A,_B"),
            ("group_policy", "none"),
        ],
        {frozenset({"y"})},
    ),
    (
        Feature.ANY_TRAITS,
        [("resources1", "VGPU:1"), ("required1", "in:CUSTOM_FAST,OWNER_CYBORG")],
        {frozenset({"n"}), frozenset({"y"})},
    ),
    (
        Feature.ANY_TRAITS,
        [("resources_A", "VGPU:1"), ("required_A", "OWNER_NOVA"), ("required_A", "!CUSTOM_FAST")],
        {frozenset({"cn2"})},
    ),
    (
        Feature.FORBIDDEN_AGGREGATES,
        [("resources1", "VGPU:1"), ("member_of1", f"!{AGGREGATES['n']}")],
        {frozenset({"y"}), frozenset({"cn2"})},
    ),
]


def test_candidates_of_each_query_are_right_or_refused_on_each_server(
    placement: PlacementFixture, hosts: dict[str, str], at: At
) -> None:
    of_one_tree = [
        (
            Feature.CANDIDATES_IN_TREE,
            [(f"resources{suffix}", "VGPU:1"), (f"in_tree{suffix}", hosts["cn2"])],
            {frozenset({"cn2"})},
        )
        for suffix in ("", "1", "_GPU")
    ]
    for feature, query, expected in (*CANDIDATES, *of_one_tree):
        assert _candidates(at(since(feature)), query, hosts) == expected, query

        older = at(before(feature))
        refused(placement, feature, partial(older.get_allocation_candidates, query))


def test_named_groups_on_a_server_with_numbered_groups_have_the_same_candidates(
    placement: PlacementFixture, hosts: dict[str, str], at: At
) -> None:
    for gpu, fpga in (("_GPU", "_FPGA"), ("_GPU", "1"), ("2", "_1")):
        query = [
            ("resources", "VCPU:1"),
            (f"resources{gpu}", "VGPU:1"),
            (f"required{gpu}", "OWNER_NOVA"),
            (f"resources{fpga}", "FPGA:1"),
            (f"required{fpga}", "OWNER_CYBORG"),
            ("group_policy", "isolate"),
        ]
        expected = {frozenset({"cn", "n", "y"})}

        for newest, has_names in (("1.33", True), ("1.32", False)):
            assert _candidates(at(newest), query, hosts) == expected
            asked = placement.requests.seen[-1]
            assert ("resources_" in asked) is has_names


# Allocations.


def _allocation(provider: str, generation: int | None, **amounts: int) -> dict[str, Any]:
    return {
        "allocations": {provider: {"resources": amounts}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": generation,
        "consumer_type": "MIGRATION",
    }


def _type_of(placement: PlacementFixture, consumer: str) -> str:
    """Return the consumer's type; ask Placement without the limit of microversions."""
    known, microversion.VERSIONS = microversion.VERSIONS, EVERY
    try:
        answer = placement.adapter.request(f"/allocations/{consumer}", "GET", microversion="1.38")
    finally:
        microversion.VERSIONS = known
    found: str = answer.json()["consumer_type"]
    return found


@pytest.mark.parametrize(
    ("newest", "written"), [("1.28", "unknown"), ("1.37", "unknown"), ("1.38", "MIGRATION")]
)
def test_allocations_are_written_with_a_type_if_the_server_has_types(
    placement: PlacementFixture,
    hosts: dict[str, str],
    at: At,
    newest: str,
    written: str,
) -> None:
    one, other, third = (str(uuid.uuid4()) for _ in range(3))
    client = at(newest)

    client.set_allocations(
        {
            one: _allocation(hosts["n"], None, VGPU=1),
            other: _allocation(hosts["y"], None, VGPU=2, FPGA=1),
        }
    )
    assert client.get_usages(hosts["n"]) == {"VGPU": 1}
    assert client.get_usages(hosts["y"]) == {"VGPU": 2, "FPGA": 1}
    assert [_type_of(placement, consumer) for consumer in (one, other)] == [written] * 2

    # A stale generation of a consumer refuses the whole write.
    held = client.get_allocations(one)
    with pytest.raises(ConcurrentUpdate):
        client.set_allocations(
            {
                one: _allocation(hosts["n"], None, VGPU=2),
                third: _allocation(hosts["y"], None, VGPU=1),
            }
        )
    assert client.get_usages(hosts["n"]) == {"VGPU": 1}
    assert client.get_usages(hosts["y"]) == {"VGPU": 2, "FPGA": 1}
    client.set_allocations({one: _allocation(hosts["n"], held["consumer_generation"], VGPU=2)})
    assert client.get_usages(hosts["n"]) == {"VGPU": 2}


def test_allocations_are_not_written_without_consumer_generations(
    placement: PlacementFixture, hosts: dict[str, str], at: At
) -> None:
    client = at(before(Feature.CONSUMER_GENERATION))

    refused(
        placement,
        Feature.CONSUMER_GENERATION,
        lambda: client.set_allocations({str(uuid.uuid4()): _allocation(hosts["n"], None, VGPU=1)}),
    )


def test_allocations_are_read_and_deleted_on_every_server(
    placement: PlacementFixture, hosts: dict[str, str], at: At
) -> None:
    for newest in SUPPORTED:
        consumer = str(uuid.uuid4())
        at("1.39")
        allocate(placement, consumer, n={"VGPU": 3})
        client = at(newest)

        held = client.get_allocations(consumer)["allocations"]
        assert {provider: one["resources"] for provider, one in held.items()} == {
            hosts["n"]: {"VGPU": 3}
        }
        assert list(client.get_provider_allocations(hosts["n"])) == [consumer]
        client.delete_allocations(consumer)
        assert client.get_usages(hosts["n"]) == {"VGPU": 0}


@pytest.mark.parametrize("newest", [before(Feature.MAPPINGS), since(Feature.MAPPINGS)])
def test_mappings_are_returned_from_1_34(hosts: dict[str, str], at: At, newest: str) -> None:
    query = [("resources", "VCPU:1"), ("resources_A", "FPGA:1")]

    (found,) = at(newest).get_allocation_candidates(query).allocation_requests

    assert found.allocations.keys() == {hosts["cn"], hosts["y"]}
    told = {"": [hosts["cn"]], "_A": [hosts["y"]]}
    assert found.mappings == (told if newest == since(Feature.MAPPINGS) else {})


def test_every_feature_is_tested_here() -> None:
    """A new feature needs a test in this module with and without it."""
    tested = {feature for feature, *_ in (*LISTS, *CANDIDATES)}
    tested |= {
        Feature.RESHAPE,
        Feature.REPARENT,
        Feature.CANDIDATES_IN_TREE,
        Feature.NAMED_GROUPS,
        Feature.MAPPINGS,
        Feature.CONSUMER_GENERATION,
        Feature.CONSUMER_TYPES,
    }

    assert tested == set(Feature)
