"""Nodes: the time of their last listing is written without a save."""

from datetime import UTC, datetime

import pytest

from tests.lab.objects import Kept, KeptInFile, statements
from tests.lab.samples import instance, migration, node, uuid
from wharfinger.exceptions import ConcurrentSave
from wharfinger.objects import ComputeNode, ComputeNodeList, Context, Instance, Migration

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def note_seen(context: Context, *numbers: int, host: str = "host-1") -> None:
    ComputeNodeList.note_seen(context, host, "metal", [uuid(f"node {each}") for each in numbers])


def seen(context: Context) -> set[str]:
    """Return the names of the nodes that were listed recently."""
    found = ComputeNodeList.get_by_filters(context)
    return {
        one.hypervisor_hostname
        for one in found
        if one.last_seen is not None and one.last_seen > LONG_AGO
    }


def test_note_seen_sets_the_time_of_named_nodes(context: Context) -> None:
    every = [node(None, number, last_seen=LONG_AGO if number else None) for number in range(3)]
    ComputeNodeList(context, objects=every).create()
    before = datetime.now(UTC).replace(microsecond=0)
    note_seen(context, 0, 1, 77)
    first, second, third = ComputeNodeList.get_by_filters(context)
    assert first.last_seen == second.last_seen
    assert first.last_seen is not None
    assert before <= first.last_seen <= datetime.now(UTC)
    assert third.last_seen == LONG_AGO


def test_note_seen_ignores_nodes_of_other_instances(context: Context) -> None:
    node(context, 1).create()
    node(context, 2, host="host-2").create()
    node(context, 3, driver_instance="gpus").create()
    note_seen(context, 1, 2, 3)
    assert seen(context) == {"node-1"}


def test_note_seen_raises_no_revision(kept: Kept) -> None:
    mine = node(kept.context)
    mine.create()
    note_seen(kept.context, 0)
    assert kept.row("compute_nodes")["revision"] == 1
    mine.vcpus = 3
    mine.save()
    found = ComputeNode.get_by_uuid(kept.context, mine.uuid)
    assert (found.vcpus, seen(kept.context)) == (3, {"node-0"})


def test_note_seen_without_names_sets_all_nodes_of_the_instance(kept: Kept) -> None:
    mine = [node(None, number) for number in (0, 1)]
    others = [node(None, 2, host="host-2"), node(None, 3, driver_instance="gpus")]
    ComputeNodeList(kept.context, objects=[*mine, *others]).create()
    mine[1].destroy()
    note_seen(kept.context)  # no name means all nodes
    assert seen(kept.context) == set()
    ComputeNodeList.note_seen(kept.context, "host-1", "metal", None)
    assert seen(kept.context) == {"node-0"}
    assert kept.row("compute_nodes", uuid=mine[1].uuid)["last_seen"] is None
    assert {row["revision"] for row in kept.rows("compute_nodes")} == {1}


def test_note_seen_of_hundreds_is_one_statement(file: KeptInFile) -> None:
    nodes = ComputeNodeList(file.context, objects=[node(None, number) for number in range(300)])
    nodes.create()
    with statements() as noting:
        note_seen(file.context, *range(150))
    assert len(noting) == 1
    assert len(seen(file.context)) == 150
    with statements() as noting:
        ComputeNodeList.note_seen(file.context, "host-1", "metal", None)
    assert len(noting) == 1
    assert len(seen(file.context)) == 300


# Nodes that move to another host.


def node_with_load(context: Context) -> ComputeNode:
    """A node with one instance, one move from it and one move to it."""
    made = node(context, 1)
    made.create()
    instance(context, 1, host="host-1", node="node-1").create()
    migration(context, 1, source_node="node-1").create()
    migration(
        context, 2, source_compute="host-3", dest_compute="host-1", dest_node="node-1"
    ).create()
    return made


def hosts(context: Context) -> list[str | None]:
    """Return the hosts of the node, of its instance, and of its end of both moves."""
    leaving, arriving = (Migration.get_by_uuid(context, uuid(f"migration {n}")) for n in (1, 2))
    return [
        ComputeNode.get_by_uuid(context, uuid("node 1")).host,
        Instance.get_by_uuid(context, uuid("instance 1")).host,
        leaving.source_compute,
        arriving.dest_compute,
    ]


def test_move_to_another_host_moves_instances_and_migrations(context: Context) -> None:
    made = node_with_load(context)
    node(context, 2).create()
    beside = instance(context, 2, host="host-1", node="node-2")
    elsewhere = instance(context, 3, host="host-3", node="node-1")
    ended = migration(context, 3, source_node="node-1", status="confirmed")
    for one in (beside, elsewhere, ended):
        one.create()

    ComputeNodeList(context, objects=[made]).move_to("host-2", "gpus")

    assert hosts(context) == ["host-2"] * 4
    assert (made.host, made.driver_instance, made.revision) == ("host-2", "gpus", 2)
    moved = Instance.get_by_uuid(context, uuid("instance 1"))
    assert (moved.node, moved.revision) == ("node-1", 2)
    assert Migration.get_by_uuid(context, uuid("migration 1")).revision == 2
    assert Instance.get_by_uuid(context, beside.uuid).revision == 1
    assert Instance.get_by_uuid(context, elsewhere.uuid).revision == 1
    assert Migration.get_by_uuid(context, ended.uuid).source_compute == "host-1"


def test_move_to_another_host_of_a_node_that_another_process_saved_writes_nothing(
    context: Context,
) -> None:
    made = node_with_load(context)
    faster = ComputeNode.get_by_uuid(context, made.uuid)
    faster.vcpus = 3
    faster.save()

    with pytest.raises(ConcurrentSave):
        ComputeNodeList(context, objects=[made]).move_to("host-2", "metal")

    assert hosts(context) == ["host-1"] * 4


def test_move_to_another_instance_on_the_same_host_keeps_its_instances(context: Context) -> None:
    made = node_with_load(context)

    ComputeNodeList(context, objects=[made]).move_to("host-1", "gpus")

    assert hosts(context) == ["host-1"] * 4
    assert ComputeNode.get_by_uuid(context, made.uuid).driver_instance == "gpus"
    assert Instance.get_by_uuid(context, uuid("instance 1")).revision == 1
