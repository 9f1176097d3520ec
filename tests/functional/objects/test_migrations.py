"""Migrations: which of them are in progress, and when they were created and changed."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from uuid import uuid4

import pytest

from tests.lab.objects import Kept
from tests.lab.samples import instance, migration, uuid
from wharfinger.exceptions import ConcurrentSave, ObjectExists
from wharfinger.objects import Context, Migration, MigrationList
from wharfinger.objects.migration import IN_PROGRESS, MIGRATION_STATUSES


def in_progress(context: Context, host: str) -> list[str]:
    return [one.uuid for one in MigrationList.get_in_progress_by_host(context, host)]


def test_migrations_in_progress_are_found_at_source_and_destination(context: Context) -> None:
    migration(context, 1, source_compute="a", dest_compute="b").create()
    migration(context, 2, source_compute="b", dest_compute=None).create()
    migration(context, 3, source_compute="c", dest_compute="a").create()
    assert in_progress(context, "a") == [uuid("migration 1"), uuid("migration 3")]
    assert in_progress(context, "b") == [uuid("migration 1"), uuid("migration 2")]
    assert in_progress(context, "A") == []


def test_final_status_is_not_in_progress(context: Context) -> None:
    statuses = list(MIGRATION_STATUSES)
    every = [migration(context, number, status=status) for number, status in enumerate(statuses)]
    MigrationList(context, objects=every).create()
    found = MigrationList.get_in_progress_by_host(context, "host-1")
    assert [one.status for one in found] == list(IN_PROGRESS)
    assert all(one.is_in_progress for one in found)
    assert not found.obj_what_changed()


def test_unknown_status_is_in_progress(kept: Kept) -> None:
    one = migration(kept.context)
    one.create()
    kept.write("migrations", {"status": "parked"}, uuid=one.uuid)
    assert in_progress(kept.context, "host-1") == [one.uuid]


def test_migration_passes_its_statuses_to_the_end(context: Context) -> None:
    one = migration(context)
    one.create()
    for status in ("pre-migrating", "migrating", "post-migrating", "finished", "confirming"):
        one.status = status
        one.save()
        assert in_progress(context, "host-1") == [one.uuid]
    one.status = "confirmed"
    one.save()
    assert in_progress(context, "host-1") == []
    found = Migration.get_by_uuid(context, one.uuid)
    assert found.status == "confirmed"
    with pytest.raises(ValueError):
        found.status = "accepted"


def test_migration_has_times_of_creation_and_save(context: Context) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    one = migration(context)
    one.create()
    one.save()
    one.status = "accepted"
    assert Migration.get_by_uuid(context, one.uuid).updated_at is None, "nothing has changed"
    assert before <= one.created_at <= datetime.now(UTC)
    assert one.updated_at is None
    one.status = "queued"
    one.save()
    assert one.updated_at is not None
    found = Migration.get_by_uuid(context, one.uuid)
    assert (found.created_at, found.updated_at) == (one.created_at, one.updated_at)
    assert one.created_at <= one.updated_at <= datetime.now(UTC)


def move_of_instance(context: Context, number: int, **values: str) -> Migration:
    """Return a new, unsaved move of the instance that all tests here use."""
    return migration(context, number, instance_uuid=uuid("instance 0"), **values)


def test_create_second_move_in_progress_is_refused(kept: Kept) -> None:
    instance(kept.context, host="host-1", node="node-1").create()
    first = move_of_instance(kept.context, 1)
    first.create()

    with pytest.raises(ObjectExists, match="instance in progress") as caught:
        move_of_instance(kept.context, 2).create()

    assert uuid("migration 2") in caught.value.key
    move_of_instance(kept.context, 3, status="failed").create()
    migration(kept.context, 4).create()  # a move of another instance
    first.status = "failed"
    first.save()
    move_of_instance(kept.context, 2).create()
    assert in_progress(kept.context, "host-1") == [uuid("migration 4"), uuid("migration 2")]


@pytest.mark.parametrize("status", ["queued", "parked"])
def test_create_move_beside_a_move_of_a_status_in_progress_is_refused(
    kept: Kept, status: str
) -> None:
    """A status that only a later version knows also means "in progress"."""
    instance(kept.context, host="host-1", node="node-1").create()
    first = move_of_instance(kept.context, 1)
    first.create()
    kept.write("migrations", {"status": status}, uuid=first.uuid)

    with pytest.raises(ObjectExists):
        move_of_instance(kept.context, 2).create()


def test_create_move_of_an_instance_that_is_elsewhere_is_refused(kept: Kept) -> None:
    for number, place in enumerate(
        ({"host": "host-2", "node": "node-1"}, {"host": "host-1", "node": "node-2"}, {})
    ):
        instance(kept.context, number, **place).create()
        with pytest.raises(ConcurrentSave, match=uuid(f"instance {number}")):
            migration(kept.context, number).create()
    assert not in_progress(kept.context, "host-1")


def test_create_several_moves_at_once_stores_exactly_one(context: Context) -> None:
    instance(context, host="host-1", node="node-1").create()
    count = 4
    start = Barrier(count, timeout=60)

    def begin(number: int) -> bool:
        one = move_of_instance(context, number)
        start.wait()
        try:
            one.create()
        except ObjectExists:
            return False
        return True

    with ThreadPoolExecutor(count) as pool:
        for _ in range(3):
            numbers = [uuid4().int for _ in range(count)]
            won = list(pool.map(begin, numbers))

            assert sorted(won) == [False, False, False, True]
            [only] = in_progress(context, "host-1")
            assert only == uuid(f"migration {numbers[won.index(True)]}")
            move = Migration.get_by_uuid(context, only)
            move.status = "failed"
            move.save()
