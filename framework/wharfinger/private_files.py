"""Create and open private files, and refuse files of other users."""

import contextlib
import os
import stat
import threading
from pathlib import Path
from typing import Final

from wharfinger.exceptions import StateError

_MODE: Final = 0o600
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC
#: Suffixes of the files that SQLite creates beside a database.
_BESIDE: Final = ("-wal", "-shm", "-journal")
_making: Final = threading.Lock()


def make_directory(path: Path) -> None:
    """Create a directory, and its missing parents, with mode 0700; raises OSError."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def make_file(path: Path) -> None:
    """Create an empty private file, or make an existing file private.

    Raises OSError and StateError.
    """
    with _making:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, _MODE)
        except FileExistsError:
            _check_existing(path)
            return
        try:
            os.fchmod(descriptor, _MODE)  # the umask may have removed bits
        finally:
            os.close(descriptor)


def make_database(path: Path) -> None:
    """Create or check the private file of a SQLite database; raises StateError, OSError."""
    make_file(path)
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            _check_existing(path.with_name(f"{path.name}{suffix}"))


def open_file(path: Path) -> int:
    """Open a private file, created if missing; return the descriptor.

    Raises OSError and StateError.
    """
    make_file(path)
    descriptor = os.open(path, os.O_RDWR | _SAFE)
    try:
        _check(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_existing(path: Path) -> None:
    # Closing a file that was opened would release SQLite's locks on it in this process. With
    # O_PATH, the file is not opened.
    descriptor = os.open(path, os.O_PATH | _SAFE)
    try:
        _check(path, descriptor)
    finally:
        os.close(descriptor)


def _check(path: Path, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        is_link = stat.S_ISLNK(found.st_mode)
        problem = "the path is a symbolic link." if is_link else "the path is not a regular file."
        raise StateError(
            path=str(path),
            problem=problem,
            remedy="Move that file or link away, or configure another path.",
        )
    if found.st_uid != os.geteuid():
        raise StateError(
            path=str(path),
            problem=f"the file belongs to user {found.st_uid}, but this process runs as user "
            f"{os.geteuid()}.",
            remedy="Run as that user, or change the owner of the file with chown.",
        )
    if found.st_nlink > 1:
        raise StateError(
            path=str(path),
            problem="the path is a hard link: the file also has another name.",
            remedy="Replace the link by a copy of the file, or configure another path.",
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & ~_MODE:  # older releases created such files
        Path(f"/proc/self/fd/{descriptor}").chmod(mode & _MODE)
