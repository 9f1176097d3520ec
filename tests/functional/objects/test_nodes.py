"""Nodes: that they were seen is noted beside all that is saved of them."""

from datetime import UTC, datetime

from tests.lab.objects import Kept, KeptInFile, statements
from tests.lab.samples import node, uuid
from wharfinger.objects import ComputeNode, ComputeNodeList, Context

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def note_seen(context: Context, *numbers: int, host: str = "host-1") -> None:
    ComputeNodeList.note_seen(context, host, "metal", [uuid(f"node {each}") for each in numbers])


def seen(context: Context) -> set[str]:
    """Which nodes have been seen of late."""
    found = ComputeNodeList.get_by_filters(context)
    return {
        one.hypervisor_hostname
        for one in found
        if one.last_seen is not None and one.last_seen > LONG_AGO
    }


def test_those_that_were_seen_say_when(context: Context) -> None:
    every = [node(None, number, last_seen=LONG_AGO if number else None) for number in range(3)]
    ComputeNodeList(context, objects=every).create()
    before = datetime.now(UTC).replace(microsecond=0)
    note_seen(context, 0, 1, 77)
    first, second, third = ComputeNodeList.get_by_filters(context)
    assert first.last_seen == second.last_seen
    assert first.last_seen is not None
    assert before <= first.last_seen <= datetime.now(UTC)
    assert third.last_seen == LONG_AGO


def test_only_an_instance_s_own_nodes_are_seen_by_it(context: Context) -> None:
    node(context, 1).create()
    node(context, 2, host="host-2").create()
    node(context, 3, driver_instance="gpus").create()
    note_seen(context, 1, 2, 3)
    assert seen(context) == {"node-1"}


def test_to_be_seen_is_no_save(kept: Kept) -> None:
    mine = node(kept.context)
    mine.create()
    note_seen(kept.context, 0)
    assert kept.row("compute_nodes")["revision"] == 1
    mine.vcpus = 3
    mine.save()
    found = ComputeNode.get_by_uuid(kept.context, mine.uuid)
    assert (found.vcpus, seen(kept.context)) == (3, {"node-0"})


def test_what_is_gone_is_not_seen(kept: Kept) -> None:
    one = node(kept.context)
    one.create()
    one.destroy()
    note_seen(kept.context, 0)
    assert kept.row("compute_nodes")["last_seen"] is None


def test_all_of_an_instance_on_a_host_are_seen_where_all_are_meant(kept: Kept) -> None:
    mine = [node(None, number) for number in (0, 1)]
    others = [node(None, 2, host="host-2"), node(None, 3, driver_instance="gpus")]
    ComputeNodeList(kept.context, objects=[*mine, *others]).create()
    mine[1].destroy()
    ComputeNodeList.note_seen(kept.context, "host-1", "metal", None)
    assert seen(kept.context) == {"node-0"}
    assert kept.row("compute_nodes", uuid=mine[1].uuid)["last_seen"] is None
    assert {row["revision"] for row in kept.rows("compute_nodes")} == {1}


def test_that_all_were_seen_is_one_statement(file: KeptInFile) -> None:
    nodes = ComputeNodeList(file.context, objects=[node(None, number) for number in range(1000)])
    nodes.create()
    with statements() as noting:
        ComputeNodeList.note_seen(file.context, "host-1", "metal", None)
    assert len(noting) == 1
    assert len(seen(file.context)) == 1000


def test_none_is_seen_where_none_is_named(context: Context) -> None:
    node(context).create()
    note_seen(context)
    assert seen(context) == set()


def test_a_thousand_nodes_are_seen_in_few_statements(file: KeptInFile) -> None:
    nodes = ComputeNodeList(file.context, objects=[node(None, number) for number in range(1000)])
    nodes.create()
    with statements() as noting:
        note_seen(file.context, *range(1000))
    assert len(noting) <= 2
    assert len(seen(file.context)) == 1000
