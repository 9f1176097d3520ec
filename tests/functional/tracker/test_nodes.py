"""The rows of compute nodes, after cycles of a driver."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.claiming import flavor, instance, lead, migration
from tests.lab.cycles import HOST, Publishing, allocate, contents
from tests.lab.drivers import also, flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import RemoteError, StateError
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    PciDevice,
    PciDeviceList,
    WharfingerObject,
)
from wharfinger.objects.field_types import MAX_COUNT
from wharfinger.providers import ProviderTree
from wharfinger.providers.plan import Plan

pytestmark = ANYWHERE


def rows(publishing: Publishing) -> dict[str, ComputeNode]:
    found = ComputeNodeList.get_by_filters(publishing.context)
    return {row.hypervisor_hostname: row for row in found}


def said(row: WharfingerObject, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(row, name) for name in names)


def execute(publishing: Publishing, statement: str, *values: str) -> None:
    database = sqlite3.connect(publishing.state_path / "wharfinger.sqlite")
    with closing(database), database:
        assert database.execute(statement, values).rowcount  # -1 for a change of the schema


def test_published_node_has_a_row_with_its_resources(publishing: Publishing) -> None:
    def overcommit(tree: ProviderTree) -> None:
        tree.update_inventory(
            "cn",
            {
                "VCPU": {"total": 8, "allocation_ratio": 4.0},
                "MEMORY_MB": {"total": 4096, "allocation_ratio": 1.5},
                "DISK_GB": {"total": 100},
            },
        )

    publishing.driver.nodes["cn"] = also(overcommit)(flat(VCPU=1))
    publishing.cycle.sync()

    row = rows(publishing)["cn"]
    assert said(row, "host", "driver_instance", "owner") == (HOST, "scripted", "OWNER_NOVA")
    assert said(row, "vcpus", "memory_mb", "local_gb") == (8, 4096, 100)
    assert said(row, "cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio") == (
        4.0,
        1.5,
        1.0,
    )
    assert said(row, "vcpus_used", "memory_mb_used", "local_gb_used") == (0, 0, 0)
    assert row.capabilities["nested_providers"] is True
    assert row.capabilities["programming"] is False
    assert row.pci_stats is None
    assert row.last_seen is None, "it is listed"
    assert row.uuid in publishing.store.records


def test_description_of_the_driver_takes_precedence_over_inventory(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(name: str) -> ComputeNode:
        return ComputeNode(
            host=HOST,
            hypervisor_hostname=name,
            vcpus=64,
            memory_mb=1024,
            local_gb=7,
            pci_stats=PciDeviceList(
                objects=[PciDevice(vendor_id="10de", product_id="1eb8", **known)]
            ),
        )

    known = {"count": 2, "numa_node": 1}
    monkeypatch.setattr(publishing.driver, "get_available_resource", describe)
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()

    row = rows(publishing)["cn"]
    assert said(row, "vcpus", "memory_mb", "local_gb") == (64, 1024, 7)
    assert row.pci_stats is not None
    assert said(row.pci_stats[0], "vendor_id", "numa_node", "count") == ("10de", 1, 2)

    known = {"count": 3}
    assert not publishing.cycle.sync().problems
    row = rows(publishing)["cn"]
    assert row.pci_stats is not None
    assert said(row.pci_stats[0], "vendor_id", "numa_node", "count") == ("10de", None, 3)


def test_only_changed_rows_are_saved_and_corrected(publishing: Publishing) -> None:
    for number in range(3):
        publishing.driver.nodes[f"cn-{number}"] = flat(VCPU=8)
    publishing.cycle.sync()
    publishing.driver.nodes["cn-1"] = flat(VCPU=16)
    publishing.cycle.sync()

    assert {name: (row.vcpus, row.revision) for name, row in rows(publishing).items()} == {
        "cn-0": (8, 1),
        "cn-1": (16, 2),
        "cn-2": (8, 1),
    }
    row = rows(publishing)["cn-2"]  # another process saves the row
    row.memory_mb = 5
    row.save()
    publishing.driver.nodes["cn-2"] = flat(VCPU=4)

    assert not publishing.cycle.sync().problems
    assert said(rows(publishing)["cn-2"], "vcpus", "memory_mb") == (4, 0)


def test_node_keeps_its_row_until_its_provider_is_removed(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    for name in ("cn-0", "cn-1"):
        publishing.driver.nodes[name] = flat(VCPU=8)
    publishing.cycle.sync()
    uuid = rows(publishing)["cn-1"].uuid
    taken: dict[str, Any] = {"cn-0": {"VCPU": 1}}
    allocate(placement, "11111111-1111-1111-1111-111111111111", **taken)
    publishing.driver.nodes.clear()
    publishing.driver.nodes["cn-2"] = flat(VCPU=8)

    publishing.cycle.sync()
    assert rows(publishing).keys() == {"cn-0", "cn-1", "cn-2"}
    publishing.cycle.sync()
    assert rows(publishing).keys() == {"cn-0", "cn-2"}, "an allocated node keeps its row"
    publishing.driver.nodes["cn-1"] = flat(VCPU=8)
    publishing.cycle.sync()
    assert rows(publishing)["cn-1"].uuid == uuid


def test_root_that_the_driver_does_not_report_has_no_row(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Any
) -> None:
    def device(tree: ProviderTree) -> None:
        tree.new_child("device", "cn")
        tree.update_inventory("device", {"VGPU": {"total": 1}})

    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {})
    publishing.cycle.sync()
    with Publishing(placement, publishing.state_path, owner="OWNER_CYBORG", name="other") as other:
        other.driver.nodes["cn"] = also(device)(lambda *_: None)
        assert other.cycle.sync().steps
        assert rows(other).keys() == {"cn"}
        assert rows(other)["cn"].driver_instance == "scripted"


def test_row_with_an_unreadable_uuid_does_not_affect_the_others(
    publishing: Publishing,
) -> None:
    publishing.driver.nodes |= {"cn-0": flat(VCPU=8), "cn-1": flat(VCPU=8)}
    publishing.cycle.sync()
    execute(publishing, "UPDATE compute_nodes SET uuid = 'what' WHERE hypervisor_hostname = 'cn-0'")
    publishing.driver.nodes["cn-1"] = flat(VCPU=16)

    assert not publishing.restarted().sync().problems
    assert rows(publishing)["cn-1"].vcpus == 16


def test_cycle_that_cannot_read_the_rows_writes_nothing(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    before = contents(placement)
    execute(publishing, "ALTER TABLE compute_nodes RENAME TO kept")
    publishing.driver.nodes["cn"] = flat(VCPU=16)

    for act in (publishing.cycle.sync, publishing.cycle.drift, publishing.cycle.plan):
        with pytest.raises(StateError, match="compute_nodes"):
            act()
    assert contents(placement) == before

    execute(publishing, "ALTER TABLE kept RENAME TO compute_nodes")
    assert not publishing.cycle.sync().problems
    assert rows(publishing)["cn"].vcpus == 16


def test_cycle_that_cannot_write_rows_raises_and_the_next_one_completes_it(
    publishing: Publishing,
) -> None:
    publishing.driver.nodes |= {"bad": flat(VCPU=-1), "good": flat(VCPU=8)}
    [bad] = publishing.cycle.sync().problems
    assert rows(publishing).keys() == {"good"}
    publishing.driver.nodes["good"] = flat(VCPU=16)

    def refuse(_plan: Plan) -> None:
        execute(
            publishing,
            "CREATE TRIGGER IF NOT EXISTS refuse BEFORE UPDATE ON compute_nodes "
            "BEGIN SELECT RAISE(ABORT, 'compute_nodes: no space'); END",
        )

    with pytest.raises((StateError, RemoteError), match="compute_nodes: no space"):
        publishing.cycle.sync(on_plan=refuse)
    execute(publishing, "DROP TRIGGER refuse")

    [problem] = publishing.cycle.sync().problems
    assert str(problem) == str(bad)
    assert rows(publishing)["good"].vcpus == 16


# Used resources.


def test_used_resources_beyond_the_maximum_of_a_row_are_the_maximum(
    publishing: Publishing,
) -> None:
    publishing.driver.nodes |= {"cn-0": flat(VCPU=8), "cn-1": flat(VCPU=8)}
    for _ in range(2):
        instance(
            publishing.context,
            1,
            place=(HOST, "cn-0"),
            memory_mb=MAX_COUNT,
            root_gb=MAX_COUNT,
        )
    instance(publishing.context, 4, place=(HOST, "cn-1"))

    assert not publishing.cycle.sync().problems
    used = ("vcpus_used", "memory_mb_used", "local_gb_used")
    assert said(rows(publishing)["cn-0"], *used) == (2, MAX_COUNT, MAX_COUNT)
    assert said(rows(publishing)["cn-1"], *used) == (4, 0, 0)


@pytest.mark.parametrize("column", ["instance_uuid", "source_compute", "source_node"])
def test_unreadable_migration_leaves_other_rows_right(publishing: Publishing, column: str) -> None:
    publishing.driver.nodes |= {"cn-0": flat(VCPU=8), "cn-1": flat(VCPU=8)}
    moved = instance(publishing.context, 2, place=(HOST, "cn-0"))
    migration(publishing.context, moved, (HOST, "cn-0"), dest_compute="far", dest_node="far")
    moved.destroy()
    execute(publishing, f"UPDATE migrations SET {column} = ''")
    instance(publishing.context, 4, place=(HOST, "cn-1"))

    assert not publishing.cycle.sync().problems
    assert {name: row.vcpus_used for name, row in rows(publishing).items()} == {
        "cn-0": 2 if column == "instance_uuid" else 0,
        "cn-1": 4,
    }


@pytest.mark.parametrize("arrived", [False, True])
def test_moving_instance_counts_at_both_ends_until_the_move_ends(
    publishing: Publishing, arrived: bool
) -> None:
    publishing.driver.nodes |= {"cn-0": flat(VCPU=8), "cn-1": flat(VCPU=8)}
    moved = instance(publishing.context, 2, place=(HOST, "cn-0"))
    to: dict[str, Any] = {"dest_compute": HOST, "dest_node": "cn-1", "new_flavor": flavor(5)}
    move = migration(publishing.context, moved, (HOST, "cn-0"), kind="resize", **to)
    if arrived:
        moved.node, moved.flavor = "cn-1", flavor(5)
        moved.save()

    publishing.cycle.sync()
    assert {name: row.vcpus_used for name, row in rows(publishing).items()} == {
        "cn-0": 2,
        "cn-1": 5,
    }

    lead(move, "error")
    publishing.cycle.sync()
    assert {name: row.vcpus_used for name, row in rows(publishing).items()} == (
        {"cn-0": 0, "cn-1": 5} if arrived else {"cn-0": 2, "cn-1": 0}
    )
