"""``wharfinger agent`` with a driver that harms its own process, beside a driver that does not."""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.lab.agent_process import wait_until
from tests.lab.bad_drivers import AT_START, MISBEHAVIOURS, begun
from tests.lab.beside_bad import BAD, GOOD, BesideBad
from tests.lab.placement import Requests

#: Bytes by which the agent's memory may grow without a leak.
_GROWTH: Final = 16 * 1024 * 1024


@dataclass(frozen=True)
class Expected:
    """Consequences of a driver's misbehaviour that the agent shows.

    ``states``: the states that the instance goes through. ``text``: part of the error that ``agent
    status`` shows. ``check``: the check of ``/health`` that fails; empty if the instance works as
    before. ``log``: parts of the log.
    """

    states: tuple[str, ...] = ("running",)
    text: str = ""
    check: str = "driver_instance:state"
    log: tuple[str, ...] = ()


def _hangs(call: str, *log: str) -> Expected:
    return Expected(("wedged",), call, log=(f"bad: the driver did not return from {call}", *log))


def _ends(end: str) -> Expected:
    return Expected(
        ("ended", "crash loop"), end, log=(f"bad: its process has ended: {end}.", "in a row")
    )


def _fails(text: str, check: str = "driver_instance:poll") -> Expected:
    return Expected(text=text, check=check, log=(text,))


_WORKS: Final = Expected(check="")
_STACK: Final = "most recent call first"
EXPECTED: Final[dict[str, Expected]] = {
    "raise": _fails("ZeroDivisionError: the backend is upside down"),
    "raise_nameless": _fails("Nameless: its text cannot be read"),
    "sys_exit": _fails("SystemExit: 3"),
    "hang": _hangs("changed_nodes", _STACK, "in hang"),
    "hang_in_c": _hangs("changed_nodes", _STACK, "in hang_in_c"),
    "hang_in_background": Expected(
        ("wedged",), log=("bad: its process has done nothing for", _STACK, "in hang_in_c")
    ),
    "loop": _hangs("changed_nodes", _STACK, "in loop"),
    "stop_process": _hangs("changed_nodes"),
    "ignore_signals_and_hang": _hangs("changed_nodes"),
    # The request for the stacks ends the process, which is therefore wedged only for a moment.
    "reset_signals_and_hang": Expected(
        ("ended",), "changed_nodes", log=("bad: the driver did not return from changed_nodes",)
    ),
    "hang_at_start": _hangs("__init__", _STACK, "in hang"),
    "hang_in_init_host": _hangs("init_host", _STACK, "in hang"),
    "hang_at_import": _hangs("import", _STACK, "in hang"),
    "exit_process": _ends("exit code 0"),
    "segfault": _ends("signal SIGSEGV"),
    "abort": _ends("signal SIGABRT"),
    "kill_group": _ends("signal SIGKILL"),
    "fork_many": _ends("exit code 9"),
    "exit_at_start": _ends("exit code 0"),
    "exit_at_import": _ends("exit code 0"),
    **dict.fromkeys(
        ("leak_memory", "leak_in_forks"),
        Expected(
            ("ended",), "MiB of memory", log=("bad: its processes have", "memory_limit is 400 MiB")
        ),
    ),
    "leak_descriptors": _fails("Too many open files"),
    "leak_threads": _fails("can't start new thread"),
    "raise_at_import": Expected(
        ("starting",), "the backend is upside down", "driver_instance:problems"
    ),
    "leave_thread": _WORKS,
    "print": _WORKS,
    "fork_one": _WORKS,
    "ignore_signals": _WORKS,
    "block_sigterm": _WORKS,
    "chdir_and_umask": _WORKS,
    "close_output": _WORKS,
    "close_all": _WORKS,
    "write_to_report": Expected(("wedged",), log=("bad: the driver did not return from",)),
    "raise_at_cleanup": _WORKS,
    "hang_at_cleanup": _WORKS,
}


def test_each_misbehaviour_has_an_expectation() -> None:
    assert EXPECTED.keys() == MISBEHAVIOURS.keys()


def misbehave(beside: BesideBad, name: str) -> None:
    """Make the driver misbehave, and wait until the agent shows everything in ``Expected``."""
    beside.switch.touch()
    if name in AT_START:
        beside.kill_instance(BAD)
    if not name.endswith("_at_cleanup"):
        wait_until(begun(beside.switch).exists, lambda: beside.agent.lines)
    expected = EXPECTED[name]
    for state in expected.states:
        sees(beside, state, expected)
    beside.agent.wait_for(*expected.log)


def sees(beside: BesideBad, state: str, expected: Expected) -> None:
    found: list[object] = []

    def is_shown() -> bool:
        row, checks = beside.row(BAD), beside.checks(BAD)
        found[:] = [row, checks]
        failed = {check for check, verdict in checks.items() if verdict != "pass"}
        return (
            row["State"] == state
            and any(expected.text in error for error in row["Errors"]) >= bool(expected.text)
            and (expected.check in failed if expected.check else True)
        )

    wait_until(is_shown, lambda: (found, beside.agent.lines[-100:]))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_bad_driver_is_named_and_the_good_driver_goes_on(
    tmp_path: Path, placement_url: tuple[str, Requests], name: str
) -> None:
    with BesideBad(tmp_path, placement_url[0], name) as beside:
        beside.publishes(BAD)
        descriptors, memory = beside.agent.descriptors(), beside.agent.memory()

        misbehave(beside, name)
        beside.publishes(GOOD)

        assert beside.status(GOOD).restarts == 0
        assert set(beside.checks(GOOD).values()) == {"pass"}
        beside.switch.unlink()
        beside.publishes(BAD)
        wait_until(lambda: beside.agent.descriptors() <= descriptors, beside.agent.descriptors)
        assert beside.agent.memory() < memory + _GROWTH
        assert beside.agent.zombies() == []
        assert beside.agent.process.poll() is None


@pytest.mark.drawn(1)
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_agent_that_ends_beside_a_bad_driver_leaves_no_process(
    tmp_path: Path, placement_url: tuple[str, Requests], name: str, end: signal.Signals
) -> None:
    with BesideBad(tmp_path, placement_url[0], name) as beside:
        misbehave(beside, name)
        if name == "fork_one":
            wait_until(lambda: len(beside.agent.left()) == 3, beside.agent.left)

        done = beside.agent.end(end)

        assert done.code == (0 if end is signal.SIGTERM else -signal.SIGKILL)
        if name == "leave_thread":
            assert "still at work" not in done.err
        # After SIGKILL to the agent, only the end of its unit ends a driver's forked process.
        forks = int(name == "fork_one" and end is signal.SIGKILL)
        wait_until(lambda: len(beside.agent.left()) == forks, beside.agent.left)
        beside.switch.unlink()
        beside.start()
        beside.publishes(BAD)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "name", ["raise", "raise_nameless", "sys_exit", "hang", "loop", "print", "leak_threads"]
)
def test_good_driver_in_a_thread_goes_on_beside_a_bad_one(
    tmp_path: Path, placement_url: tuple[str, Requests], name: str
) -> None:
    """Other misbehaviour harms the whole process, and with it the instances in all threads."""
    with BesideBad(tmp_path, placement_url[0], name, isolation="thread") as beside:
        beside.switch.touch()
        wait_until(begun(beside.switch).exists, lambda: beside.agent.lines)
        for state in EXPECTED[name].states:
            sees(beside, state, EXPECTED[name])

        beside.publishes(GOOD)

        assert beside.agent.end().code == 0
