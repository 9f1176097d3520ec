"""What others do to providers, before us and meanwhile, is neither lost nor taken over."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import (
    Edit,
    also,
    does_not_answer,
    flat,
    moves_vgpus,
    with_children,
    with_gpu_below,
)
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    BackendError,
    InvalidTree,
    InventoryInUse,
    MicroversionUnsupported,
    OwnershipConflict,
    PlacementUnavailable,
    ReshapeNeeded,
    StateError,
    UnknownTrait,
)
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree, PublishingMode
from wharfinger.tracker.exclusive import exclusive

_HOLD = """
import sys
from pathlib import Path
from wharfinger.tracker.exclusive import exclusive
with exclusive(Path(sys.argv[1]), "scripted"):
    print("holding", flush=True)
    sys.stdin.read()
"""
MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}


def add_trait(placement: PlacementFixture, name: str, trait: str) -> None:
    """Have an operator put a trait on a provider."""
    client = placement.new_client()
    client.create_trait(trait)
    found = client.get_traits(contents(placement)[name]["uuid"])
    client.set_traits(
        contents(placement)[name]["uuid"],
        found.resource_provider_generation,
        found.traits | {trait},
    )


def test_a_trait_set_while_we_rename_is_not_lost(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.client.update_provider(contents(placement)["cn"]["uuid"], "renamed", None)

    placement.adapter.once_before(
        lambda method, path: method == "PUT",
        lambda: add_trait(placement, "renamed", "CUSTOM_OPERATORS"),
    )
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = also(lambda tree: tree.add_traits("cn", "HW_CPU_X86_AVX"))(
        flat(VCPU=8)
    )
    publishing.cycle.sync()

    assert contents(placement)["cn"]["traits"] == MARKS | {"CUSTOM_OPERATORS", "HW_CPU_X86_AVX"}


def test_a_provider_that_another_created_first_is_not_taken_over(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    cn = contents(placement)["cn"]["uuid"]
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu": {"VGPU": 4}, "new": {"VGPU": 1}}
    )

    def create_first() -> None:
        step = publishing.cycle.plan().steps[0]
        client = placement.new_client()
        client.create_provider(step.uuid, "new", cn)
        client.set_inventories(step.uuid, 0, {"DISK_GB": Inventory(total=7)})

    placement.adapter.once_before(lambda method, path: method == "POST", create_first)
    outcome = publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [OwnershipConflict]
    assert contents(placement)["new"]["inventories"] == {"DISK_GB": (7, 0)}
    assert contents(placement)["new"]["traits"] == set()


def test_a_subtree_that_somebody_moved_is_moved_back(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def three_levels(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(VCPU=8)(tree, node, allocations)
        for name, parent in (("card", node), ("gpu", "card")):
            if not tree.exists(name):
                tree.new_child(name, parent)
        tree.update_inventory("card", {})
        tree.update_inventory("gpu", {"VGPU": {"total": 2}})

    publishing.driver.nodes["cn"] = three_levels
    publishing.cycle.sync()
    before = contents(placement)
    other = placement.client.create_provider(str(uuid.uuid4()), "other", None)
    placement.client.update_provider(before["card"]["uuid"], "card", other.uuid)

    outcomes = [publishing.cycle.sync(), publishing.cycle.sync()]

    assert not outcomes[-1].problems
    after = contents(placement)
    del after["other"]
    assert after == before


def test_a_root_that_was_renamed_is_found_although_its_node_fails(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.driver.nodes |= {"a": flat(CUSTOM_GOLD=1), "b": flat(CUSTOM_GOLD=1)}
    monkeypatch.setattr(publishing.driver, "get_available_resource", _with_own_uuid)
    publishing.cycle.sync()
    placement.client.update_provider(contents(placement)["a"]["uuid"], "renamed", None)

    def fail(nodename: str) -> ComputeNode:
        if nodename == "a":
            raise OSError("no answer")
        return _with_own_uuid(nodename)

    monkeypatch.setattr(publishing.driver, "get_available_resource", fail)
    outcomes = [publishing.cycle.sync() for _ in range(3)]

    for outcome in outcomes:
        assert [type(problem) for problem in outcome.problems] == [BackendError]
        assert not outcome.pending
    assert set(contents(placement)) == {"renamed", "b"}


def test_an_adopted_root_that_was_renamed_gets_its_name_back(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    root = placement.client.create_provider(str(uuid.uuid4()), "cn", None)
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.client.update_provider(root.uuid, "renamed", None)

    for _ in range(3):
        assert not publishing.cycle.sync().problems

    assert contents(placement)["cn"]["uuid"] == root.uuid
    assert set(contents(placement)) == {"cn", "gpu"}


def test_a_child_that_was_renamed_gets_its_name_back(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    before = contents(placement)
    placement.client.update_provider(before["gpu"]["uuid"], "renamed", before["cn"]["uuid"])

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement) == before


def test_what_came_back_and_is_wrong_has_not_been_absent(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    good = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    gone = with_children({"VCPU": 8}, {})
    wrong = also(lambda tree: tree.add_traits("gpu", "OWNER_CYBORG"))(good)

    for edit in (good, gone, wrong, gone):
        publishing.driver.nodes["cn"] = edit
        publishing.cycle.sync()

    assert "gpu" in contents(placement)


def test_a_device_that_may_have_moved_to_a_node_that_fails_is_not_gone(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {
        "a": with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}}),
        "b": flat(VCPU=8),
    }
    publishing.cycle.sync()
    publishing.driver.nodes |= {"a": with_children({"VCPU": 8}, {}), "b": does_not_answer}

    outcomes = [publishing.cycle.sync() for _ in range(3)]

    assert "could not be read" in outcomes[-1].pending[0].reason
    assert contents(placement)["gpu"]["inventories"] == {"VGPU": (4, 0)}


@pytest.mark.parametrize("traits", [("HW_CPU_X86_AVX",), ()])
def test_a_strangers_root_is_not_adopted_because_a_trait_was_added(
    publishing: Publishing,
    placement: PlacementFixture,
    traits: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = placement.client
    root = client.create_provider(str(uuid.uuid4()), "cn", None)
    client.set_inventories(root.uuid, root.generation, {"VCPU": Inventory(total=5)})
    before = contents(placement)
    monkeypatch.setattr(publishing.driver, "capabilities_as_traits", lambda: {"COMPUTE_NODE": True})

    def only_traits(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.add_traits(node, *traits)

    publishing.driver.nodes["cn"] = only_traits
    publishing.cycle.sync()

    assert contents(placement) == before


def test_two_instances_cannot_publish_one_provider(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    before = contents(placement)
    with Publishing(placement, tmp_path / "second", name="second") as second:
        second.driver.nodes["cn"] = with_children({"VCPU": 4}, {"gpu": {"VGPU": 1}})
        outcome = second.cycle.sync()

    (problem,) = outcome.problems
    assert isinstance(problem, OwnershipConflict)
    assert "CUSTOM_WHARFINGER_SCRIPTED" in str(problem)
    after = contents(placement)
    assert after.pop("gpu")["parent"] == "cn"
    assert after == before


def test_what_another_instance_overlays_is_not_removed(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes |= {"cn": flat(VCPU=8), "other": flat(VCPU=8)}
    publishing.cycle.sync()
    with Publishing(placement, tmp_path / "second", name="second") as second:
        second.driver.nodes["cn"] = also(
            lambda tree: tree.set_publishing_mode("cn", PublishingMode.OVERLAY)
        )(flat())
        second.cycle.sync()
    del publishing.driver.nodes["cn"]

    outcomes = [publishing.cycle.sync() for _ in range(3)]

    assert "CUSTOM_WHARFINGER_SECOND" in outcomes[-1].pending[0].reason
    assert "cn" in contents(placement)


def test_one_process_at_a_time_works_on_an_instance(publishing: Publishing) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(publishing.state_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdin is not None
    assert other.stdout is not None
    assert other.stdout.readline() == "holding\n"
    try:
        with (
            pytest.raises(StateError, match=f"process {other.pid} is at work"),
            exclusive(publishing.state_path, "scripted"),
        ):
            pass
        with exclusive(publishing.state_path, "another"):
            pass
        other.kill()
        other.wait()
        with exclusive(publishing.state_path, "scripted"):
            pass
    finally:
        other.kill()
        other.communicate()


def test_an_inventory_that_contradicts_itself_is_put_right(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {"a": flat(VCPU=8), "b": flat(VCPU=8)}
    publishing.cycle.sync()
    a = contents(placement)["a"]["uuid"]
    response = placement.adapter.request(
        f"/resource_providers/{a}/inventories",
        "PUT",
        microversion="1.39",
        raise_exc=False,
        json={
            "resource_provider_generation": 3,
            "inventories": {"VCPU": {"total": 8, "min_unit": 5, "max_unit": 2}},
        },
    )
    assert response.status_code == 200, response.text
    publishing.driver.nodes |= {"a": flat(VCPU=9), "b": flat(VCPU=9)}

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    for node in ("a", "b"):
        found = placement.client.list_providers(name=node)[0].uuid
        assert placement.client.get_inventories(found).inventories == {"VCPU": Inventory(total=9)}


def test_a_reshape_takes_allocations_that_were_written_without_a_consumer_type(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, "1.36", cn={"VGPU": 1})
    publishing.driver.nodes["cn"] = moves_vgpus

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    gpu = contents(placement)["gpu"]["uuid"]
    assert list(placement.client.get_allocations(consumer)["allocations"]) == [gpu]
    assert not publishing.cycle.sync().steps


def test_a_reshape_of_a_host_that_is_not_published_yet_creates_it(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def always(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if allocations is None:
            raise ReshapeNeeded
        with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})(tree, node, None)

    publishing.driver.nodes["cn"] = always

    assert not publishing.cycle.sync().problems
    assert contents(placement)["gpu"]["inventories"] == {"VGPU": (4, 0)}
    assert not publishing.cycle.sync().steps


def test_a_neighbour_is_reserved_although_a_class_in_use_cannot_go(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu-a": {"VGPU": 4}, "gpu-b": {"VGPU": 4}}
    )
    publishing.cycle.sync()
    allocate(placement, str(uuid.uuid4()), **{"gpu-a": {"VGPU": 1}})  # type: ignore[arg-type]
    publishing.driver.nodes["cn"] = also(lambda tree: tree.reserve("gpu-b", "programming"))(
        with_children({"VCPU": 8}, {"gpu-a": {"CUSTOM_OTHER": 4}, "gpu-b": {"VGPU": 4}})
    )

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [InventoryInUse]
    assert contents(placement)["gpu-b"]["inventories"] == {"VGPU": (4, 4)}
    assert contents(placement)["gpu-a"]["inventories"] == {"VGPU": (4, 0)}


def test_a_trait_that_the_server_does_not_know_stops_only_its_tree(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = publishing.client.list_traits
    monkeypatch.setattr(
        publishing.client, "list_traits", lambda names: known(names) - {"HW_CPU_X86_AVX"}
    )
    publishing.driver.nodes |= {
        "a": also(lambda tree: tree.add_traits("a", "HW_CPU_X86_AVX"))(flat(VCPU=8)),
        "b": flat(VCPU=8),
    }

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [UnknownTrait]
    assert set(contents(placement)) == {"b"}


def test_a_trait_that_somebody_deleted_is_created_again(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    plain = flat(VCPU=8)
    raid = also(lambda tree: tree.add_traits("cn", "CUSTOM_RAID"))(plain)
    without = also(lambda tree: tree.remove_traits("cn", "CUSTOM_RAID"))(plain)
    for edit in (raid, without):
        publishing.driver.nodes["cn"] = edit
        publishing.cycle.sync()
    placement.adapter.request("/traits/CUSTOM_RAID", "DELETE", microversion="1.39")
    publishing.driver.nodes["cn"] = raid

    outcomes = [publishing.cycle.sync(), publishing.cycle.sync()]

    assert not outcomes[-1].problems
    assert "CUSTOM_RAID" in contents(placement)["cn"]["traits"]


def test_two_nodes_with_one_uuid_are_refused(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = str(uuid.uuid4()).upper()
    monkeypatch.setattr(
        publishing.driver,
        "get_available_resource",
        lambda name: ComputeNode(uuid=one, host="h", hypervisor_hostname=name),
    )
    publishing.driver.nodes |= {"a": flat(VCPU=8), "b": flat(VCPU=8)}

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [InvalidTree]
    assert "has its uuid" in str(outcome.problems[0])
    assert contents(placement)["a"]["uuid"] == one.lower()


def test_one_child_in_two_trees_is_refused(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    shared = str(uuid.uuid4())

    def child_named(name: str) -> Edit:
        def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
            flat(VCPU=8)(tree, node, allocations)
            tree.new_child(name, node, uuid=shared)

        return edit

    publishing.driver.nodes |= {"a": child_named("x"), "b": child_named("y")}

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [InvalidTree]
    assert set(contents(placement)) == {"a", "x"}


def test_what_the_server_is_too_old_for_is_refused_before_anything_is_sent(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_gpu_below("card")
    publishing.client._microversion = type(publishing.client.microversion)(1, 36)
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [MicroversionUnsupported]
    assert not placement.requests.writes


@pytest.mark.parametrize("lost", range(5))
def test_a_sync_whose_answer_is_lost_is_completed_by_the_next(
    publishing: Publishing, placement: PlacementFixture, lost: int
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    writes = 0

    def lose(method: str, path: str) -> None:
        nonlocal writes
        writes += method != "GET" and path.startswith(("/resource_providers", "/reshaper"))
        if writes == lost + 1:
            placement.adapter.after = lambda method, path: None
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    placement.adapter.after = lose
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()

    assert not publishing.restarted().sync().problems
    found = contents(placement)
    assert found["cn"]["traits"] == found["gpu"]["traits"] == MARKS
    assert found["gpu"]["inventories"] == {"VGPU": (4, 0)}
    assert not publishing.cycle.sync().steps


def _with_own_uuid(nodename: str) -> ComputeNode:
    own = uuid.uuid5(uuid.NAMESPACE_DNS, nodename)
    return ComputeNode(uuid=str(own), host="h", hypervisor_hostname=nodename)
