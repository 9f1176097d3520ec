"""``wharfinger node``: the nodes that drivers report."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.program import Program
from wharfinger.db import migration
from wharfinger.db.database import Database
from wharfinger.objects import ComputeNode, Context


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def has_node(kept: KeptInFile, number: int = 0, **values: Any) -> ComputeNode:
    node = samples.node(kept.context, number, **values)
    node.create()
    return node


def names(program: Program, *arguments: str) -> list[str]:
    return [row["Name"] for row in shown(program, "node", "list", *arguments)]


# List.


def test_node_list_shows_resources(program: Program, kept: KeptInFile) -> None:
    has_node(
        kept,
        1,
        vcpus=64,
        memory_mb=262144,
        local_gb=800,
        last_seen=datetime(2026, 11, 20, 8, 30, tzinfo=UTC),
    )
    has_node(kept, 2, owner="CUSTOM_OWNER_ACME")

    assert shown(program, "node", "list") == [
        {
            "UUID": samples.uuid("node 1"),
            "Name": "node-1",
            "Host": "host-1",
            "Driver": "metal",
            "Owner": "OWNER_NOVA",
            "VCPUs": 64,
            "Memory MB": 262144,
            "Disk GB": 800,
            "Last Seen": "2026-11-20T08:30:00+00:00",
        },
        {
            "UUID": samples.uuid("node 2"),
            "Name": "node-2",
            "Host": "host-1",
            "Driver": "metal",
            "Owner": "CUSTOM_OWNER_ACME",
            "VCPUs": 0,
            "Memory MB": 0,
            "Disk GB": 0,
            "Last Seen": None,
        },
    ]


def test_node_list_filters_by_host_instance_or_owner(program: Program, kept: KeptInFile) -> None:
    has_node(kept, 1, host="a", driver_instance="gpus")
    has_node(kept, 2, host="a", owner="OWNER_CYBORG")
    has_node(kept, 3, host="b", owner="OWNER_CYBORG")

    assert names(program, "--host", "a") == ["node-1", "node-2"]
    assert names(program, "--driver", "metal") == ["node-2", "node-3"]
    assert names(program, "--owner", "OWNER_CYBORG") == ["node-2", "node-3"]
    assert names(program, "--owner", "OWNER_CYBORG", "--host", "a") == ["node-2"]
    assert names(program, "--driver", "gpus", "--host", "b") == []


def test_damaged_node_is_listed_with_the_others(program: Program, kept: KeptInFile) -> None:
    stranger = (
        '{"wharfinger_object.name": "Ship\\u001b[2J", "wharfinger_object.version": "1.0", '
        '"wharfinger_object.namespace": "wharfinger", "wharfinger_object.data": {}}'
    )
    damages = {1: "what is this?", 2: "{}", 3: stranger}
    for number in range(6):
        has_node(kept, number, pci_stats=samples.gpus(), vcpus=8)
    for number, damage in damages.items():
        kept.write("compute_nodes", {"pci_stats": damage}, uuid=samples.uuid(f"node {number}"))
    kept.write("compute_nodes", {"vcpus": -1, "owner": ""}, uuid=samples.uuid("node 4"))

    done = inprocess.run(program, "node", "list", "-f", "json")

    assert done.code == 0
    rows = [(row["Name"], row["VCPUs"], row["Owner"]) for row in done.json()]
    expected = [(f"node-{number}", 8, "OWNER_NOVA") for number in range(6)]
    assert rows == [*expected[:4], ("node-4", "?", "?"), expected[5]]
    for number in damages:
        assert f"ComputeNode {samples.uuid(f'node {number}')}: the value of" in done.err
    assert "Traceback" not in done.err
    assert "\x1b" not in done.err


# Show.


def test_node_show_has_all_fields(program: Program, kept: KeptInFile) -> None:
    has_node(kept, pci_stats=samples.gpus(4), capabilities={"COMPUTE_NODE": True}, vcpus=64)

    data = shown(program, "node", "show", "node-0")

    assert data.keys() == ComputeNode.fields.keys()
    assert (data["uuid"], data["vcpus"]) == (samples.uuid("node 0"), 64)
    assert data["cpu_allocation_ratio"] == 1.0
    assert data["capabilities"] == {"COMPUTE_NODE": True}
    assert data["last_seen"] is None
    assert data["pci_stats"] == [
        {"vendor_id": "10de", "product_id": "1eb8", "numa_node": 0, "count": 4},
        {"vendor_id": "8086", "product_id": "0b30", "numa_node": None, "count": 1},
    ]


def test_node_show_as_table_prints_readable_pci_devices(program: Program, kept: KeptInFile) -> None:
    has_node(kept, 1, pci_stats=samples.gpus(4))
    has_node(kept, 2)

    assert '"vendor_id": "10de",' in inprocess.run(program, "node", "show", "node-1").out
    done = inprocess.run(program, "node", "show", "node-2", "-c", "pci_stats", "-f", "json")
    assert done.json() == {"pci_stats": None}


def test_node_show_with_damaged_field_reports_why(program: Program, kept: KeptInFile) -> None:
    node = has_node(kept, pci_stats=samples.gpus())
    kept.write("compute_nodes", {"pci_stats": "what is this?", "memory_mb": -1})

    done = inprocess.run(program, "node", "show", "node-0", "-f", "json")

    assert done.code == 0
    data = done.json()
    assert {name for name, value in data.items() if value == "?"} == {"pci_stats", "memory_mb"}
    for field in ("pci_stats", "memory_mb"):
        assert f"ComputeNode {node.uuid}: {field} has no value: the value of" in done.err
    assert "Traceback" not in done.err


def test_node_show_without_a_new_column_shows_a_question_mark(program: Program) -> None:
    url = f"sqlite:///{program.directory / 'other.sqlite'}"
    engine = sa.create_engine(url)
    migration.upgrade(engine, "host", directory=program.directory, revision="0002")
    engine.dispose()
    context = Context(Database(url, directory=program.directory, host="host", managed=False))
    samples.node(context, pci_stats=samples.gpus()).create()
    context.close()
    program.config.write_text(f"{program.config.read_text()}\n[database]\nconnection = {url}\n")

    listed = inprocess.run(program, "node", "list", "-f", "value", "-c", "Name")
    one = inprocess.run(program, "node", "show", "node-0", "-f", "json")

    assert (listed.code, listed.out) == (0, "node-0\n")
    assert one.code == 0
    assert {name for name, value in one.json().items() if value == "?"} == {"pci_stats"}
    for done in (listed, one):
        assert "the values of columns pci_stats of table compute_nodes are not" in done.err
        assert "Run `wharfinger db upgrade`." in done.err
    assert "pci_stats has no value" in one.err


def test_node_show_with_damaged_pci_stats_shows_the_rest(
    program: Program, kept: KeptInFile
) -> None:
    has_node(kept, pci_stats=samples.gpus())
    text = kept.row("compute_nodes")["pci_stats"]
    assert '"product_id": "1eb8", ' in text
    kept.write("compute_nodes", {"pci_stats": text.replace('"product_id": "1eb8", ', "")})

    done = inprocess.run(program, "node", "show", "node-0", "-f", "json")

    assert done.code == 0
    assert [kind["product_id"] for kind in done.json()["pci_stats"]] == ["?", "0b30"]
    assert "product_id has no value" in done.err


# Selection.


def test_node_is_found_by_uuid_or_name(program: Program, kept: KeptInFile) -> None:
    """A node's name may be the uuid of another node; the uuid takes precedence."""
    has_node(kept, 1)
    has_node(kept, 2, uuid=samples.uuid("other"), hypervisor_hostname=samples.uuid("node 1"))
    has_node(kept, 3, hypervisor_hostname=samples.uuid("machine"))

    node, machine = samples.uuid("node 1"), samples.uuid("node 3")
    for name, uuid in {
        node: node,
        node.upper(): node,
        "node-1": node,
        samples.uuid("machine"): machine,
    }.items():
        assert shown(program, "node", "show", name)["uuid"] == uuid


def test_name_of_no_node_or_of_several_is_refused(program: Program, kept: KeptInFile) -> None:
    for number, host in ((1, "a"), (2, "b")):
        has_node(kept, number, host=host, hypervisor_hostname="same")

    for name in ("node-9", samples.uuid("node 9"), "\x1b[2J"):
        told = f"there is no ComputeNode {name}. ".replace("\x1b", r"\x1b")
        failed(inprocess.run(program, "node", "show", name), told)
    failed(
        inprocess.run(program, "node", "show", "same"),
        "several objects of kind node with the name same",
        f"{samples.uuid('node 1')} (host a, driver instance metal)",
        f"{samples.uuid('node 2')} (host b, driver instance metal)",
    )
    assert shown(program, "node", "show", samples.uuid("node 2"))["host"] == "b"
