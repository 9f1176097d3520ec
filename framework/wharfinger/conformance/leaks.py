"""Search a driver for leaks of threads, files and memory."""

import ctypes
import gc
import logging
import math
import mmap
import os
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from types import FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Engine, MetaData, Table

from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents
from wharfinger.conformance.rules import can_be_busy
from wharfinger.conformance.side_effects import SHARED_MEMORY, open_files, watching_files
from wharfinger.conformance.subject import Subject, as_contents, describe
from wharfinger.driver import ComputeDriver
from wharfinger.reconcile import driver_instance_loader


class Kind(StrEnum):
    """The resources that a driver can leak."""

    THREADS = "threads or processes"
    FILES = "open files and sockets"
    MEMORY = "bytes of memory"
    #: Memory of C libraries, which tracemalloc does not count.
    FOREIGN = "bytes of memory outside Python's objects"


@dataclass(frozen=True, slots=True)
class _Work:
    name: str
    run: Callable[[], None]
    first_window: int
    #: A resource leaks if it grows in each window until this number of repetitions.
    most: int
    #: Bytes by which memory may grow with each repetition.
    allowed_bytes: int
    kinds: Set[Kind] = frozenset({Kind.THREADS, Kind.FILES, Kind.MEMORY})


#: Seconds for threads to end, and for one kind of work as a whole.
_TO_END: Final = 1.0
_LONGEST: Final = 90.0
#: Repetitions after which a resource that still grows is a leak.
_MOST: Final = {Kind.THREADS: 120, Kind.FILES: 120, Kind.MEMORY: 1200, Kind.FOREIGN: 400}
#: The allowed growth of threads and files with each repetition: a pool may start one at times.
_SLACK: Final = 0.2
#: The allowed growth of foreign memory with each repetition, in bytes. Right drivers need up to
#: 8,000, and not in each window. A harness may need much more when it changes its backend.
_FOREIGN_SLACK: Final = 16_384
#: Below this number of repetitions, a small growth may be a bounded list of past events.
_HISTORY: Final = 300
#: Bytes for each repetition that are too many for such a list. A library may keep large objects.
_MANY: Final = {Kind.MEMORY: 4096, Kind.FOREIGN: math.inf}
#: The most providers about which the driver is asked.
_ASKED: Final = 4
#: If a harness has more objects, the memory of the harness is not subtracted.
_OBJECTS: Final = 200_000
#: Types of objects that refer to nearly all others, so the search of a harness stops there.
_BORDERS: Final = (
    *(type, ModuleType, FunctionType, MethodType, FrameType, TracebackType),
    *(Engine, MetaData, Table),
)
_CACHE: Final = type(cache(lambda: None))
#: The interpreter's bounded cache of attributes keeps each name that a program has put together,
#: as http.server does for each request. The function has another name since Python 3.13.
_clear_type_cache: Final[Callable[[], None]] = (
    getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
)
#: Returns free memory to the system, so that it does not count. Only glibc has it.
_trim: Final[Callable[[int], int]] = getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)
_KNOWN: Final[WeakKeyDictionary[Subject, Mapping[Kind, str]]] = WeakKeyDictionary()


def leaks(subject: Subject) -> Mapping[Kind, str]:
    """Return a sentence about each kind of resource that the driver leaks."""
    if subject not in _KNOWN:
        _KNOWN[subject] = _Search(subject).run()
    return _KNOWN[subject]


class _Search:
    def __init__(self, subject: Subject) -> None:
        self._subject: Final = subject
        self._live: Contents = subject.placement.contents()
        self._mark: str | None = None
        self._found: Final[dict[Kind, str]] = {}
        self._old_caches: Final = _bounded_caches()

    def run(self) -> Mapping[Kind, str]:
        with self._unobserved(), _tracing(), _frozen(), watching_files() as made:
            with self._subject.driver() as driver:
                everything = frozenset(Kind)
                self._repeat(_Work("cycle", lambda: self._cycle(driver), 5, 1200, 16, everything))
                asked = "round of is_clean, programming_scope and current_function"
                self._repeat(_Work(asked, lambda: self._ask(driver), 5, 1200, 16, everything))
                if self._subject.has_harness:
                    fail = partial(self._fail, driver)
                    self._repeat(_Work("failed cycle", fail, 5, 1200, 16, everything))
                if can_be_busy(self._subject):
                    change = partial(self._change, driver)
                    self._repeat(_Work("change of a thing", change, 3, 400, 500))
                if program := self._programming(driver):
                    self._repeat(_Work("programming", program, 2, 16, 3000))
            # The configuration is read each time.
            self._repeat(_Work("new driver instance", self._live_once, 3, 16, 3000))
        if left := sorted(path for path in made if self._is_leftover(Path(path))):
            more = f" and {len(left) - 1} more" * (len(left) > 1)
            self._found.setdefault(Kind.FILES, f"left behind: {left[0]}{more}")
        return self._found

    def _is_leftover(self, path: Path) -> bool:
        shared = (Path(tempfile.gettempdir()), Path.home(), Path.cwd(), SHARED_MEMORY)
        configured = "".join(file.read_text() for file in self._subject.files())
        return (
            path.parent in shared
            and path.exists()
            and path.name != "__pycache__"
            and str(path) not in configured
        )

    @contextmanager
    def _unobserved(self) -> Iterator[None]:
        # Observers and log handlers may keep objects.
        observers, handlers = self._subject.observers, logging.root.handlers
        kept, kept_handlers = [*observers], [*handlers]
        observers.clear()
        handlers[:] = [logging.NullHandler()]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a warning may be kept with what it is about
                yield
        finally:
            observers[:], handlers[:] = kept, kept_handlers

    # The call sequences.

    def _cycle(self, driver: ComputeDriver) -> None:
        self._live = as_contents(describe(driver, self._live))
        driver.capabilities_as_traits()
        driver.get_problems()
        for provider in self._live.values():
            with suppress(Exception):
                if provider.parent_uuid is None:
                    driver.node_is_available(provider.name)
                else:
                    driver.provider_is_available(provider.uuid, provider.name)
        if driver.capabilities.supports("change_feed"):
            _, self._mark = driver.changed_nodes(self._mark)
        self._forget()

    def _ask(self, driver: ComputeDriver) -> None:
        for provider in [*self._live.values()][:_ASKED]:
            with suppress(Exception):
                if driver.capabilities.supports("cleans_after_release"):
                    driver.is_clean(provider.uuid, datetime.now(UTC))
                if driver.capabilities.supports("programming"):
                    driver.programming_scope(provider.uuid)
                    driver.current_function(provider.uuid)
        self._forget()

    def _programming(self, driver: ComputeDriver) -> Callable[[], None] | None:
        subject = self._subject
        if not (driver.capabilities.supports("programming") and subject.can("image")):
            return None
        thing = next((one for one in subject.harness.things() if one in self._live), None)
        if thing is None:
            return None
        image, function = subject.harness.image(thing)

        def program() -> None:
            with suppress(Exception):
                driver.program(self._live[thing].uuid, image, function)
            self._forget()

        return program

    def _change(self, driver: ComputeDriver) -> None:
        harness = self._subject.harness
        thing = harness.things()[0]
        for change in (harness.make_busy, harness.make_free):
            change(thing)
            self._cycle(driver)

    def _fail(self, driver: ComputeDriver) -> None:
        self._subject.harness.expect(None, Fault.RAISE)
        with suppress(Exception):
            driver.get_available_nodes(refresh=True)
        if driver.capabilities.supports("change_feed"):
            with suppress(Exception):
                driver.changed_nodes(self._mark)
        self._forget()

    def _live_once(self) -> None:
        driver = self._subject.load().driver
        with driver_instance_loader.connected(driver):
            describe(driver, self._live)
        self._forget()

    def _forget(self) -> None:
        if self._subject.has_harness:
            self._subject.harness.expect()

    # The measurements.

    def _repeat(self, work: _Work) -> None:
        for _ in range(work.first_window):
            work.run()
        start, done, window = time.monotonic(), 0, work.first_window
        growing = work.kinds - self._found.keys()
        first, before = self._measure({}), self._measure({})
        # The figures need memory, too. From now on, each measurement is made beside two older ones.
        before = self._measure({})
        while growing:
            for _ in range(window):
                work.run()
            done += window
            after = self._measure(before)
            slack = {Kind.MEMORY: work.allowed_bytes, Kind.FOREIGN: _FOREIGN_SLACK}
            growing = {
                kind
                for kind in growing
                if after[kind] > before[kind] + slack.get(kind, _SLACK) * window
            }
            is_late = time.monotonic() > start + _LONGEST
            for kind in [one for one in growing if is_late or done >= min(work.most, _MOST[one])]:
                growing.remove(kind)
                each = (after[kind] - first[kind]) / done
                if not is_late or done >= _HISTORY or each > _MANY.get(kind, 0):
                    self._found[kind] = self._message(kind, each, work, done)
            before, window = after, min(2 * window, 8 * work.first_window)

    def _message(self, kind: Kind, each: float, work: _Work, times: int) -> str:
        where = f", most of it from {self._source()}" if kind is Kind.MEMORY else ""
        return f"{each:.3g} {kind} more after each {work.name}, {times} times{where}"

    def _source(self) -> str:
        statistics = tracemalloc.take_snapshot().statistics("lineno")
        frame = statistics[0].traceback[0]
        return f"{Path(frame.filename).name}:{frame.lineno}"

    def _measure(self, before: Mapping[Kind, float]) -> dict[Kind, float]:
        for one in (*self._old_caches, *_bounded_caches()):
            one.cache_clear()
        _clear_type_cache()
        gc.collect()
        _trim(0)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
        traced = tracemalloc.get_traced_memory()[0]
        return {
            Kind.MEMORY: traced - self._bytes_of_harness(),
            Kind.FOREIGN: resident - traced - tracemalloc.get_tracemalloc_memory(),
            Kind.THREADS: _read_until_at_most(_threads, before.get(Kind.THREADS)),
            Kind.FILES: _read_until_at_most(open_files, before.get(Kind.FILES)),
        }

    def _bytes_of_harness(self) -> int:
        harness = getattr(self._subject.declared, "_harness", self._subject.declared)
        if harness is None:
            return 0
        seen: dict[int, Any] = {id(self._subject.placement): None}
        waiting: list[Any] = [harness, vars(harness)]
        size = 0
        while waiting:
            one = waiting.pop()
            if id(one) not in seen and not isinstance(one, _BORDERS):
                seen[id(one)] = one
                size += sys.getsizeof(one)
                waiting += gc.get_referents(one)
                if len(seen) > _OBJECTS:
                    return 0
        return size


@contextmanager
def _tracing() -> Iterator[None]:
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()


@contextmanager
def _frozen() -> Iterator[None]:
    # Collections are faster without the present objects.
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _bounded_caches() -> list[Any]:
    return [
        one
        for one in gc.get_objects()
        if type(one) is _CACHE and one.cache_parameters()["maxsize"] is not None
    ]


def _threads() -> int:
    tasks = Path("/proc/self/task")
    threads = os.listdir(tasks)  # noqa: PTH208 - names alone, and quickly
    children = 0
    for one in threads:
        with suppress(OSError):  # the thread has ended
            children += len((tasks / one / "children").read_text().split())
    return len(threads) + children


def _read_until_at_most(read: Callable[[], int], most: float | None) -> int:
    deadline = time.monotonic() + _TO_END
    while (count := read()) > (count if most is None else most):
        if time.monotonic() > deadline:
            break
        threading.Event().wait(0.02)
    return count
