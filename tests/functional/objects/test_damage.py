"""Damaged rows: only reading the damaged field is an error."""

import json
from typing import Any

import pytest
from sqlalchemy import text

from tests.lab.objects import Kept, KeptInFile
from tests.lab.samples import flavor, gpus, instance, migration, node, service, uuid
from wharfinger.exceptions import FieldUnset
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
    PciDeviceList,
    Service,
    ServiceList,
)


def primitive(**parts: Any) -> dict[str, Any]:
    """Return the primitive of PCI devices with these parts replaced."""
    return gpus().obj_to_primitive() | {f"wharfinger_object.{name}": parts[name] for name in parts}


def with_device(**data: Any) -> dict[str, Any]:
    [device, _] = gpus().obj_to_primitive()["wharfinger_object.data"]["objects"]
    device["wharfinger_object.data"] |= data
    return primitive(data={"objects": [device]})


DAMAGED = {
    "nothing": "",
    "garbage": "{oops",
    "half of it": json.dumps(primitive())[:100],
    "a list": "[]",
    "a figure": "3",
    "a text": '"gpus"',
    "another document": '{"gpus": 2}',
    "too deep": "[" * 100_000,
    "another object": json.dumps(flavor(None).obj_to_primitive()),
    "an unknown object": json.dumps(primitive(name="PciRack")),
    "another project's": json.dumps(primitive(namespace="nova")),
    "a later version": json.dumps(primitive(version="1.9")),
    "another world's version": json.dumps(primitive(version="2.0")),
    "no version": json.dumps(primitive(version="new")),
    "an unknown field": json.dumps(primitive(data={"objects": [], "colour": "red"})),
    "an unknown field inside": json.dumps(with_device(colour="red")),
    "a wrong type inside": json.dumps(with_device(count="many")),
    "a figure out of range inside": json.dumps(with_device(count=-1)),
    "no objects inside": json.dumps(primitive(data={"objects": [1, 2]})),
}


#: Marks tests that need few stores: each database stores the damaged text in the same way.
FEW = pytest.mark.parametrize("kept", ["in_file", "by_another_process"], indirect=True)


@pytest.fixture(params=DAMAGED)
def damage(request: pytest.FixtureRequest, kept: Kept) -> str:
    """Damaged pci_stats, which are stored in the row of the second of three nodes."""
    every = [node(None, number, vcpus=number, pci_stats=gpus()) for number in range(3)]
    ComputeNodeList(kept.context, objects=every).create()
    stored = DAMAGED[request.param]
    kept.write("compute_nodes", {"pci_stats": stored}, uuid=uuid("node 1"))
    return stored


def stored_stats(kept: Kept) -> Any:
    return kept.row("compute_nodes", uuid=uuid("node 1"))["pci_stats"]


@FEW
def test_node_with_damaged_pci_stats_is_read_without_them(kept: Kept, damage: str) -> None:
    found = ComputeNode.get_by_uuid(kept.context, uuid("node 1"))
    assert (found.vcpus, found.hypervisor_hostname) == (1, "node-1")
    with pytest.raises(FieldUnset) as caught:
        found.pci_stats  # noqa: B018
    assert caught.value.field == "pci_stats"
    assert found.uuid in caught.value.subject
    assert "compute_nodes.pci_stats cannot be read" in caught.value.problem
    nodes = ComputeNodeList.get_by_filters(kept.context)
    assert [one.vcpus for one in nodes] == [0, 1, 2]
    assert [one.obj_attr_is_set("pci_stats") for one in nodes] == [True, False, True]

    # The damaged text stays in the row until new pci_stats are saved.
    nodes[0].vcpus_used = nodes[1].vcpus_used = 1
    nodes.save()
    assert stored_stats(kept) == damage
    found = ComputeNode.get_by_uuid(kept.context, uuid("node 1"))
    assert found.vcpus_used == 1
    found.pci_stats = gpus(9)
    found.save()
    repaired = ComputeNode.get_by_uuid(kept.context, uuid("node 1")).pci_stats
    assert repaired is not None
    assert repaired[0].count == 9


@pytest.mark.parametrize("damage", ["half of it"], indirect=True)
def test_node_with_damaged_pci_stats_is_saved_and_destroyed(kept: Kept, damage: str) -> None:
    found = ComputeNode.get_by_uuid(kept.context, uuid("node 1"))
    found.vcpus = 8
    found.save()
    assert stored_stats(kept) == damage
    found.destroy()
    assert len(ComputeNodeList.get_by_filters(kept.context)) == 2


def test_absent_pci_stats_are_no_damage(kept: Kept) -> None:
    node(kept.context, 1, pci_stats=gpus()).create()
    for nothing in (None, "null"):
        kept.write("compute_nodes", {"pci_stats": nothing})
        assert ComputeNode.get_by_uuid(kept.context, uuid("node 1")).pci_stats is None
    kept.write("compute_nodes", {"pci_stats": json.dumps(PciDeviceList().obj_to_primitive())})
    none = ComputeNode.get_by_uuid(kept.context, uuid("node 1")).pci_stats
    assert none is not None
    assert len(none) == 0


@FEW
def test_damaged_owners_are_unset(kept: Kept) -> None:
    every = [service(None, number, owners=["OWNER_NOVA"]) for number in range(2)]
    ServiceList(kept.context, objects=every).create()
    for stored in ("", "{oops", "3", "null", '"OWNER_NOVA"', '{"OWNER_NOVA": 1}', "[1]", "[[]]"):
        kept.write("services", {"owners": stored}, uuid=uuid("service 1"))
        found = ServiceList.get_by_filters(kept.context)
        assert found[0].owners == ["OWNER_NOVA"]
        assert found[1].host == "host-1"
        with pytest.raises(FieldUnset):
            found[1].owners  # noqa: B018
        # The damaged service may have any owner, so no minimum version is known.
        with pytest.raises(FieldUnset):
            Service.get_minimum_version_by_owner(kept.context)


@FEW
def test_damaged_capabilities_are_unset(kept: Kept) -> None:
    node(kept.context, 1, capabilities={"X": True}).create()
    for stored in ("", "[]", '"X"', '{"X": "yes"}', '{"X": null}'):
        kept.write("compute_nodes", {"capabilities": stored})
        found = ComputeNode.get_by_uuid(kept.context, uuid("node 1"))
        with pytest.raises(FieldUnset):
            found.capabilities  # noqa: B018


def test_instance_with_a_damaged_flavor_is_read_without_it(kept: Kept) -> None:
    every = [instance(None, number, host=f"host-{number}") for number in range(2)]
    InstanceList(kept.context, objects=every).create()
    kept.write("instances", {"flavor": "{oops"}, uuid=uuid("instance 1"))
    found = Instance.get_by_uuid(kept.context, uuid("instance 1"))
    assert found.host == "host-1"
    with pytest.raises(FieldUnset):
        found.flavor  # noqa: B018
    assert len(InstanceList.get_by_filters(kept.context)) == 2


def test_migration_with_an_unknown_status_is_read_without_it(kept: Kept) -> None:
    every = [migration(None, number) for number in range(2)]
    MigrationList(kept.context, objects=every).create()
    kept.write("migrations", {"status": "flying"}, uuid=uuid("migration 1"))
    found = Migration.get_by_uuid(kept.context, uuid("migration 1"))
    assert found.source_compute == "host-1"
    with pytest.raises(FieldUnset):
        found.status  # noqa: B018
    found.status = "error"
    found.save()
    assert Migration.get_by_uuid(kept.context, uuid("migration 1")).status == "error"


@pytest.mark.drawn(12)
@pytest.mark.parametrize(
    "column",
    ["uuid", "host", "vcpus", "cpu_allocation_ratio", "last_seen", "capabilities", "pci_stats"],
)
@pytest.mark.parametrize("value", ["'\x01'", "-7", "x'ff00'", "1e300", "''", "'soon'"])
def test_any_value_in_a_column_leaves_other_nodes_readable(
    file: KeptInFile, column: str, value: str
) -> None:
    # Only SQLite accepts any value in any column, so this test uses a file.
    every = [node(None, number, pci_stats=gpus()) for number in range(3)]
    ComputeNodeList(file.context, objects=every).create()
    with file.engine.begin() as connection:
        connection.execute(
            text(f"UPDATE compute_nodes SET {column} = {value} WHERE uuid = :uuid"),
            {"uuid": uuid("node 1")},
        )
    found = ComputeNodeList.get_by_filters(file.context)
    assert [one.hypervisor_hostname for one in found] == ["node-0", "node-1", "node-2"]
    assert [found[0].uuid, found[2].uuid] == [uuid("node 0"), uuid("node 2")]
