"""Invalid messages between processes: each is an error that affects no other message."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.lab import samples
from tests.unit.objects.kinds import OURS, is_needed, of
from wharfinger import exceptions
from wharfinger.exceptions import InvalidObject, ObjectError, RemoteError, StateError
from wharfinger.objects import ComputeNode, Context, Service, ServiceList, WharfingerObject
from wharfinger.objects.remote_objects import ObjectServer, RemoteObjects, Serializer

NOWHERE = Context()


def primitive(**parts: Any) -> dict[str, Any]:
    """Return the primitive of a node with PCI devices, with these parts replaced."""
    whole = samples.node(None, pci_stats=samples.gpus()).obj_to_primitive()
    return whole | {f"wharfinger_object.{name}": part for name, part in parts.items()}


def data(**values: Any) -> dict[str, Any]:
    whole = primitive()
    whole["wharfinger_object.data"] |= values
    return whole


def stats(**parts: Any) -> dict[str, Any]:
    whole = samples.gpus().obj_to_primitive()
    return whole | {f"wharfinger_object.{name}": part for name, part in parts.items()}


def device(**parts: Any) -> dict[str, Any]:
    """Return the primitive in which one PCI device has these parts replaced."""
    [first, second] = stats()["wharfinger_object.data"]["objects"]
    first |= {f"wharfinger_object.{name}": part for name, part in parts.items()}
    return data(pci_stats=stats(data={"objects": [second, first]}))


def without(part: str) -> dict[str, Any]:
    whole = primitive()
    del whole[f"wharfinger_object.{part}"]
    return whole


#: By name: a wrong primitive, and words of its error.
WRONG: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "an unknown field": (lambda: data(colour="red"), "colour"),
    "a later field": (lambda: data(rack="R7"), "rack"),
    "a wrong type": (lambda: data(vcpus="many"), "vcpus.*many"),
    "a figure out of range": (lambda: data(vcpus=-1), "vcpus"),
    "no uuid": (lambda: data(uuid="x"), "uuid"),
    "nothing": (lambda: data(host=None), "host"),
    "a later minor version": (lambda: primitive(version="1.9"), r"ComputeNode 1\.9.*1\.1"),
    "a later major version": (lambda: primitive(version="2.0"), r"ComputeNode 2\.0.*1\.1"),
    "an earlier major version": (lambda: primitive(version="0.9"), r"ComputeNode 0\.9"),
    "no version at all": (lambda: primitive(version="new"), "ComputeNode new"),
    "a figure for a version": (lambda: primitive(version=1.1), "ComputeNode"),
    "no version": (lambda: without("version"), "ComputeNode"),
    "an unknown name": (lambda: primitive(name="Rack"), "Rack 1"),
    "a list for a name": (lambda: primitive(name=["ComputeNode"]), "ComputeNode"),
    "another namespace": (lambda: primitive(namespace="nova"), "ComputeNode"),
    "no namespace": (lambda: without("namespace"), "ComputeNode"),
    "no data": (lambda: without("data"), "ComputeNode"),
    "a list for data": (lambda: primitive(data=["vcpus"]), "ComputeNode"),
    "nothing for data": (lambda: primitive(data=None), "ComputeNode"),
    "a figure for changes": (lambda: primitive(changes=7), "ComputeNode"),
    "no object inside": (lambda: data(pci_stats=7), "cannot be read"),
    "another object inside": (
        lambda: data(pci_stats=samples.flavor(None).obj_to_primitive()),
        "pci_stats",
    ),
    "a later version inside": (lambda: data(pci_stats=stats(version="1.9")), r"1\.9"),
    "an unknown name inside": (lambda: data(pci_stats=stats(name="Racks")), "Racks"),
    "an unknown field inside": (
        lambda: data(pci_stats=stats(data={"objects": [], "colour": 1})),
        "colour",
    ),
    "a text for a list inside": (lambda: data(pci_stats=stats(data={"objects": "abc"})), "abc|'a'"),
    "an unknown field two deep": (lambda: device(data={"colour": 1}), "colour"),
    "a wrong type two deep": (lambda: device(data={"count": "many"}), "count.*many"),
    "a later version two deep": (lambda: device(version="1.9"), r"PciDevice 1\.9"),
    "another namespace two deep": (lambda: device(namespace="nova"), "PciDevice"),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_primitive_is_refused_in_a_message_a_question_and_an_answer(name: str) -> None:
    make, told = WRONG[name]
    received = make()
    with pytest.raises(InvalidObject, match=told):
        Serializer().deserialize_entity(NOWHERE, received)
    question = {"action": "object", "object": received, "method": "save", "args": [], "kwargs": {}}
    error = error_of(question)
    assert isinstance(error, InvalidObject)
    assert error.args[0]
    with pytest.raises(InvalidObject):
        ask(json.dumps({"result": received}).encode())


@pytest.mark.parametrize("nothing", [None, 7, "ComputeNode", [], {}, [[]], b"x"])
def test_value_that_is_no_primitive_is_refused(nothing: Any) -> None:
    with pytest.raises(InvalidObject):
        ComputeNode.obj_from_primitive(nothing)


@pytest.mark.parametrize("name", OURS)
def test_field_of_a_primitive_with_a_wrong_type_is_refused(name: str) -> None:
    kind = of(name)
    wrong = []
    values: list[Any] = ["\0", 1.5, -3, True, ["x", 1], {"x": []}, [None], {"x": None}, [[]]]
    for field, value in product(kind.fields, [*values, None]):
        received = kind().obj_to_primitive()
        received["wharfinger_object.data"] = {field: value}
        try:
            one = kind.obj_from_primitive(received)
        except InvalidObject:
            continue
        if value is None:
            if is_needed(kind.fields[field]):
                wrong.append((field, None))
        elif one.obj_to_primitive()["wharfinger_object.data"] != {field: value}:
            wrong.append((field, value))
    assert not wrong


def test_too_new_object_is_refused_alone() -> None:
    good, bad = samples.node(None).obj_to_primitive(), primitive(version="1.9")
    serializer = Serializer()
    with pytest.raises(InvalidObject):
        serializer.deserialize_entity(NOWHERE, {"nodes": [good, bad]})
    assert serializer.deserialize_entity(NOWHERE, {"nodes": [good]})["nodes"][0].host == "host-1"


def test_third_part_of_a_version_is_ignored() -> None:
    found = Serializer().deserialize_entity(NOWHERE, primitive(version="1.1.3"))
    assert (found.VERSION, found.host) == ("1.1", "host-1")


# Questions.


def error_of(question: Any, context: Context = NOWHERE) -> Exception:
    """Return the error that this request causes in the process that sends it."""

    def send(_: bytes) -> bytes:
        asked = question if isinstance(question, bytes) else json.dumps(question).encode()
        return ObjectServer(context).answer(asked)

    with pytest.raises((ObjectError, StateError)) as caught:
        RemoteObjects(send)._ask(NOWHERE, "object")
    return caught.value


def on_class(name: Any, method: Any, **parts: Any) -> dict[str, Any]:
    question = {"action": "class", "name": name, "method": method, "args": [], "kwargs": {}}
    return {**question, "versions": {"Service": "1.0", "Rack": "1.0"}, **parts}


def on_object(method: Any) -> dict[str, Any]:
    one = samples.service(None).obj_to_primitive()
    return {"action": "object", "object": one, "method": method, "args": [], "kwargs": {}}


@pytest.mark.parametrize(
    "method",
    [
        "obj_to_primitive",
        "obj_from_primitive",
        "is_up",
        "_get",
        "_from_row",
        "__init__",
        "__class__",
        "key",
        "VERSION",
        "fields",
        "nothing",
        "",
        "get_by_uuid.original_fn",
        7,
        None,
        [],
        {},
    ],
    ids=str,
)
def test_call_of_a_method_that_is_not_remotable_is_refused(method: Any) -> None:
    for question in (on_class("Service", method), on_object(method)):
        error = error_of(question)
        assert isinstance(error, RemoteError)
        assert "is not a remotable method" in str(error)


@pytest.mark.parametrize("name", ["Rack", "WharfingerObject", "VersionedObject", "", "object"])
def test_unknown_class_is_an_error(name: str) -> None:
    error = error_of(on_class(name, "get_by_uuid", versions={name: "1.0"}))
    assert isinstance(error, RemoteError)


def test_class_newer_in_the_asking_process_is_an_error() -> None:
    error = error_of(on_class("Service", "get_by_uuid", versions={"Service": "1.9"}))
    assert isinstance(error, RemoteError)
    assert "1.9" in str(error)
    assert "Upgrade" in str(error)


NO_QUESTIONS: list[Any] = [
    b"",
    b"{",
    b"\xff",
    b"[" * 100_000,
    b"null",
    b"[]",
    b"7",
    b"{}",
    {"action": None},
    {"action": "format"},
    {"action": ["object"]},
    {"action": "object"},
    {"action": "class", "name": "Service"},
    {**on_object("save"), "colour": "red"},
    {**on_object("save"), "object": "service"},
    {**on_object("save"), "object": [1]},
    {**on_object("save"), "object": None},
    {**on_object("save"), "args": 7},
    {**on_object("save"), "args": ["more"]},
    {**on_object("save"), "kwargs": {"more": 1}},
    {**on_object("save"), "kwargs": ["more"]},
    on_class("Service", "get_by_uuid"),
    on_class("Service", "get_by_uuid", versions=None),
    on_class("Service", "get_by_uuid", versions={}),
    on_class(["Service"], "get_by_uuid"),
    {"action": "backport"},
]


@pytest.mark.parametrize("number", range(len(NO_QUESTIONS)))
def test_invalid_question_is_answered_with_an_error(number: int) -> None:
    assert isinstance(error_of(NO_QUESTIONS[number]), RemoteError)


def test_process_without_a_database_answers_with_its_error() -> None:
    error = error_of(on_class("Service", "get_by_uuid", args=[samples.uuid("x")]))
    assert isinstance(error, StateError)
    assert error.facts["path"] == "no database"


def test_object_is_backported_for_an_older_client() -> None:
    versions = {"ComputeNode": "1.0"}
    question = {"action": "backport", "primitive": primitive(), "versions": versions}
    answer = json.loads(ObjectServer(NOWHERE).answer(json.dumps(question).encode()))
    assert answer["result"]["wharfinger_object.version"] == "1.0"
    assert "pci_stats" not in answer["result"]["wharfinger_object.data"]


# Answers.


def ask(answer: bytes | Exception) -> Any:
    """Call a method that gets this answer from the other process."""

    def send(_: bytes) -> bytes:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return RemoteObjects(send).object_class_action_versions(
        NOWHERE, "Service", "get_by_uuid", {"Service": "1.0"}, (samples.uuid(1),), {}
    )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b"[]",
        b"7",
        b"{}",
        b'{"error": 7}',
        b'{"error": {}}',
        b'{"error": {"kind": "Fire", "facts": {}}}',
        b'{"error": {"kind": "ObjectNotFound", "facts": 7}}',
        b'{"error": {"kind": "ObjectNotFound", "facts": {"colour": "red"}}}',
        b'{"error": {"kind": ["ObjectNotFound"], "facts": {}}}',
        OSError("nobody"),
        ConnectionRefusedError(111, "Connection refused"),
        TimeoutError("timed out"),
    ],
    ids=lambda answer: str(answer)[:60],
)
def test_invalid_answer_is_an_error(answer: Any) -> None:
    with pytest.raises(RemoteError):
        ask(answer)


@pytest.mark.parametrize(
    "answer",
    [
        {"result": None},
        {"updates": None, "result": None},
        {"updates": 5, "result": None},
        {"updates": {"objects": []}, "result": None},
        {"updates": {"objects": 5}, "result": None},
        {"updates": {"objects": [5]}, "result": None},
    ],
    ids=str,
)
def test_answer_without_updates_of_an_object_is_an_error(
    answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = RemoteObjects(lambda _: json.dumps(answer).encode())
    monkeypatch.setattr(WharfingerObject, "indirection_api", remote)
    several = ServiceList(NOWHERE, objects=[samples.service(NOWHERE)])
    with pytest.raises(RemoteError):
        several.create()


@pytest.mark.parametrize(
    "updates",
    [{"version": "many"}, {"uuid": None}, {"owners": 5}, {"obj_what_changed": 5}],
    ids=str,
)
def test_update_of_the_wrong_type_in_an_answer_is_an_error(
    updates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"updates": updates, "result": None}
    remote = RemoteObjects(lambda _: json.dumps(answer).encode())
    monkeypatch.setattr(WharfingerObject, "indirection_api", remote)
    with pytest.raises(RemoteError):
        samples.service(NOWHERE).create()


FACTS: dict[str, Any] = {
    "subject": "Service x",
    "problem": "it is damaged.",
    "remedy": "Repair it.",
    "field": "owners",
    "kind": "Service",
    "key": "x",
    "unique": "uuid",
    "keys": ["x", "y"],
    "reason": "no reason",
    "path": "/state",
}


@pytest.mark.parametrize(
    "name",
    [
        "FieldUnset",
        "InvalidObject",
        "ObjectNotFound",
        "ObjectExists",
        "ConcurrentSave",
        "RemoteError",
        "StateError",
    ],
)
def test_error_arrives_with_its_type_and_facts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = getattr(exceptions, name)
    wanted = {fact: FACTS[fact] for fact in annotated(kind)}

    def fail(*_: object, **__: object) -> None:
        raise kind(**wanted)

    monkeypatch.setattr(Context, "db", property(fail))
    error = error_of(on_class("Service", "get_by_uuid", args=[samples.uuid(1)]))
    assert type(error) is kind
    assert getattr(error, "facts", None) == wanted
    assert str(error) == str(kind(**wanted))


def annotated(kind: type[Any]) -> list[str]:
    return list(kind.__annotations__)


def test_unexpected_error_of_the_other_process_is_a_remote_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a figure")

    monkeypatch.setattr(Context, "db", property(fail))
    error = error_of(on_class("Service", "get_by_uuid", args=[samples.uuid(1)]))
    assert isinstance(error, RemoteError)
    assert "ZeroDivisionError" in str(error)


def test_arguments_that_json_does_not_have_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def send(question: bytes) -> bytes:
        asked.append(json.loads(question))
        return b'{"result": {"a": 0, "b": 0}}'

    monkeypatch.setattr(WharfingerObject, "indirection_api", RemoteObjects(send))
    for binaries in (("a", "b"), {"a": 1, "b": 2}.keys(), iter(["a", "b"]), frozenset({"a"})):
        Service.get_minimum_version_multi(NOWHERE, binaries)
    assert asked[0]["args"] == asked[1]["args"] == asked[2]["args"] == [["a", "b"]]
    assert asked[3]["args"] == [["a"]]
