"""Record the side effects of a block of code."""

import _posixshmem  # type: ignore[import-not-found]
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from wharfinger.conformance import process_state

SHARED_MEMORY: Final = Path("/dev/shm")

#: Audit events of calls that act outside the process.
_EVENTS: Final = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.mkdir",
        "os.posix_spawn",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.system",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "sqlite3.connect",
        "subprocess.Popen",
    }
)
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
#: Audit events of calls that make a file or a directory, and the argument that is its path.
_MAKING: Final = {"os.link": 1, "os.mkdir": 0, "os.rename": 1, "os.symlink": 1}


#: The most files that a watch keeps.
_KEPT: Final = 64


class _Watch:
    def __init__(self, note: Callable[[str, tuple[Any, ...]], None]) -> None:
        self._note: Final = note
        #: Threads that ran before the block. Events of these threads do not count.
        self._others = {one.ident for one in threading.enumerate()} - {threading.get_ident()}

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if threading.get_ident() not in self._others:
            self._note(event, arguments)


_WATCHES: Final[list[_Watch]] = []
_HOOKED: Final[list[bool]] = []


@contextmanager
def watching() -> Iterator[list[str]]:
    """Yield a list that gets texts about side effects of the block."""
    seen: list[str] = []

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _mode, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
                seen.append(f"{path} opened for writing")
        elif event in _EVENTS:
            seen.append(f"{event} {' '.join(map(repr, arguments))[:80]}".rstrip())

    threads, state = {*threading.enumerate()}, process_state.snapshot()
    with _noting(note):
        yield seen
        changes = process_state.changes(state, process_state.snapshot())
        seen += [f"{change} changed" for change in changes]
        started = {*threading.enumerate()} - threads
        seen += sorted(f"thread {one.name} started" for one in started)


@contextmanager
def watching_files() -> Iterator[set[str]]:
    """Yield a set of at most 64 paths that the block may have created."""
    made: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        path: object = None
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT:
            path = arguments[0]
        elif event in _MAKING:
            path = arguments[_MAKING[event]]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        if len(made) >= _KEPT:
            made.difference_update([one for one in made if not Path(one).exists()])
        if len(made) < _KEPT:
            made.add(str(Path(os.fsdecode(path)).absolute()))

    with _noting(note), _auditing_shared_memory():
        yield made


@contextmanager
def _auditing_shared_memory() -> Iterator[None]:
    # Python sends no audit event for shm_open.
    shm_open = _posixshmem.shm_open

    def audited(path: str, flags: int, mode: int = 0o777) -> int:
        sys.audit("open", str(SHARED_MEMORY / path.lstrip("/")), None, flags)
        return int(shm_open(path, flags, mode))

    _posixshmem.shm_open = audited
    try:
        yield
    finally:
        _posixshmem.shm_open = shm_open


@contextmanager
def _noting(note: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    if not _HOOKED:
        _HOOKED.append(True)  # Python cannot remove an audit hook
        sys.addaudithook(_note)
    watch = _Watch(note)
    _WATCHES.append(watch)
    try:
        yield
    finally:
        _WATCHES.remove(watch)


def open_files() -> int:
    """Return the number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone, and quickly


def _note(event: str, arguments: tuple[Any, ...], watches: list[_Watch] = _WATCHES) -> None:
    # The hook still runs when the process ends and this module's names are gone.
    for watch in [*watches]:
        watch.note(event, arguments)
