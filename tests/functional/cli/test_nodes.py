"""``wharfinger node``: what drivers have found."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

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
    done = inprocess.run(program, "node", "list", *arguments, "-f", "json")
    assert (done.code, done.err) == (0, "")
    return [row["Name"] for row in done.json()]


# Listed.


def test_nodes_are_listed_with_their_figures(program: Program, kept: KeptInFile) -> None:
    has_node(
        kept,
        1,
        vcpus=64,
        memory_mb=262144,
        local_gb=800,
        last_seen=datetime(2026, 11, 20, 8, 30, tzinfo=UTC),
    )
    has_node(kept, 2, owner="CUSTOM_OWNER_ACME")

    done = program.run("node", "list", "-f", "json")

    assert (done.code, done.err) == (0, "")
    assert done.json() == [
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


def test_a_list_is_of_a_host_a_driver_instance_or_an_owner(
    program: Program, kept: KeptInFile
) -> None:
    has_node(kept, 1, host="a", driver_instance="gpus")
    has_node(kept, 2, host="a", owner="OWNER_CYBORG")
    has_node(kept, 3, host="b", owner="OWNER_CYBORG")

    assert names(program, "--host", "a") == ["node-1", "node-2"]
    assert names(program, "--driver", "metal") == ["node-2", "node-3"]
    assert names(program, "--owner", "OWNER_CYBORG") == ["node-2", "node-3"]
    assert names(program, "--owner", "OWNER_CYBORG", "--host", "a") == ["node-2"]
    assert names(program, "--driver", "gpus", "--host", "b") == []


@pytest.mark.parametrize(
    "damage",
    [
        "what is this?",
        "{}",
        '{"wharfinger_object.name": "Ship\\u001b[2J", "wharfinger_object.version": "1.0", '
        '"wharfinger_object.namespace": "wharfinger", "wharfinger_object.data": {}}',
    ],
    ids=["no JSON", "nothing", "no object"],
)
def test_a_node_with_damaged_pci_stats_is_listed_with_the_others(
    program: Program, kept: KeptInFile, damage: str
) -> None:
    for number in (1, 2, 3):
        has_node(kept, number, pci_stats=samples.gpus())
    kept.write("compute_nodes", {"pci_stats": damage}, uuid=samples.uuid("node 2"))

    done = inprocess.run(program, "node", "list", "-f", "json")

    assert done.code == 0
    assert [row["Name"] for row in done.json()] == ["node-1", "node-2", "node-3"]
    assert f"ComputeNode {samples.uuid('node 2')}: what is stored in" in done.err
    assert "Traceback" not in done.err
    assert "\x1b" not in done.err


def test_a_figure_of_which_nothing_is_known_is_a_question_mark(
    program: Program, kept: KeptInFile
) -> None:
    has_node(kept, 1)
    has_node(kept, 2, vcpus=8)
    kept.write("compute_nodes", {"vcpus": -1, "owner": ""}, uuid=samples.uuid("node 1"))

    done = inprocess.run(program, "node", "list", "-f", "value", "-c", "VCPUs", "-c", "Owner")

    assert done.code == 0
    assert done.out == "? ?\nOWNER_NOVA 8\n"


# Shown.


def test_everything_about_a_node_is_shown(program: Program, kept: KeptInFile) -> None:
    has_node(kept, pci_stats=samples.gpus(4), capabilities={"COMPUTE_NODE": True}, vcpus=64)

    done = program.run("node", "show", "node-0", "-f", "json")

    assert (done.code, done.err) == (0, "")
    data = done.json()
    assert data.keys() == ComputeNode.fields.keys()
    assert (data["uuid"], data["vcpus"]) == (samples.uuid("node 0"), 64)
    assert data["cpu_allocation_ratio"] == 1.0
    assert data["capabilities"] == {"COMPUTE_NODE": True}
    assert data["last_seen"] is None
    assert data["pci_stats"] == [
        {"vendor_id": "10de", "product_id": "1eb8", "numa_node": 0, "count": 4},
        {"vendor_id": "8086", "product_id": "0b30", "numa_node": None, "count": 1},
    ]


def test_pci_devices_can_be_read_in_a_table(program: Program, kept: KeptInFile) -> None:
    has_node(kept, 1, pci_stats=samples.gpus(4))
    has_node(kept, 2)

    assert '"vendor_id": "10de",' in inprocess.run(program, "node", "show", "node-1").out
    done = inprocess.run(program, "node", "show", "node-2", "-c", "pci_stats", "-f", "json")
    assert done.json() == {"pci_stats": None}


def test_why_nothing_is_known_of_a_field_is_told(program: Program, kept: KeptInFile) -> None:
    node = has_node(kept, pci_stats=samples.gpus())
    kept.write("compute_nodes", {"pci_stats": "what is this?", "memory_mb": -1})

    done = inprocess.run(program, "node", "show", "node-0", "-f", "json")

    assert done.code == 0
    data = done.json()
    assert {name for name, value in data.items() if value == "?"} == {"pci_stats", "memory_mb"}
    for field in ("pci_stats", "memory_mb"):
        assert f"ComputeNode {node.uuid}: nothing is known of {field}: what is stored" in done.err
    assert "Traceback" not in done.err


def test_of_a_field_whose_column_is_not_there_yet_nothing_is_known(program: Program) -> None:
    url = f"sqlite:///{program.directory / 'other.sqlite'}"
    engine = sa.create_engine(url)
    migration.upgrade(engine, "host", directory=program.directory, revision="0002")
    engine.dispose()
    context = Context(Database(url, directory=program.directory, host="host", managed=False))
    samples.node(context, pci_stats=samples.gpus()).create()
    context.close()
    program.config.write_text(f"{program.config.read_text()}\n[database]\nconnection = {url}\n")

    listed = inprocess.run(program, "node", "list", "-f", "value", "-c", "Name")
    shown = inprocess.run(program, "node", "show", "node-0", "-f", "json")

    assert (listed.code, listed.out) == (0, "node-0\n")
    assert shown.code == 0
    assert {name for name, value in shown.json().items() if value == "?"} == {"pci_stats"}
    for done in (listed, shown):
        assert "has no column pci_stats in table compute_nodes" in done.err
        assert "run `wharfinger db upgrade`" in done.err
    assert "nothing is known of pci_stats" in shown.err


def test_part_of_pci_stats_of_which_nothing_is_known_is_told(
    program: Program, kept: KeptInFile
) -> None:
    has_node(kept, pci_stats=samples.gpus())
    text = kept.row("compute_nodes")["pci_stats"]
    assert '"product_id": "1eb8", ' in text
    kept.write("compute_nodes", {"pci_stats": text.replace('"product_id": "1eb8", ', "")})

    done = inprocess.run(program, "node", "show", "node-0", "-f", "json")

    assert done.code == 0
    assert [kind["product_id"] for kind in done.json()["pci_stats"]] == ["?", "0b30"]
    assert "nothing is known of product_id" in done.err


# Which one.


def test_a_node_goes_by_uuid_or_name(program: Program, kept: KeptInFile) -> None:
    has_node(kept, 1)
    has_node(kept, 2, uuid=samples.uuid("other"), hypervisor_hostname=samples.uuid("node 1"))

    for node in (samples.uuid("node 1"), samples.uuid("node 1").upper(), "node-1"):
        done = inprocess.run(program, "node", "show", node, "-c", "uuid", "-f", "value")
        assert (done.code, done.out) == (0, f"{samples.uuid('node 1')}\n")


def test_a_node_whose_name_is_a_uuid_goes_by_that(program: Program, kept: KeptInFile) -> None:
    node = has_node(kept, hypervisor_hostname=samples.uuid("machine"))

    shown = inprocess.run(program, "node", "show", samples.uuid("machine"), "-f", "json")

    assert shown.json()["uuid"] == node.uuid


def test_a_name_of_several_nodes_is_told_with_their_uuids(
    program: Program, kept: KeptInFile
) -> None:
    for number, host in ((1, "a"), (2, "b")):
        has_node(kept, number, host=host, hypervisor_hostname="same")

    done = inprocess.run(program, "node", "show", "same")

    assert (done.code, done.out) == (1, "")
    assert "same is more than one node" in done.err
    for number, host in ((1, "a"), (2, "b")):
        uuid = samples.uuid(f"node {number}")
        assert f"{uuid} (host {host}, driver instance metal)" in done.err
    shown = inprocess.run(program, "node", "show", samples.uuid("node 2"), "-f", "json")
    assert shown.json()["host"] == "b"


@pytest.mark.parametrize("name", ["node-9", samples.uuid("node 9"), "\x1b[2J"])
def test_a_node_that_is_not_there_is_told(program: Program, kept: KeptInFile, name: str) -> None:
    has_node(kept)

    done = inprocess.run(program, "node", "show", name)

    assert (done.code, done.out) == (1, "")
    assert done.err == f"there is no ComputeNode {name}\n".replace("\x1b", r"\x1b")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("show", ""),
        ("list", "--owner", "NOVA"),
        ("list", "--driver", "d" * 65),
        ("list", "--host", "\udcff"),
        ("list", "-f", "xml"),
    ],
)
def test_wrong_usage_exits_with_64(program: Program, arguments: tuple[str, ...]) -> None:
    done = inprocess.run(program, "node", *arguments)

    assert (done.code, done.out) == (64, "")
    assert "Traceback" not in done.err
