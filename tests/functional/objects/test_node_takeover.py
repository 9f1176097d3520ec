"""Takeovers: a node moves with its instances, moves and records, or stays completely."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.functional.objects.test_cycle_batch import contents, together
from tests.lab.objects import Kept, KeptElsewhere, KeptInFile, statements, transactions
from tests.lab.samples import instance, migration, node, record, service, uuid
from wharfinger.exceptions import ConcurrentSave, WharfingerError
from wharfinger.objects import (
    AGENT_BINARY,
    ComputeNode,
    Context,
    Instance,
    Migration,
    ProviderRecord,
    ProviderRecordList,
    RecordBatch,
    Service,
    Takeover,
)

FORMER, TAKER, INSTANCE = "host-1", "host-2", "metal"
DOWN_TIME = 60.0
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
TABLES = ("compute_nodes", "provider_records", "instances", "migrations")


def remember(context: Context, host: str, *records: ProviderRecord) -> None:
    made = ProviderRecordList(objects=list(records))
    ProviderRecordList.replace(context, host, INSTANCE, made, [])


def records(context: Context, host: str) -> dict[str, ProviderRecord]:
    found = ProviderRecordList.get_by_filters(context, host=host)
    return {one.key: one for one in found}


def down(context: Context, **values: Any) -> Service:
    """Create the service of the former host, which counts as down."""
    made = service(context, 1, binary=AGENT_BINARY, **({"last_seen_up": LONG_AGO} | values))
    made.create()
    return made


@pytest.fixture
def takeover(context: Context) -> Takeover:
    """A takeover of two nodes with an instance, two moves and records.

    The new host already has a record of one of the providers.
    """
    nodes = [node(context, number) for number in (1, 2)]
    for one in nodes:
        one.create()
    migration(context, 1, source_compute=FORMER, source_node="node-1").create()
    migration(context, 2, source_compute="host-3", dest_compute=FORMER, dest_node="node-2").create()
    instance(context, 1, host=FORMER, node="node-1").create()
    instance(context, 2, host=FORMER, node="node-3").create()
    absent = {"absent_since": 5.5, "absence": '{"since":5.5}'}
    remember(context, FORMER, record(1, **absent), record(2, mode="overlay"), record(3))
    remember(context, TAKER, record(1, mode="overlay"))
    found = records(context, FORMER)
    return Takeover(
        context,
        host=TAKER,
        driver_instance=INSTANCE,
        nodes=nodes,
        records=[found[uuid("provider 1")], found[uuid("provider 2")]],
        superseded={uuid("provider 1"): 1, uuid("provider 7"): 3},
        down_hosts=[FORMER],
        down_time=DOWN_TIME,
    )


def test_save_moves_nodes_with_instances_moves_and_records(
    context: Context, takeover: Takeover
) -> None:
    down(context)

    takeover.save()

    for number in (1, 2):
        found = ComputeNode.get_by_uuid(context, uuid(f"node {number}"))
        assert (found.host, found.driver_instance, found.revision) == (TAKER, INSTANCE, 2)
    moved, other = (Instance.get_by_uuid(context, uuid(f"instance {n}")) for n in (1, 2))
    assert (moved.host, moved.node, moved.revision) == (TAKER, "node-1", 2)
    assert (other.host, other.revision) == (FORMER, 1)
    assert Migration.get_by_uuid(context, uuid("migration 1")).source_compute == TAKER
    arriving = Migration.get_by_uuid(context, uuid("migration 2"))
    assert (arriving.source_compute, arriving.dest_compute) == ("host-3", TAKER)
    assert records(context, FORMER).keys() == {uuid("provider 3")}
    mine = records(context, TAKER)
    assert {key: (one.mode, one.revision) for key, one in mine.items()} == {
        uuid("provider 1"): ("own", 2),
        uuid("provider 2"): ("overlay", 2),
    }
    assert (mine[uuid("provider 1")].absence, mine[uuid("provider 1")].absent_since) == (None, None)


def test_save_updates_the_given_objects(context: Context, takeover: Takeover) -> None:
    nodes, moved = list(takeover.nodes), list(takeover.records)
    takeover.save()
    written: list[ComputeNode | ProviderRecord] = [*nodes, *moved]
    for one in written:
        assert (one.host, one.driver_instance, one.revision) == (TAKER, INSTANCE, 2)
        assert not one.obj_what_changed()
    assert not takeover.obj_what_changed()
    assert moved[0].absence is None
    nodes[0].vcpus = 3
    nodes[0].save()
    RecordBatch(
        context,
        host=TAKER,
        driver_instance=INSTANCE,
        records=moved,
        our_nodes=[one.uuid for one in nodes],
    ).save()


@pytest.mark.parametrize("values", [{"last_seen_up": None}, {"forced_down": True}, {}], ids=str)
def test_save_from_a_host_that_is_down_succeeds(
    context: Context, takeover: Takeover, values: dict[str, Any]
) -> None:
    down(context, **values)
    takeover.save()
    assert ComputeNode.get_by_uuid(context, uuid("node 1")).host == TAKER


def test_save_from_a_host_that_is_up_names_its_nodes_and_moves_nothing(
    kept: Kept, takeover: Takeover
) -> None:
    down(kept.context).report()
    other = node(kept.context, 5, host="host-5")
    other.create()
    takeover.nodes = [*takeover.nodes, other]
    before = [kept.rows(table) for table in TABLES]

    with pytest.raises(ConcurrentSave) as caught:
        takeover.save()

    assert set(caught.value.keys) == {uuid("node 1"), uuid("node 2")}
    assert [kept.rows(table) for table in TABLES] == before
    assert {one.host for one in takeover.nodes} == {FORMER, "host-5"}
    assert not any(one.obj_what_changed() for one in (*takeover.nodes, *takeover.records))


def test_save_from_a_host_whose_node_moved_to_an_up_host_names_all(
    context: Context, takeover: Takeover
) -> None:
    service(context, 3, host="host-3", binary=AGENT_BINARY, last_seen_up=LONG_AGO).create()
    Service.get_by_host_and_binary(context, "host-3", AGENT_BINARY).report()
    takeover.down_hosts = ["host-3"]
    with pytest.raises(ConcurrentSave) as caught:
        takeover.save()
    assert len(caught.value.keys) == 4


def test_save_of_stale_objects_names_all_of_them_and_moves_nothing(
    kept: Kept, takeover: Takeover
) -> None:
    faster = ComputeNode.get_by_uuid(kept.context, uuid("node 2"))
    faster.vcpus = 3
    faster.save()
    remember(kept.context, FORMER, record(1, absent_since=None))
    remember(kept.context, TAKER, record(2))
    before = contents(kept)

    with pytest.raises(ConcurrentSave) as caught:
        takeover.save()

    stale = {uuid("node 2"), uuid("provider 1"), uuid("provider 2")}
    assert set(caught.value.keys) == stale
    assert contents(kept) == before
    takeover.nodes = [one for one in takeover.nodes if one.key not in stale]
    takeover.records = [one for one in takeover.records if one.key not in stale]
    takeover.superseded = {}
    takeover.save()
    assert ComputeNode.get_by_uuid(kept.context, uuid("node 1")).host == TAKER


def test_save_from_another_instance_on_the_same_host_keeps_its_instances(context: Context) -> None:
    mine = node(context, 1, driver_instance="gpus")
    mine.create()
    instance(context, 1, host=FORMER, node="node-1").create()
    made = Takeover(context, host=FORMER, driver_instance=INSTANCE, nodes=[mine])
    made.save()
    assert ComputeNode.get_by_uuid(context, mine.uuid).driver_instance == INSTANCE
    assert Instance.get_by_uuid(context, uuid("instance 1")).revision == 1


def test_save_of_a_takeover_is_one_transaction(file: KeptInFile) -> None:
    nodes = [node(file.context, number) for number in range(100)]
    RecordBatch(
        file.context,
        host=FORMER,
        driver_instance=INSTANCE,
        new_nodes=nodes,
        records=[record(number) for number in range(100)],
    ).save()
    with statements() as said, transactions() as begun:
        Takeover(
            file.context,
            host=TAKER,
            driver_instance=INSTANCE,
            nodes=nodes,
            records=list(records(file.context, FORMER).values()),
            down_hosts=[FORMER],
            down_time=DOWN_TIME,
        ).save()
    assert len(begun) == 2, "one of them reads the records"
    assert len(said) <= 12
    assert len(records(file.context, TAKER)) == 100


def test_save_is_one_request_to_another_process(elsewhere: KeptElsewhere) -> None:
    mine = node(elsewhere.context)
    mine.create()
    before = len(elsewhere.server.questions)
    Takeover(elsewhere.context, host=TAKER, driver_instance=INSTANCE, nodes=[mine]).save()
    assert len(elsewhere.server.questions) - before == 1
    assert (mine.host, mine.revision) == (TAKER, 2)


@pytest.mark.parametrize("turn", range(3))
def test_takeover_and_report_at_once_with_records_have_one_winner(
    context: Context, takeover: Takeover, turn: int
) -> None:
    """The former host reports at the moment in which its nodes are taken."""
    down(context)
    mine = records(context, FORMER)[uuid("provider 2")]
    mine.absent_since = 9.0
    batch = RecordBatch(
        context,
        host=FORMER,
        driver_instance=INSTANCE,
        records=[mine],
        our_nodes=[uuid("node 1"), uuid("node 2")],
        reports_service=True,
    )

    works = [takeover.save, batch.save]
    errors: list[WharfingerError | None] = together(*(works if turn % 2 else reversed(works)))

    assert errors.count(None) == 1
    assert any(isinstance(error, ConcurrentSave) for error in errors)
    host = ComputeNode.get_by_uuid(context, uuid("node 1")).host
    report = Service.get_by_host_and_binary(context, FORMER, AGENT_BINARY)
    assert (report.report_count, uuid("provider 2") in records(context, FORMER)) == (
        (0, False) if host == TAKER else (1, True)
    )


def test_two_takeovers_at_once_have_one_winner(context: Context, takeover: Takeover) -> None:
    nodes = [ComputeNode.get_by_uuid(context, one.uuid) for one in takeover.nodes]
    other = Takeover(context, host="host-4", driver_instance=INSTANCE, nodes=nodes)

    errors = together(takeover.save, other.save)

    assert errors.count(None) == 1
    winner = (TAKER, "host-4")[errors.index(None)]
    for one in nodes:
        assert ComputeNode.get_by_uuid(context, one.uuid).host == winner
