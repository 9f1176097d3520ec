"""The cost of a driver's answers: calls to the backend, lines of Python, and processor time."""

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from wharfinger.conformance.driver_observer import CallObserver
from wharfinger.conformance.subject import Subject

#: Loops that show how fast the processor is at the moment.
_LOOPS: Final = 50_000


class DriverTime(CallObserver):
    """The processor time of the calls to a driver: of the thread that calls, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_running = False
        self._began = 0.0

    def before(self, method: str) -> None:
        """Note the time."""
        self.is_running = True
        self._began = time.thread_time()

    def after(self, method: str) -> None:
        """Add the time since ``before``."""
        self.is_running = False
        self.seconds += time.thread_time() - self._began


def lines_of(subject: Subject, work: Callable[[], object]) -> int:
    """Return the lines of Python that calls to the driver run, without those of the harness.

    Lines of the framework that the driver calls count, such as those of a tree's methods.
    """
    lines = 0
    others = tuple(_files_of_harness(subject))

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if not driver_time.is_running or frame.f_code.co_filename in others:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    with _observing(subject) as driver_time:
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
    return lines


def processor_time_of(subject: Subject, work: Callable[[], object], runs: int) -> float:
    """Return the processor time that the driver takes for some work, the least of some runs.

    The unit is the time of a fixed loop, since the processor's speed changes while other programs
    run.
    """
    figures, loops = [], []
    with _observing(subject) as time_of_driver, _without_collection():
        for _ in range(runs):
            loops.append(_time_of_loops())
            time_of_driver.seconds = 0.0
            work()
            figures.append(time_of_driver.seconds)
    return min(figures) / min(loops)


def is_quadratic(figures: Sequence[float], most: float, slack: float) -> bool:
    """Return whether the increase of a cost grows faster than that of the things, which doubles."""
    one, two, four = figures
    return four - two > most * max(two - one, 0) + slack


def _files_of_harness(subject: Subject) -> Iterator[str]:
    """Yield the files of the harness that are not also files of the driver."""
    drivers = {_file_of(kind) for kind in subject.kind.__mro__}
    if subject.declared is not None:
        harness = getattr(subject.declared, "kind", type(subject.declared))
        yield from (file for kind in harness.__mro__ if (file := _file_of(kind)) not in drivers)


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or "<unknown>"


@contextmanager
def _observing(subject: Subject) -> Iterator[DriverTime]:
    observer = DriverTime()
    subject.observers.append(observer)
    try:
        yield observer
    finally:
        subject.observers.remove(observer)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Switch garbage collection off in the block: it would take time at random moments."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _time_of_loops() -> float:
    """Return the processor time of a loop now."""
    began = time.thread_time()
    for _ in range(_LOOPS):
        pass
    return time.thread_time() - began
