"""A record that cannot be read stops its own tree, and no other."""

import sqlite3
from contextlib import closing

import pytest

from tests.lab.cycles import Publishing, contents, stored
from tests.lab.drivers import with_children
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import StateError


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
