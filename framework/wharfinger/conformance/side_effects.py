"""What some code does besides what it answers: to files, to the network, to the process."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from wharfinger.conformance import process_state

#: What the interpreter tells of that reaches out of the process.
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
    """What is seen, of all threads but those that there were."""

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
    """What is done meanwhile that reaches out of the process, or stays in it; in words.

    What is done by libraries in C is not seen, unless they tell the interpreter.
    """
    if not _HOOKED:
        _HOOKED.append(True)  # such a hook stays for good
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
    """How many files and sockets this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone, and quickly


def _note(event: str, arguments: tuple[Any, ...], watches: list[_Watch] = _WATCHES) -> None:
    # The default outlives this module's names, as the hook does when the process ends.
    for watch in [*watches]:
        watch.note(event, arguments)
