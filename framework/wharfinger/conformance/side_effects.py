"""Record the side effects of a block of code: on files, the network and the process."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wharfinger.conformance import process_state

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


class _Watch:
    """Records audit events of the present thread and of threads that start later."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._others = {one.ident for one in threading.enumerate()} - {threading.get_ident()}

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if threading.get_ident() in self._others:
            return
        if event == "open":
            path, _mode, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and not isinstance(path, int):
                self.seen.append(f"{path} opened for writing")
        elif event in _EVENTS:
            self.seen.append(f"{event} {' '.join(map(repr, arguments))[:80]}".rstrip())


_WATCHES: Final[list[_Watch]] = []
_HOOKED: Final[list[bool]] = []


@contextmanager
def watching() -> Iterator[list[str]]:
    """Yield a list that gets a text for each side effect of the block.

    Side effects are calls that act outside the process, changes of the process's shared state, and
    started threads. Calls of C libraries are recorded only if they raise audit events.
    """
    if not _HOOKED:
        _HOOKED.append(True)  # Python cannot remove an audit hook
        sys.addaudithook(_note)
    watch = _Watch()
    threads, state = {*threading.enumerate()}, process_state.snapshot()
    _WATCHES.append(watch)
    try:
        yield watch.seen
    finally:
        _WATCHES.remove(watch)
        changes = process_state.changes(state, process_state.snapshot())
        watch.seen += [f"{change} changed" for change in changes]
        started = {*threading.enumerate()} - threads
        watch.seen += sorted(f"thread {one.name} started" for one in started)


def open_files() -> int:
    """Return the number of files and sockets that this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone, and quickly


def _note(event: str, arguments: tuple[Any, ...], watches: list[_Watch] = _WATCHES) -> None:
    # The hook still runs when the process ends and this module's names are gone.
    for watch in [*watches]:
        watch.note(event, arguments)
