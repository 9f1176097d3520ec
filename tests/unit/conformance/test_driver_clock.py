"""The driver's time counts only while calls of the driver run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wharfinger.conformance import driver_clock
from wharfinger.conformance.driver_clock import DriverClock, RunningCalls


class Machine:
    """A simulated clock, and the time for which threads have waited for a processor."""

    def __init__(self) -> None:
        self.now = 0.0
        #: Seconds by thread.
        self.waited: dict[int, float] = {}

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(driver_clock, "time", machine)
    return machine


@pytest.fixture
def clock(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> DriverClock:
    monkeypatch.setattr(
        driver_clock, "_seconds_waited_for_processor", lambda pid: {**machine.waited}
    )
    return DriverClock(tmp_path / "page", os.getpid())


@pytest.fixture
def calls(clock: DriverClock, tmp_path: Path) -> RunningCalls:
    return RunningCalls(tmp_path / "page")


def passes(machine: Machine, clock: DriverClock, seconds: float) -> None:
    machine.now += seconds
    clock.read()


def test_clock_counts_only_the_time_of_calls_to_the_driver(
    machine: Machine, clock: DriverClock, calls: RunningCalls
) -> None:
    passes(machine, clock, 5)
    calls.before("init_host")
    passes(machine, clock, 2)
    calls.after("init_host")
    calls.before_harness("reset")
    passes(machine, clock, 4)

    assert clock.used == 2
    assert clock.running == "the harness's reset"
    assert clock.is_in_harness and not clock.is_in_kit


def test_clock_leaves_out_the_time_without_a_processor(
    machine: Machine, clock: DriverClock, calls: RunningCalls
) -> None:
    calls.before("update_provider_tree")
    passes(machine, clock, 1)
    machine.waited = {1: 7, 2: 6}
    passes(machine, clock, 7)
    machine.waited = {2: 8}
    passes(machine, clock, 2)

    assert clock.used == 2  # 10 s without the 8 s of thread 2


def test_clock_sees_the_threads_of_a_child_of_a_child() -> None:
    program = "import subprocess as s; p = s.Popen('cat'); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        seen = driver_clock._seconds_waited_for_processor(os.getpid())

        assert {os.getpid(), child.pid, grandchild} <= seen.keys()


def test_clock_is_still_since_the_last_call_began_or_ended(
    machine: Machine, clock: DriverClock, calls: RunningCalls
) -> None:
    calls.before("get_available_nodes")
    for seconds in (1, 2, 3):
        passes(machine, clock, seconds)

    assert clock.still == 5  # counts from the first look at which the call ran
    calls.after("get_available_nodes")
    passes(machine, clock, 1)
    assert clock.still == 0
    assert clock.running == "the kit"


def test_clock_of_nested_calls_ends_with_the_outermost(
    machine: Machine, clock: DriverClock, calls: RunningCalls
) -> None:
    calls.before("a")
    calls.before("b")
    calls.after("b")
    passes(machine, clock, 3)
    clock.restart()

    passes(machine, clock, 2)

    assert clock.used == 2
