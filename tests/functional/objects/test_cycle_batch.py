"""RecordBatch writes everything in one transaction, or raises an error and writes nothing."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import Any

import pytest

from tests.lab.objects import Kept, KeptElsewhere, KeptInFile, statements, transactions
from tests.lab.samples import instance, migration, node, record, reservation, service, uuid
from wharfinger.db.row_statements import Rows
from wharfinger.exceptions import ConcurrentSave, FieldUnset, ObjectExists, WharfingerError
from wharfinger.objects import (
    AGENT_BINARY,
    ComputeNode,
    Context,
    HostState,
    Instance,
    Migration,
    ProviderRecord,
    ProviderRecordList,
    RecordBatch,
    Reservation,
    ReservationList,
    Service,
)

HOST, INSTANCE = "host-1", "metal"
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
TABLES = ("services", "compute_nodes", "provider_records", "reservations")


def batch(context: Context, **values: Any) -> RecordBatch:
    return RecordBatch(context, **{"host": HOST, "driver_instance": INSTANCE, **values})


def records(context: Context) -> dict[str, ProviderRecord]:
    found = ProviderRecordList.get_by_filters(context, host=HOST, driver_instance=INSTANCE)
    return {one.key: one for one in found}


def contents(kept: Kept) -> list[list[dict[str, Any]]]:
    return [kept.rows(table) for table in TABLES]


def together(*works: Callable[[], None]) -> list[WharfingerError | None]:
    """Run functions at the same moment; return the error of each, or None."""
    start = Barrier(len(works), timeout=60)

    def run(work: Callable[[], None]) -> WharfingerError | None:
        start.wait()
        try:
            work()
        except WharfingerError as error:
            return error
        return None

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def test_nodes_that_swap_names_rename_them_in_instances_and_moves(context: Context) -> None:
    nodes = [node(context, number) for number in (1, 2)]
    on = [instance(context, number, host=HOST, node=f"node-{number}") for number in (1, 2)]
    elsewhere = instance(context, 3, host="host-2", node="node-1")
    move = migration(context, 1, source_node="node-1", dest_compute=HOST, dest_node="node-2")
    ended = migration(context, 2, source_node="node-1", status="failed")
    for one in (*nodes, *on, elsewhere, move, ended):
        one.create()
    nodes[0].hypervisor_hostname, nodes[1].hypervisor_hostname = "node-2", "node-1"

    batch(context, changed_nodes=nodes).save()

    found = [Instance.get_by_uuid(context, one.uuid) for one in (*on, elsewhere)]
    assert [one.node for one in found] == ["node-2", "node-1", "node-1"]
    assert [one.revision for one in found] == [2, 2, 1]
    moved, kept = (Migration.get_by_uuid(context, one.uuid) for one in (move, ended))
    assert (moved.source_node, moved.dest_node) == ("node-2", "node-1")
    assert (kept.source_node, kept.revision) == ("node-1", 1)


def test_rename_that_is_refused_leaves_the_names_in_instances(context: Context) -> None:
    renamed, one = node(context, 1), instance(context, 1, host=HOST, node="node-1")
    renamed.create()
    one.create()
    other = ComputeNode.get_by_uuid(context, renamed.uuid)
    other.vcpus = 3
    other.save()

    renamed.hypervisor_hostname = "new-name"
    with pytest.raises(ConcurrentSave):
        batch(context, changed_nodes=[renamed]).save()
    assert Instance.get_by_uuid(context, one.uuid).node == "node-1"


def test_save_new_objects_creates_them_and_counts_them_as_unchanged(context: Context) -> None:
    made, first, second = node(None), record(1), record(2, own_reserved={"VGPU": 2})
    held = reservation(None, provider_uuid=uuid("provider 1"))

    one = batch(context, new_nodes=[made], records=[first, second], new_reservations=[held])
    one.save()

    assert [each.revision for each in (made, first, second, held)] == [1, 1, 1, 1]
    assert not any(each.obj_what_changed() for each in (one, made, first, second, held))
    assert (first.host, first.driver_instance) == (HOST, INSTANCE)
    assert one.records[0] is first
    assert records(context)[second.key].own_reserved == {"VGPU": 2}
    assert [each.revision for each in records(context).values()] == [1, 1]
    made.vcpus = 5
    made.save()  # the saved object can be saved alone
    assert ComputeNode.get_by_uuid(context, made.uuid).vcpus == 5
    assert ReservationList.get_by_filters(context)[0].holder == held.holder


def test_save_of_known_objects_writes_changes_and_raises_their_revisions(context: Context) -> None:
    made, first, second, third = node(None), record(1), record(2), record(3)
    held, ended = (reservation(None, number, provider_uuid=uuid("provider 1")) for number in (1, 2))
    batch(
        context,
        new_nodes=[made],
        records=[first, second, third],
        new_reservations=[held, ended],
    ).save()

    made.vcpus, first.absent_since, held.reason = 9, 5.5, "cleaning"
    # a record that was not read from the database, with the right revision
    fresh = record(2, mode="overlay", revision=second.revision)
    more = reservation(None, 3, provider_uuid=uuid("provider 1"), holder=ended.holder)
    batch(
        context,
        records=[first, fresh],
        forgotten={third.key: 1, uuid("never there"): 4},
        our_nodes=[made.uuid],
        changed_nodes=[made],
        reserved_providers=[uuid("provider 1"), uuid("provider 2")],
        known_reservations={held.uuid: 1, ended.uuid: 1},
        changed_reservations=[held],
        ended={ended.uuid: 1},
        new_reservations=[more],
    ).save()

    assert [one.revision for one in (made, first, fresh, held, more)] == [2, 2, 2, 2, 1]
    assert not any(one.obj_what_changed() for one in (made, first, fresh, held, more))
    found = records(context)
    assert found.keys() == {first.key, second.key}
    assert (found[first.key].absent_since, found[first.key].applied) == (5.5, first.applied)
    assert (found[second.key].mode, found[second.key].revision) == ("overlay", 2)
    assert ComputeNode.get_by_uuid(context, made.uuid).vcpus == 9
    reservations = {one.uuid: one for one in ReservationList.get_by_filters(context)}
    assert reservations.keys() == {held.uuid, more.uuid}
    assert reservations[held.uuid].reason == "cleaning"


def test_save_of_an_unchanged_record_checks_it_and_does_not_write_it(context: Context) -> None:
    batch(context, records=[record(1)]).save()
    [mine] = records(context).values()
    batch(context, records=[mine]).save()
    assert (mine.revision, records(context)[mine.key].revision) == (1, 1)
    mine.absent_since = 4.0
    mine.revision = 1
    batch(context, records=[mine]).save()
    [stale] = records(context).values()
    stale.revision = 1
    stale.obj_reset_changes()
    with pytest.raises(ConcurrentSave):
        batch(context, records=[stale]).save()


def test_save_reports_the_service_up(context: Context) -> None:
    service(context, 1, binary=AGENT_BINARY, last_seen_up=LONG_AGO, report_count=6).create()
    batch(context, records=[record(1)], reports_service=True).save()

    found = Service.get_by_host_and_binary(context, HOST, AGENT_BINARY)
    assert found.last_seen_up is not None
    assert found.last_seen_up > LONG_AGO
    assert (found.report_count, found.revision) == (7, 1)

    batch(context, records=[record(2)]).save()
    assert Service.get_by_uuid(context, found.uuid).report_count == 7
    batch(context, host="host-2", records=[record(2)], reports_service=True).save()


@pytest.fixture
def stale(kept: Kept) -> RecordBatch:
    """A batch whose objects other processes have changed, except a few; see STALE."""
    context = kept.context
    service(context, 1, binary=AGENT_BINARY, last_seen_up=LONG_AGO).create()
    nodes = {number: node(context, number) for number in (1, 2, 3, 4, 5)}
    mine = {number: record(number) for number in (1, 2, 3, 4, 5)}
    held = {
        number: reservation(None, number, provider_uuid=uuid(f"provider {number}"))
        for number in (10, 11, 12, 13, 14)
    }
    others = [nodes.pop(5), held.pop(14)]
    batch(
        context,
        new_nodes=list(nodes.values()),
        records=[mine[1], mine[2], mine[3], mine[4]],
        new_reservations=list(held.values()),
    ).save()
    made = batch(
        context,
        records=[mine[1], mine[2], mine[5]],
        forgotten={mine[3].key: 1, mine[4].key: 1},
        our_nodes=[nodes[1].uuid, nodes[2].uuid, uuid("never there")],
        new_nodes=[others[0]],
        changed_nodes=[nodes[3], nodes[4]],
        reserved_providers=[uuid(f"provider {number}") for number in (10, 11, 12, 13, 14)],
        known_reservations={held[number].uuid: 1 for number in (10, 11, 12)},
        reservation_providers={held[12].uuid: uuid("provider 12")},
        changed_reservations=[held[11]],
        ended={held[13].uuid: 1},
        new_reservations=[others[1]],
        reports_service=True,
    )
    made.known_reservations[held[13].uuid] = 1
    made.reservation_providers[held[13].uuid] = uuid("provider 13")
    for changed in (nodes[3], nodes[4]):
        changed.vcpus = 99
    mine[1].absent_since = mine[2].absent_since = 7.0
    held[11].reason = "programming"

    kept.write("compute_nodes", {"host": "host-2"}, uuid=nodes[2].uuid)
    kept.write("compute_nodes", {"revision": 5}, uuid=nodes[4].uuid)
    node(context, 5).create()
    kept.write("provider_records", {"revision": 5}, provider_uuid=mine[2].key)
    kept.write("provider_records", {"revision": 5}, provider_uuid=mine[4].key)
    ProviderRecordList.replace(context, HOST, INSTANCE, ProviderRecordList(objects=[record(5)]), [])
    kept.write("reservations", {"revision": 5}, uuid=held[11].uuid)
    for one in ReservationList.get_by_filters(context, uuid=[held[12].uuid, held[13].uuid]):
        one.destroy()
    reservation(context, 20, provider_uuid=uuid("provider 14"), holder="another").create()
    return made


STALE = {
    *(uuid(name) for name in ("node 2", "node 4", "node 5", "never there")),
    *(uuid(f"provider {number}") for number in (2, 4, 5, 11, 12, 13, 14)),
}


def test_save_of_stale_objects_names_all_of_them_and_writes_nothing(
    kept: Kept, stale: RecordBatch
) -> None:
    before = contents(kept)
    changed = {id(one): one.obj_what_changed() for one in (*stale.records, *stale.changed_nodes)}

    with pytest.raises(ConcurrentSave) as caught:
        stale.save()

    assert set(caught.value.keys) == STALE
    assert contents(kept) == before
    for one in (*stale.records, *stale.changed_nodes):
        assert one.obj_what_changed() == changed[id(one)]
    assert [one.obj_attr_is_set("revision") for one in stale.records] == [True, True, False]


def test_save_without_the_stale_objects_writes_the_others(kept: Kept, stale: RecordBatch) -> None:
    reserved = [one for one in stale.reserved_providers if one not in STALE]
    rest = batch(
        kept.context,
        records=[one for one in stale.records if one.key not in STALE],
        forgotten={key: one for key, one in stale.forgotten.items() if key not in STALE},
        our_nodes=[key for key in stale.our_nodes if key not in STALE],
        changed_nodes=[one for one in stale.changed_nodes if one.key not in STALE],
        reserved_providers=reserved,
        known_reservations={uuid("reservation 10"): 1},
        reports_service=True,
    )
    assert len(reserved) == len(rest.records) == len(rest.changed_nodes) == 1
    assert (len(rest.forgotten), len(rest.our_nodes)) == (1, 1)

    rest.save()

    assert records(kept.context)[rest.records[0].key].absent_since == 7.0
    assert rest.changed_nodes[0].revision == 2
    assert not rest.forgotten.keys() & records(kept.context).keys()
    assert kept.row("services")["report_count"] == 1


def test_save_with_a_deleted_reservation_names_all_reserved_providers(
    context: Context,
) -> None:
    """The row is deleted, so the error cannot name its provider alone."""
    providers = [uuid("provider 1"), uuid("provider 2")]
    gone = uuid("reservation 1")
    with pytest.raises(ConcurrentSave) as caught:
        batch(context, reserved_providers=providers, known_reservations={gone: 1}).save()
    assert set(caught.value.keys) == set(providers)
    with pytest.raises(ConcurrentSave) as caught:
        batch(context, ended={gone: 1}).save()
    assert list(caught.value.keys) == [gone]


def test_save_second_reservation_of_a_holder_is_refused(kept: Kept) -> None:
    there = reservation(kept.context, 1, provider_uuid=uuid("provider 1"))
    there.create()
    second = reservation(None, 2, provider_uuid=uuid("provider 1"), holder=there.holder)
    other = reservation(None, 3, provider_uuid=uuid("provider 2"), holder=there.holder)

    with pytest.raises(ObjectExists, match="provider and holder"):
        batch(kept.context, records=[record(1)], new_reservations=[other, second]).save()

    assert len(kept.rows("reservations")) == 1
    assert records(kept.context) == {}
    second.provider_uuid = uuid("provider 3")
    batch(kept.context, records=[record(1)], new_reservations=[other, second]).save()
    assert len(kept.rows("reservations")) == 3


def test_save_new_record_that_lacks_a_field_writes_nothing(kept: Kept) -> None:
    lacking = ProviderRecord(provider_uuid=uuid("provider 2"))
    with pytest.raises(FieldUnset, match="mode"):
        batch(kept.context, new_nodes=[node(None)], records=[record(1), lacking]).save()
    assert not kept.rows("compute_nodes")
    assert not kept.rows("provider_records")


def test_save_of_objects_that_another_process_creates_meanwhile_names_them(
    file: KeptInFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process adds the rows between our check and our write."""
    batch(file.context, records=[record(1)]).save()
    existing = Rows.existing
    calls = []

    def too_early(self: Rows, *args: Any) -> set[str]:
        calls.append(args)
        return set() if len(calls) <= 2 else existing(self, *args)

    monkeypatch.setattr(Rows, "existing", too_early)
    with pytest.raises(ConcurrentSave) as caught:
        batch(file.context, records=[record(1), record(2)]).save()
    assert list(caught.value.keys) == [uuid("provider 1")]
    with pytest.raises(ObjectExists):
        batch(file.context, new_reservations=[reservation(None, 1), reservation(None, 1)]).save()


def test_save_is_one_transaction_of_few_statements(file: KeptInFile) -> None:
    count = 100
    nodes = [node(None, number) for number in range(count)]
    mine = [record(number) for number in range(count)]
    held = [reservation(None, number, provider_uuid=mine[number].key) for number in range(count)]
    with statements() as said, transactions() as begun:
        batch(file.context, new_nodes=nodes, records=mine, new_reservations=held).save()
    assert len(begun) == 1
    assert len(said) <= 7
    for number in range(count):
        nodes[number].vcpus = held[number].own_reserved["VGPU"] = number + 1
        mine[number].absent_since = float(number)
    with statements() as said, transactions() as begun:
        batch(
            file.context,
            records=mine,
            our_nodes=[one.uuid for one in nodes],
            changed_nodes=nodes,
            reserved_providers=[one.key for one in mine],
            known_reservations={one.uuid: one.revision for one in held},
            changed_reservations=held,
            reports_service=True,
        ).save()
    assert len(begun) == 1
    assert len(said) <= 10
    written: list[ComputeNode | ProviderRecord | Reservation] = [*nodes, *mine, *held]
    assert {one.revision for one in written} == {2}


def test_save_is_one_request_to_another_process(elsewhere: KeptElsewhere) -> None:
    before = len(elsewhere.server.questions)
    mine = record(1)
    batch(elsewhere.context, new_nodes=[node(None)], records=[mine]).save()
    mine.absent_since = 5.0
    batch(elsewhere.context, records=[mine]).save()
    assert mine.revision == 2
    assert len(elsewhere.server.questions) - before == 2


def test_two_saves_of_one_record_at_once_succeed_once(context: Context) -> None:
    batch(context, records=[record(1)]).save()
    read = [records(context)[uuid("provider 1")] for _ in range(2)]
    for number, one in enumerate(read):
        one.absent_since = float(number)

    errors = together(*(batch(context, records=[one]).save for one in read))

    assert errors.count(None) == 1
    assert isinstance(errors[1 - errors.index(None)], ConcurrentSave)
    found = records(context)[uuid("provider 1")]
    assert (found.absent_since, found.revision) == (float(errors.index(None)), 2)


def test_two_saves_of_the_same_new_record_at_once_succeed_once(context: Context) -> None:
    errors = together(*(batch(context, records=[record(1)]).save for _ in range(3)))

    assert errors.count(None) == 1
    for error in errors:
        assert error is None or (
            isinstance(error, ConcurrentSave) and list(error.keys) == [uuid("provider 1")]
        )


def test_saves_of_several_hosts_at_once_all_succeed(context: Context) -> None:
    """The new rows of the hosts alternate in the tables."""

    def save(host: int) -> None:
        numbers = range(host, 60, 4)
        own = {"host": f"host-{host}", "driver_instance": INSTANCE}
        mine = [record(number) for number in numbers]
        nodes = [node(None, number, host=f"host-{host}") for number in numbers]
        held = [reservation(None, n, provider_uuid=uuid(f"provider {n}")) for n in numbers]
        new = RecordBatch(context, **own, new_nodes=nodes, records=mine, new_reservations=held)
        new.save()
        for one in (*mine, *reversed(nodes)):
            setattr(one, "vcpus" if isinstance(one, ComputeNode) else "absent_since", 5)
        RecordBatch(context, **own, changed_nodes=nodes, records=mine).save()

    assert together(*(lambda host=host: save(host) for host in range(4))) == [None] * 4
    state = HostState.get(context, "host-3", INSTANCE, {})
    assert set(state.node_revisions.values()) == set(state.record_revisions.values()) == {2}
    assert len(state.reservations) == len(range(3, 60, 4))
    assert isinstance(state.reservations[0], Reservation)
