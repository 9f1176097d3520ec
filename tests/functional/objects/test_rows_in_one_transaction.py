"""HostState and ProviderState: what they contain, and that one transaction reads them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from tests.lab.objects import Kept, KeptElsewhere, KeptInFile, statements, transactions
from tests.lab.samples import (
    device_job,
    instance,
    migration,
    node,
    record,
    reservation,
    service,
    uuid,
)
from wharfinger.objects import (
    AGENT_BINARY,
    ComputeNode,
    ComputeNodeList,
    Context,
    HostState,
    Instance,
    InstanceList,
    ProviderRecord,
    ProviderRecordList,
    ProviderState,
    Reservation,
)

HOST, INSTANCE = "host-1", "metal"
NOTHING: Mapping[str, Mapping[str, int]] = {}


def get(context: Context, known: Mapping[str, Mapping[str, int]] = NOTHING) -> HostState:
    return HostState.get(context, HOST, INSTANCE, known)


def known(state: HostState) -> dict[str, dict[str, int]]:
    return {
        "nodes": dict(state.node_revisions),
        "instances": dict(state.instance_revisions),
        "records": dict(state.record_revisions),
    }


def remember(
    context: Context, *records: ProviderRecord, host: str = HOST, instance: str = INSTANCE
) -> None:
    ProviderRecordList.replace(
        context, host, instance, ProviderRecordList(objects=list(records)), []
    )


def keys(objects: list[Any]) -> list[str]:
    return [one.key for one in objects]


def test_get_state_of_an_empty_database_returns_nothing(context: Context) -> None:
    state = get(context)

    assert state.service_disabled is False
    assert known(state) == {"nodes": {}, "instances": {}, "records": {}}
    for name in ("nodes", "instances", "migrations", "records", "reservations", "jobs"):
        assert getattr(state, name) == []
    assert not state.obj_what_changed()


def test_get_state_returns_rows_of_the_host_and_the_driver_instance(context: Context) -> None:
    for number, values in enumerate(({}, {"host": "host-2"}, {"driver_instance": "gpus"})):
        node(context, number, **values).create()
        place = {"host": HOST, "instance": INSTANCE} | {
            name.removeprefix("driver_"): value for name, value in values.items()
        }
        remember(context, record(number), **place)
    for number, host in enumerate((HOST, "host-2", None)):
        host_or_other = host or "host-3"
        migration(context, number, source_compute=host_or_other, dest_compute=None).create()
        instance(context, number, host=host, node="node-0").create()
    migration(context, 3, source_compute="host-2", dest_compute=HOST).create()
    migration(context, 4, source_compute=HOST, status="confirmed").create()

    state = get(context)

    assert state.node_revisions == {uuid("node 0"): 1}
    assert keys(state.nodes) == [uuid("node 0")]
    assert state.instance_revisions == {uuid("instance 0"): 1}
    assert keys(state.instances) == [uuid("instance 0")]
    assert keys(state.migrations) == [uuid("migration 0"), uuid("migration 3")]
    assert state.record_revisions == {uuid("provider 0"): 1}
    assert keys(state.records) == [uuid("provider 0")]
    assert state.records[0].revision == 1
    assert not any(one.obj_what_changed() for one in [*state.nodes, *state.records])


def test_get_state_with_known_revisions_returns_only_changed_rows(
    context: Context,
) -> None:
    nodes = [node(None, number) for number in range(4)]
    ComputeNodeList(context, objects=nodes).create()
    instances = [instance(None, number, host=HOST, node="node-0") for number in range(4)]
    InstanceList(context, objects=instances).create()
    remember(context, *(record(number) for number in range(4)))
    before = get(context)
    assert len(before.nodes) == len(before.instances) == len(before.records) == 4

    same = get(context, known(before))
    assert known(same) == known(before)
    assert (same.nodes, same.instances, same.records) == ([], [], [])

    nodes[1].vcpus = 7
    nodes[1].save()
    nodes[2].destroy()
    instances[3].node = "node-1"
    instances[3].save()
    remember(context, record(0, absent_since=5.0))
    after = get(context, known(before))

    assert [(one.uuid, one.vcpus) for one in after.nodes] == [(uuid("node 1"), 7)]
    assert after.node_revisions == {uuid("node 0"): 1, uuid("node 1"): 2, uuid("node 3"): 1}
    assert [(one.uuid, one.node) for one in after.instances] == [(uuid("instance 3"), "node-1")]
    assert [(one.key, one.revision) for one in after.records] == [(uuid("provider 0"), 2)]
    assert after.record_revisions[uuid("provider 0")] == 2


@pytest.mark.parametrize("disabled", [True, False])
def test_get_state_returns_whether_the_service_is_disabled(
    context: Context, disabled: bool
) -> None:
    service(context, 1, binary=AGENT_BINARY, disabled=disabled).create()
    service(context, 2, binary=AGENT_BINARY, disabled=not disabled).create()
    service(context, 3, host=HOST, binary="another", disabled=not disabled).create()

    assert get(context).service_disabled is disabled
    other = HostState.get(context, HOST, INSTANCE, NOTHING, binary="another")
    assert other.service_disabled is not disabled


def test_get_state_returns_reservations_and_jobs_of_recorded_providers(context: Context) -> None:
    remember(context, record(1), record(2))
    remember(context, record(3), host="host-2")
    for number in (1, 3, 4):
        reservation(context, number, provider_uuid=uuid(f"provider {number}")).create()
        device_job(context, number, provider_uuid=uuid(f"provider {number}")).create()

    state = HostState.get(context, HOST, INSTANCE, NOTHING, with_jobs=True)

    assert keys(state.reservations) == [uuid("reservation 1")]
    assert keys(state.jobs) == [uuid("provider 1")]
    assert get(context).jobs == []


def test_get_state_with_damaged_rows_leaves_their_fields_unset(kept: Kept) -> None:
    node(kept.context).create()
    instance(kept.context, host=HOST).create()
    remember(kept.context, record(0))
    reservation(kept.context, provider_uuid=uuid("provider 0")).create()
    kept.write("compute_nodes", {"capabilities": "what"})
    kept.write("instances", {"flavor": "what"})
    kept.write("provider_records", {"reservations": "what"})
    kept.write("reservations", {"own_reserved": "what"})

    state = get(kept.context)

    assert "capabilities" not in state.nodes[0]
    assert "flavor" not in state.instances[0]
    assert "reservations" not in state.records[0]
    assert "own_reserved" not in state.reservations[0]
    assert len(state.node_revisions) == len(state.record_revisions) == 1


@pytest.mark.parametrize("kept", ["in_file", "by_another_process"], indirect=True)
def test_get_state_with_an_unreadable_revision_returns_the_row_without_it(kept: Kept) -> None:
    node(kept.context, 0).create()
    node(kept.context, 1).create()
    kept.write("compute_nodes", {"revision": -4}, uuid=uuid("node 0"))

    state = get(kept.context, {"nodes": {uuid("node 1"): 1, uuid("node 0"): 1}})

    assert state.node_revisions == {uuid("node 1"): 1}
    assert keys(state.nodes) == [uuid("node 0")]
    assert "revision" not in state.nodes[0]


def test_get_state_is_one_transaction_of_few_statements(file: KeptInFile) -> None:
    count = 1200
    ComputeNodeList(file.context, objects=[node(None, number) for number in range(count)]).create()
    remember(file.context, *(record(number) for number in range(count)))

    with statements() as said, transactions() as begun:
        first = get(file.context)
    assert len(begun) == 1
    assert len(first.nodes) == len(first.records) == count
    assert len(said) == 9

    with statements() as said, transactions() as begun:
        second = get(file.context, known(first))
    assert len(begun) == 1
    assert len(said) == 7
    assert not any("pci_stats" in one or "applied" in one or "flavor," in one for one in said[4:])
    assert known(second) == known(first)

    first.nodes[5].vcpus = 9
    first.nodes[5].save()
    with statements() as said, transactions() as begun:
        third = get(file.context, known(first))
    assert (len(begun), len(said), len(third.nodes)) == (1, 8, 1)


def test_get_state_is_one_request_to_another_process(elsewhere: KeptElsewhere) -> None:
    node(elsewhere.context).create()
    before = len(elsewhere.server.questions)
    state = get(elsewhere.context)
    assert len(elsewhere.server.questions) - before == 1
    state.nodes[0].vcpus = 3  # the node has the context, so it can be saved
    state.nodes[0].save()
    assert ComputeNode.get_by_uuid(elsewhere.context, uuid("node 0")).vcpus == 3


@contextmanager
def meanwhile(kept: Kept, *changes: str) -> Iterator[None]:
    """Execute these statements in another transaction, after the first SELECT of the block."""
    left = [changes]

    def change(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT") and connection.engine is not kept.engine and left:
            for one in left.pop():
                with kept.engine.begin() as other:
                    other.execute(sa.text(one))

    sa.event.listen(sa.Engine, "after_cursor_execute", change)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", change)
    assert not left


@pytest.mark.parametrize("kept", ["by_postgresql", "by_mariadb"], indirect=True)
def test_get_state_during_other_writes_returns_the_state_of_one_moment(kept: Kept) -> None:
    node(kept.context).create()
    remember(kept.context, record(0))

    with meanwhile(
        kept,
        "UPDATE compute_nodes SET host = 'host-2', revision = 2",
        "UPDATE provider_records SET revision = 2, mode = 'overlay'",
    ):
        state = get(kept.context)

    assert known(state)["nodes"] == {uuid("node 0"): 1}
    assert [(one.revision, one.mode) for one in state.records] == [(1, "own")]
    assert get(kept.context).record_revisions == {uuid("provider 0"): 2}
    node(kept.context, 1).create()  # the connection can still write


def test_get_provider_state_returns_records_of_all_hosts_and_instances(context: Context) -> None:
    remember(context, record(1), record(2))
    remember(context, record(1, mode="overlay"), host="host-2", instance="gpus")
    for number in (1, 2):
        reservation(context, number, provider_uuid=uuid(f"provider {number}")).create()
        node(context, number, host=f"host-{number}").create()

    state = ProviderState.get(context, [uuid("provider 1"), uuid("nowhere")], [uuid("node 2")])

    assert [(one.key, one.host, one.driver_instance) for one in state.records] == [
        (uuid("provider 1"), HOST, INSTANCE),
        (uuid("provider 1"), "host-2", "gpus"),
    ]
    assert keys(state.reservations) == [uuid("reservation 1")]
    assert keys(state.nodes) == [uuid("node 2")]
    assert not state.obj_what_changed()
    empty = ProviderState.get(context, [], [])
    assert (empty.records, empty.reservations, empty.nodes) == ([], [], [])


def test_get_provider_state_is_one_transaction(file: KeptInFile) -> None:
    remember(file.context, record(1))
    with statements() as said, transactions() as begun:
        ProviderState.get(file.context, [uuid("provider 1")], [uuid("node 1")])
    assert (len(begun), len(said)) == (1, 3)


def test_get_provider_state_returns_versioned_objects(context: Context) -> None:
    node(context).create()
    instance(context, host=HOST).create()
    remember(context, record(0))
    reservation(context, provider_uuid=uuid("provider 0")).create()
    state = get(context)
    found = (state.nodes[0], state.instances[0], state.records[0], state.reservations[0])
    assert [type(one) for one in found] == [ComputeNode, Instance, ProviderRecord, Reservation]
