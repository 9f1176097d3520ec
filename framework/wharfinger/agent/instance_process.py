"""A driver instance in a process of its own, seen from the agent."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from oslo_log import log as logging

from wharfinger.agent import shared_report
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.agent.shared_report import ReportReader
from wharfinger.agent.status import InstanceStatus, State
from wharfinger.conf import AgentSection

LOG: Final = logging.getLogger(__name__)
#: Module that the process runs.
_PROGRAM: Final = "wharfinger.agent.instance_main"
#: Seconds between SIGTERM and SIGKILL.
GRACE: Final = 10.0
#: Seconds until a process that has ended is started again, at first and at most.
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 300.0
#: A process that ran for so many seconds does not count as one that ended soon.
_STEADY: Final = 600.0
#: Ends in a row from which on an instance is in a crash loop.
_LOOP: Final = 3
#: Signal at which the process writes the stacks of its threads.
STACKS: Final = signal.SIGUSR1
_MEBIBYTE: Final = 1024 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class ProcessRunner:
    """Runs a driver instance in a process, and starts the process again when it ends.

    The process ends with the agent. It has a session of its own: what it has forked ends with it,
    unless that has made a session for itself.
    """

    def __init__(
        self, section: AgentSection, name: str, snapshot: Snapshot, arguments: list[str]
    ) -> None:
        self.name: Final = name
        self._section: Final = section
        self._snapshot: Final = snapshot
        self._arguments: Final = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: ReportReader | None = None
        self._began = 0.0
        self._early_ends = 0
        #: Reason for which the process is being ended, and since when.
        self._ending = ""
        self._ending_since = 0.0
        self._is_stopping = False
        now = time.monotonic()
        self._status = InstanceStatus(name=name, state=State.STARTING, since=now, started_at=now)

    def start(self) -> None:
        """Start the process."""
        self._ending = ""
        self._began = time.monotonic()
        try:
            with shared_report.create() as page:
                self._reader = ReportReader(page.fileno())
                self._process = self._start_process(page.fileno())
        except OSError as error:  # too many processes or open files
            self._after_end(f"it could not be started: {error}")
            return
        self._status = replace(self._status, pid=self._process.pid, next_start_at=None)
        if self._status.state is State.ENDED:
            self._become(State.STARTING)

    def _start_process(self, page: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [
                *(sys.executable, "-m", _PROGRAM, "--instance", self.name),
                *("--report", str(page), "--parent", str(os.getpid())),
                *("--config-file", self._snapshot.path),
                *("--config-name", self._snapshot.name),
                *self._arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            pass_fds=(page, self._snapshot.descriptor),
            start_new_session=True,
        )

    def check(self) -> None:
        """Look after the process; called about every second."""
        now = time.monotonic()
        if self._process is None:
            due = self._status.next_start_at
            if due is not None and now >= due and not self._is_stopping:
                self._status = replace(self._status, restarts=self._status.restarts + 1)
                self.start()
            return
        if self._has_exited():
            self._after_end(self._ending or _end_of(self._reap()))
        elif self._ending:
            if now - self._ending_since >= GRACE:
                self._kill_group()
        else:
            self._check_limits(now)

    def stop(self) -> None:
        """Ask the process to end after the cycle in progress; do not start it again."""
        self._is_stopping = True
        self._become(State.STOPPING)
        if self._process is not None:
            self._signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Return whether the process has ended; afterwards nothing of it is left."""
        if self._process is not None and self._has_exited():
            self._after_end(_end_of(self._reap()))
        return self._process is None

    def kill(self) -> None:
        """End the process at once."""
        self._kill_group()

    def status(self) -> InstanceStatus:
        """Return the status of this moment."""
        status, reader = self._status, self._reader
        if reader is None:
            return status
        call, began = reader.call()
        return replace(status, driver_call=call, driver_call_began_at=began).with_report(
            reader.report()
        )

    def _check_limits(self, now: float) -> None:
        """End a process that hangs or is too large; note that one has published."""
        status = self.status()
        if status.driver_call_began_at is not None:
            seconds = now - status.driver_call_began_at
            if seconds >= self._section.hang_timeout:
                self._signal(STACKS)
                self._become(State.WEDGED)
                self._end(
                    f"the driver did not return from {status.driver_call} for {seconds:.0f} s",
                    "Find out what its backend does. The stacks of its threads are in the log.",
                )
                return
        limit = self._section.memory_limit
        memory = self._memory() // _MEBIBYTE
        if limit and memory > limit:
            self._end(
                f"its process has {memory} MiB of memory, and memory_limit is {limit} MiB",
                "If the driver needs so much, raise [agent] memory_limit; otherwise it leaks.",
            )
            return
        is_steady = now - self._began >= _STEADY
        if is_steady:
            self._early_ends = 0
        if self._status.state is State.CRASH_LOOP and not is_steady:
            return
        if status.report.has_published and self._status.state is not State.RUNNING:
            self._become(State.RUNNING)

    def _end(self, reason: str, remedy: str) -> None:
        LOG.error("%s: %s. The instance is started again. %s", self.name, reason, remedy)
        self._ending, self._ending_since = reason, time.monotonic()
        self._signal(signal.SIGTERM)

    def _after_end(self, end: str) -> None:
        """Note that the process has ended, and when it is to be started again."""
        now = time.monotonic()
        status = self.status()
        if now - self._began >= _STEADY:
            self._early_ends = 0
        self._early_ends += 1
        wait = min(_FIRST_WAIT * 2 ** (self._early_ends - 1), _LONGEST_WAIT)
        self._status = replace(
            status,
            pid=None,
            last_end=end,
            driver_call="",
            driver_call_began_at=None,
            next_start_at=None if self._is_stopping else now + wait,
            report=replace(status.report, cycle=None, cycle_began_at=None, is_complete=False),
        )
        self._process = self._reader = None
        if self._is_stopping:
            return
        is_loop = self._early_ends >= _LOOP
        self._become(State.CRASH_LOOP if is_loop else State.ENDED)
        LOG.error(
            "%s: its process has ended: %s. It is started again in %g s%s.",
            self.name,
            end,
            wait,
            f"; this is end {self._early_ends} in a row" if is_loop else "",
        )

    def _has_exited(self) -> bool:
        """Return whether the process has ended; it is not reaped, so its id is still its own."""
        assert self._process is not None
        return (
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )

    def _reap(self) -> int:
        """End what the process has left behind in its session, and return its exit code."""
        assert self._process is not None
        self._kill_group()
        return self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _kill_group(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _memory(self) -> int:
        """Return the resident memory of the process in bytes; 0 where it has just ended."""
        assert self._process is not None
        try:
            statm = Path(f"/proc/{self._process.pid}/statm").read_text()
            return int(statm.split()[1]) * _PAGE
        except (OSError, IndexError):
            return 0

    def _become(self, state: State) -> None:
        if self._status.state is not state:
            self._status = replace(self._status, state=state, since=time.monotonic())


def _end_of(code: int) -> str:
    """Return the end of a process in words: an exit code, or a signal (negative)."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
