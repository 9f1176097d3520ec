"""The schema after an upgrade, from nothing or from any version, is the schema of the code."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional.db import elsewhere
from tests.functional.db.databases import Place, upgrade
from tests.lab.mariadb import MariaDB
from tests.lab.oldest import PROCESSES
from tests.lab.postgresql import PostgreSQL
from wharfinger.db.migrations import versions
from wharfinger.exceptions import StateError

REVISIONS = sorted(
    file.name[:4] for file in Path(versions.__path__[0]).iterdir() if file.name[0].isdigit()
)
#: Alembic's own table.
ALEMBIC = "alembic_version"


def columns(place: Place) -> dict[tuple[str, str], bool]:
    """Return whether each column may be left out of a new row, by table and name."""
    return {
        (table, column["name"]): column["nullable"] or column["default"] is not None
        for (_, table), some in sa.inspect(place.engine).get_multi_columns().items()
        for column in some
    }


@pytest.mark.parametrize("revision", [None, *REVISIONS])
def test_upgrade_of_each_version_gives_the_schema_of_the_code(
    place: Place, revision: str | None
) -> None:
    if revision is not None:
        place.upgrade(revision)
    upgrade(place.url, place.directory)
    assert place.differences() == []
    assert place.open().db.schema().is_head


def test_second_upgrade_writes_nothing(place: Place) -> None:
    place.upgrade()
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        upgrade(place.url, place.directory)
        place.upgrade()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)

    assert statements
    assert not [one for one in statements if elsewhere.is_change(one)]


def test_names_that_differ_in_case_or_accents_differ_on_mariadb(on_mariadb: Place) -> None:
    on_mariadb.upgrade()
    found = on_mariadb.rows(
        "information_schema.columns WHERE table_schema = DATABASE() AND collation_name IS NOT NULL"
    )
    collations = {
        (one["TABLE_NAME"], one["COLUMN_NAME"]): one["COLLATION_NAME"]
        for one in found
        if one["TABLE_NAME"] != ALEMBIC
    }
    assert collations[("services", "host")] == "utf8mb4_bin"
    assert set(collations.values()) == {"utf8mb4_bin"}


@pytest.mark.parametrize("place", ["file", "on_postgresql", "on_mariadb"], indirect=True)
def test_upgrades_of_an_empty_database_by_two_processes_at_once_succeed(place: Place) -> None:
    barrier = PROCESSES.Barrier(2)
    processes = [
        PROCESSES.Process(
            target=elsewhere.upgrade_together, args=(barrier, place.url, place.directory)
        )
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0]
    assert place.differences() == []
    assert place.rows(ALEMBIC) == [{"version_num": REVISIONS[-1]}]


def test_upgrade_without_its_lock_changes_nothing(on_mariadb: Place) -> None:
    def refuse(
        _connection: object, _cursor: object, statement: str, parameters: object, *_: object
    ) -> tuple[str, object]:
        return "SELECT NULL" if "GET_LOCK" in statement else statement, parameters

    sa.event.listen(sa.Engine, "before_cursor_execute", refuse, retval=True)
    try:
        with pytest.raises(StateError, match="Wait until the other upgrade ends"):
            upgrade(on_mariadb.url, on_mariadb.directory)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", refuse)
    assert not on_mariadb.columns()


def test_upgrades_of_several_databases_in_threads_succeed(
    postgresql: PostgreSQL, mariadb: MariaDB, tmp_path: Path
) -> None:
    urls = [
        *(server.create_database() for server in (postgresql, mariadb)),
        *(f"sqlite:///{tmp_path / name}" for name in ("one", "other")),
    ]
    with ThreadPoolExecutor(len(urls)) as pool:
        list(pool.map(upgrade, urls, [tmp_path] * len(urls)))

    for url in urls:
        with Place(url, tmp_path) as place:
            assert place.differences() == []


def test_columns_of_later_versions_may_be_left_out_by_older_code(file: Place) -> None:
    first, second, *later = REVISIONS
    assert (first, second) == ("0001", "0002")
    file.upgrade(second)
    for revision in later:
        before = columns(file)
        file.upgrade(revision)
        after = columns(file)

        assert before.keys() <= after.keys(), f"{revision} takes away"
        tables = {table for table, _ in before}
        for table, name in after.keys() - before.keys():
            if table in tables:
                assert after[table, name], f"{revision} has older code fail for {table}.{name}"
