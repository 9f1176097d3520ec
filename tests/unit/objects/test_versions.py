"""A field that changes has to change its object's version too, and earlier versions stay."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from oslo_utils.versionutils import convert_version_to_tuple
from oslo_versionedobjects.fixture import ObjectVersionChecker

import wharfinger
from tests.lab import samples
from tests.unit.objects.kinds import OURS, of
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    InstanceList,
    MigrationList,
    ProviderRecordList,
    ReservationList,
    WharfingerObject,
    kinds,
)
from wharfinger.objects.base import Step, base
from wharfinger.objects.kept import RowList

#: The version and the fingerprint of the fields and remotable methods of each object. Where
#: a fingerprint differs, raise the object's version by a Step in its HISTORY that says what came
#: with it, and see to it that it can be sent to those that only know the version before.
FINGERPRINTS = {
    "ComputeNode": "1.1-890fcb09cdcf78978cf6693e8296d345",
    "ComputeNodeList": "1.2-9512f3ee1f2557d8511e616945d52e61",
    "DeviceJob": "1.0-a405be77e06b26ad1353bbf8d0c5aeef",
    "DeviceJobList": "1.0-2efc361ce8f465bedaf0b3bb09d63588",
    "Flavor": "1.0-178c3c68b81dc7f45630571013394e73",
    "FlavorList": "1.0-9bd749c2e129ae9af0e67f626f280098",
    "Instance": "1.1-0c92189a40932d9c54574bacad803672",
    "InstanceList": "1.2-0d3a0bbf90a72c3a415b3be88df78a76",
    "Migration": "1.1-330c5630ec95641caefa2c018f45ca59",
    "MigrationList": "1.1-cc0cb56b98b3edcea0b3562dd75b9414",
    "PciDevice": "1.0-95379882b2a336e0d76f06f196aed478",
    "PciDeviceList": "1.0-e81a268626fe21e9e0d7c4d8d1c59e0a",
    "ProviderRecord": "1.1-365f25e699bc688501829d0ccc604eaf",
    "ProviderRecordList": "1.1-658696511fdfa9184b546d2e71c91e49",
    "Reservation": "1.1-17ef3e001da53cf16a4d385e7f98c447",
    "ReservationList": "1.1-0cbff7388e7e7063a4cd92379ff1c9d5",
    "Service": "1.0-d2e6837bfca9f77351535de0aee0196f",
    "ServiceList": "1.0-4954fc2cbfb18689b358dd81df29a0cb",
}

LISTS = [name for name in OURS if hasattr(of(name), "child_versions")]
ROOT = Path(wharfinger.__file__).parents[2]
#: What uses the fields of nodes.
USERS = [ROOT / "framework" / "wharfinger" / "tracker", ROOT / "drivers"]
#: Of what keeps it, not of whom it is for.
KEEPERS = {"revision"}
#: Methods that are there to write a field.
WRITERS = {"last_seen": "note_seen"}


def earlier(kind: type[WharfingerObject]) -> list[str]:
    return [step.version for step in kind.HISTORY[:-1]]


def in_detail(kind: type[Any]) -> tuple[Any, ...]:
    """What the library leaves out: lengths, words, what is in lists, and what leads where."""
    return tuple(_described(field) for _, field in sorted(kind.fields.items()))


def _described(value: Any) -> Any:
    if isinstance(value, dict):
        return {repr(key): _described(value[key]) for key in sorted(value, key=repr)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_described(each) for each in value]
    if value is None or isinstance(value, str | int | float | type):
        return repr(value)
    transitions = getattr(value, "ALLOWED_TRANSITIONS", {})
    return [type(value).__name__, _described(vars(value)), _described(transitions)]


def test_no_object_has_changed_without_a_new_version() -> None:
    assert ObjectVersionChecker(OURS).get_hashes(in_detail) == FINGERPRINTS


def test_the_library_can_make_every_earlier_version() -> None:
    checker = ObjectVersionChecker(OURS)
    checker.test_compatibility_routines()
    checker.test_compatibility_routines(use_manifest=True)
    checker.test_relationships_in_order()


@pytest.mark.parametrize("name", OURS)
def test_a_history_says_what_each_version_brought(name: str) -> None:
    kind = of(name)
    versions = [convert_version_to_tuple(step.version) for step in kind.HISTORY]
    assert versions == sorted(set(versions))
    assert versions[0] == (1, 0)
    assert kind.HISTORY[-1].version == kind.VERSION
    brought = [field for step in kind.HISTORY for field in step.fields]
    assert len(brought) == len(set(brought))
    assert set(brought) <= kind.fields.keys()
    assert not kind.HISTORY[0].fields
    assert all(step.brought for step in kind.HISTORY)
    # In a class of its own: not in what others may share.
    assert len(kind.HISTORY) == 1 or "HISTORY" in vars(kind)


#: Whose a record is.
SCOPE: dict[str, Any] = {"host": "host-1", "driver_instance": "metal"}
BEGAN: Final = datetime(2030, 1, 1, tzinfo=UTC)
FULL: dict[str, Callable[[], Any]] = {
    "ComputeNode": lambda: samples.node(None, pci_stats=samples.gpus()),
    "ComputeNodeList": lambda: ComputeNodeList(
        objects=[samples.node(None, number, pci_stats=samples.gpus()) for number in range(2)]
    ),
    "Instance": lambda: samples.claimed(None),
    "InstanceList": lambda: InstanceList(
        objects=[samples.claimed(None, number) for number in range(2)]
    ),
    "Migration": lambda: samples.migration(None, created_at=BEGAN),
    "MigrationList": lambda: MigrationList(
        objects=[samples.migration(None, number, created_at=BEGAN) for number in range(2)]
    ),
    "ProviderRecord": lambda: samples.record(**SCOPE, reserved_since={"cleaning": 5.5}),
    "ProviderRecordList": lambda: ProviderRecordList(
        objects=[
            samples.record(number, **SCOPE, reserved_since={"cleaning": 5.5}) for number in range(2)
        ]
    ),
    "Reservation": lambda: samples.released(None),
    "ReservationList": lambda: ReservationList(
        objects=[samples.released(None, number) for number in range(2)]
    ),
}


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in OURS for version in earlier(of(name))],
)
def test_an_earlier_version_has_the_fields_that_were_there(name: str, version: str) -> None:
    kind = of(name)
    one = FULL[name]()
    for field in kind.fields.keys() - one.obj_what_changed():
        default = kind.fields[field].default
        setattr(one, field, 1 if field == "revision" else default)
    target = convert_version_to_tuple(version)
    later = {
        field
        for step in kind.HISTORY
        if convert_version_to_tuple(step.version) > target
        for field in step.fields
    }
    primitive = one.obj_to_primitive(target_version=version)
    assert primitive["wharfinger_object.version"] == version
    assert primitive["wharfinger_object.data"].keys() == kind.fields.keys() - later
    assert not set(primitive.get("wharfinger_object.changes", ())) & later
    # Whoever is newer takes it as it is.
    back = kind.obj_from_primitive(primitive)
    assert {field for field in kind.fields if back.obj_attr_is_set(field)} == (
        kind.fields.keys() - later
    )


@base.VersionedObjectRegistry.objectify
class Crane(WharfingerObject):
    """Of three versions, and registered nowhere."""

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.9", "how far it reaches", ("reach",)),
        Step("1.10", "two more", ("load", "owners")),
    )
    fields = {
        "name": kinds.name(),
        "reach": kinds.count(),
        "load": kinds.count(nullable=True),
        "owners": kinds.texts(),
    }


@pytest.mark.parametrize(
    ("version", "has"),
    [
        ("1.0", {"name"}),
        ("1.8", {"name"}),
        ("1.9", {"name", "reach"}),
        ("1.10", {"name", "reach", "load", "owners"}),
    ],
)
def test_what_came_later_is_left_out(version: str, has: set[str]) -> None:
    one = Crane(name="crane", reach=3, load=None, owners=[])
    primitive = one.obj_to_primitive(target_version=version)
    assert primitive["wharfinger_object.data"].keys() == has
    assert set(primitive["wharfinger_object.changes"]) == has
    # One that came in an earlier version leaves in it, whatever was set since.
    one.VERSION = version
    primitive = one.obj_to_primitive()
    assert primitive["wharfinger_object.version"] == version
    assert primitive["wharfinger_object.data"].keys() == has
    assert set(primitive["wharfinger_object.changes"]) == has


def test_each_version_that_is_not_the_newest_was_looked_at() -> None:
    assert FULL.keys() == {name for name in OURS if earlier(of(name))}


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in LISTS for version in earlier(of(name))],
)
def test_a_list_of_an_earlier_version_has_objects_of_theirs(name: str, version: str) -> None:
    kind: Any = of(name)
    child = of(kind.fields["objects"].objname)
    theirs = kind.child_versions[version]
    later = {
        field
        for step in child.HISTORY
        if convert_version_to_tuple(step.version) > convert_version_to_tuple(theirs)
        for field in step.fields
    }
    primitive = FULL[name]().obj_to_primitive(target_version=version)
    listed = primitive["wharfinger_object.data"]["objects"]
    assert [one["wharfinger_object.version"] for one in listed] == [theirs, theirs]
    assert not any(later & one["wharfinger_object.data"].keys() for one in listed)
    assert kind.obj_from_primitive(primitive).objects


@pytest.mark.parametrize("name", LISTS)
def test_each_version_of_a_list_says_which_objects_it_has(name: str) -> None:
    kind: Any = of(name)
    child = of(kind.fields["objects"].objname)
    assert list(kind.child_versions) == [step.version for step in kind.HISTORY]
    # A list may have a new version of its own, and objects of the same one.
    children = list(dict.fromkeys(kind.child_versions.values()))
    assert children == [step.version for step in child.HISTORY]
    if issubclass(kind, RowList):
        assert kind.KIND is child


@pytest.mark.parametrize("name", OURS)
def test_each_object_in_an_object_has_a_version_for_each_of_its(name: str) -> None:
    kind = of(name)
    for field, pairs in kind.obj_relationships.items():
        child = of(kind.fields[field].objname)  # type: ignore[attr-defined]
        own = [step.version for step in kind.HISTORY]
        assert {version for version, _ in pairs} <= set(own)
        assert pairs[-1][1] == child.VERSION


@pytest.mark.parametrize("name", OURS)
def test_the_docstring_of_an_object_says_what_each_field_is(name: str) -> None:
    kind = of(name)
    said = set(re.findall(r"``(\w+)``", kind.__doc__ or ""))
    assert kind.fields.keys() <= said
    hinted = {field for each in kind.__mro__ for field in vars(each).get("__annotations__", ())}
    assert kind.fields.keys() <= hinted


def named(paths: list[Path]) -> set[str]:
    """Every name that code reads or writes of something, or gives it as a keyword."""
    names = set()
    for file in (file for path in paths for file in path.rglob("*.py")):
        for one in ast.walk(ast.parse(file.read_text(), str(file))):
            if isinstance(one, ast.Attribute):
                names.add(one.attr)
            elif isinstance(one, ast.keyword) and one.arg:
                names.add(one.arg)
    return names


def test_a_node_has_no_field_that_nobody_uses() -> None:
    assert all(path.is_dir() for path in USERS)
    used = named(USERS)
    unused = {
        field
        for field in ComputeNode.fields.keys() - KEEPERS
        if not used & {field, WRITERS.get(field)}
    }
    assert unused == set()


def test_a_node_has_no_extra_resources() -> None:
    assert "extra_resources" not in ComputeNode.fields
    assert not hasattr(ComputeNode, "extra_resources")


def test_the_object_suite_calls_every_remotable_method() -> None:
    remotable = {
        method
        for name in OURS
        for method in dir(of(name))
        if getattr(getattr(of(name), method), "remotable", False)
    }
    assert {"create", "save", "get_by_uuid"} < remotable
    assert remotable - named([ROOT / "tests" / "functional" / "objects"]) == set()


def test_objects_leave_threads_as_they_are() -> None:
    # oslo.service would let eventlet patch them; in a process of its own, to see it happen.
    code = (
        "import socket, sys, threading, time\n"
        "import wharfinger.objects\n"
        "patched = sys.modules.get('eventlet.patcher')\n"
        "print([name for name in ('thread', 'socket', 'time', 'select', 'os')\n"
        "       if patched and patched.is_monkey_patched(name)])\n"
        "print(threading.current_thread.__module__, time.sleep.__module__)\n"
        "import oslo_service.backend\n"
        "print(oslo_service.backend.get_backend_type().name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "threading time", "THREADING"]
