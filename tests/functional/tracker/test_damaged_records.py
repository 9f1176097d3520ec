"""A record that cannot be read stops its own tree, and no other."""

import sqlite3
from contextlib import closing

import pytest

from tests.functional.tracker.places import ANYWHERE
from tests.lab.cycles import Publishing, contents, stored
from tests.lab.drivers import DEVICE, flat, with_children, with_device
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import StateError
from wharfinger.objects import ComputeNodeList

pytestmark = ANYWHERE


def execute(publishing: Publishing, statement: str, *values: str) -> None:
    database = sqlite3.connect(publishing.state_path / "wharfinger.sqlite")
    with closing(database), database:
        assert database.execute(statement, values).rowcount


@pytest.fixture
def fleet(publishing: Publishing) -> Publishing:
    for name in ("cn-0", "cn-1"):
        publishing.driver.nodes[name] = with_children({"VCPU": 1}, {f"{name}-gpu": {"VGPU": 1}})
    publishing.cycle.sync()
    for name in ("cn-0", "cn-1"):
        publishing.driver.nodes[name] = with_children({"VCPU": 2}, {f"{name}-gpu": {"VGPU": 2}})
    return publishing


@pytest.mark.parametrize("of", ["cn-0", "cn-0-gpu"])
@pytest.mark.parametrize(
    ("column", "spoilt"),
    [("live", "what"), ("applied", "{}"), ("mode", "borrowed"), ("own_reserved", "[1]")],
)
def test_a_tree_with_a_record_that_cannot_be_read_is_left_and_the_others_go_on(
    fleet: Publishing, placement: PlacementFixture, of: str, column: str, spoilt: str
) -> None:
    uuid = contents(placement)[of]["uuid"]
    execute(
        fleet, f"UPDATE provider_records SET {column} = ? WHERE provider_uuid = ?", spoilt, uuid
    )
    before = contents(placement)

    outcome = fleet.restarted().sync()

    [problem] = outcome.problems
    assert isinstance(problem, StateError)
    assert uuid in str(problem)
    after = contents(placement)
    assert {name: after[name] for name in ("cn-0", "cn-0-gpu")} == {
        name: before[name] for name in ("cn-0", "cn-0-gpu")
    }
    assert after["cn-1"]["inventories"] == {"VCPU": (2, 0)}
    assert after["cn-1-gpu"]["inventories"] == {"VGPU": (2, 0)}


def test_a_tree_whose_records_cannot_be_read_is_not_removed(
    fleet: Publishing, placement: PlacementFixture
) -> None:
    execute(fleet, "UPDATE provider_records SET live = 'what' WHERE live LIKE '%cn-0%'")
    del fleet.driver.nodes["cn-0"]
    cycle = fleet.restarted()
    for _ in range(3):
        assert cycle.sync().problems
    assert {"cn-0", "cn-0-gpu"} <= contents(placement).keys()


def test_a_record_that_is_deleted_is_adopted_again(
    fleet: Publishing, placement: PlacementFixture
) -> None:
    uuid = contents(placement)["cn-0"]["uuid"]
    execute(fleet, "DELETE FROM provider_records WHERE provider_uuid = ?", uuid)

    assert not fleet.restarted().sync().problems
    assert contents(placement)["cn-0"]["inventories"] == {"VCPU": (2, 0)}
    assert uuid in stored(fleet.state_path)


def test_a_node_whose_record_cannot_be_read_keeps_its_row(fleet: Publishing) -> None:
    def nodes() -> dict[str, str]:
        found = ComputeNodeList.get_by_filters(fleet.context)
        return {row.uuid: row.hypervisor_hostname for row in found}

    before = nodes()
    [uuid] = [uuid for uuid, name in before.items() if name == "cn-0"]
    execute(fleet, "UPDATE provider_records SET live = 'what' WHERE provider_uuid = ?", uuid)
    for _ in range(2):
        cycle = fleet.restarted()
        for _ in range(3):
            [problem] = cycle.sync().problems
            assert isinstance(problem, StateError)
            assert nodes() == before


def test_a_device_that_moved_is_left_until_its_record_can_be_read(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    node, gone = flat(VCPU=1), with_children({"VCPU": 1}, {})
    publishing.driver.nodes |= {"cn-0": with_device(node), "cn-1": node}
    assert not publishing.cycle.sync().problems
    before = contents(placement)
    execute(
        publishing,
        "UPDATE provider_records SET own_reserved = 'what' WHERE provider_uuid = ?",
        DEVICE,
    )
    publishing.driver.nodes |= {"cn-0": gone, "cn-1": with_device(node)}
    cycle = publishing.restarted()
    for _ in range(2):
        outcome = cycle.sync()
        assert DEVICE in str(outcome.problems)
        assert not outcome.steps
        assert contents(placement) == before

    execute(
        publishing,
        "UPDATE provider_records SET own_reserved = '{}' WHERE provider_uuid = ?",
        DEVICE,
    )
    cycle = publishing.restarted()
    for _ in range(2):
        assert not cycle.sync().problems
    assert contents(placement) == before | {"device": before["device"] | {"parent": "cn-1"}}


def test_a_record_that_does_not_say_of_which_provider_it_is_stops_no_tree(
    fleet: Publishing, placement: PlacementFixture
) -> None:
    uuid = contents(placement)["cn-0"]["uuid"]
    execute(
        fleet, "UPDATE provider_records SET provider_uuid = 'what' WHERE provider_uuid = ?", uuid
    )

    [problem] = fleet.restarted().sync().problems

    assert isinstance(problem, StateError)
    assert "provider_records.provider_uuid" in str(problem)
    after = contents(placement)
    assert after["cn-1"]["inventories"] == {"VCPU": (2, 0)}
    assert after["cn-1-gpu"]["inventories"] == {"VGPU": (2, 0)}
