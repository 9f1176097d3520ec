"""The lock by which only one process at a time works on a driver instance, in a real file."""

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from wharfinger.exceptions import StateError
from wharfinger.reconcile.driver_instance_lock import exclusive


def test_lock_file_has_the_process_id_and_is_empty_afterwards(tmp_path: Path) -> None:
    lock = tmp_path / "gpus.lock"
    with exclusive(tmp_path, "gpus"):
        assert lock.read_text() == str(os.getpid())
    assert lock.read_bytes() == b""
    with pytest.raises(KeyError), exclusive(tmp_path, "gpus"):
        raise KeyError
    assert lock.read_bytes() == b""


def test_held_lock_names_the_process(tmp_path: Path) -> None:
    told = re.escape(f"process {os.getpid()} is at work on driver instance gpus.")
    with exclusive(tmp_path, "gpus"):
        with pytest.raises(StateError, match=rf": {told}") as caught, exclusive(tmp_path, "gpus"):
            pass
        # A failed attempt leaves the process id in the file.
        with pytest.raises(StateError, match=told), exclusive(tmp_path, "gpus"):
            pass
        with exclusive(tmp_path, "fpgas"):
            pass
    assert caught.value.path == str(tmp_path / "gpus.lock")
    assert "Wait until that process has finished" in caught.value.remedy


def test_held_lock_without_a_process_id_names_another_process(tmp_path: Path) -> None:
    """A process takes the lock shortly before it writes its id."""
    with (
        (tmp_path / "gpus.lock").open("wb") as file,
        pytest.raises(StateError, match=": another process is at work on driver instance gpus"),
    ):
        fcntl.flock(file, fcntl.LOCK_EX)
        with exclusive(tmp_path, "gpus"):
            pass


def test_process_id_left_in_the_file_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / "gpus.lock").write_text("1234567890")
    with exclusive(tmp_path, "gpus"):
        assert (tmp_path / "gpus.lock").read_text() == str(os.getpid())


#: A program that takes the lock while no file may grow, and again when files may grow.
WITHOUT_SPACE = """
import resource, sys
from pathlib import Path
from wharfinger.exceptions import StateError
from wharfinger.reconcile.driver_instance_lock import exclusive
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
try:
    with exclusive(Path(sys.argv[1]), "gpus"):
        sys.exit("it holds the lock")
except StateError as error:
    told = error
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
with exclusive(Path(sys.argv[1]), "gpus"):
    print(told)
"""


def test_lock_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPACE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"state in {tmp_path / 'gpus.lock'}: " in done.stdout
    assert "check its free space" in done.stdout


def test_lock_ends_with_its_process_although_a_fork_lives_on(tmp_path: Path) -> None:
    """A process that a driver has forked does not hold the lock."""
    program = """
import os, sys
from pathlib import Path
from wharfinger.reconcile.driver_instance_lock import exclusive
with exclusive(Path(sys.argv[1]), "gpus"):
    if not os.fork():
        print("started", flush=True)
        sys.stdin.read()
        os._exit(0)
    os._exit(0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert process.wait() == 0

        with exclusive(tmp_path, "gpus"):
            process.stdin.close()
            process.stdout.read()  # wait until the fork ends


def test_fork_that_leaves_the_block_does_not_release_the_lock(tmp_path: Path) -> None:
    with exclusive(tmp_path, "gpus"):
        lock = exclusive(tmp_path, "fpgas")
        lock.__enter__()
        child = os.fork()
        if not child:
            code = 1
            try:
                lock.__exit__(None, None, None)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        told = f"process {os.getpid()} is at work"
        with pytest.raises(StateError, match=told), exclusive(tmp_path, "fpgas"):
            pass
        lock.__exit__(None, None, None)
