"""Lists of objects that are created, saved or destroyed together, all of them or none."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.lab.objects import Kept, KeptElsewhere, KeptInFile, statements
from tests.lab.samples import SORTS, Sort, node
from wharfinger.exceptions import ConcurrentSave, FieldUnset, ObjectExists, ObjectNotFound
from wharfinger.objects import ComputeNodeList, Context


@pytest.fixture(params=SORTS)
def sort(request: pytest.FixtureRequest) -> Sort:
    return SORTS[request.param]


@pytest.fixture
def three(context: Context, sort: Sort) -> Any:
    """A list of three stored objects."""
    every = sort.list_of(context, objects=[sort.make(None, number) for number in range(3)])
    every.create()
    return every


def change(sort: Sort, *every: Any) -> None:
    for one in every:
        for name, value in sort.change.items():
            setattr(one, name, value)


def revisions(kept: Kept, sort: Sort) -> list[int]:
    return [row["revision"] for row in kept.rows(sort.table)]


def test_list_is_created_saved_and_destroyed(kept: Kept, sort: Sort, three: Any) -> None:
    found = sort.list_of.get_by_filters(kept.context)
    assert [one.key for one in found] == [one.key for one in three]
    assert [one.revision for one in three] == [1, 1, 1]
    assert not three.obj_what_changed()

    change(sort, three[0], three[2])
    kept.write(sort.table, sort.elsewhere)
    three.save()
    assert revisions(kept, sort) == [2, 1, 2]
    for row, is_changed in zip(kept.rows(sort.table), (True, False, True), strict=True):
        assert (sort.change.items() <= row.items()) is is_changed
        assert sort.elsewhere.items() <= row.items()
    assert not three.obj_what_changed()
    kept.write(sort.table, {"revision": 7}, **{sort.key: three[1].key})
    three.save()  # no object has changed
    assert revisions(kept, sort) == [2, 7, 2]

    kept.write(sort.table, {"revision": 1}, **{sort.key: three[1].key})
    change(sort, three[1])
    three[1].save()  # save one object of the list alone
    assert revisions(kept, sort) == [2, 2, 2]
    three.destroy()
    assert not sort.list_of.get_by_filters(kept.context)
    assert len(kept.rows(sort.table)) == (3 if sort.is_kept else 0)

    for do in ("create", "save", "destroy"):
        getattr(sort.list_of(kept.context), do)()
    assert not sort.list_of.get_by_filters(kept.context)


def test_create_of_a_list_with_an_invalid_object_creates_none(kept: Kept, sort: Sort) -> None:
    every = [sort.make(None, number) for number in (0, 1, 0)]
    with pytest.raises(ObjectExists):
        sort.list_of(kept.context, objects=every).create()
    every = [sort.make(None, number) for number in range(3)]
    lacking = next(name for name in reversed(sort.kind.fields) if name in every[1]._changed_fields)
    delattr(every[1], lacking)
    every[1].obj_reset_changes([lacking])
    with pytest.raises(FieldUnset) as unset:
        sort.list_of(kept.context, objects=every).create()
    assert unset.value.field == lacking
    assert not kept.rows(sort.table)

    sort.make(kept.context, 1).create()
    every = [sort.make(None, number) for number in range(3)]
    with pytest.raises(ObjectExists) as caught:
        sort.list_of(kept.context, objects=every).create()
    assert caught.value.facts["kind"] == sort.kind.obj_name()
    assert len(kept.rows(sort.table)) == 1


def test_list_with_an_object_that_another_process_saved_is_neither_saved_nor_destroyed(
    kept: Kept, sort: Sort, three: Any
) -> None:
    kept.write(sort.table, {"revision": 5}, **{sort.key: three[1].key})
    change(sort, *three)
    for do in (three.save, three.destroy):
        with pytest.raises(ConcurrentSave) as caught:
            do()
        assert list(caught.value.keys) == [three[1].key]
        assert revisions(kept, sort) == [1, 5, 1]
        assert not any(sort.change.items() <= row.items() for row in kept.rows(sort.table))
        assert len(sort.list_of.get_by_filters(kept.context)) == 3
    assert all(one.obj_what_changed() for one in three)


def test_list_with_two_different_copies_of_one_object_is_not_saved(
    kept: Kept, sort: Sort, three: Any
) -> None:
    first, *others = sort.list_of.get_by_filters(kept.context)
    [second, *_] = sort.list_of.get_by_filters(kept.context)
    change(sort, first, *others)
    second.revision += 0  # this copy has another change
    with pytest.raises(ConcurrentSave) as caught:
        sort.list_of(kept.context, objects=[*others, first, second]).save()
    assert list(caught.value.keys) == [first.key]
    assert revisions(kept, sort) == [1, 1, 1]


def test_list_with_a_destroyed_object_is_neither_saved_nor_destroyed(
    kept: Kept, sort: Sort, three: Any
) -> None:
    sort.get(kept.context, three[2].key).destroy()
    change(sort, *three)
    for do in (three.save, three.destroy):
        with pytest.raises(ObjectNotFound) as caught:
            do()
        assert caught.value.facts == {"kind": sort.kind.obj_name(), "key": three[2].key}
        assert revisions(kept, sort)[:2] == [1, 1]
        assert len(sort.list_of.get_by_filters(kept.context)) == 2


def test_object_of_a_list_has_the_new_revision_after_each_act_on_the_list(
    context: Context, sort: Sort
) -> None:
    mine = sort.make(context)
    every = sort.list_of(context, objects=[mine])
    every.create()
    assert mine.revision == 1
    assert not mine.obj_what_changed()
    change(sort, mine)
    every.save()
    assert mine.revision == 2
    mine.destroy()
    assert sort.get(context, mine.key) is None


def test_list_of_hundreds_is_written_with_few_statements(file: KeptInFile) -> None:
    nodes = ComputeNodeList(file.context, objects=[node(None, number) for number in range(400)])
    with statements() as creating:
        nodes.create()
    assert len(creating) == 1
    with statements() as saving:
        nodes.save()
    assert not saving, "nothing has changed"
    for number, one in enumerate(nodes):
        one.vcpus_used = number
        if number % 2:
            one.last_seen = datetime(2031, 5, 1, 10, tzinfo=UTC)
    with statements() as saving:
        nodes.save()
    assert len(saving) <= 4
    with statements() as reading:
        found = ComputeNodeList.get_by_filters(file.context, host="host-1")
    assert len(reading) == 1
    assert [one.vcpus_used for one in found] == list(range(400))
    with statements() as destroying:
        found.destroy()
    assert len(destroying) <= 4


def test_list_is_one_request_to_another_process(elsewhere: KeptElsewhere) -> None:
    nodes = ComputeNodeList(elsewhere.context, objects=[node(None, number) for number in range(9)])
    before = len(elsewhere.server.questions)
    nodes.create()
    for one in nodes:
        one.vcpus_used = 3
    nodes.save()
    nodes.destroy()
    assert len(elsewhere.server.questions) - before == 3
