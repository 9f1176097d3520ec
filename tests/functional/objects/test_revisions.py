"""Revisions show changes since the last read, without a read of the objects."""

from typing import Any

import pytest

from tests.lab.objects import Kept, KeptElsewhere, KeptInFile, decoded, statements
from tests.lab.samples import instance, node, service, uuid
from wharfinger.objects import ComputeNodeList, Context, InstanceList, Service

HOST, INSTANCE = "host-1", "metal"


def of_nodes(context: Context, host: str | None = HOST, instance: str = INSTANCE) -> dict[str, int]:
    return ComputeNodeList.get_revisions(context, host, instance)


def test_revision_of_a_node_rises_with_each_save(context: Context) -> None:
    one, other = node(context, 1), node(context, 2)
    one.create()
    other.create()
    assert of_nodes(context) == {one.uuid: 1, other.uuid: 1}
    for vcpus in (3, 4):
        one.vcpus = vcpus
        one.save()
    assert of_nodes(context) == {one.uuid: 3, other.uuid: 1}
    ComputeNodeList(context, objects=[one, other]).save()
    assert of_nodes(context) == {one.uuid: 3, other.uuid: 1}, "nothing has changed"
    ComputeNodeList.note_seen(context, HOST, INSTANCE, None)
    assert of_nodes(context) == {one.uuid: 3, other.uuid: 1}
    one.destroy()
    assert of_nodes(context) == {other.uuid: 1}
    node(context, 1).create()
    assert of_nodes(context) == {one.uuid: 1, other.uuid: 1}, "it begins anew"


def test_revisions_of_nodes_are_those_of_one_instance_and_host(context: Context) -> None:
    here, there = node(context, 1), node(context, 2, host="host-2")
    others = node(context, 3, driver_instance="gpus")
    for one in (here, there, others):
        one.create()
    assert of_nodes(context) == {here.uuid: 1}
    assert of_nodes(context, "host-2") == {there.uuid: 1}
    assert of_nodes(context, instance="gpus") == {others.uuid: 1}
    assert of_nodes(context, "nowhere") == {}
    assert of_nodes(context, "HOST-1") == of_nodes(context, instance="METAL") == {}
    assert of_nodes(context, None) == {here.uuid: 1, there.uuid: 1}


def test_revisions_of_instances_are_those_of_one_host(context: Context) -> None:
    here, there = (instance(context, number, host=f"host-{number}", node="n") for number in (1, 2))
    nowhere = instance(context, 3)
    for one in (here, there, nowhere):
        one.create()
    assert InstanceList.get_revisions(context, "host-1") == {here.uuid: 1}
    assert InstanceList.get_revisions(context, "host-2") == {there.uuid: 1}
    there.host = "host-1"
    there.save()
    assert InstanceList.get_revisions(context, "host-1") == {here.uuid: 1, there.uuid: 2}
    assert InstanceList.get_revisions(context, "host-2") == {}
    here.destroy()
    assert InstanceList.get_revisions(context, "host-1") == {there.uuid: 2}
    assert InstanceList.get_revisions(context, "HOST-1") == {}


@pytest.mark.parametrize("made", [node, instance])
def test_unreadable_object_has_a_revision(kept: Kept, made: Any) -> None:
    one = made(kept.context, 1, host=HOST)
    one.create()
    column = "capabilities" if made is node else "flavor"
    kept.write(one.TABLE, {column: "nonsense"}, uuid=one.uuid)
    found = (
        of_nodes(kept.context) if made is node else InstanceList.get_revisions(kept.context, HOST)
    )
    assert found == {one.uuid: 1}


def test_revisions_of_hundreds_are_one_statement(file: KeptInFile) -> None:
    nodes = [node(None, number) for number in range(200)]
    ComputeNodeList(file.context, objects=nodes).create()
    instances = [instance(None, number, host=HOST) for number in range(200)]
    InstanceList(file.context, objects=instances).create()
    with statements() as said:
        assert of_nodes(file.context) == {one.uuid: 1 for one in nodes}
        assert InstanceList.get_revisions(file.context, HOST) == {one.uuid: 1 for one in instances}
    assert len(said) == 2
    assert not any("flavor" in one or "pci_stats" in one for one in said)


def test_old_client_gets_revisions(elsewhere: KeptElsewhere) -> None:
    node(elsewhere.context).create()
    question = (
        b'{"action": "class", "name": "ComputeNodeList", "method": "get_revisions", "kwargs": {},'
        b' "args": ["host-1", "metal"], "versions": {"ComputeNodeList": "1.2"}}'
    )
    answer = decoded(elsewhere.server.send(question))
    assert answer == {"result": {uuid("node 0"): 1}}


def test_get_revisions_of_another_kind_is_refused(
    elsewhere: KeptElsewhere,
) -> None:
    service(elsewhere.context).create()
    assert not hasattr(Service, "get_revisions")
    question = (
        b'{"action": "class", "name": "ServiceList", "method": "_revisions", "kwargs": {},'
        b' "args": [], "versions": {"ServiceList": "1.0"}}'
    )
    assert decoded(elsewhere.server.send(question))["error"]["kind"] == "RemoteError"
