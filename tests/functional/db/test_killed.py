"""An upgrade that is killed before any of its steps: the next one goes on, and loses nothing."""

import signal
from typing import Any

import sqlalchemy as sa

from tests.functional.db import elsewhere, spine
from tests.functional.db.databases import HOST, Place
from tests.lab.oldest import PROCESSES
from wharfinger.tracker.memory import InstanceMemory


def is_killed_after(place: Place, steps: int) -> bool:
    """Whether an upgrade has more steps to take than that; if so, it has taken as many."""
    process = PROCESSES.Process(
        target=elsewhere.upgrade_until_killed, args=(place.url, place.directory, steps)
    )
    process.start()
    process.join()
    assert process.exitcode in {0, -signal.SIGKILL}
    return process.exitcode != 0


def version(place: Place) -> str | None:
    if not sa.inspect(place.engine).has_table("alembic_version"):
        return None
    found = place.rows("alembic_version")
    return found[0]["version_num"] if found else None


def schema(place: Place) -> dict[str, Any]:
    there = sa.inspect(place.engine)
    return {
        table: ([one["name"] for one in columns], [one["name"] for one in there.get_indexes(table)])
        for (_, table), columns in there.get_multi_columns().items()
    }


def test_an_upgrade_is_completed_however_often_it_is_killed(place: Place) -> None:
    steps, kills, has_records = 1, 0, False
    before = version(place), schema(place)
    while is_killed_after(place, steps):
        kills += 1
        now = version(place), schema(place)
        if now == before:
            steps += 1  # nothing was left of those
            continue
        if place.kind != "mysql":
            assert now[0] != before[0], "a part of a version was left"
        if now[0] == "0001" and not has_records:
            spine.keep(place, "gpus", spine.documents())
            has_records = True
        before, steps = now, 1

    assert kills > 20
    assert place.differences() == []
    assert InstanceMemory(place.open(), HOST, "gpus").records == spine.RECORDS
