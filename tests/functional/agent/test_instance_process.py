"""Start and end of a driver instance in a process of its own, as the agent sees them."""

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tests.lab.agent_process import wait_until
from wharfinger.agent import child_process, instance_process, shared_report
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.agent.instance_process import ProcessRunner
from wharfinger.agent.schedule import CycleType
from wharfinger.agent.shared_report import ReportWriter
from wharfinger.agent.status import CycleCounts, InstanceReport, State
from wharfinger.conf import AgentSection

PUBLISHED = InstanceReport(cycles={CycleType.FULL: CycleCounts(completed=1, completed_at=1.0)})


class Scripted(ProcessRunner):
    """A runner whose process runs a shell command, or does not start because of ``error``."""

    command = "exec sleep 60"
    error: OSError | None = None
    writer: ReportWriter

    def _start_process(self, page: int) -> "subprocess.Popen[bytes]":
        if self.error is not None:
            raise self.error
        self.writer = ReportWriter(os.dup(page))
        return subprocess.Popen(["/bin/sh", "-c", self.command], start_new_session=True)


@pytest.fixture
def runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Scripted:
    monkeypatch.setattr(instance_process, "_FIRST_WAIT", 0.01)
    path = tmp_path / "wharfinger.conf"
    path.write_text(f"[DEFAULT]\nenabled_drivers = metal\nstate_path = {tmp_path}\n[metal]\n")
    snapshot = Snapshot([str(path)])
    runner = Scripted(AgentSection.read(snapshot.conf), "metal", snapshot, [])

    def end() -> None:
        runner.kill()
        wait_until(runner.has_ended)

    request.addfinalizer(end)
    return runner


def checked_until(runner: Scripted, condition: Callable[[], object]) -> None:
    """Check the instance repeatedly until the condition holds."""

    def holds() -> object:
        runner.check()
        return condition()

    wait_until(holds, runner.status)


def has_exited(pid: int) -> bool:
    """Return whether a process has exited; do not reap it."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def crash_loop(runner: Scripted) -> None:
    runner.command = "exit 3"
    runner.start()
    checked_until(runner, lambda: runner.status().state is State.CRASH_LOOP)


def test_stop_of_a_process_that_has_just_ended_succeeds(runner: Scripted) -> None:
    runner.command = "exit 3"
    runner.start()
    pid = runner.status().pid
    assert pid is not None
    wait_until(lambda: has_exited(pid))

    runner.stop()

    assert runner.has_ended()
    assert runner.status().last_end == "exit code 3"
    assert runner.status().state is State.STOPPING


def test_process_that_ended_very_often_is_started_again_after_the_longest_wait(
    runner: Scripted,
) -> None:
    runner._early_ends = 100_000
    runner.command = "kill -SEGV $$"
    runner.start()

    checked_until(runner, lambda: runner.status().last_end)

    status = runner.status()
    assert (status.last_end, status.state) == ("signal SIGSEGV", State.CRASH_LOOP)
    assert runner._last_wait == pytest.approx(0.01 * 512)


def test_instance_that_works_again_leaves_the_crash_loop(runner: Scripted) -> None:
    crash_loop(runner)
    runner.command = "exec sleep 60"
    checked_until(runner, lambda: runner.status().pid is not None)
    checked_until(runner, lambda: runner.status().restarts >= 3)
    assert runner.status().state is State.CRASH_LOOP

    runner.writer.publish(PUBLISHED)

    checked_until(runner, lambda: runner.status().state is State.RUNNING)


def test_instance_that_works_for_less_time_than_its_last_wait_stays_in_the_crash_loop(
    runner: Scripted,
) -> None:
    crash_loop(runner)
    runner.command = "exec sleep 60"
    checked_until(runner, lambda: runner.status().pid is not None)
    runner._last_wait = 1000.0

    runner.writer.publish(PUBLISHED)
    runner.check()

    assert runner.status().report.has_published
    assert runner.status().state is State.CRASH_LOOP


def test_start_that_fails_is_tried_again(
    runner: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    descriptors = os.listdir("/proc/self/fd")  # noqa: PTH208 - their number
    runner.error = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    runner.start()
    status = runner.status()
    assert status.state is State.ENDED
    assert "temporarily unavailable" in status.last_end
    assert "metal: its process could not be started: " in caplog.text
    assert os.listdir("/proc/self/fd") == descriptors  # noqa: PTH208

    runner.error = None

    checked_until(runner, lambda: runner.status().pid is not None)
    assert runner.status().state is State.STARTING


def test_ends_of_processes_leave_no_descriptor(runner: Scripted) -> None:
    crash_loop(runner)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    restarts = runner.status().restarts
    checked_until(runner, lambda: runner.status().restarts >= restarts + 2)
    checked_until(runner, lambda: runner.status().pid is None)

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("hang", "told"),
    [
        (lambda writer: writer.calling("changed_nodes"), "did not return from changed_nodes"),
        (lambda writer: nullcontext(writer.alive()), "its process has done nothing for"),
    ],
)
def test_process_that_hangs_is_ended(
    runner: Scripted,
    hang: Callable[[ReportWriter], AbstractContextManager[None]],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(instance_process, "GRACE", 0.05)
    object.__setattr__(runner._section, "hang_timeout", 0.05)
    runner.command = "trap '' TERM USR1; sleep 60; exit 0"
    runner.start()

    with hang(runner.writer):
        checked_until(runner, lambda: runner.status().state is State.WEDGED)
        checked_until(runner, lambda: runner.status().state is State.ENDED)

    assert told in runner.status().last_end
    assert told in caplog.text


def test_process_that_survives_sigkill_is_logged_once_and_kept(
    runner: Scripted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(child_process, "KILL_TIMEOUT", 0.0)
    monkeypatch.setattr(instance_process, "GRACE", 0.0)
    object.__setattr__(runner._section, "hang_timeout", 0.05)
    trapped = tmp_path / "trapped"
    runner.command = f"trap '' TERM USR1; : >{trapped}; while :; do sleep 60; done"
    runner.start()
    wait_until(trapped.exists)
    with runner.writer.calling("changed_nodes"):
        with monkeypatch.context() as patch:
            # Simulate a process that the kernel does not end.
            patch.setattr("os.killpg", lambda *_: None)
            patch.setattr(child_process, "_session", lambda _: iter(()))
            checked_until(runner, lambda: "does not end after SIGKILL" in caplog.text)
            runner.check()
            runner.kill()
            assert not runner.has_ended()
        assert caplog.text.count("does not end after SIGKILL") == 1

        os.killpg(runner.status().pid or 0, signal.SIGKILL)
        checked_until(runner, lambda: runner.status().restarts)


def test_process_that_was_paused_together_with_the_agent_goes_on(runner: Scripted) -> None:
    object.__setattr__(runner._section, "hang_timeout", 300)
    runner.start()
    runner.writer.alive()
    runner.check()

    # The last report and the last check were long ago, as after a pause of the machine.
    shared_report._ALIVE.pack_into(runner.writer._page, 0, time.monotonic() - 1000)
    runner._looked_at = time.monotonic() - 999
    runner.check()
    assert runner.status().state is State.STARTING

    runner.check()
    assert runner.status().state is State.WEDGED
