"""Migrations: those in progress, and when they were begun and changed."""

from datetime import UTC, datetime

import pytest

from tests.lab.objects import Kept
from tests.lab.samples import migration, uuid
from wharfinger.objects import Context, Migration, MigrationList
from wharfinger.objects.migration import IN_PROGRESS, MIGRATION_STATUSES


def in_progress(context: Context, host: str) -> list[str]:
    return [one.uuid for one in MigrationList.get_in_progress_by_host(context, host)]


def test_those_in_progress_are_found_at_both_ends(context: Context) -> None:
    migration(context, 1, source_compute="a", dest_compute="b").create()
    migration(context, 2, source_compute="b", dest_compute=None).create()
    migration(context, 3, source_compute="c", dest_compute="a").create()
    assert in_progress(context, "a") == [uuid("migration 1"), uuid("migration 3")]
    assert in_progress(context, "b") == [uuid("migration 1"), uuid("migration 2")]
    assert in_progress(context, "A") == []


def test_what_leads_nowhere_is_over(context: Context) -> None:
    statuses = list(MIGRATION_STATUSES)
    every = [migration(context, number, status=status) for number, status in enumerate(statuses)]
    MigrationList(context, objects=every).create()
    found = MigrationList.get_in_progress_by_host(context, "host-1")
    assert [one.status for one in found] == list(IN_PROGRESS)
    assert all(one.is_in_progress for one in found)
    assert not found.obj_what_changed()


def test_one_whose_status_is_not_known_here_is_not_taken_to_be_over(kept: Kept) -> None:
    one = migration(kept.context)
    one.create()
    kept.write("migrations", {"status": "parked"}, uuid=one.uuid)
    assert in_progress(kept.context, "host-1") == [one.uuid]


def test_a_migration_goes_through_its_statuses_and_ends(context: Context) -> None:
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


def test_a_migration_says_when_it_began_and_when_it_was_saved(context: Context) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    one = migration(context)
    one.create()
    assert before <= one.created_at <= datetime.now(UTC)
    assert one.updated_at is None
    one.status = "queued"
    one.save()
    assert one.updated_at is not None
    found = Migration.get_by_uuid(context, one.uuid)
    assert (found.created_at, found.updated_at) == (one.created_at, one.updated_at)
    assert one.created_at <= one.updated_at <= datetime.now(UTC)


def test_nothing_is_updated_where_nothing_has_changed(context: Context) -> None:
    one = migration(context)
    one.create()
    one.save()
    one.status = "accepted"
    assert Migration.get_by_uuid(context, one.uuid).updated_at is None


def test_one_that_is_begun_elsewhere_keeps_its_beginning(context: Context) -> None:
    begun = datetime(2030, 1, 1, tzinfo=UTC)
    one = migration(context, created_at=begun)
    one.create()
    assert Migration.get_by_uuid(context, one.uuid).created_at == begun
