"""``wharfinger agent`` in a process of its own, with the processes that it starts."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

import fixtures

from tests.lab.program import PROGRAM, Done, Program

#: Seconds to wait for anything. Usually it takes tenths of a second.
TIMEOUT: Final = 60.0
#: Variable of the environment by which the processes of one agent are found.
MARK: Final = "WHARFINGER_LAB_AGENT"


class Process(fixtures.Fixture):
    """An agent in a process of its own. The clean-up of this fixture kills what still runs."""

    def __init__(self, program: Program, *options: str, command: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._program = program
        self._command = command or (PROGRAM,)
        self._options = options
        self._mark = str(uuid4())
        self._log = program.directory / "stderr.log"

    def _setUp(self) -> None:
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(*self._command, "--config-file", str(self._program.config)),
                    *(*self._options, "agent"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self._program.directory,
                env={**os.environ, MARK: self._mark},
            )
        self.addCleanup(self._kill)

    @property
    def lines(self) -> list[str]:
        """The lines on standard error of the agent and of the processes that it has started."""
        return self._log.read_text(errors="replace").splitlines()

    def wait_for(self, *parts: str) -> None:
        """Wait until each of these texts was logged, in any order."""

        def missing() -> set[str]:
            text = self._log.read_text(errors="replace")
            return {part for part in parts if part not in text}

        wait_until(
            lambda: not missing(),
            lambda: f"{missing()} in {self.lines[-100:]}",
            unless=lambda: self.process.poll() is not None,
        )

    def end(self, number: signal.Signals = signal.SIGTERM) -> Done:
        """Send a signal to the agent, and wait for its end; return its exit code and output."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> Done:
        """Wait for the end of the agent; return its exit code and output."""
        code = self.process.wait(TIMEOUT)
        assert self.process.stdout is not None
        return Done(code, self.process.stdout.read(), "\n".join(self.lines))

    def left(self) -> list[int]:
        """Return the ids of the running processes that the agent has started, also indirectly."""
        return [pid for pid in marked(self._mark) if pid != self.process.pid]

    def zombies(self) -> list[int]:
        """Return the ids of the agent's child processes that have ended but were not reaped."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = path.read_text().rpartition(")")[2].split()[:2]
            except OSError:  # it has just ended
                continue
            if state == "Z" and int(parent) == self.process.pid:
                found.append(int(path.parent.name))
        return found

    def descriptors(self) -> int:
        """Return the number of open file descriptors of the agent."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def memory(self) -> int:
        """Return the resident memory of the agent in bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def _kill(self) -> None:
        self.process.kill()
        self.process.communicate()
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def marked(value: str) -> list[int]:
    """Return the ids of the processes whose environment has this value of ``MARK``."""
    mark = f"{MARK}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # it has just ended, or is another user's
            continue
        if mark in variables:
            found.append(int(path.parent.name))
    return found


def wait_until(
    condition: Callable[[], object],
    found: Callable[[], object] = lambda: "nothing",
    *,
    unless: Callable[[], object] = lambda: False,
) -> None:
    """Wait until ``condition`` holds; fail with the text of ``found`` if it does not in time.

    Also fail as soon as ``unless`` holds, since the condition can then no longer become true.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        is_hopeless = unless()  # before the condition, which may hold at the end of the process
        if condition():
            return
        assert not is_hopeless, found()
        assert time.monotonic() < deadline, found()
        time.sleep(0.02)
