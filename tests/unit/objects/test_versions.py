"""A changed field requires a new version of its object; earlier versions stay unchanged."""

import hashlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from oslo_utils.versionutils import convert_version_to_tuple

from tests.lab import samples
from tests.unit.objects.kinds import OURS, of
from wharfinger.objects import (
    ComputeNodeList,
    HostState,
    InstanceList,
    MigrationList,
    ProviderRecordList,
    ProviderState,
    RecordBatch,
    ReservationList,
    Takeover,
    WharfingerObject,
    field_types,
)
from wharfinger.objects.base import Step, versions_within
from wharfinger.objects.persistence import RowList

#: The version of each object, and the fingerprint of its fields and remotable methods. If a
#: fingerprint differs, raise the object's version with a Step in its HISTORY that describes the
#: change, and make sure that the object can be sent to processes that only know the version before.
FINGERPRINTS = {
    "ComputeNode": "1.1-d1c8286cdb77c4d8b3c489a39e2f337a",
    "ComputeNodeList": "1.3-2d485845514325f35e47cb9fed033785",
    "DeviceJob": "1.0-2b299089c5d6f36d1ab5cb2503f0d49f",
    "DeviceJobList": "1.0-0d52ff782900fea591818dc9b6930e85",
    "Flavor": "1.0-f6f59ffa7afb6df1b5b3138acf1ff640",
    "FlavorList": "1.0-a40767a2cf65407b54eaa4d8a69dac85",
    "HostState": "1.1-7ca58fd1d815d5230ecccad718bf7cd5",
    "Instance": "1.2-b7590e12186b33565e2868f4f370d17f",
    "InstanceList": "1.3-30141ee68484328212247244ae10e9d0",
    "Migration": "1.1-9f929581783bc53444c8f8bead607039",
    "MigrationList": "1.1-9225cb1638178a561eef9117be9d174a",
    "NodeClaim": "1.0-9b32558d7420daa5c4116a1cf2d921ba",
    "PciDevice": "1.0-1057ca7a5212e976344c90d259bb0070",
    "PciDeviceList": "1.0-aaf148e999fd76518c15d2749e1533cf",
    "ProviderRecord": "1.4-27d80d1dd7fe2bed3e75d466a0547569",
    "ProviderRecordList": "1.4-adfe8db7c13d16af884befe2c1430428",
    "ProviderState": "1.1-00621f7ee5d9ff55bd3f4ab051745303",
    "RecordBatch": "1.2-799f0516516f28b66cb79c69a8155ded",
    "Reservation": "1.1-f6b40cb5665beb65043fd47d69e4e7e5",
    "ReservationList": "1.1-55254663d7961028163eb07e4f3a821a",
    "Service": "1.0-25cd5e4aae16f9d24657555c53894511",
    "ServiceList": "1.0-38ce96eb3cd55553c53ad7de3d4e9c0c",
    "Takeover": "1.1-c93a1c47a8c4f4e0ff7cd524dfe39688",
}

LISTS = [name for name in OURS if hasattr(of(name), "child_versions")]


def earlier(kind: type[WharfingerObject]) -> list[str]:
    return [step.version for step in kind.HISTORY[:-1]]


def fingerprint(kind: type[WharfingerObject]) -> str:
    """Return the version, and a digest of the fields and of the remotable methods."""
    parts = (
        {name: _described(field) for name, field in sorted(kind.fields.items())},
        {name: str(inspect.signature(getattr(kind, name))) for name in remotable(kind)},
        _described(getattr(kind, "child_versions", {})),
        _described(kind.obj_relationships),
    )
    digest = hashlib.md5(repr(parts).encode(), usedforsecurity=False).hexdigest()
    return f"{kind.VERSION}-{digest}"


def remotable(kind: type[WharfingerObject]) -> list[str]:
    return [name for name in dir(kind) if getattr(getattr(kind, name), "remotable", False)]


def _described(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {repr(key): _described(value[key]) for key in sorted(value, key=repr)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [_described(each) for each in value]
    if isinstance(value, type):
        return value.__name__
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    return [type(value).__name__, _described(vars(value))]


def test_changed_object_without_a_new_version_is_found() -> None:
    assert {name: fingerprint(of(name)) for name in OURS} == FINGERPRINTS


@pytest.mark.parametrize("name", OURS)
def test_empty_object_can_be_converted_to_every_earlier_version(name: str) -> None:
    for version in earlier(of(name)):
        for manifest in (None, versions_within(name)):
            made = of(name)().obj_to_primitive(version, manifest)
            assert made["wharfinger_object.version"] == version


@pytest.mark.parametrize("name", OURS)
def test_history_describes_each_version(name: str) -> None:
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
    # HISTORY must be in the class itself, and not in a base class.
    assert len(kind.HISTORY) == 1 or "HISTORY" in vars(kind)


#: Host and driver instance of a record.
SCOPE: dict[str, Any] = {"host": "host-1", "driver_instance": "metal"}
#: Values of the fields of records that later versions have added.
LATER_IN_RECORDS: dict[str, Any] = {
    "reserved_since": {"cleaning": 5.5},
    "absence": "{}",
    "undone": "{}",
    "revision": 3,
}
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
    "HostState": lambda: HostState(
        service_disabled=False,
        instances=[samples.claimed(None)],
        records=[samples.record(**SCOPE, **LATER_IN_RECORDS)],
        **{name: [] for name in ("nodes", "migrations", "reservations", "jobs")},
        **{f"{name}_revisions": {} for name in ("node", "instance", "record")},
    ),
    "ProviderState": lambda: ProviderState(
        records=[samples.record(**SCOPE, **LATER_IN_RECORDS)], reservations=[], nodes=[]
    ),
    "RecordBatch": lambda: RecordBatch(
        **SCOPE, records=[samples.record(**SCOPE, **LATER_IN_RECORDS)]
    ),
    "Takeover": lambda: Takeover(**SCOPE, records=[samples.record(**SCOPE, **LATER_IN_RECORDS)]),
    "ProviderRecord": lambda: samples.record(**SCOPE, **LATER_IN_RECORDS),
    "ProviderRecordList": lambda: ProviderRecordList(
        objects=[samples.record(number, **SCOPE, **LATER_IN_RECORDS) for number in range(2)]
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
def test_earlier_version_has_only_its_fields(name: str, version: str) -> None:
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
    # A newer process reads this primitive unchanged.
    back = kind.obj_from_primitive(primitive)
    assert {field for field in kind.fields if back.obj_attr_is_set(field)} == (
        kind.fields.keys() - later
    )


class Crane(WharfingerObject):
    """An object with three versions, which is not registered."""

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.9", "how far it reaches", ("reach",)),
        Step("1.10", "two more", ("load", "owners")),
    )
    fields = {
        "name": field_types.name(),
        "reach": field_types.count(),
        "load": field_types.count(nullable=True),
        "owners": field_types.texts(),
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
def test_later_fields_are_left_out(version: str, has: set[str]) -> None:
    one = Crane(name="crane", reach=3, load=None, owners=[])
    primitive = one.obj_to_primitive(target_version=version)
    assert primitive["wharfinger_object.data"].keys() == has
    assert set(primitive["wharfinger_object.changes"]) == has
    # An object that arrived in an earlier version is sent in that version again.
    one.VERSION = version
    primitive = one.obj_to_primitive()
    assert primitive["wharfinger_object.version"] == version
    assert primitive["wharfinger_object.data"].keys() == has
    assert set(primitive["wharfinger_object.changes"]) == has


def test_each_earlier_version_is_tested() -> None:
    assert FULL.keys() == {name for name in OURS if earlier(of(name))}


@pytest.mark.parametrize(
    ("name", "version"),
    [(name, version) for name in LISTS for version in earlier(of(name))],
)
def test_list_of_an_earlier_version_has_objects_of_its_version(name: str, version: str) -> None:
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
def test_each_version_of_a_list_names_a_version_of_its_objects(name: str) -> None:
    kind: Any = of(name)
    child = of(kind.fields["objects"].objname)
    assert list(kind.child_versions) == [step.version for step in kind.HISTORY]
    # A new version of a list may contain objects of the same version.
    children = list(dict.fromkeys(kind.child_versions.values()))
    assert children == [step.version for step in child.HISTORY]
    if issubclass(kind, RowList):
        assert kind.KIND is child


@pytest.mark.parametrize("name", OURS)
def test_each_version_of_an_object_names_a_version_of_the_object_in_its_field(name: str) -> None:
    kind = of(name)
    for field, pairs in kind.obj_relationships.items():
        child = of(vars(kind.fields[field])["objname"])
        own = [step.version for step in kind.HISTORY]
        assert {version for version, _ in pairs} <= set(own)
        assert pairs[-1][1] == child.VERSION


@pytest.mark.parametrize("name", OURS)
def test_docstring_of_an_object_explains_each_field(name: str) -> None:
    kind = of(name)
    said = set(re.findall(r"``(\w+)``", kind.__doc__ or ""))
    assert kind.fields.keys() <= said
    hinted = {field for each in kind.__mro__ for field in vars(each).get("__annotations__", ())}
    assert kind.fields.keys() <= hinted


#: The module eventlet, and modules that import it.
UNWANTED = ("eventlet", "oslo_messaging", "oslo_service", "oslo_versionedobjects")


def test_import_of_objects_does_not_import_eventlet() -> None:
    # Use another process, because other tests may have imported these modules.
    code = (
        "import sys, wharfinger.objects, wharfinger.objects.remote_objects\n"
        f"print([name for name in {UNWANTED!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]"]
