"""Run a driver instance in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import BinaryIO, Final

from oslo_log import log as logging

from wharfinger.agent import child_process, shared_report
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.agent.shared_report import ReportReader
from wharfinger.agent.status import InstanceStatus, State
from wharfinger.conf import AgentSection

LOG: Final = logging.getLogger(__name__)
#: The module that the process runs.
_PROGRAM: Final = "wharfinger.agent.instance_main"
#: Seconds between SIGTERM and SIGKILL.
GRACE: Final = 10.0
#: The shortest and the longest wait, in seconds, before a process that has ended is restarted.
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 300.0
#: After this many ends in a row, the wait does not become longer.
_COUNTED_ENDS: Final = 10
#: After a run of this many seconds, an end is the first one in a row again.
_STEADY: Final = 600.0
#: After this many ends in a row, the instance is in a crash loop.
_LOOP: Final = 3
#: The signal at which the process writes the stacks of its threads.
STACKS: Final = signal.SIGUSR1
#: Advice for the log, by the way in which the process ended.
_HINTS: Final = {
    "signal SIGKILL": " The kernel does so if memory is short; look into the kernel's log."
}
#: The largest number of bytes of stacks that are logged at once.
_LONGEST_STACKS: Final = 256 * 1024
#: The descriptor of standard error: sys.stderr is None if it was closed when the agent started.
_STANDARD_ERROR: Final = 2
_MEBIBYTE: Final = 1024 * 1024


class ProcessRunner:
    """Runs a driver instance in a process that it supervises and restarts."""

    def __init__(
        self, section: AgentSection, name: str, snapshot: Snapshot, arguments: list[str]
    ) -> None:
        self.name: Final = name
        self._section: Final = section
        self._snapshot: Final = snapshot
        self._arguments: Final = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: ReportReader | None = None
        #: The file for the stacks of the process's threads, and how many bytes were logged.
        self._stacks: BinaryIO | None = None
        self._logged_stacks = 0
        self._began = 0.0
        self._early_ends = 0
        self._last_wait = 0.0
        #: The time of the last check of the process.
        self._looked_at = 0.0
        #: Why and when the agent told the process to end.
        self._ending = ""
        self._ending_since = 0.0
        #: Whether the process does not end after SIGKILL.
        self._cannot_be_killed = False
        self._is_stopping = False
        now = time.monotonic()
        self._status = InstanceStatus(name=name, state=State.STARTING, since=now, started_at=now)

    def start(self) -> None:
        """Start the process. After a failure, ``check`` tries again."""
        self._ending, self._cannot_be_killed = "", False
        self._began = time.monotonic()
        try:
            self._stacks, self._logged_stacks = _create_stacks(), 0
            with shared_report.create() as page:
                self._reader = ReportReader(page.fileno())
                self._process = self._start_process(page.fileno())
        except OSError as error:  # no memory, too many processes or open files
            self._after_end(f"{error}", "its process could not be started")
            return
        self._status = replace(self._status, pid=self._process.pid, next_start_at=None)
        if self._status.state is State.ENDED:
            self._set_state(State.STARTING)

    def _start_process(self, page: int) -> "subprocess.Popen[bytes]":
        assert self._stacks is not None
        stacks = self._stacks.fileno()
        return subprocess.Popen(
            [
                # -P: a file in the working directory is no module of the process.
                *(sys.executable, "-P", "-m", _PROGRAM, "--instance", self.name),
                *("--report", str(page), "--stacks", str(stacks), "--parent", str(os.getpid())),
                *("--config-file", self._snapshot.path),
                *("--config-name", self._snapshot.name),
                *self._arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=_STANDARD_ERROR,
            pass_fds=(page, stacks, self._snapshot.descriptor),
            start_new_session=True,
        )

    def check(self) -> None:
        """End the process if it exceeds a limit; if it has ended, restart it when due."""
        self._log_new_stacks()
        now = time.monotonic()
        if self._process is None:
            due = self._status.next_start_at
            if due is not None and now >= due and not self._is_stopping:
                self._status = replace(self._status, restarts=self._status.restarts + 1)
                self.start()
            return
        if child_process.has_exited(self._process.pid):
            end = _describe_end(self._reap())
            self._after_end(self._ending or end)
        elif self._ending:
            if now - self._ending_since >= GRACE:
                self.kill()
        else:
            self._check_limits(now)
        self._looked_at = now

    def stop(self) -> None:
        """Tell the process to end, and do not restart it."""
        self._is_stopping = True
        self._set_state(State.STOPPING)
        self._signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        if self._process is not None and child_process.has_exited(self._process.pid):
            self._after_end(_describe_end(self._reap()))
        return self._process is None

    def kill(self) -> None:
        """Kill the process and its session."""
        if self._process is None or self._cannot_be_killed:
            return
        if child_process.kill_session(self._process.pid):
            return
        self._cannot_be_killed = True
        self._set_state(State.WEDGED)
        LOG.error(
            "driver instance %s: process %d does not end after SIGKILL, since the process waits in "
            "the kernel, often for a device or a network file system. The instance starts again "
            "only after the process has ended. To see where the process waits, run "
            "`cat /proc/%d/stack` as root",
            self.name,
            self._process.pid,
            self._process.pid,
        )

    def status(self) -> InstanceStatus:
        """Return the present status of the driver instance."""
        status, reader = self._status, self._reader
        if reader is None:
            return status
        call, began = reader.call()
        return replace(status, driver_call=call, driver_call_began_at=began).with_report(
            reader.report()
        )

    def _check_limits(self, now: float) -> None:
        status = self.status()
        if hang := self._describe_hang(status, now):
            self._signal(STACKS)
            self._set_state(State.WEDGED)
            self._end(
                hang,
                "Find out what its backend does. The stacks of its threads follow in the log if "
                "the process can still write them.",
            )
            return
        limit = self._section.memory_limit
        assert self._process is not None
        memory = limit and child_process.memory(self._process.pid, limit * _MEBIBYTE) // _MEBIBYTE
        if memory > limit:
            self._end(
                f"its processes have {memory} MiB of memory, and memory_limit is {limit} MiB",
                "If the driver needs so much, raise [agent] memory_limit; otherwise it leaks.",
            )
            return
        age = now - self._began
        if age >= _STEADY:
            self._early_ends = 0
        if self._status.state is State.CRASH_LOOP and age < self._last_wait:
            return
        if status.report.has_published and self._status.state is not State.RUNNING:
            self._set_state(State.RUNNING)

    def _describe_hang(self, status: InstanceStatus, now: float) -> str:
        timeout = self._section.hang_timeout
        began = status.driver_call_began_at
        if began is not None and now - began >= timeout:
            return f"the driver did not return from {status.driver_call} for {now - began:.0f} s"
        alive_at = self._reader.alive_at() if self._reader is not None else None
        # Compare with the agent's last check: a pause of the machine stops the agent, too.
        if alive_at is not None and self._looked_at - alive_at >= timeout:
            return f"its process has done nothing for {now - alive_at:.0f} s"
        return ""

    def _end(self, reason: str, remedy: str) -> None:
        LOG.error(
            "driver instance %s: %s. The agent restarts the instance. %s", self.name, reason, remedy
        )
        self._ending, self._ending_since = reason, time.monotonic()
        self._signal(signal.SIGTERM)

    def _after_end(self, end: str, event: str = "its process has ended") -> None:
        now = time.monotonic()
        status = self.status()
        self._log_new_stacks()
        if self._stacks is not None:
            self._stacks.close()
        if now - self._began >= _STEADY:
            self._early_ends = 0
        self._early_ends += 1
        doublings = min(self._early_ends, _COUNTED_ENDS) - 1
        self._last_wait = wait = min(_FIRST_WAIT * 2**doublings, _LONGEST_WAIT)
        self._status = replace(
            status,
            pid=None,
            last_end=end,
            driver_call="",
            driver_call_began_at=None,
            next_start_at=None if self._is_stopping else now + wait,
            report=replace(status.report, cycle=None, cycle_began_at=None, is_complete=False),
        )
        self._process = self._reader = self._stacks = None
        if self._is_stopping:
            return
        is_loop = self._early_ends >= _LOOP
        self._set_state(State.CRASH_LOOP if is_loop else State.ENDED)
        LOG.error(
            "driver instance %s: %s: %s. The agent starts the instance again in %g s%s.%s",
            self.name,
            event,
            end,
            wait,
            f", after {self._early_ends} ends in a row" if is_loop else "",
            _HINTS.get(end, " Its own lines in the log may say why." if is_loop else ""),
        )

    def _reap(self) -> int:
        assert self._process is not None
        child_process.kill_session(self._process.pid)
        return self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            # send_signal would reap a process that has ended.
            os.kill(self._process.pid, number)

    def _log_new_stacks(self) -> None:
        if self._stacks is None:
            return
        size = os.fstat(self._stacks.fileno()).st_size
        new = min(size - self._logged_stacks, _LONGEST_STACKS)
        if new > 0:
            text = os.pread(self._stacks.fileno(), new, self._logged_stacks)
            LOG.error(
                "driver instance %s: the stacks of the threads of its process:\n%s",
                self.name,
                text.decode(errors="replace").rstrip(),
            )
            self._logged_stacks = size

    def _set_state(self, state: State) -> None:
        if self._status.state is not state:
            self._status = replace(self._status, state=state, since=time.monotonic())


def _create_stacks() -> BinaryIO:
    return open(os.memfd_create("wharfinger-stacks"), "rb")  # noqa: PTH123 - no path


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
