"""Files of the state directory, on a real file system."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from wharfinger import private_files
from wharfinger.exceptions import StateError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o277])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_umask")
def test_make_file_with_any_umask_has_mode_0600(tmp_path: Path) -> None:
    private_files.make_file(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o600


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o600), (0o444, 0o400), (0o600, 0o600)])
def test_make_file_readable_by_others_loses_only_these_permissions(
    tmp_path: Path, before: int, after: int
) -> None:
    path = tmp_path / "old"
    path.write_text("it")
    path.chmod(before)
    private_files.make_file(path)
    assert (mode(path), path.read_text()) == (after, "it")


def make_link(path: Path) -> None:
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (make_link, "symbolic link"),
        (os.mkfifo, "not a regular file"),
        (Path.mkdir, "not a regular file"),
    ],
)
@pytest.mark.parametrize(
    "use", [private_files.make_file, private_files.make_database, private_files.open_file]
)
def test_file_that_is_no_regular_file_is_refused(
    tmp_path: Path, use: Callable[[Path], object], make: Callable[[Path], None], told: str
) -> None:
    make(tmp_path / "it")
    with pytest.raises(StateError, match=f"{tmp_path}/it: the path is .*{told}"):
        use(tmp_path / "it")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "use", [private_files.make_file, private_files.make_database, private_files.open_file]
)
def test_file_that_is_a_hard_link_is_refused_and_kept(
    tmp_path: Path, use: Callable[[Path], object]
) -> None:
    (tmp_path / "elsewhere").write_text("42")
    (tmp_path / "elsewhere").chmod(0o644)
    (tmp_path / "it").hardlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match=f"{tmp_path}/it: the path is a hard link"):
        use(tmp_path / "it")
    assert mode(tmp_path / "elsewhere") == 0o644


def test_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "it").touch()
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    with pytest.raises(StateError, match=f"the file belongs to user {owner}.*Run as that user"):
        private_files.make_file(tmp_path / "it")


def test_make_directory_creates_private_parents_and_keeps_existing_ones(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        private_files.make_directory(tmp_path / "there" / "a" / "b")
        private_files.make_directory(tmp_path / "there" / "a" / "b")
    finally:
        os.umask(before)
    modes = [mode(tmp_path / part) for part in ("there", "there/a", "there/a/b")]
    assert modes == [0o755, 0o700, 0o700]


def test_make_database_keeps_sqlites_extra_files_private(tmp_path: Path) -> None:
    path = tmp_path / "db"
    before = os.umask(0)
    try:
        private_files.make_database(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE t (c)")
            modes = {one.name: mode(one) for one in tmp_path.iterdir()}
            for one in tmp_path.iterdir():
                one.chmod(0o666)  # older versions created files with this mode
            private_files.make_database(path)
            tightened = {one.name: mode(one) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == tightened == dict.fromkeys(("db", "db-shm", "db-wal"), 0o600)


def test_make_database_whose_extra_files_sqlite_deletes_meanwhile_creates_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite deletes them when the last process closes the database."""
    path, open_ = tmp_path / "db", os.open
    names = ("db-wal", "db-shm")
    for name in names:
        (tmp_path / name).touch()

    def deleted_first(opened: Path, flags: int, mode: int = 0o777) -> int:
        if opened.name in names:
            opened.unlink(missing_ok=True)
        return open_(opened, flags, mode)

    monkeypatch.setattr(os, "open", deleted_first)
    private_files.make_database(path)
    assert [one.name for one in tmp_path.iterdir()] == ["db"]


#: A program that tries to lock a database while this process writes to it.
TAKE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0)
try:
    connection.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_make_database_that_is_being_written_keeps_its_locks(tmp_path: Path, journal: str) -> None:
    """Closing a file of a database would release all locks that the process has on it."""
    path = tmp_path / "db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("CREATE TABLE t (c)")
        connection.execute("BEGIN IMMEDIATE")
        private_files.make_database(path)
        other = subprocess.run(
            [sys.executable, "-c", TAKE, str(path)], capture_output=True, text=True, check=False
        )
    assert "database is locked" in other.stderr
