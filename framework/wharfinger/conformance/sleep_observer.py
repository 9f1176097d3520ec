"""Watch sleeps and changes of shared state in calls to a driver."""

import _signal  # type: ignore[import-not-found]
import _socket
import asyncio
import faulthandler
import os
import random
import re
import resource
import select
import subprocess
import sys
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final

from wharfinger.conformance.backend_frames import BackendFrames
from wharfinger.conformance.process_observer import Misuse, ProcessObserver

#: Seconds that all calls together may sleep. Shorter waits than _NONE do not count.
_MOST: Final = 0.1
_NONE: Final = 0.001
#: Seconds that one call may sleep between its attempts while the backend fails.
_MOST_BETWEEN_ATTEMPTS: Final = 5.0
#: The ids of C functions that only sleep.
_SLEEPS: Final = frozenset(map(id, (time.sleep, _signal.sigtimedwait, _signal.pause)))
#: The ids of functions that read a clock, and how often a call may do that. More is a wait for a
#: moment.
_CLOCKS: Final = frozenset(map(id, (time.monotonic, time.perf_counter, time.time)))
_READINGS: Final = 10_000
#: The names of C functions that only change state that all threads share, by id.
_CHANGES: Final = {
    id(one): f"{one.__module__.lstrip('_')}.{one.__name__}"
    for one in (
        *(os.chdir, os.fchdir, os.nice, os.putenv, os.umask, os.unsetenv),
        *(_signal.setitimer, _signal.signal, _signal.set_wakeup_fd, _socket.setdefaulttimeout),
        *(faulthandler.enable, sys.addaudithook, tracemalloc.start),
        *(resource.setrlimit, sys.setrecursionlimit, sys.setswitchinterval),
    )
}
_WAIT: Final = threading.Condition.wait.__code__
#: The names of Python functions that only change shared state, by code.
_CHANGES_IN_PYTHON: Final = {
    one.__code__: f"{one.__module__}.{one.__name__}"
    for one in (asyncio.set_event_loop_policy, urllib.request.install_opener)
}
_SEED: Final = random.Random.seed.__code__
_START: Final = threading.Thread.start.__code__
_RUN: Final = subprocess.Popen.__init__.__code__
#: The ids of all codes whose calls matter. To hash a code takes long.
_CALLS: Final = frozenset(map(id, (_SEED, _START, _RUN, *_CHANGES_IN_PYTHON)))
#: The generator of random numbers whose methods are the functions of the module.
_GLOBAL: Final = getattr(random.seed, "__self__", None)
#: The command sleep, which only waits.
_PROGRAM: Final = re.compile(r"\bsleep\b")


class SleepObserver:
    """Records too much sleep in driver calls, and changes of state of the whole process."""

    def __init__(
        self, process: ProcessObserver, backend: BackendFrames, may_sleep: frozenset[str]
    ) -> None:
        self._process: Final = process
        self._backend: Final = backend
        self._may_sleep: Final = may_sleep
        self._slept = 0.0
        self._slept_in_call = 0.0
        self._method = ""
        self._since: Final[list[float]] = []
        self._readings = 0
        self.backend_fails = False

    def before(self, method: str) -> None:
        """Watch the function calls of this thread until ``after``."""
        self._method = method
        self._since.clear()
        self._readings = 0
        self._slept_in_call = 0.0
        sys.setprofile(self._profile)

    def after(self, method: str) -> None:
        """Stop watching function calls."""
        sys.setprofile(None)
        self._method = ""

    @contextmanager
    def watching_select(self) -> Iterator[None]:
        """In the block, count calls of select.select without files as sleeps."""
        real = select.select

        @wraps(real)
        def watched(*args: Any) -> Any:
            start = time.monotonic()
            answer = real(*args)
            if not any(args[:3]):
                self._add(start, sys._getframe(1), "select.select")
            return answer

        select.select = watched
        try:
            yield
        finally:
            select.select = real

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            if id(argument) in _SLEEPS:
                self._since.append(time.monotonic())
            elif id(argument) in _CLOCKS:
                self._read_clock(frame)
            elif id(argument) in _CHANGES and not self._backend.is_running(frame):
                self._process.note(Misuse.STATE, f"{_CHANGES[id(argument)]}()", self._method)
        elif event in ("c_return", "c_exception"):
            if id(argument) in _SLEEPS and self._since:
                self._add(self._since.pop(), frame, argument.__qualname__)
        elif (code := frame.f_code) is _WAIT or _is_selector(frame):
            if event == "call":
                self._since.append(time.monotonic())
            elif self._since:
                start = self._since.pop()
                if argument is False or argument == []:  # its time is over
                    self._add(start, frame.f_back, code.co_qualname)
        elif event == "call" and id(code) in _CALLS:
            self._check_call(frame)

    def _check_call(self, frame: FrameType) -> None:
        if frame.f_code is _SEED and frame.f_locals.get("self") is _GLOBAL:
            self._process.note(Misuse.STATE, "the seed of random", self._method)
        elif frame.f_code in _CHANGES_IN_PYTHON and not self._backend.is_running(frame):
            name = _CHANGES_IN_PYTHON[frame.f_code]
            self._process.note(Misuse.STATE, f"{name}()", self._method)
        elif frame.f_code is _START:
            self._process.own_threads.add(frame.f_locals["self"])
        elif frame.f_code is _RUN:
            command = str(frame.f_locals.get("args"))
            if _PROGRAM.search(command) and not (self.backend_fails or self._may_sleep_in(frame)):
                self._process.note(Misuse.SLEEP, command[:80], self._method)

    def _read_clock(self, frame: FrameType) -> None:
        self._readings += 1
        if self._readings == _READINGS and not (self.backend_fails or self._may_sleep_in(frame)):
            self._process.note(Misuse.SLEEP, "it reads the clock again and again", self._method)

    def _add(self, start: float, frame: FrameType | None, what: str) -> None:
        slept = time.monotonic() - start
        if slept < _NONE or frame is None or self._may_sleep_in(frame):
            return
        if self.backend_fails:
            self._slept_in_call += slept
        else:
            self._slept += slept
        if self._slept >= _MOST or self._slept_in_call >= _MOST_BETWEEN_ATTEMPTS:
            where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            self._process.note(Misuse.SLEEP, f"{what} ({where})", self._method)

    def _may_sleep_in(self, frame: FrameType) -> bool:
        if not self._method or self._method in self._may_sleep:
            return True
        return self._backend.is_running(frame)


def _is_selector(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == "select" and code.co_filename.endswith("selectors.py")
