"""The store of provider records, on a real file."""

import fcntl
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from wharfinger.exceptions import StateError
from wharfinger.objects.provider_records import LocalProviderRecords


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalProviderRecords]:
    store = LocalProviderRecords(tmp_path)
    yield store
    store.close()


def stored(path: Path, instance: str) -> dict[str, bytes]:
    """What another process would find."""
    other = LocalProviderRecords(path)
    try:
        return dict(other.load(instance))
    finally:
        other.close()


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path / "wharfinger.sqlite")
    with connection:
        connection.execute(statement)
    connection.close()


def test_a_new_store_is_empty_and_makes_its_directory(tmp_path: Path) -> None:
    assert stored(tmp_path / "deep" / "down", "gpus") == {}


def test_what_was_saved_is_there_for_the_next_process(
    store: LocalProviderRecords, tmp_path: Path
) -> None:
    store.save("gpus", {"a": b"{}", "b": b"\x00\xff"})
    assert store.load("gpus") == stored(tmp_path, "gpus") == {"a": b"{}", "b": b"\x00\xff"}


def test_a_later_document_takes_the_place_of_an_earlier_one(store: LocalProviderRecords) -> None:
    store.save("gpus", {"a": b"1", "b": b"1"})
    store.save("gpus", {"a": b"2"})
    assert store.load("gpus") == {"a": b"2", "b": b"1"}


def test_none_forgets_what_is_there_or_not(store: LocalProviderRecords) -> None:
    store.save("gpus", {"a": b"1", "b": b"1"})
    store.save("gpus", {"a": None, "c": None})
    assert store.load("gpus") == {"b": b"1"}


def test_instances_know_nothing_of_each_other(store: LocalProviderRecords) -> None:
    store.save("gpus", {"a": b"1"})
    store.save("fpgas", {"a": b"2"})
    store.save("gpus", {"a": None})
    assert store.load("gpus") == {}
    assert store.load("fpgas") == {"a": b"2"}


def test_a_fleet_is_saved_and_forgotten_at_once(store: LocalProviderRecords) -> None:
    store.save("metal", {str(number): b"1" for number in range(1201)})
    assert len(store.load("metal")) == 1201
    store.save("metal", {str(number): None for number in range(1201)})
    assert store.load("metal") == {}


def test_nothing_is_saved_where_not_everything_can_be(
    store: LocalProviderRecords, tmp_path: Path
) -> None:
    store.save("gpus", {"a": b"1", "b": b"1"})
    execute(
        tmp_path,
        "CREATE TRIGGER refuse BEFORE DELETE ON provider_records "
        "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END",
    )
    with pytest.raises(StateError, match="the disk is on fire"):
        store.save("gpus", {"a": b"2", "b": None})
    assert store.load("gpus") == {"a": b"1", "b": b"1"}


def test_several_may_write_at_once(store: LocalProviderRecords, tmp_path: Path) -> None:
    other = LocalProviderRecords(tmp_path)

    def write(one: LocalProviderRecords, name: str) -> None:
        for number in range(20):
            one.save(name, {str(number): b"1"})

    threads = [
        threading.Thread(target=write, args=(one, name))
        for one, name in ((store, "a"), (store, "b"), (other, "c"), (other, "d"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert [len(store.load(name)) for name in "abcd"] == [20, 20, 20, 20]


def test_a_database_of_a_newer_version_is_refused(
    store: LocalProviderRecords, tmp_path: Path
) -> None:
    execute(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StateError, match="written by a newer version") as caught:
        LocalProviderRecords(tmp_path)
    assert caught.value.path == str(tmp_path / "wharfinger.sqlite")
    # Not "move the directory away": the embedded Placement is in it, too.
    assert caught.value.remedy == "Run that version."


def test_a_directory_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(StateError, match="Check that state_path can be written") as caught:
        LocalProviderRecords(in_the_way / "state")
    assert str(in_the_way) in caught.value.path


def test_a_file_that_is_no_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "wharfinger.sqlite").write_bytes(b"no database, " * 100)
    with pytest.raises(StateError, match="not a database") as caught:
        LocalProviderRecords(tmp_path)
    assert caught.value.path == str(tmp_path / "wharfinger.sqlite")


# One process at a time.


def test_a_lock_has_the_number_of_its_process_and_nothing_afterwards(
    store: LocalProviderRecords, tmp_path: Path
) -> None:
    lock = tmp_path / "gpus.lock"
    with store.exclusive("gpus"):
        assert lock.read_text() == str(os.getpid())
    assert lock.read_bytes() == b""
    with pytest.raises(KeyError), store.exclusive("gpus"):
        raise KeyError
    assert lock.read_bytes() == b""


def test_who_finds_a_lock_held_says_by_whom(store: LocalProviderRecords, tmp_path: Path) -> None:
    told = re.escape(f"process {os.getpid()} is at work on driver instance gpus.")
    with store.exclusive("gpus"):
        with pytest.raises(StateError, match=rf": {told}") as caught, store.exclusive("gpus"):
            pass
        # The number stays for the next one who asks.
        with pytest.raises(StateError, match=told), store.exclusive("gpus"):
            pass
        with store.exclusive("fpgas"):
            pass
    assert caught.value.path == str(tmp_path / "gpus.lock")
    assert "Wait until it is done" in caught.value.remedy


def test_who_finds_a_lock_held_and_no_number_says_another_process(
    store: LocalProviderRecords, tmp_path: Path
) -> None:
    """Between taking the lock and writing its number, a process is nobody yet."""
    with (
        (tmp_path / "gpus.lock").open("wb") as file,
        pytest.raises(StateError, match=": another process is at work on driver instance gpus"),
    ):
        fcntl.flock(file, fcntl.LOCK_EX)
        with store.exclusive("gpus"):
            pass


def test_a_number_that_was_left_behind_locks_nobody_out(
    store: LocalProviderRecords, tmp_path: Path
) -> None:
    (tmp_path / "gpus.lock").write_text("1234567890")
    with store.exclusive("gpus"):
        assert (tmp_path / "gpus.lock").read_text() == str(os.getpid())


#: Takes the lock where no file may grow, and then where files may again.
WITHOUT_SPACE = """
import resource, sys
from pathlib import Path
from wharfinger.exceptions import StateError
from wharfinger.objects.provider_records import LocalProviderRecords
records = LocalProviderRecords(Path(sys.argv[1]))
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
try:
    with records.exclusive("gpus"):
        sys.exit("it holds the lock")
except StateError as error:
    told = error
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
with records.exclusive("gpus"):
    print(told)
"""


def test_a_lock_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPACE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"state in {tmp_path / 'gpus.lock'}: " in done.stdout
    assert "see that it has space" in done.stdout
