"""Changes that other programs make to providers are neither lost nor attributed to us."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.cycles import Publishing, allocate, contents, stored
from tests.lab.drivers import (
    also,
    does_not_answer,
    flat,
    moves_vgpus,
    with_children,
)
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    InvalidTree,
    NameTaken,
    OwnershipConflict,
    PlacementUnavailable,
    ReshapeNeeded,
)
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree, names
from wharfinger.reconcile.cycle_result import CycleResult


def test_provider_created_first_by_another_program_is_not_taken_over(
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


def test_provider_that_the_request_of_an_ended_process_creates_late_is_completed(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    late = _end_before_creation(publishing, placement)

    outcome = _sync_with_creation(publishing, placement, late)

    assert not outcome.problems
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (8, 0)}
    assert not publishing.restarted().plan().steps


def test_provider_that_another_program_created_after_our_process_ended_is_not_taken_over(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    late = _end_before_creation(publishing, placement)

    def create() -> None:
        late()
        client = placement.new_client()
        client.set_inventories(names.root_uuid("cn"), 0, {"DISK_GB": Inventory(total=7)})

    outcome = _sync_with_creation(publishing, placement, create)

    assert [type(problem) for problem in outcome.problems] == [OwnershipConflict]
    assert contents(placement)["cn"]["inventories"] == {"DISK_GB": (7, 0)}
    assert contents(placement)["cn"]["traits"] == set()
    assert not any(record.is_ours for record in stored(publishing.state_path).values())


def test_name_that_another_program_uses_after_our_process_ended_stays_that_programs(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    _end_before_creation(publishing, placement)
    other = str(uuid.uuid4())

    outcome = _sync_with_creation(publishing, placement, _creates(placement, other, "gpu"))

    assert [type(problem) for problem in outcome.problems] == [NameTaken]
    found = contents(placement)["gpu"]
    assert (found["uuid"], found["traits"], found["inventories"]) == (other, set(), {})
    assert list(stored(publishing.state_path)) == [names.root_uuid("cn")]


def test_name_of_a_root_that_another_program_uses_first_is_reported_by_the_same_sync(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    other = str(uuid.uuid4())

    outcome = _sync_with_creation(publishing, placement, _creates(placement, other, "cn"))

    assert [type(problem) for problem in outcome.problems] == [OwnershipConflict]
    assert contents(placement)["cn"]["uuid"] == other
    assert contents(placement)["cn"]["traits"] == set()


def _creates(
    placement: PlacementFixture, uuid_: str, name: str, parent: str | None = None
) -> Callable[[], object]:
    return lambda: placement.new_client().create_provider(uuid_, name, parent)


def _end_before_creation(
    publishing: Publishing, placement: PlacementFixture
) -> Callable[[], object]:
    """Let a process end while its first POST is under way; return a function that delivers it."""

    def fail() -> None:
        raise PlacementUnavailable(request="POST", status=0, code="", detail="no answer")

    placement.adapter.once_before(lambda method, path: method == "POST", fail)
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()
    intents = [record.intended for record in stored(publishing.state_path).values()]
    [intended] = filter(None, intents)
    return _creates(placement, intended.uuid, intended.name, intended.parent_uuid)


def _sync_with_creation(
    publishing: Publishing, placement: PlacementFixture, create: Callable[[], object]
) -> CycleResult:
    """Run a full cycle of a new process, and call ``create`` just before its first POST."""
    created = placement.adapter.once_before(lambda method, path: method == "POST", create)
    outcome = publishing.restarted().sync()
    assert created
    return outcome


def test_subtree_moved_and_renamed_by_another_program_is_restored(
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
    placement.client.update_provider(before["gpu"]["uuid"], "renamed", before["card"]["uuid"])

    outcomes = [publishing.cycle.sync(), publishing.cycle.sync()]

    assert not outcomes[-1].problems
    after = contents(placement)
    del after["other"]
    assert after == before


def test_provider_reported_in_a_refused_tree_does_not_count_as_absent(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    good = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    gone = with_children({"VCPU": 8}, {})
    wrong = also(lambda tree: tree.add_traits("gpu", "OWNER_CYBORG"))(good)

    for edit in (good, gone, wrong, gone):
        publishing.driver.nodes["cn"] = edit
        publishing.cycle.sync()

    assert "gpu" in contents(placement)


def test_device_that_may_have_moved_to_a_failing_node_is_not_absent(
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


def test_provider_of_one_driver_instance_is_not_written_by_another(
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


def test_inventory_with_contradicting_figures_is_corrected(
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


def test_reshape_accepts_allocations_without_a_consumer_type(
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


def test_reshape_of_an_unpublished_host_creates_it(
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


def test_trait_deleted_by_another_program_is_created_again(
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
    assert "has the same uuid" in str(outcome.problems[0])
    assert contents(placement)["a"]["uuid"] == one.lower()
