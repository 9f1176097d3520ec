"""Messages between two processes, of the same version or not, and the loss of one process."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.objects import KeptElsewhere, Served, decoded, remotely
from tests.lab.samples import gpus, node, service, uuid
from wharfinger.exceptions import InvalidObject, RemoteError
from wharfinger.objects import ComputeNode, ComputeNodeList, Context, Service, WharfingerObject
from wharfinger.objects.remote_objects import Serializer

#: A module with later versions of objects; only the other process imports it.
NEWER = "tests.lab.newer"


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptElsewhere]:
    """A store of objects in a process of a later release."""
    with KeptElsewhere(tmp_path_factory.mktemp("upgraded"), NEWER) as kept:
        yield kept


@pytest.fixture
def ahead(upgraded: KeptElsewhere) -> Iterator[KeptElsewhere]:
    with upgraded.in_use():
        yield upgraded


def ask(kept: KeptElsewhere, **question: Any) -> Any:
    """Send a request in primitives, as a client of another version; return the answer."""
    return decoded(kept.server.send(json.dumps(question).encode()))


def test_messages_contain_only_primitives(elsewhere: KeptElsewhere) -> None:
    answers = []

    def send(question: bytes) -> bytes:
        answers.append(elsewhere.server.send(question))
        return answers[-1]

    assert elsewhere.context.database is None
    asked = len(elsewhere.server.questions)
    with remotely(send):
        one = node(elsewhere.context, pci_stats=gpus(), last_seen="2031-05-01T10:00:00Z")
        one.create()
        one.vcpus = 3
        one.save()
        found = ComputeNodeList.get_by_filters(elsewhere.context, uuid=[one.uuid])
        found.destroy()
    questions = [decoded(question) for question in elsewhere.server.questions[asked:]]
    assert [question["method"] for question in questions] == [
        "create",
        "save",
        "get_by_filters",
        "destroy",
    ]
    assert questions[0]["object"]["wharfinger_object.version"] == ComputeNode.VERSION
    listed = decoded(answers[2])["result"]["wharfinger_object.data"]["objects"]
    assert [each["wharfinger_object.data"]["uuid"] for each in listed] == [one.uuid]


def test_lost_process_is_an_error_and_changes_are_kept(tmp_path: Path) -> None:
    with KeptElsewhere(tmp_path) as kept, kept.in_use():
        one = service(kept.context)
        one.create()
        one.disabled = True
        kept.server.end()
        for do in (one.save, one.report, one.destroy):
            with pytest.raises(RemoteError):
                do()
        with pytest.raises(RemoteError):
            Service.get_by_uuid(kept.context, one.uuid)
        assert one.obj_what_changed() == {"disabled"}
        with Served(tmp_path) as again, remotely(again.send):
            one.save()
            assert Service.get_by_uuid(kept.context, one.uuid).disabled


def test_process_ends_with_its_user(tmp_path: Path) -> None:
    with Served(tmp_path) as server:
        assert server.process.stdin is not None
        server.process.stdin.close()
        server.process.stdin = None
        assert server.process.wait(60) == 0


def test_error_in_the_other_process_is_raised_here_and_it_continues(
    elsewhere: KeptElsewhere,
) -> None:
    faulty: Any = Service.get_by_uuid
    with pytest.raises(RemoteError, match="TypeError"):
        faulty(elsewhere.context)
    for nonsense in (b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"action": "object"}', b"[" * 100_000):
        [error] = decoded(elsewhere.server.send(nonsense)).values()
        assert error["kind"] == "RemoteError"
    service(elsewhere.context).create()
    assert Service.get_by_uuid(elsewhere.context, uuid("service 0")).host == "host-0"


# An upgraded process stores the objects.


def test_newer_object_arrives_in_the_version_known_here(ahead: KeptElsewhere) -> None:
    assert ComputeNode.VERSION == "1.1"
    one = node(ahead.context, pci_stats=gpus())
    one.create()
    found = ComputeNode.get_by_uuid(ahead.context, one.uuid)
    assert type(found) is ComputeNode
    assert found.VERSION == "1.1"
    assert found.pci_stats is not None
    assert "rack" not in found.fields
    listed = ComputeNodeList.get_by_filters(ahead.context)
    assert [each.VERSION for each in listed] == ["1.1"]
    listed[0].vcpus = 5
    listed.save()
    assert ahead.row("compute_nodes")["vcpus"] == 5
    listed.destroy()
    assert not ComputeNodeList.get_by_filters(ahead.context)


def newest(kept: KeptElsewhere, name: str = "ComputeNode", **question: Any) -> Any:
    """Call a method over the wire as the newest release; return the primitive in the answer."""
    versions = {"ComputeNode": "1.2", "ComputeNodeList": "1.4", "PciDeviceList": "1.0"}
    versions |= {"PciDevice": "1.0"}
    answer = ask(kept, action="class", name=name, versions=versions, args=[], **question)
    return answer["result"]


def test_newer_primitive_is_requested_again_in_a_known_version(ahead: KeptElsewhere) -> None:
    node(ahead.context, vcpus=7, pci_stats=gpus()).create()
    primitive = newest(ahead, method="get_by_uuid", kwargs={"uuid": uuid("node 0")})
    assert primitive["wharfinger_object.version"] == "1.2"
    assert primitive["wharfinger_object.data"]["rack"] == "R7"
    serializer = Serializer()
    found = serializer.deserialize_entity(ahead.context, primitive)
    assert type(found) is ComputeNode
    assert (found.VERSION, found.vcpus) == ("1.1", 7)
    assert found.pci_stats is not None
    assert found.pci_stats[0].count == 2

    node(ahead.context, 1).create()
    primitive = newest(ahead, "ComputeNodeList", method="get_by_filters", kwargs={})
    listed = serializer.deserialize_entity(ahead.context, primitive)
    assert type(listed) is ComputeNodeList
    versions = [(one.VERSION, one.hypervisor_hostname) for one in listed]
    assert versions == [("1.1", "node-0"), ("1.1", "node-1")]
    plain = primitive["wharfinger_object.data"]["objects"]
    found = serializer.deserialize_entity(ahead.context, {"nodes": plain})
    assert [one.VERSION for one in found["nodes"]] == ["1.1", "1.1"]


def test_primitive_too_new_for_both_processes_is_refused(elsewhere: KeptElsewhere) -> None:
    primitive = node(None).obj_to_primitive() | {"wharfinger_object.version": "1.9"}
    with pytest.raises(InvalidObject, match=r"ComputeNode 1\.9"):
        Serializer().deserialize_entity(elsewhere.context, primitive)


def test_newer_primitive_without_another_process_is_refused(ahead: KeptElsewhere) -> None:
    node(ahead.context).create()
    primitive = newest(ahead, method="get_by_uuid", kwargs={"uuid": uuid("node 0")})
    WharfingerObject.indirection_api = None
    with pytest.raises(InvalidObject, match=r"ComputeNode 1\.2.*1\.1"):
        Serializer().deserialize_entity(Context(), primitive)
