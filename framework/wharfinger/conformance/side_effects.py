"""What some code does besides what it answers: to files, to the network, to the process."""

import locale
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

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
    threads, state = {*threading.enumerate()}, _state()
    _WATCHES.append(watch)
    try:
        yield watch.seen
    finally:
        _WATCHES.remove(watch)
        after = _state()
        watch.seen += [f"{what} changed" for what in state if after[what] != state[what]]
        started = {*threading.enumerate()} - threads
        watch.seen += sorted(f"thread {one.name} started" for one in started)


def open_files() -> int:
    """How many files and sockets this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone, and quickly


def _note(event: str, arguments: tuple[Any, ...], watches: list[_Watch] = _WATCHES) -> None:
    # The default outlives this module's names, as the hook does when the process ends.
    for watch in [*watches]:
        watch.note(event, arguments)


def _state() -> dict[str, object]:
    """What all code of a process shares."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "the working directory": os.getcwd(),  # noqa: PTH109
        "the environment": dict(os.environ),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the umask": mask,
        "a signal handler": {
            one: signal.getsignal(one) for one in signal.valid_signals() if one != signal.SIGKILL
        },
    }
