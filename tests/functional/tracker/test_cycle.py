"""A driver's word becomes Placement's, in few requests, and nothing else is touched."""

import uuid
from collections import Counter
from pathlib import Path

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import also, flat, moves_vgpus, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    BackendError,
    ConcurrentUpdate,
    InvalidTree,
    NameTaken,
    OwnershipConflict,
    PlacementUnavailable,
    ProviderMissing,
    WharfingerError,
)
from wharfinger.objects import ProviderRecordList
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, names
from wharfinger.providers.plan import SetInventories

MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}


def test_every_provider_is_published_with_its_owner(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    found = contents(placement)
    assert found["cn"]["inventories"] == {"VCPU": (8, 0)}
    assert found["gpu"]["inventories"] == {"VGPU": (4, 0)}
    assert found["gpu"]["parent"] == "cn"
    assert found["cn"]["traits"] == found["gpu"]["traits"] == MARKS


def test_no_provider_is_ever_seen_untagged_with_something_to_give(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})

    publishing.cycle.sync()

    writes = [request.rsplit("/", 1)[-1] for request in placement.requests.writes]
    assert writes[-1] == "reshaper"
    assert writes.count("traits") == 2


def test_an_unchanged_world_takes_one_request_and_no_write(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert not outcome.steps
    assert len(placement.requests) == 1
    assert placement.requests.seen[0].startswith("GET /resource_providers?in_tree=")


def test_a_process_that_starts_on_an_unchanged_world_takes_one_request_too(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.requests.clear()

    outcome = publishing.restarted().sync()

    assert not outcome.steps
    assert len(placement.requests) == 1


def test_an_unchanged_fleet_takes_one_request(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {f"node-{number}": flat(CUSTOM_GOLD=1) for number in range(20)}
    publishing.cycle.sync()
    placement.requests.clear()

    publishing.restarted().sync()

    assert placement.requests.seen == [
        "GET /resource_providers?required=CUSTOM_WHARFINGER_SCRIPTED"
    ]


def test_a_first_sync_takes_three_requests_a_node_and_a_few(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {f"node-{number}": flat(CUSTOM_GOLD=1) for number in range(20)}

    publishing.cycle.sync()

    assert len(placement.requests) <= 3 * 20 + 8


def test_a_change_of_one_thing_is_one_write(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 5}})
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert [type(step) for step in outcome.steps] == [SetInventories]
    assert len(placement.requests.writes) == 1


def test_a_plan_writes_nothing_anywhere(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})

    plan = publishing.cycle.plan()

    assert len(plan.steps) == 6
    assert not placement.requests.writes
    assert not publishing.memory.records


def test_what_others_put_on_our_provider_survives(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    cn = contents(placement)["cn"]["uuid"]
    client = placement.client
    aggregate = str(uuid.uuid4())
    client.create_trait("CUSTOM_OPERATORS")
    client.create_resource_class("CUSTOM_THEIRS")
    generation = client.set_traits(
        cn, client.get_traits(cn).resource_provider_generation, MARKS | {"CUSTOM_OPERATORS"}
    )
    generation = client.set_aggregates(cn, generation, [aggregate])
    client.set_inventories(
        cn, generation, {"VCPU": Inventory(total=8), "CUSTOM_THEIRS": Inventory(total=3)}
    )
    publishing.driver.nodes["cn"] = flat(VCPU=9)

    publishing.cycle.sync()
    publishing.cycle.sync()

    found = contents(placement)["cn"]
    assert found["traits"] == MARKS | {"CUSTOM_OPERATORS"}
    assert found["aggregates"] == {aggregate}
    assert found["inventories"] == {"CUSTOM_THEIRS": (3, 0), "VCPU": (9, 0)}


def test_another_owners_provider_is_left_exactly_as_it_is(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    with Publishing(placement, tmp_path / "acme", owner="CUSTOM_OWNER_ACME", name="acme") as acme:
        acme.driver.nodes["fpga-0"] = flat(FPGA=2)
        acme.cycle.sync()
    before = contents(placement)
    publishing.driver.nodes["fpga-0"] = flat(FPGA=7)
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    outcome = publishing.cycle.sync()

    (problem,) = outcome.problems
    assert isinstance(problem, OwnershipConflict)
    assert "CUSTOM_OWNER_ACME" in str(problem)
    assert "OWNER_NOVA" in str(problem)
    after = contents(placement)
    assert after.pop("cn")["inventories"] == {"VCPU": (8, 0)}
    assert after == before


def test_our_child_beneath_another_owners_root_is_published(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    with Publishing(placement, tmp_path / "acme", owner="CUSTOM_OWNER_ACME", name="acme") as acme:

        def add_child(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
            # Of the root it says nothing: that is somebody else's.
            if not tree.exists("fpga-0"):
                tree.new_child("fpga-0", node)
            tree.update_inventory("fpga-0", {"FPGA": {"total": 1}})

        acme.driver.nodes["cn"] = add_child
        outcome = acme.cycle.sync()
        again = acme.cycle.sync()

    assert not outcome.problems
    assert not again.steps
    assert contents(placement)["fpga-0"]["traits"] == {
        "CUSTOM_OWNER_ACME",
        "CUSTOM_WHARFINGER_ACME",
    }


def test_a_neighbours_child_in_our_tree_is_neither_adopted_nor_removed(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.client.create_provider(
        str(uuid.uuid4()), "cn:ovs-agent", contents(placement)["cn"]["uuid"]
    )
    before = contents(placement)

    outcomes = [publishing.cycle.sync(), publishing.cycle.sync(), publishing.cycle.sync()]

    assert not any(outcome.steps or outcome.problems for outcome in outcomes)
    assert contents(placement) == before


def test_an_overlaid_root_gets_only_marks_and_reservation(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    client = placement.client
    root = client.create_provider(str(uuid.uuid4()), "cn", None)
    client.set_inventories(root.uuid, root.generation, {"VCPU": Inventory(total=16, reserved=2)})
    overlay = also(lambda tree: tree.set_publishing_mode("cn", PublishingMode.OVERLAY))
    publishing.driver.nodes["cn"] = overlay(flat(VCPU=1))

    publishing.cycle.sync()
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (16, 2)}
    assert contents(placement)["cn"]["traits"] == MARKS

    publishing.driver.nodes["cn"] = also(lambda tree: tree.reserve("cn", "maintenance"))(
        overlay(flat(VCPU=1))
    )
    publishing.restarted().sync()
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (16, 16)}

    publishing.driver.nodes["cn"] = overlay(flat(VCPU=1))
    publishing.restarted().sync()
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (16, 2)}


def test_nothing_is_written_below_an_overlaid_root_that_is_not_there_yet(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = also(
        lambda tree: tree.set_publishing_mode("cn", PublishingMode.OVERLAY)
    )(with_children({}, {"gpu": {"VGPU": 4}}))

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [ProviderMissing]
    assert not contents(placement)


def test_a_reserved_node_keeps_its_inventory_and_gets_its_figures_back(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["node"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()

    publishing.driver.nodes["node"] = also(lambda tree: tree.reserve("node", "cleaning"))(
        flat(CUSTOM_GOLD=1)
    )
    publishing.cycle.sync()
    assert contents(placement)["node"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}

    publishing.driver.nodes["node"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    assert contents(placement)["node"]["inventories"] == {"CUSTOM_GOLD": (1, 0)}


def test_what_is_gone_is_removed_after_two_listings_children_first(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.driver.nodes["other"] = flat(VCPU=1)
    publishing.cycle.sync()
    del publishing.driver.nodes["cn"]

    first = publishing.restarted().sync()
    assert {item.name for item in first.pending} == {"cn", "gpu"}
    assert not first.steps

    second = publishing.restarted().sync()
    assert [step.name for step in second.steps] == ["gpu", "cn"]
    assert set(contents(placement)) == {"other"}


def test_what_is_gone_and_allocated_is_reserved_and_kept(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    allocate(placement, str(uuid.uuid4()), gpu={"VGPU": 1})
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {})

    publishing.cycle.sync()
    outcome = publishing.cycle.sync()

    assert contents(placement)["gpu"]["inventories"] == {"VGPU": (4, 4)}
    assert "allocations" in outcome.pending[0].reason
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    assert contents(placement)["gpu"]["inventories"] == {"VGPU": (4, 0)}


def test_a_node_that_fails_leaves_the_others_alone_and_is_left_alone(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in ("a", "b", "c")}
    publishing.cycle.sync()
    publishing.driver.nodes |= {
        "a": flat(CUSTOM_GOLD=2),
        "b": flat(CUSTOM_GOLD=0),
        "c": flat(CUSTOM_GOLD=3),
    }

    outcomes = [publishing.cycle.sync(), publishing.cycle.sync()]

    for outcome in outcomes:
        assert [type(problem) for problem in outcome.problems] == [InvalidTree]
    found = contents(placement)
    assert {name: found[name]["inventories"]["CUSTOM_GOLD"][0] for name in found} == {
        "a": 2,
        "b": 1,
        "c": 3,
    }


def test_a_listing_that_fails_changes_nothing(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    before = contents(placement)

    def fail(refresh: bool = False) -> list[str]:
        raise OSError("the backend is not there")

    monkeypatch.setattr(publishing.driver, "get_available_nodes", fail)
    for _ in range(3):
        with pytest.raises(BackendError, match="the backend is not there"):
            publishing.cycle.sync()

    assert contents(placement) == before


def test_a_tree_that_somebody_else_changes_is_read_and_planned_again(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    cn = contents(placement)["cn"]["uuid"]
    publishing.driver.nodes["cn"] = flat(VCPU=9)
    placement.client.create_trait("CUSTOM_OPERATORS")
    other = placement.new_client()

    placement.adapter.once_before(
        lambda method, path: method == "PUT" and path.endswith("/inventories"),
        lambda: other.set_traits(
            cn,
            other.get_traits(cn).resource_provider_generation,
            MARKS | {"CUSTOM_OPERATORS"},
        ),
    )
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (9, 0)}
    assert contents(placement)["cn"]["traits"] == MARKS | {"CUSTOM_OPERATORS"}


def test_conflicts_without_end_are_reported_and_the_other_trees_are_done(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {"a": flat(VCPU=8), "b": flat(VCPU=8)}
    publishing.cycle.sync()
    a = contents(placement)["a"]["uuid"]
    publishing.driver.nodes |= {"a": flat(VCPU=9), "b": flat(VCPU=9)}
    tries: Counter[str] = Counter()

    def refuse(method: str, path: str) -> None:
        if path == "/reshaper" or (method == "PUT" and a in path):
            tries[path] += 1
            raise ConcurrentUpdate(
                request=path, status=409, code="placement.concurrent_update", detail="again"
            )

    placement.adapter.before = refuse
    outcome = publishing.cycle.sync()
    placement.adapter.before = lambda method, path: None

    assert [type(problem) for problem in outcome.problems] == [ConcurrentUpdate]
    assert max(tries.values()) == 5
    assert contents(placement)["b"]["inventories"] == {"VCPU": (9, 0)}


def test_a_name_that_is_taken_elsewhere_is_reported(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.client.create_provider(str(uuid.uuid4()), "gpu", None)
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu": {"VGPU": 4}, "gpu-1": {"VGPU": 4}}
    )

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [NameTaken]
    assert contents(placement)["gpu"]["inventories"] == {}
    assert contents(placement)["gpu-1"]["inventories"] == {"VGPU": (4, 0)}


def test_a_device_that_was_replaced_gets_its_name_when_the_old_one_is_gone(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    new = str(uuid.uuid4())

    def replaced(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if tree.exists("gpu"):
            tree.remove("gpu")
        tree.new_child("gpu", node, uuid=new)
        tree.update_inventory("gpu", {"VGPU": {"total": 2}})

    publishing.driver.nodes["cn"] = replaced
    first = publishing.cycle.sync()
    second = publishing.cycle.sync()
    third = publishing.cycle.sync()

    assert [item.name for item in first.pending] == ["gpu"]
    assert not any(outcome.problems for outcome in (first, second, third))
    assert contents(placement)["gpu"]["uuid"] == new


def test_an_orphan_of_lost_records_is_reported_and_left(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu": {"VGPU": 4}, "old": {"VGPU": 4}}
    )
    publishing.cycle.sync()
    publishing.state_path = tmp_path / "new"
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    cycle = publishing.restarted()

    outcomes = [cycle.sync(), cycle.sync(), cycle.sync()]

    for outcome in outcomes:
        assert [item.name for item in outcome.pending] == ["old"]
        assert "left as it is" in outcome.pending[0].reason
    assert contents(placement)["old"]["inventories"] == {"VGPU": (4, 0)}


def test_an_orphaned_node_of_a_fleet_is_reported_and_left(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in ("a", "b", "c")}
    publishing.cycle.sync()
    publishing.state_path = tmp_path / "new"
    del publishing.driver.nodes["c"]

    outcome = publishing.restarted().sync()

    assert [item.name for item in outcome.pending] == ["c"]
    assert set(contents(placement)) == {"a", "b", "c"}


def test_the_first_sync_of_a_host_does_not_read_what_other_hosts_publish(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["host-1"] = with_children({"VCPU": 8}, {"gpu-1": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.requests.clear()
    with Publishing(placement, tmp_path / "host-2") as other:
        other.driver.nodes["host-2"] = with_children({"VCPU": 8}, {"gpu-2": {"VGPU": 4}})
        other.cycle.sync()

    reads = [request for request in placement.requests.seen if request.startswith("GET")]
    assert reads == [
        f"GET /resource_providers?in_tree={names.root_uuid('host-2')}",
        "GET /resource_providers?name=host-2",
        "GET /resource_providers?name=gpu-2",
        "GET /traits?name=in:OWNER_NOVA",
    ]


def test_a_root_that_somebody_renamed_gets_its_name_back(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    before = contents(placement)
    placement.client.update_provider(before["cn"]["uuid"], "renamed", None)

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement) == before


def test_a_provider_that_somebody_deleted_is_published_again(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    before = contents(placement)
    placement.client.delete_provider(before["gpu"]["uuid"])

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement) == before


def test_a_root_of_that_name_that_is_there_already_is_adopted_with_its_uuid(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    root = placement.client.create_provider(str(uuid.uuid4()), "cn", None)
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement)["cn"]["uuid"] == root.uuid
    assert contents(placement)["cn"]["traits"] == MARKS


def test_an_untagged_root_with_more_than_we_report_is_not_ours(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    client = placement.client
    root = client.create_provider(str(uuid.uuid4()), "cn", None)
    client.set_inventories(root.uuid, root.generation, {"DISK_GB": Inventory(total=5)})
    before = contents(placement)
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [OwnershipConflict]
    assert contents(placement) == before


def test_a_first_sync_of_two_providers_takes_ten_requests(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})

    publishing.cycle.sync()

    assert len(placement.requests) == 10


@pytest.mark.parametrize("failing", range(10))
def test_a_sync_cut_off_at_any_request_is_completed_by_the_next(
    publishing: Publishing, placement: PlacementFixture, failing: int
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    count = 0

    def cut(method: str, path: str) -> None:
        nonlocal count
        count += 1
        if count == failing + 1:
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    placement.adapter.before = cut
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()
    placement.adapter.before = lambda method, path: None

    outcome = publishing.restarted().sync()

    assert not outcome.problems
    found = contents(placement)
    assert set(found) == {"cn", "gpu"}
    assert found["cn"]["traits"] == found["gpu"]["traits"] == MARKS
    assert found["gpu"]["inventories"] == {"VGPU": (4, 0)}
    assert not publishing.cycle.sync().steps


def test_a_lost_state_directory_costs_nothing_and_deletes_nothing(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    before = contents(placement)
    publishing.state_path = tmp_path / "new"

    outcome = publishing.restarted().sync()
    assert not outcome.steps
    assert not outcome.problems

    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    assert not publishing.cycle.sync().steps
    assert contents(placement) == before


def test_a_reshape_moves_inventory_and_allocations_together(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, cn={"VCPU": 2, "VGPU": 1})
    publishing.driver.nodes["cn"] = moves_vgpus

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    found = contents(placement)
    assert found["cn"]["inventories"] == {"VCPU": (8, 0)}
    assert found["gpu"]["inventories"] == {"VGPU": (4, 0)}
    allocations = placement.client.get_allocations(consumer)["allocations"]
    assert allocations[found["cn"]["uuid"]]["resources"] == {"VCPU": 2}
    assert allocations[found["gpu"]["uuid"]]["resources"] == {"VGPU": 1}
    assert not publishing.cycle.sync().steps


def test_a_state_directory_that_cannot_be_written_stops_before_placement_is_written(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    def full(*args: object) -> None:
        raise WharfingerError(reason="the disk is full")

    monkeypatch.setattr(ProviderRecordList, "replace", full)
    with pytest.raises(WharfingerError, match="the disk is full"):
        publishing.cycle.sync()

    assert not contents(placement)
