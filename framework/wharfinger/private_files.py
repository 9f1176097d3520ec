"""Files and directories of the state directory: private, and never those of another user.

Another user may have put a link or a file in place of ours. So this module follows no link, and
changes a mode only through the descriptor that it has checked.
"""

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
    """Make a directory, and its missing parents, with mode 0700.

    An existing one stays as it is. Raises OSError.
    """
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file with mode 0600, or check an existing file and make it private.

    Raises OSError. Raises StateError if the file is a link, symbolic or hard, no regular file, or
    owned by another user.
    """
    with _making:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, _MODE)
        except FileExistsError:
            _check_existing(path)
            return
        try:
            os.fchmod(descriptor, _MODE)  # whatever the umask is
        finally:
            os.close(descriptor)


def make_database(path: Path) -> None:
    """Do the same for a SQLite database, and check the existing files of SQLite beside it.

    SQLite creates new files beside it with the mode of the database, and deletes them when the last
    process closes it. So a file beside it that is gone meanwhile is no error, and none is created.
    Raises StateError, OSError.
    """
    make_file(path)
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            _check_existing(path.with_name(f"{path.name}{suffix}"))


def open_file(path: Path) -> int:
    """Open a file to read and write, with mode 0600 if it is new; return its descriptor.

    Its content stays. Raises the same errors as ``make_file``.
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
    # To close an opened file would release the locks that SQLite has on it in this process.
    # O_PATH does not open it.
    descriptor = os.open(path, os.O_PATH | _SAFE)
    try:
        _check(path, descriptor)
    finally:
        os.close(descriptor)


def _check(path: Path, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        is_link = stat.S_ISLNK(found.st_mode)
        problem = "it is a symbolic link." if is_link else "it is no regular file."
        raise StateError(
            path=str(path),
            problem=problem,
            remedy="Move it away, or name another place.",
        )
    if found.st_uid != os.geteuid():
        raise StateError(
            path=str(path),
            problem=f"it belongs to user {found.st_uid}, and this runs as user {os.geteuid()}.",
            remedy="Run as the user that owns the state directory.",
        )
    if found.st_nlink > 1:
        raise StateError(
            path=str(path),
            problem="it is a hard link: the file has another name too.",
            remedy="Replace it with a copy, or name another place.",
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & ~_MODE:  # as older versions made it
        Path(f"/proc/self/fd/{descriptor}").chmod(mode & _MODE)
