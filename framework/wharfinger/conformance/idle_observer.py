"""Find the lines in which calls to a driver wait without reason."""

import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from wharfinger.conformance.backend_frames import BackendFrames

#: Seconds between two looks, and after which a look is too late to say what was between.
_PACE: Final = 0.005
_LATE: Final = 0.02
#: The shortest wait that counts, in seconds.
_LEAST: Final = 0.05
#: The least number of waits in one line, since a single one may be an import.
_TIMES: Final = 2
_LIBRARY: Final = sysconfig.get_path("stdlib")


# Equal to an earlier look if the thread did not run between them.
@dataclass(frozen=True, slots=True)
class _Look:
    call: int
    frame: int
    instruction: int
    processor_time: int
    where: str


class IdleObserver:
    """Finds the lines in which driver calls wait repeatedly while the backend is idle."""

    def __init__(self, backend: BackendFrames, free: Set[str]) -> None:
        #: Whether all waits are ignored.
        self.is_off = False
        self._backend: Final = backend
        self._free: Final = free | {"cleanup_host"}
        #: The ids of the child processes that were there before the driver.
        self._children_before: frozenset[str] = frozenset()
        self._calls = 0
        #: The number of the call in progress, and the ids of its thread in Python and in Linux.
        self._call: tuple[int, int, int] | None = None
        self._waits: Counter[str] = Counter()

    def before(self, method: str) -> None:
        """Watch the calling thread until ``after``, if waits in this method count."""
        self._calls += 1
        if not self.is_off and method not in self._free:
            self._call = self._calls, threading.get_ident(), threading.get_native_id()

    def after(self, method: str) -> None:
        """Stop watching the calling thread."""
        self._call = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Start a thread that looks for waits during the block."""
        tasks = Path("/proc/self/task").iterdir()
        self._children_before = frozenset().union(*map(_children_of, tasks))
        over = threading.Event()
        looking = threading.Thread(target=self._run, args=(over,), name="idle", daemon=True)
        looking.start()
        try:
            yield
        finally:
            over.set()
            looking.join()

    def take(self) -> set[str]:
        """Return the lines with repeated waits, such as "driver.py:12", and forget all waits."""
        waits, self._waits = self._waits, Counter()
        return {where for where, times in waits.items() if times >= _TIMES}

    def _run(self, over: threading.Event) -> None:
        last: _Look | None = None
        idle, then = 0.0, time.monotonic()
        while not over.wait(_PACE):
            look, now = self._look(), time.monotonic()
            if look is not None and look == last and now - then < _LATE:
                idle += now - then
            else:
                if last is not None and idle >= _LEAST:
                    self._waits[last.where] += 1
                idle = 0.0
            last, then = look, now

    def _look(self) -> _Look | None:
        call = self._call
        if call is None:
            return None
        number, ident, native = call
        with suppress(OSError):  # the thread has ended
            task = Path(f"/proc/self/task/{native}")
            is_waiting = (task / "stat").read_text().rpartition(") ")[2].startswith("S")
            ran = int((task / "schedstat").read_text().split()[0])
            frame = sys._current_frames().get(ident)
            if (
                is_waiting
                and frame is not None
                and _children_of(task) <= self._children_before
                and not self._backend.is_answering()
            ):
                return _Look(number, id(frame), frame.f_lasti, ran, _line_of(frame))
        return None


def _children_of(task: Path) -> frozenset[str]:
    with suppress(OSError):
        return frozenset((task / "children").read_text().split())
    return frozenset()


def _line_of(frame: FrameType) -> str:
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith(_LIBRARY):
        caller = caller.f_back
    shown = caller or frame
    return f"{Path(shown.f_code.co_filename).name}:{shown.f_lineno}"
