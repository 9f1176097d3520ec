"""Clocks that the kit sets ahead, in all threads and in modules that were imported before."""

import threading
import time
from calendar import timegm
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from time import monotonic, monotonic_ns, perf_counter, time_ns
from time import time as now

import pytest

from wharfinger.conformance import clock_shift

DAY = 86_400
CLOCKS: dict[str, Callable[[], float]] = {
    "time": now,
    "time_ns": lambda: time_ns() / 10**9,
    "monotonic": monotonic,
    "monotonic_ns": lambda: monotonic_ns() / 10**9,
    "perf_counter": perf_counter,
    "datetime.now": lambda: datetime.now().timestamp(),
    "datetime.now of a zone": lambda: datetime.now(tz=UTC).timestamp(),
    "datetime.utcnow": lambda: datetime.utcnow().replace(tzinfo=UTC).timestamp(),
    "datetime.today": lambda: datetime.today().timestamp(),
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    "clock_gettime_ns": lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) / 10**9,
    "localtime": lambda: time.mktime(time.localtime()),
    "gmtime": lambda: timegm(time.gmtime()),
}


@pytest.fixture
def ahead() -> Iterator[None]:
    clock_shift.advance(DAY)
    yield
    clock_shift.advance(-DAY)


@pytest.mark.filterwarnings("ignore:.*utcnow:DeprecationWarning")
@pytest.mark.parametrize("name", CLOCKS)
def test_advance_of_a_day_moves_each_clock(name: str) -> None:
    clock = CLOCKS[name]
    before = clock()
    clock_shift.advance(DAY)
    moved = clock() - before
    clock_shift.advance(-DAY)

    assert round(moved / DAY, 2) == 1
    assert round((clock() - before) / DAY, 2) == 0


@pytest.mark.usefixtures("ahead")
def test_advance_moves_the_clocks_of_other_threads() -> None:
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(monotonic()))
    thread.start()
    thread.join()

    assert seen[0] - clock_shift.real_seconds() > DAY / 2


@pytest.mark.usefixtures("ahead")
def test_advance_twice_adds_up() -> None:
    clock_shift.advance(DAY)
    seconds = monotonic() - clock_shift.real_seconds()
    clock_shift.advance(-DAY)

    assert round(seconds / DAY, 2) == 2


@pytest.mark.usefixtures("ahead")
def test_advance_leaves_given_moments_and_processor_times() -> None:
    assert time.gmtime(0).tm_year == 1970
    assert time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) < DAY


@pytest.mark.usefixtures("ahead")
def test_advance_leaves_the_zone_and_the_date_right() -> None:
    assert datetime.now(UTC).tzinfo is UTC
    assert date.today() == datetime.now().date()
