"""Upgrades that are killed before any step: the next upgrade completes them and loses nothing."""

import signal
from typing import Any

import sqlalchemy as sa

from tests.functional.db import elsewhere, spine
from tests.functional.db.databases import HOST, Place, upgrade
from tests.lab.cycles import record_store
from tests.lab.drawing import Draw
from tests.lab.oldest import PROCESSES


def is_killed_after(place: Place, steps: int) -> bool:
    """Upgrade and kill the process after ``steps`` steps; return whether it was killed."""
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


def test_upgrade_is_completed_however_often_it_is_killed(place: Place, draw: Draw) -> None:
    assert is_killed_after(place, 2)
    place.upgrade("0001")
    spine.keep(place, "gpus", spine.documents())
    kills = 0
    before = version(place), schema(place)
    # An upgrade through all versions has 38 steps. MariaDB commits after each step.
    for steps in draw(range(1, 16 if place.kind == "mysql" else 34), 2):
        kills += is_killed_after(place, steps)
        now = version(place), schema(place)
        if place.kind != "mysql" and now != before:
            assert now[0] != before[0], f"a part of a version was left after {steps} steps"
        before = now

    upgrade(place.url, place.directory)
    assert kills
    assert place.differences() == []
    assert record_store(place.open(), HOST, "gpus").records == spine.RECORDS
