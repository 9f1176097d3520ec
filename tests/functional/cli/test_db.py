"""``wharfinger db``: schema versions, missing columns, and upgrades."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.functional.cli.outcomes import failed
from tests.lab import inprocess
from tests.lab.postgresql import PostgreSQL
from tests.lab.program import Done, Program
from wharfinger.db import migration
from wharfinger.db.tables import METADATA
from wharfinger.sqlite import allow_concurrent_writers

HEAD = "0010"
BEFORE = "0002"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program, whose state directory does not exist yet."""
    program = Program(tmp_path)
    text = program.config.read_text()
    place = f"state_path = {tmp_path}"
    assert place in text
    text = text.replace(place, f"{place}/state").replace("$state_path", str(tmp_path))
    program.config.write_text(text)
    return program


@pytest.fixture
def file(program: Program) -> Path:
    return program.directory / "state" / "wharfinger.sqlite"


@pytest.fixture
def other(program: Program) -> Path:
    """The path of another database, which the configuration names and which does not exist yet."""
    path = program.directory / "other.sqlite"
    is_at(program, f"sqlite:///{path}")
    return path


def is_at(program: Program, url: str) -> None:
    program.config.write_text(f"{program.config.read_text()}\n[database]\nconnection = {url}\n")


@contextmanager
def engine(path: Path) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()


def has_version(path: Path, revision: str = "head") -> None:
    """Upgrade a database file to a schema version, and close it."""
    path.parent.mkdir(exist_ok=True)
    with engine(path) as made:
        allow_concurrent_writers(made)
        migration.upgrade(made, "gpu-host-1", directory=path.parent, revision=revision)


def execute(path: Path, statement: str) -> None:
    with engine(path) as made, made.begin() as connection:
        connection.execute(sa.text(statement))


def is_newer(path: Path) -> None:
    """Give a database file the version of a later release."""
    has_version(path)
    execute(path, "UPDATE alembic_version SET version_num = '9999'")


def db(program: Program, *arguments: str) -> Done:
    done = inprocess.run(program, "db", *arguments)
    assert "Traceback" not in done.err
    return done


def checked(program: Program) -> tuple[int, dict[str, str]]:
    """Run ``db check``; return its exit code and results, and assert that it writes nothing."""
    before = everything(program.directory)
    done = db(program, "check", "-f", "json")
    assert done.err == ""
    assert everything(program.directory) == before
    return done.code, {row["Checked"]: row["Result"] for row in done.json()}


def version(program: Program) -> tuple[str, str | None, str]:
    """Run ``db version``; return its three values, and assert that it writes nothing."""
    before = everything(program.directory)
    done = db(program, "version", "-f", "json")
    assert (done.code, done.err) == (0, "")
    assert everything(program.directory) == before
    data = done.json()
    assert data.keys() == {"database", "current", "newest"}
    return data["database"], data["current"], data["newest"]


def everything(directory: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None for path in directory.rglob("*")
    }


def upgraded(program: Program) -> str:
    done = db(program, "upgrade")
    assert (done.code, done.err) == (0, "")
    return done.out


def is_all_there(path: Path) -> bool:
    with engine(path) as made:
        return migration.schema(made).is_head and not migration.missing(made)


# A missing database.


@pytest.mark.parametrize("place", ["file", "other"])
def test_missing_file_is_created_only_by_upgrade(
    program: Program, place: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(place)

    code, told = checked(program)

    assert code == 2
    text = f"has no tables yet: run `wharfinger db upgrade` for version {HEAD}"
    assert told == {
        str(path): text,
        **dict.fromkeys(METADATA.tables, "does not exist in this form"),
    }
    assert version(program) == (str(path), None, HEAD)
    if place == "other":
        path.touch()
        refused = inprocess.run(program, "service", "list")
        failed(refused, "Run `wharfinger db upgrade`.")
        assert checked(program)[0] == 2
    assert upgraded(program) == f"{path}: created, with version {HEAD}\n"
    assert is_all_there(path)
    assert inprocess.run(program, "service", "list").code == 0
    assert checked(program) == (0, {str(path): f"has version {HEAD}, the newest"})
    assert version(program) == (str(path), HEAD, HEAD)
    assert upgraded(program) == f"{path}: nothing to do: it has version {HEAD}\n"


# A current database.


def test_check_of_a_file_with_another_journal_mode_keeps_the_mode(
    program: Program, file: Path
) -> None:
    has_version(file)
    with engine(file) as made, made.connect() as connection:
        assert connection.scalar(sa.text("PRAGMA journal_mode=DELETE")) == "delete"

    assert checked(program)[0] == 0
    assert version(program)[1] == HEAD


def test_check_of_database_in_use_succeeds(program: Program, file: Path) -> None:
    has_version(file)
    with engine(file) as made, made.connect() as writer:
        writer.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))

        done = db(program, "check")
        assert (done.code, done.err) == (0, "")
        assert db(program, "version").code == 0


# An older database.


def test_check_of_older_database_lists_what_upgrade_adds(program: Program, other: Path) -> None:
    path = other
    has_version(path, BEFORE)

    code, told = checked(program)

    assert code == 2
    assert told == {
        str(path): f"has version {BEFORE}: run `wharfinger db upgrade` for version {HEAD}",
        "compute_nodes": "lacks pci_stats",
        "device_jobs": "does not exist in this form",
        "instances": "lacks claimed_allocations, task_state, updated_at",
        "provider_records": "lacks absence, reserved_since, revision, undone",
        "reservations": "lacks consumer_uuid, own_reserved, phase",
    }
    assert version(program) == (str(path), BEFORE, HEAD)
    assert upgraded(program) == f"{path}: upgraded from version {BEFORE} to {HEAD}\n"
    assert is_all_there(path)
    assert checked(program)[0] == 0


def test_check_of_first_version_lists_all_tables_and_upgrade_moves_them(
    program: Program, file: Path
) -> None:
    has_version(file, "0001")

    code, told = checked(program)

    assert code == 2
    assert set(told) == {str(file), *METADATA.tables}
    assert told["services"] == "does not exist in this form"
    assert upgraded(program) == f"{file}: upgraded from version 0001 to {HEAD}\n"
    assert is_all_there(file)


# A newer database.


def test_newer_database_with_all_needed_columns_is_kept(program: Program, other: Path) -> None:
    is_newer(other)
    execute(other, "ALTER TABLE services ADD COLUMN mood TEXT")
    before = other.read_bytes()

    assert checked(program) == (
        0,
        {
            str(other): f"has version 9999, newer than {HEAD} of this release, "
            "and has all parts that this release uses"
        },
    )
    assert version(program) == (str(other), "9999", HEAD)
    done = f"nothing to do: it has version 9999, newer than {HEAD} of this release"
    assert upgraded(program) == f"{other}: {done}\n"
    assert other.read_bytes() == before
    assert inprocess.run(program, "service", "list").code == 0


def test_newer_database_without_a_needed_column_fails_and_is_kept(
    program: Program, file: Path
) -> None:
    path = file
    is_newer(path)
    execute(path, "ALTER TABLE compute_nodes DROP COLUMN pci_stats")

    code, told = checked(program)

    assert code == 1
    assert told[str(path)].endswith("lacks parts that this release uses: run that newer release")
    assert told["compute_nodes"] == "lacks pci_stats"
    refused = db(program, "upgrade")
    failed(refused, f"state in {path}: it lacks tables or columns that this release needs")
    assert version(program)[1] == "9999"


# A damaged database.


def test_upgrade_of_current_version_without_a_table_fails(program: Program, file: Path) -> None:
    has_version(file)
    execute(file, "ALTER TABLE flavors DROP COLUMN description")
    execute(file, "DROP TABLE instances")

    code, told = checked(program)

    assert code == 1
    assert "restore it from a backup" in told.pop(str(file))
    assert told == {"flavors": "lacks description", "instances": "does not exist in this form"}
    refused = db(program, "upgrade")
    failed(refused, "restore it from a backup")


def test_upgrade_of_another_programs_tables_is_refused(program: Program, other: Path) -> None:
    execute(other, "CREATE TABLE services (id INTEGER, mood TEXT)")

    assert checked(program)[1]["services"].startswith("lacks binary, deleted,")
    refused = db(program, "upgrade")
    failed(refused, f"state in {other}: ", "configure another")


def test_file_that_is_no_database_fails_and_is_kept(program: Program, file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"what is this? " * 1000)

    for verb in ("check", "version", "upgrade"):
        done = db(program, verb)
        failed(done, f"state in {file}: file is not a database.", "Restore it from a backup")
    assert file.read_bytes() == b"what is this? " * 1000


def test_unreachable_database_fails_without_its_password(program: Program) -> None:
    sound = program.config.read_text()
    for url, told in {
        "postgresql+psycopg://me:s3cret@127.0.0.1:1/x": "postgresql+psycopg://me:***@127.0.0.1:1/x",
        "oracle://me:s3cret@127.0.0.1/x": "[database] connection = ***: oracle is not a supported",
    }.items():
        program.config.write_text(sound)
        is_at(program, url)
        for verb in ("check", "version", "upgrade"):
            done = db(program, verb)
            failed(done, told)
            assert "s3cret" not in done.err

    program.config.write_text(sound)
    is_at(program, "sqlite:////nowhere/at/all.sqlite")
    assert (db(program, "check").code, db(program, "version").code) == (2, 0)
    failed(db(program, "upgrade"), "/nowhere/at/all.sqlite")


# A database of a server.


def test_database_of_a_server_is_checked_upgraded_and_used(program: Program, file: Path) -> None:
    with PostgreSQL() as server:
        is_at(program, server.create_database())

        code, told = checked(program)
        assert (code, len(told)) == (2, 1 + len(METADATA.tables))
        assert version(program)[1:] == (None, HEAD)
        assert inprocess.run(program, "node", "list").code == 1

        assert "created, with version" in upgraded(program)

        assert checked(program)[0] == 0
        assert "nothing to do" in upgraded(program)
        assert inprocess.run(program, "node", "list").code == 0
    assert not file.parent.exists()
