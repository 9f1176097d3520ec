"""Wharfinger's versioned objects have the wire format of oslo.versionedobjects.

Each class has a twin here: a class of that library with the same name, fields and accepted values.
After the same operations, both have the same primitives.
"""

import json
import warnings
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oslo_utils.versionutils import convert_version_to_tuple

# The library requires eventlet, so the extra "unit" does not contain it.
pytest.importorskip("oslo_versionedobjects")
with warnings.catch_warnings():
    # The library would use eventlet, and warns about it.
    warnings.simplefilter("ignore")
    import oslo_service.backend

    oslo_service.backend.init_backend(oslo_service.backend.BackendType.THREADING)
    import oslo_versionedobjects.base as oslo
    import oslo_versionedobjects.fields as oslo_fields
    from oslo_versionedobjects.exception import TargetBeforeSubobjectExistedException

from tests.unit.objects.kinds import ANYTHING, OURS, objects, of, sorted_changes
from wharfinger.objects import ComputeNode, ComputeNodeList, WharfingerObject
from wharfinger.objects.base import ObjectList, _contained_version, versions_within
from wharfinger.objects.field_base import Dict, List, ListOfObjectsField, ObjectField
from wharfinger.objects.field_base import UnspecifiedDefault as Unspecified

DATA: Final = "wharfinger_object.data"


class _One(oslo_fields.FieldType[Any]):
    """A field of the library for one value, which the field of Wharfinger checks."""

    def __init__(self, field: Any) -> None:
        self.field = field

    def coerce(self, obj: Any, attr: str, value: Any) -> Any:
        return self.field._coerce(obj, attr, value)

    def to_primitive(self, _obj: Any, _attr: str, value: Any) -> Any:
        return self.field.to_primitive(value)


def _theirs(field: Any) -> Any:
    """Return the library's field for a field of Wharfinger."""
    settings = {
        "nullable": field.nullable,
        "default": oslo_fields.UnspecifiedDefault
        if field.default is Unspecified
        else field.default,
    }
    match field:
        case ObjectField():
            return oslo_fields.ObjectField(field.objname, **settings)
        case ListOfObjectsField():
            return oslo_fields.ListOfObjectsField(field.objname, **settings)
        case List():
            return oslo_fields.Field(oslo_fields.List(_One(field.element)), **settings)
        case Dict():
            return oslo_fields.Field(oslo_fields.Dict(_One(field.element)), **settings)
    return oslo_fields.Field(_One(field), **settings)


class _Twin(oslo.VersionedObject):
    """An object of the library that omits the fields of later versions."""

    OBJ_SERIAL_NAMESPACE = WharfingerObject.OBJ_SERIAL_NAMESPACE
    OBJ_PROJECT_NAMESPACE = WharfingerObject.OBJ_PROJECT_NAMESPACE

    def obj_make_compatible(self, primitive: dict[str, Any], target_version: str) -> None:
        super().obj_make_compatible(primitive, target_version)
        for step in of(self.obj_name()).HISTORY:
            if convert_version_to_tuple(step.version) > convert_version_to_tuple(target_version):
                for name in step.fields:
                    primitive.pop(name, None)


def _twin(name: str) -> Any:
    """Return the library's class for a class of Wharfinger, and register it."""
    ours: Any = of(name)
    bases = (oslo.ObjectListBase, _Twin) if issubclass(ours, ObjectList) else (_Twin,)
    members = {
        "VERSION": ours.VERSION,
        "fields": {field: _theirs(ours.fields[field]) for field in ours.fields},
        "obj_relationships": ours.obj_relationships,
        "child_versions": getattr(ours, "child_versions", {}),
    }
    return oslo.VersionedObjectRegistry.register(type(name, bases, members))


TWINS: Final = {name: _twin(name) for name in OURS}


def twin_of(one: Any) -> Any:
    """Return the library's object with the values of an object of Wharfinger."""
    twin = TWINS[one.obj_name()]()
    for name in one.fields:
        if one.obj_attr_is_set(name):
            setattr(twin, name, _twin_value(getattr(one, name)))
    twin._changed_fields = set(one._changed_fields)
    return twin


def _twin_value(value: Any) -> Any:
    match value:
        case WharfingerObject():
            return twin_of(value)
        case list():
            return [_twin_value(each) for each in value]
    return value


def primitive(one: Any, *versions: Any) -> Any:
    """Return the primitive of an object after a conversion to JSON, with its changes sorted."""
    return sorted_changes(json.loads(json.dumps(one.obj_to_primitive(*versions))))


MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@given(st.data())
@MANY
def test_primitive_of_every_version_equals_the_librarys(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(OURS)))
    ours = data.draw(objects(name))
    theirs = twin_of(ours)
    for version in [None, *(step.version for step in of(name).HISTORY)]:
        assert primitive(ours, version) == primitive(theirs, version)
        manifest = versions_within(name) | ({name: version} if version else {})
        assert primitive(ours, version, manifest) == primitive(theirs, version, manifest)
        names = data.draw(st.sets(st.sampled_from(sorted(manifest)), min_size=1))
        older = dict.fromkeys(names, "1.0")
        assert primitive(ours, version, older) == primitive(theirs, version, older)


def test_parts_of_a_list_in_a_field_have_the_version_that_the_peer_knows() -> None:
    rack: Any = type(
        "Rack", (WharfingerObject,), {"fields": {"nodes": ListOfObjectsField("ComputeNode")}}
    )
    one = rack(nodes=[ComputeNode(host="host", pci_stats=None)])

    sent = primitive(one, None, {"ComputeNode": "1.0"})

    [node] = sent[DATA]["nodes"]
    assert node["wharfinger_object.version"] == "1.0"
    assert node[DATA] == {"host": "host"}


_VERSIONS = st.builds("1.{}".format, st.integers(0, 12))


@given(_VERSIONS, st.dictionaries(_VERSIONS, _VERSIONS, min_size=1))
@MANY
def test_version_of_a_part_equals_the_librarys(target: str, pairs: dict[str, str]) -> None:
    in_order = sorted(pairs.items(), key=lambda pair: convert_version_to_tuple(pair[0]))
    theirs: list[str] = []
    try:
        ours = _contained_version(target, in_order)
    except LookupError:
        with pytest.raises(TargetBeforeSubobjectExistedException):
            oslo._get_subobject_version(target, in_order, theirs.append)
    else:
        oslo._get_subobject_version(target, in_order, theirs.append)
        assert theirs == ([] if ours is None else [ours])


@given(st.data())
@MANY
def test_primitive_is_read_by_the_library_and_back(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(OURS)))
    ours = data.draw(objects(name))
    there = TWINS[name].obj_from_primitive(ours.obj_to_primitive())
    assert primitive(there) == primitive(ours)
    back = of(name).obj_from_primitive(there.obj_to_primitive())
    assert primitive(back) == primitive(ours)
    assert back.obj_what_changed() == there.obj_what_changed()


@given(st.data())
@MANY
def test_changes_equal_the_librarys(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(OURS)))
    ours = data.draw(objects(name))
    theirs = twin_of(ours)
    for recursive in (False, True):
        names = data.draw(st.none() | st.lists(st.sampled_from(list(ours.fields)), min_size=1))
        for one in (ours, theirs):
            one.obj_reset_changes(names, recursive)
        assert ours._changed_fields == theirs._changed_fields
        assert primitive(ours.obj_clone()) == primitive(ours)
    for one in (ours, theirs):
        one.obj_set_defaults()
    assert primitive(ours)[DATA] == primitive(theirs)[DATA]
    assert ours._changed_fields == theirs._changed_fields


@pytest.mark.parametrize("name", OURS)
def test_field_accepts_what_the_library_accepts_with_our_types(name: str) -> None:
    differing = []
    values = [*ANYTHING.items(), ("None", None), ("a set", {"x"}), ("a pair", ("x",))]
    for field, (what, value) in product(of(name).fields, values):
        results = []
        for one, given_value in ((of(name)(), value), (TWINS[name](), _twin_value(value))):
            try:
                setattr(one, field, given_value)
                results.append(primitive(one)[DATA])
            # The library raises TypeError for a key that is not a text.
            except (ValueError, oslo_fields.KeyTypeError):
                results.append("refused")
        if results[0] != results[1]:
            differing.append((field, what, *results))
    assert not differing


@pytest.mark.parametrize("name", OURS)
def test_versions_within_equal_the_librarys(name: str) -> None:
    assert versions_within(name) == oslo.obj_tree_get_versions(name)


def test_class_of_a_version_equals_the_librarys() -> None:
    for version in ("1.0", "1.1", "1.1.4", "1.2", "0.9", "2.0"):
        results = []
        for find in (
            WharfingerObject.obj_class_from_name,
            oslo.VersionedObject.obj_class_from_name,
        ):
            try:
                results.append(find("ComputeNode", version).__name__)
            except Exception as error:
                results.append(type(error).__name__.replace("Object", ""))
        assert results[0] == results[1], version


def test_list_is_a_sequence_like_the_librarys() -> None:
    nodes = [ComputeNode(host=f"host-{number}") for number in range(3)]
    ours = ComputeNodeList(objects=nodes)
    theirs = twin_of(ours)
    assert primitive(ours[1:]) == primitive(theirs[1:])
    assert ours[-1] is nodes[-1]
    assert nodes[1] in ours
    assert list(ours) == nodes
    assert (len(ours), len(ComputeNodeList())) == (3, 0)
    assert ComputeNodeList().obj_what_changed() == twin_of(ComputeNodeList()).obj_what_changed()


_EDITS: Final[dict[str, Any]] = {
    "append": lambda values: values.append("new"),
    "append a figure": lambda values: values.append(7),
    "extend": lambda values: values.extend(["new", "newer"]),
    "extend by a figure": lambda values: values.extend(["new", 7]),
    "insert": lambda values: values.insert(0, "new"),
    "insert a figure": lambda values: values.insert(0, 7),
    "set": lambda values: values.__setitem__(0, "new"),
    "set a figure": lambda values: values.__setitem__(0, 7),
    "set a part": lambda values: values.__setitem__(slice(0, 1), ["new", "newer"]),
    "set a part to a figure": lambda values: values.__setitem__(slice(0, 1), [7]),
    "add to": lambda values: values.__iadd__(["new"]),
    "add a figure": lambda values: values.__iadd__([7]),
    "remove": lambda values: values.remove("old"),
}


@pytest.mark.parametrize("edit", _EDITS)
def test_list_in_a_field_is_edited_as_in_the_library(edit: str) -> None:
    _assert_same_edit("Service", "owners", ["old"], _EDITS[edit])


_DICT_EDITS: Final[dict[str, Any]] = {
    "set": lambda values: values.__setitem__("new", "x"),
    "set a figure": lambda values: values.__setitem__("new", 7),
    "update": lambda values: values.update({"new": "x"}, newer="y"),
    "update with a figure": lambda values: values.update({"new": "x"}, newer=7),
    "set the default": lambda values: values.setdefault("new", "x"),
    "set a wrong default": lambda values: values.setdefault("new", 7),
    "get": lambda values: values.setdefault("old", "y"),
    "delete": lambda values: values.pop("old"),
    "by a figure": lambda values: values.__setitem__(7, "x"),
}


@pytest.mark.parametrize("edit", _DICT_EDITS)
def test_dict_in_a_field_is_edited_as_in_the_library(edit: str) -> None:
    _assert_same_edit("Flavor", "extra_specs", {"old": "x"}, _DICT_EDITS[edit])


def _assert_same_edit(name: str, field: str, value: Any, edit: Any) -> None:
    results = []
    for one in (of(name)(**{field: value}), TWINS[name](**{field: value})):
        try:
            edit(getattr(one, field))
            refused = False
        except (ValueError, oslo_fields.KeyTypeError):
            refused = True
        results.append((refused, primitive(one)[DATA]))
    assert results[0] == results[1]
