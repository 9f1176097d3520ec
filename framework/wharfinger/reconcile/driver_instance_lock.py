"""Let one process of a host at a time write for a driver instance."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from wharfinger import private_files
from wharfinger.exceptions import StateError

#: Content of our lock files: the id of the process that has the lock.
_NUMBER: Final = re.compile(rb"[0-9]{0,20}\Z")
#: Number of bytes to read in order to recognise our lock files.
_ENOUGH: Final = 21
#: Descriptors of the locks that this process has.
_held: Final[set[int]] = set()


@contextmanager
def exclusive(directory: Path, instance: str) -> Iterator[None]:
    """Hold the lock of a driver instance for a block.

    Raises StateError at once if another process has the lock.
    """
    path = directory / f"{instance}.lock"
    try:
        private_files.make_directory(directory)
        descriptor = private_files.open_file(path)
        try:
            _take(descriptor, path, instance)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise StateError(
            path=str(path),
            problem=f"{error}.",
            remedy="Run as the user that owns the state directory, and check its free space.",
        ) from error
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # not in a process that was forked in the block
            _held.remove(descriptor)
            with suppress(OSError):
                os.truncate(descriptor, 0)  # the id of this process no longer applies
            os.close(descriptor)  # this releases the lock


def _close_in_fork() -> None:
    """Close inherited locks: a forked process may outlive its parent."""
    for descriptor in _held:
        with suppress(OSError):  # a driver may have closed it
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_fork)


def _take(descriptor: int, path: Path, instance: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateError(
            path=str(path),
            problem=f"{_holder(descriptor)} is at work on driver instance {instance}.",
            remedy="Wait until that process has finished. If the process is the agent, stop the "
            "agent.",
        ) from None
    if not _NUMBER.match(os.pread(descriptor, _ENOUGH, 0)):
        raise StateError(
            path=str(path),
            problem=f"driver instance {instance} uses this name for its lock file, but the file "
            "contains something other than a process id.",
            remedy="Move the file away.",
        )
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _holder(descriptor: int) -> str:
    number = os.pread(descriptor, _ENOUGH, 0)
    is_number = number and _NUMBER.match(number)
    return f"process {number.decode()}" if is_number else "another process"
