"""Objects that are created, saved and destroyed together: all of them or none."""

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
    """Three objects that are there, in a list."""
    every = sort.list_of(context, objects=[sort.make(None, number) for number in range(3)])
    every.create()
    return every


def change(sort: Sort, one: Any) -> None:
    for name, value in sort.change.items():
        setattr(one, name, value)


def revisions(kept: Kept, sort: Sort) -> list[int]:
    return [row["revision"] for row in kept.rows(sort.table)]


def test_all_are_created(context: Context, sort: Sort, three: Any) -> None:
    found = sort.list_of.get_by_filters(context)
    assert [one.key for one in found] == [one.key for one in three]
    assert [one.revision for one in three] == [1, 1, 1]
    assert not three.obj_what_changed()


def test_none_is_created_where_one_is_there(kept: Kept, sort: Sort) -> None:
    sort.make(kept.context, 1).create()
    every = [sort.make(None, number) for number in range(3)]
    with pytest.raises(ObjectExists) as caught:
        sort.list_of(kept.context, objects=every).create()
    assert caught.value.facts["kind"] == sort.kind.obj_name()
    assert len(kept.rows(sort.table)) == 1


def test_none_is_created_where_two_are_the_same(kept: Kept, sort: Sort) -> None:
    every = [sort.make(None, number) for number in (0, 1, 0)]
    with pytest.raises(ObjectExists):
        sort.list_of(kept.context, objects=every).create()
    assert not kept.rows(sort.table)


def test_none_is_created_where_one_lacks_something(kept: Kept, sort: Sort) -> None:
    every = [sort.make(None, number) for number in range(3)]
    lacking = next(name for name in reversed(sort.kind.fields) if name in every[1]._changed_fields)
    delattr(every[1], lacking)
    every[1].obj_reset_changes([lacking])
    with pytest.raises(FieldUnset) as caught:
        sort.list_of(kept.context, objects=every).create()
    assert caught.value.field == lacking
    assert not kept.rows(sort.table)


def test_all_are_saved_and_only_those_that_have_changed(kept: Kept, sort: Sort, three: Any) -> None:
    change(sort, three[0])
    change(sort, three[2])
    kept.write(sort.table, sort.elsewhere)
    three.save()
    assert revisions(kept, sort) == [2, 1, 2]
    for row, is_changed in zip(kept.rows(sort.table), (True, False, True), strict=True):
        assert (sort.change.items() <= row.items()) is is_changed
        assert sort.elsewhere.items() <= row.items()
    assert not three.obj_what_changed()


def test_nothing_is_saved_where_nothing_has_changed(kept: Kept, sort: Sort, three: Any) -> None:
    kept.write(sort.table, {"revision": 7})
    three.save()
    assert revisions(kept, sort) == [7, 7, 7]


def test_none_is_saved_where_somebody_else_saved_one(kept: Kept, sort: Sort, three: Any) -> None:
    kept.write(sort.table, {"revision": 5}, **{sort.key: three[1].key})
    for one in three:
        change(sort, one)
    with pytest.raises(ConcurrentSave) as caught:
        three.save()
    assert list(caught.value.keys) == [three[1].key]
    assert revisions(kept, sort) == [1, 5, 1]
    assert not any(sort.change.items() <= row.items() for row in kept.rows(sort.table))
    assert all(one.obj_what_changed() for one in three)


def test_none_is_saved_where_two_copies_of_one_differ(kept: Kept, sort: Sort, three: Any) -> None:
    first, *others = sort.list_of.get_by_filters(kept.context)
    [second, *_] = sort.list_of.get_by_filters(kept.context)
    change(sort, first)
    for one in others:
        change(sort, one)
    second.revision += 0  # a change too, and not the same one
    with pytest.raises(ConcurrentSave) as caught:
        sort.list_of(kept.context, objects=[*others, first, second]).save()
    assert list(caught.value.keys) == [first.key]
    assert revisions(kept, sort) == [1, 1, 1]


def test_none_is_saved_where_one_is_gone(kept: Kept, sort: Sort, three: Any) -> None:
    sort.get(kept.context, three[2].key).destroy()
    for one in three:
        change(sort, one)
    with pytest.raises(ObjectNotFound) as caught:
        three.save()
    assert caught.value.facts == {"kind": sort.kind.obj_name(), "key": three[2].key}
    assert revisions(kept, sort)[:2] == [1, 1]


def test_all_are_destroyed(kept: Kept, sort: Sort, three: Any) -> None:
    three.destroy()
    assert not sort.list_of.get_by_filters(kept.context)
    assert len(kept.rows(sort.table)) == (3 if sort.is_kept else 0)


def test_none_is_destroyed_where_somebody_else_saved_one(
    kept: Kept, sort: Sort, three: Any
) -> None:
    kept.write(sort.table, {"revision": 5}, **{sort.key: three[1].key})
    with pytest.raises(ConcurrentSave) as caught:
        three.destroy()
    assert list(caught.value.keys) == [three[1].key]
    assert len(sort.list_of.get_by_filters(kept.context)) == 3


def test_none_is_destroyed_where_one_is_gone(kept: Kept, sort: Sort, three: Any) -> None:
    sort.get(kept.context, three[0].key).destroy()
    with pytest.raises(ObjectNotFound):
        three.destroy()
    assert len(sort.list_of.get_by_filters(kept.context)) == 2


def test_who_has_an_object_of_the_list_sees_what_became_of_it(context: Context, sort: Sort) -> None:
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


def test_an_object_of_a_list_can_be_saved_by_itself(
    context: Context, sort: Sort, three: Any
) -> None:
    change(sort, three[1])
    three.save()
    for name, value in sort.elsewhere.items():
        setattr(three[1], name, value)
    three[1].save()
    assert sort.get(context, three[1].key).revision == 3


def test_an_empty_list_is_done_with(context: Context, sort: Sort) -> None:
    for do in ("create", "save", "destroy"):
        getattr(sort.list_of(context), do)()
    assert not sort.list_of.get_by_filters(context)


def test_a_thousand_objects_are_few_statements(file: KeptInFile) -> None:
    nodes = ComputeNodeList(file.context, objects=[node(None, number) for number in range(1000)])
    with statements() as creating:
        nodes.create()
    assert len(creating) == 1
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
    assert [one.vcpus_used for one in found] == list(range(1000))
    with statements() as destroying:
        found.destroy()
    assert len(destroying) <= 4


def test_what_has_not_changed_is_no_statement(file: KeptInFile) -> None:
    nodes = ComputeNodeList(file.context, objects=[node(None, number) for number in range(10)])
    nodes.create()
    with statements() as saving:
        nodes.save()
    assert not saving


def test_a_list_is_one_question_to_another_process(elsewhere: KeptElsewhere) -> None:
    nodes = ComputeNodeList(
        elsewhere.context, objects=[node(None, number) for number in range(100)]
    )
    before = len(elsewhere.server.questions)
    nodes.create()
    for one in nodes:
        one.vcpus_used = 3
    nodes.save()
    nodes.destroy()
    assert len(elsewhere.server.questions) - before == 3
