"""Measure the cost of calls to a driver, and judge its growth."""

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, TypeVar

from wharfinger.conformance.driver_observer import CallObserver
from wharfinger.conformance.subject import Subject

_Result = TypeVar("_Result")

#: Processor times below this are too short to be compared, in units of ``processor_time_of``.
_SHORT: Final = 100.0
#: The most by which the increase of a linear time grows when the things double.
_INCREASE_OF_TIME: Final = 2.6
#: A time that grows by more than this when the things double is not linear; 4 is quadratic.
_GROWTH_OF_TIME: Final = 2.5
#: Iterations of the loop whose time shows how fast the processor is at the moment.
_LOOPS: Final = 50_000


class DriverTime(CallObserver):
    """Adds up the processor time of the calls to a driver, in seconds."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_running = False
        self._began = 0.0

    def before(self, method: str) -> None:
        """Start to measure a call to the driver."""
        self.is_running = True
        self._began = time.thread_time()

    def after(self, method: str) -> None:
        """Stop measuring the call."""
        self.is_running = False
        self.seconds += time.thread_time() - self._began


def lines_of(subject: Subject, work: Callable[[], object]) -> int:
    """Run ``work``; return how many lines of Python its calls to the driver execute."""
    lines = 0
    others = tuple(_files_of_harness(subject))

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if not driver_time.is_running or frame.f_code.co_filename in others:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    with _timing(subject) as driver_time:
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
    return lines


def run_unobserved(subject: Subject, work: Callable[[], _Result]) -> _Result:
    """Run ``work`` without ``subject.process``, a slow observer; return its result."""
    with _timing(subject):
        return work()


def processor_time_of(subject: Subject, work: Callable[[], object], runs: int) -> float:
    """Run ``work`` repeatedly; return the least processor time of its calls to the driver.

    The unit is the time of a fixed loop.
    """
    figures, loops = [], []
    with _timing(subject) as time_of_driver, _without_collection():
        for _ in range(runs):
            loops.append(_time_of_loops())
            time_of_driver.seconds = 0.0
            work()
            figures.append(time_of_driver.seconds)
    return min(figures) / min(loops)


def is_quadratic(figures: Sequence[float], most: float, slack: float) -> bool:
    """Return whether a cost at n, 2n and 4n things grows clearly faster than linearly."""
    one, two, four = figures
    return four - two > most * max(two - one, 0) + slack


def takes_quadratic_time(times: Sequence[float]) -> bool:
    """Return whether processor times grow quadratically while the number of things doubles."""
    last = times[-3:]
    if len(last) < len(range(3)) or last[-1] < _SHORT:
        return False
    return last[-1] > _GROWTH_OF_TIME * last[-2] and is_quadratic(last, _INCREASE_OF_TIME, 0)


def _files_of_harness(subject: Subject) -> Iterator[str]:
    drivers = {_file_of(kind) for kind in subject.kind.__mro__}
    if subject.declared is not None:
        harness = getattr(subject.declared, "kind", type(subject.declared))
        yield from (file for kind in harness.__mro__ if (file := _file_of(kind)) not in drivers)


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or "<unknown>"


@contextmanager
def _timing(subject: Subject) -> Iterator[DriverTime]:
    observer, observers = DriverTime(), subject.observers
    kept = [*observers]
    observers[:] = [*(one for one in kept if one is not subject.process), observer]
    try:
        yield observer
    finally:
        observers[:] = kept


@contextmanager
def _without_collection() -> Iterator[None]:
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _time_of_loops() -> float:
    began = time.thread_time()
    for _ in range(_LOOPS):
        pass
    return time.thread_time() - began
