"""Creation, save and destruction of each kind of object that has rows, in each store."""

from typing import Any

import pytest

from tests.lab.objects import Kept, KeptElsewhere, remotely
from tests.lab.samples import SORTS, Sort, migration, node, service
from wharfinger.exceptions import (
    ConcurrentSave,
    FieldUnset,
    InvalidObject,
    ObjectError,
    ObjectExists,
    ObjectNotFound,
    RemoteError,
)
from wharfinger.objects import ComputeNode, Context, MigrationList, ServiceList
from wharfinger.objects.field_base import UnspecifiedDefault

#: Fields that ``create`` sets by default.
SAID_BY_CREATE = {"uuid", "revision", "created_at", "since", "started_at", "seen_at"}
#: Fields that ``create`` also sets for one kind of object.
SAID_BY_CREATE_OF = {"Instance": {"updated_at"}}
WITH_UUID = [name for name, sort in SORTS.items() if "uuid" in sort.kind.fields]
WITH_MORE_THAN_A_KEY = [name for name, sort in SORTS.items() if sort.unique]


@pytest.fixture(params=SORTS)
def sort(request: pytest.FixtureRequest) -> Sort:
    return SORTS[request.param]


@pytest.fixture
def created(context: Context, sort: Sort) -> Any:
    one = sort.make(context)
    one.create()
    return one


def data(one: Any) -> Any:
    return one.obj_to_primitive()["wharfinger_object.data"]


def change(sort: Sort, one: Any) -> None:
    for name, value in sort.change.items():
        setattr(one, name, value)


# Create.


def test_created_object_is_read_with_its_values_and_defaults(context: Context, sort: Sort) -> None:
    one = sort.make(context, **sort.change, **sort.elsewhere)
    one.create()
    found = sort.get(context, one.key)
    assert data(found) == data(one)
    assert one.revision == 1
    assert not one.obj_what_changed()
    assert not found.obj_what_changed()
    said = sort.make(None).obj_what_changed() | sort.change.keys() | sort.elsewhere.keys()
    said |= SAID_BY_CREATE | SAID_BY_CREATE_OF.get(sort.kind.obj_name(), set())
    for name in sort.kind.fields.keys() - said:
        assert getattr(found, name) == sort.kind.fields[name].default, name


@pytest.mark.parametrize("sort", WITH_UUID, indirect=True)
def test_created_object_without_a_uuid_gets_one(context: Context, sort: Sort) -> None:
    one, other = sort.make(context, 1), sort.make(context, 2)
    for each in (one, other):
        del each.uuid
        each.create()
    assert one.uuid != other.uuid
    assert sort.get(context, one.uuid).uuid == one.uuid


def test_object_without_a_required_field_is_not_created(kept: Kept, sort: Sort) -> None:
    needed = [
        name
        for name, field in sort.kind.fields.items()
        if field.default is UnspecifiedDefault and name not in SAID_BY_CREATE
    ]
    assert needed
    for name in needed:
        one = sort.make(kept.context)
        delattr(one, name)
        with pytest.raises(FieldUnset) as caught:
            one.create()
        assert caught.value.field == name
        assert name in str(caught.value)
    for do in ("save", "destroy"):  # an object that was never created cannot be saved or destroyed
        with pytest.raises(ObjectError):
            getattr(sort.make(kept.context), do)()
    assert not kept.rows(sort.table)


def test_create_of_an_existing_object_is_refused(kept: Kept, sort: Sort, created: Any) -> None:
    same = sort.make(kept.context)
    with pytest.raises(ObjectExists) as caught:
        same.create()
    assert caught.value.facts["kind"] == sort.kind.obj_name()
    assert created.key in caught.value.key
    assert caught.value.facts["unique"] == sort.kind.UNIQUE
    assert not same.obj_attr_is_set("revision")
    with pytest.raises(ObjectError):
        same.destroy()
    assert kept.row(sort.table)["revision"] == 1
    assert sort.get(kept.context, created.key) is not None


@pytest.mark.parametrize("sort", WITH_MORE_THAN_A_KEY, indirect=True)
def test_unique_values_are_refused_to_a_second_object(kept: Kept, sort: Sort, created: Any) -> None:
    taken = {name: getattr(created, name) for name in sort.unique}
    with pytest.raises(ObjectExists):
        sort.make(kept.context, 2, **taken).create()
    other = sort.make(kept.context, 3)
    other.create()
    for name, value in taken.items():
        setattr(other, name, value)
    with pytest.raises(ObjectExists):
        other.save()
    assert [row["revision"] for row in kept.rows(sort.table)] == [1, 1]


# Save.


def test_save_writes_only_changed_fields(kept: Kept, sort: Sort, created: Any) -> None:
    kept.write(sort.table, sort.elsewhere)
    [(name, value)] = sort.change.items()
    setattr(created, name, value)
    created.save()
    row = kept.row(sort.table)
    assert row[name] == value
    assert {name: row[name] for name in sort.elsewhere} == sort.elsewhere
    assert row["revision"] == created.revision == 2
    assert not created.obj_what_changed()
    kept.write(sort.table, {"revision": 7})
    before = kept.rows(sort.table)
    created.save()
    assert kept.rows(sort.table) == before
    kept.write(sort.table, {"revision": 2})
    [(name, value)] = sort.elsewhere.items()
    setattr(created, name, value)
    sort.list_of(kept.context, objects=[created, created]).save()
    assert (kept.row(sort.table)["revision"], created.revision) == (3, 3)


def test_second_save_from_the_same_revision_is_refused(
    kept: Kept, sort: Sort, created: Any
) -> None:
    one, other = (sort.get(kept.context, created.key) for _ in range(2))
    [(name, value)] = sort.change.items()
    [(theirs, _)] = sort.elsewhere.items()
    setattr(one, name, value)
    one.save()
    setattr(other, theirs, sort.elsewhere[theirs])
    before = kept.rows(sort.table)
    with pytest.raises(ConcurrentSave) as caught:
        other.save()
    assert caught.value.facts["kind"] == sort.kind.obj_name()
    assert list(caught.value.keys) == [created.key]
    assert kept.rows(sort.table) == before
    # The refused object keeps its unsaved changes.
    assert theirs in other.obj_what_changed()
    assert other.revision == 1
    again = sort.get(kept.context, created.key)
    setattr(again, theirs, sort.elsewhere[theirs])
    again.save()
    row = kept.row(sort.table)
    assert (row[name], row["revision"]) == (value, 3)


def test_change_of_the_key_is_refused(kept: Kept, sort: Sort, created: Any) -> None:
    other, third = sort.make(kept.context, 2), sort.make(kept.context, 3)
    other.create()
    third.create()
    before = kept.rows(sort.table)
    setattr(created, sort.key, other.key)
    several = sort.list_of(kept.context, objects=[third, created])
    for destroy in (created.destroy, several.destroy):
        with pytest.raises(InvalidObject):
            destroy()
        assert kept.rows(sort.table) == before
    change(sort, created)
    for save in (created.save, sort.list_of(kept.context, objects=[created]).save):
        with pytest.raises(ObjectError):
            save()
        assert kept.rows(sort.table) == before


# Destroy.


def test_destroyed_object_is_not_found(context: Context, sort: Sort, created: Any) -> None:
    same = sort.get(context, created.key)
    created.destroy()
    assert sort.get(context, created.key) is None
    assert not sort.list_of.get_by_filters(context)
    change(sort, same)
    for late in (same.save, same.destroy, created.destroy):
        with pytest.raises(ObjectNotFound) as caught:
            late()
        assert caught.value.facts == {"kind": sort.kind.obj_name(), "key": created.key}


def test_destroy_of_an_object_that_others_saved_is_refused(
    context: Context, sort: Sort, created: Any
) -> None:
    same = sort.get(context, created.key)
    change(sort, same)
    same.save()
    with pytest.raises(ConcurrentSave):
        created.destroy()
    assert sort.get(context, created.key).revision == 2
    same.destroy()
    assert sort.get(context, created.key) is None


def test_destroyed_object_can_be_created_again_several_times(kept: Kept, sort: Sort) -> None:
    for _ in range(2):
        one = sort.make(kept.context)
        one.create()
        one.destroy()
    sort.make(kept.context).create()
    assert len(sort.list_of.get_by_filters(kept.context)) == 1
    rows = kept.rows(sort.table)
    assert len(rows) == (3 if sort.is_kept else 1)
    if sort.is_kept:
        assert [bool(row["deleted"]) for row in rows] == [True, True, False]
        assert [row["deleted_at"] is None for row in rows] == [False, False, True]


# Lists that are edited in place, and copies.


def test_list_field_that_was_edited_in_place_is_saved_once_with_its_object(
    context: Context,
) -> None:
    service(context, owners=["OWNER_NOVA"]).create()
    found = ServiceList.get_by_filters(context)
    found[0].owners.append("OWNER_CYBORG")
    for _ in range(2):
        found.save()
        assert not found[0].obj_what_changed()
        assert found[0].revision == 2
    assert ServiceList.get_by_filters(context)[0].owners == ["OWNER_NOVA", "OWNER_CYBORG"]


def test_clone_has_the_changes_and_errors_of_its_object(kept: Kept) -> None:
    one = service(kept.context, owners=["OWNER_NOVA"])
    one.create()
    one.owners.append("OWNER_CYBORG")
    clone = one.obj_clone()
    assert clone.obj_what_changed() == {"owners"}
    clone.owners.remove("OWNER_CYBORG")
    assert not clone.obj_what_changed()
    assert one.obj_what_changed() == {"owners"}
    kept.write("services", {"topic": ""})
    clone = ServiceList.get_by_filters(kept.context)[0].obj_clone()
    with pytest.raises(FieldUnset, match="topic cannot be read"):
        _ = clone.topic
    came = ComputeNode.obj_from_primitive(node(None).obj_to_primitive("1.0"))
    assert came.obj_clone().VERSION == "1.0"


@pytest.mark.parametrize("together", [False, True])
def test_create_repeated_after_a_lost_answer_creates_one_object(
    elsewhere: KeptElsewhere, together: bool
) -> None:
    def lost(question: bytes) -> bytes:
        elsewhere.server.send(question)
        raise ConnectionResetError

    one = migration(elsewhere.context)
    del one.uuid
    creating = MigrationList(elsewhere.context, objects=[one]) if together else one
    with remotely(lost), pytest.raises(RemoteError):
        creating.create()
    with pytest.raises(ObjectExists):
        creating.create()
    assert elsewhere.row("migrations")["uuid"] == one.uuid
