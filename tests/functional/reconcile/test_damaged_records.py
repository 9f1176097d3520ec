"""Records that cannot be read: only the trees of these records are not written."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.cycles import HOST, Publishing, contents, execute, stored
from tests.lab.drivers import DEVICE, FeedingDriver, flat, with_children, with_device
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import StateError
from wharfinger.objects import ComputeNodeList, HostState
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult

pytestmark = ANYWHERE


@pytest.fixture
def fleet(publishing: Publishing) -> Publishing:
    for name in ("cn-0", "cn-1"):
        publishing.driver.nodes[name] = with_children({"VCPU": 1}, {f"{name}-gpu": {"VGPU": 1}})
    publishing.cycle.sync()
    for name in ("cn-0", "cn-1"):
        publishing.driver.nodes[name] = with_children({"VCPU": 2}, {f"{name}-gpu": {"VGPU": 2}})
    return publishing


@pytest.mark.parametrize(
    ("of", "column", "spoilt"),
    [
        ("cn-0", "live", "what"),
        ("cn-0-gpu", "applied", "{}"),
        ("cn-0", "mode", "borrowed"),
        ("cn-0-gpu", "own_reserved", "[1]"),
    ],
)
def test_tree_with_an_unreadable_record_is_kept_and_the_others_are_synced(
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


def test_tree_whose_records_cannot_be_read_is_not_removed_and_keeps_its_row(
    fleet: Publishing, placement: PlacementFixture
) -> None:
    def nodes() -> dict[str, str]:
        found = ComputeNodeList.get_by_filters(fleet.context)
        return {row.uuid: row.hypervisor_hostname for row in found}

    before = nodes()
    execute(fleet, "UPDATE provider_records SET live = 'what' WHERE live LIKE '%cn-0%'")
    for is_listed in (True, False):
        if not is_listed:
            del fleet.driver.nodes["cn-0"]
        cycle = fleet.restarted()
        for _ in range(3):
            assert {type(one) for one in cycle.sync().problems} == {StateError}
            assert nodes() == before
    assert {"cn-0", "cn-0-gpu"} <= contents(placement).keys()


def test_device_that_moved_is_kept_until_its_record_can_be_read(
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


# The remedy.


DAMAGE = "UPDATE provider_records SET own_reserved = 'what' WHERE provider_uuid = ?"
REMEDIES = {
    "deleted": "DELETE FROM provider_records WHERE provider_uuid = ?",
    "restored": "UPDATE provider_records SET own_reserved = '{}' WHERE provider_uuid = ?",
}
CYCLE_TYPES: dict[str, Callable[[Reconciler], CycleResult]] = {
    "sync": Reconciler.sync,
    "drift": Reconciler.drift,
}


@pytest.mark.parametrize(("remedy", "cycle_type"), [("deleted", "sync"), ("restored", "drift")])
def test_repaired_record_is_used_by_the_next_cycle(
    fleet: Publishing, placement: PlacementFixture, remedy: str, cycle_type: str
) -> None:
    uuid = contents(placement)["cn-0-gpu"]["uuid"]
    execute(fleet, DAMAGE, uuid)
    cycle = fleet.restarted()
    [problem] = cycle.sync().problems
    for which in ("table provider_records", HOST, "scripted", uuid, "next full or drift cycle"):
        assert which in str(problem)
    execute(fleet, REMEDIES[remedy], uuid)

    assert not CYCLE_TYPES[cycle_type](cycle).problems

    assert contents(placement)["cn-0"]["inventories"] == {"VCPU": (2, 0)}
    assert contents(placement)["cn-0-gpu"]["inventories"] == {"VGPU": (2, 0)}
    assert uuid in stored(fleet.state_path)


def test_drift_cycle_uses_a_record_whose_repair_a_poll_has_read(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver = driver = FeedingDriver()
    driver.nodes |= {"cn-0": flat(VCPU=1), "cn-1": flat(VCPU=1)}
    publishing.restarted().sync()
    driver.nodes["cn-0"] = flat(VCPU=2)
    uuid = contents(placement)["cn-0"]["uuid"]
    execute(publishing, DAMAGE, uuid)
    cycle = publishing.restarted()
    assert cycle.sync().problems
    execute(publishing, REMEDIES["restored"], uuid)
    driver.changes.append("cn-1")
    assert not cycle.poll().problems

    assert not cycle.drift().problems

    assert contents(placement)["cn-0"]["inventories"] == {"VCPU": (2, 0)}


def test_record_without_a_readable_provider_uuid_stops_no_tree_until_it_is_deleted(
    fleet: Publishing, placement: PlacementFixture
) -> None:
    uuid = contents(placement)["cn-0"]["uuid"]
    execute(
        fleet, "UPDATE provider_records SET provider_uuid = 'what' WHERE provider_uuid = ?", uuid
    )
    cycle = fleet.restarted()

    [problem] = cycle.sync().problems

    assert isinstance(problem, StateError)
    assert "provider_records.provider_uuid" in str(problem)
    after = contents(placement)
    assert after["cn-1"]["inventories"] == {"VCPU": (2, 0)}
    assert after["cn-1-gpu"]["inventories"] == {"VGPU": (2, 0)}

    execute(fleet, "DELETE FROM provider_records WHERE provider_uuid = ?", "what")
    assert not cycle.sync().problems
    assert not fleet.restarted().plan().steps


def test_cycle_after_damaged_records_reads_only_those_records_again(
    fleet: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    get = HostState.get

    def counted(*args: Any, **kwargs: Any) -> HostState:
        state = get(*args, **kwargs)
        read.append(sorted(one.provider_uuid for one in state.records))
        return state

    uuids = sorted(contents(placement)[of]["uuid"] for of in ("cn-0", "cn-0-gpu"))
    for uuid in uuids:
        execute(fleet, DAMAGE, uuid)
    cycle = fleet.restarted()
    monkeypatch.setattr(HostState, "get", counted)
    for name in ("sync", "drift", "sync"):
        assert CYCLE_TYPES[name](cycle).problems
    assert read[0] == sorted(one["uuid"] for one in contents(placement).values())
    assert read[1:] == [uuids] * 2
    for uuid in uuids:
        execute(fleet, REMEDIES["restored"], uuid)
    read.clear()
    cycle.drift()
    assert read[0] == uuids
    read.clear()
    for cycle_type in CYCLE_TYPES.values():
        assert not cycle_type(cycle).problems
    assert not any(read)
