"""A driver that publishes in another process, which is killed; and that process.

Run as a program, it reads from its standard input what it is to do, a line of JSON each, and
writes what came of it to the descriptor that is its argument. It can kill itself behind a file
that the driver writes: after the file was opened, and before something is written into it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from wharfinger import conf
from wharfinger.conformance.driver_observer import observe
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.conformance.subject import Subject
from wharfinger.exceptions import WharfingerError
from wharfinger.objects.database_context import local
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler

#: Seconds for a process to end that is told to.
_END: Final = 20.0
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events that change a directory (https://docs.python.org/3/library/audit_events.html).
_CHANGES: Final = ("os.mkdir", "os.rename", "os.link", "os.symlink")


class Elsewhere:
    """A driver in another process; a killed one is followed by a new one, with the same state."""

    def __init__(self, subject: Subject) -> None:
        self._subject: Final = subject
        self._process: subprocess.Popen[str] | None = None
        self._answers: IO[str] | None = None
        #: Behind which of its writes the process is to kill itself, in the next cycle.
        self.at_write: int | None = None
        #: How many files the driver has written so far, and how many processes were killed.
        self.writes = 0
        self.killed = 0

    def run(self, pace: str) -> Sequence[str]:
        """As Driving says; a restart is that of the process."""
        if pace == "restart":
            self.stop()
        process, answers = self._started()
        order = {"pace": pace, "at_write": self.at_write}
        self.at_write = None
        try:
            assert process.stdin is not None
            process.stdin.write(f"{json.dumps(order)}\n")
            process.stdin.flush()
            line = answers.readline()
        except OSError:
            line = ""
        if not line:
            return self._ended(process)
        told: dict[str, Any] = json.loads(line)
        self.writes += told["writes"]
        problems: Sequence[str] = told["problems"]
        return problems

    def kill(self) -> None:
        """Kill the process; who waits for its answer is told."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """As Driving says."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()
            process.wait(_END)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait()
        self._forget()

    def _started(self) -> tuple[subprocess.Popen[str], IO[str]]:
        if self._process is None or self._answers is None:
            answers, theirs = os.pipe()
            question = {
                "files": [str(file) for file in self._subject.files()],
                "instance": self._subject.instance_name,
                "state": str(self._subject.state_path),
                "url": self._subject.placement.url,
            }
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-W", "ignore", "-m", __name__, str(theirs)],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs],
                    text=True,
                )
            finally:
                os.close(theirs)
            self._answers = os.fdopen(answers)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{json.dumps(question)}\n")
        return self._process, self._answers

    def _ended(self, process: subprocess.Popen[str]) -> Sequence[str]:
        """Wait for a process that has not answered; return what went wrong."""
        status = process.wait()
        self._forget()
        if status == -signal.SIGKILL:
            self.killed += 1
            return ["the process was killed"]
        return [f"the process of the driver ended with the status {status}"]

    def _forget(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        if self._answers is not None:
            self._answers.close()
        self._process = self._answers = None


class _Writes:
    """The files that the driver writes, and the moment at which the process kills itself."""

    def __init__(self) -> None:
        self.count = 0
        self.at: int | None = None
        self._depth = 0
        sys.addaudithook(self._hear)

    def before(self, method: str) -> None:
        """As CallObserver says."""
        self._depth += 1

    def after(self, method: str) -> None:
        """As CallObserver says."""
        self._depth -= 1

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._depth or not _writes(event, arguments):
            return
        if self.count == self.at:
            sys.setprofile(_die)  # the write itself comes behind this
        self.count += 1


def _writes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event in _CHANGES:
        return True
    if event != "open":
        return False
    path, _, flags = arguments
    is_file = isinstance(path, str | bytes | os.PathLike) and "__pycache__" not in str(path)
    return is_file and str(path) != os.devnull and bool((flags or 0) & _WRITING)


def _die(frame: FrameType, event: str, argument: object) -> None:
    if frame.f_code.co_filename != __file__:
        os.kill(os.getpid(), signal.SIGKILL)


class _Program:
    """The driver in this process."""

    def __init__(self, question: dict[str, Any]) -> None:
        self._question: Final = question
        self._writes: Final = _Writes()
        self._open = ExitStack()
        self._cycle: Reconciler | None = None

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run a cycle; return the problems and how many files were written."""
        self._writes.count, self._writes.at = 0, order["at_write"]
        try:
            cycle = self._started()
            if order["pace"] == "restart":
                problems: Sequence[object] = ()
            else:
                problems = getattr(cycle, order["pace"])().problems
        except WharfingerError as error:
            problems = [error]
        return {"problems": [str(one) for one in problems], "writes": self._writes.count}

    def stop(self) -> None:
        self._cycle = None
        self._open.close()

    def _started(self) -> Reconciler:
        if self._cycle is None:
            try:
                self._cycle = self._start()
            except BaseException:
                self.stop()
                raise
        return self._cycle

    def _start(self) -> Reconciler:
        question = self._question
        options = conf.parse(question["files"], [])
        self._writes.before("__init__")
        try:
            instance = driver_instance_loader.load(options, question["instance"])
        finally:
            self._writes.after("__init__")
        observe(instance.driver, [self._writes])
        context = local(Path(question["state"]), instance.driver.host)
        self._open.callback(context.close)
        adapter = Adapter(
            Session(),
            auth=token_endpoint.Token(question["url"], "admin"),
            service_type="placement",
            endpoint_override=question["url"],
        )
        return self._open.enter_context(
            driver_instance_loader.running(
                instance,
                WritingClient(adapter, connections=4),
                context,
                policy=RemovalPolicy(delay=0, allow_mass=True),
            )
        )


def main() -> None:
    """Do what is said, until there is no more."""
    answers = os.fdopen(int(sys.argv[1]), "w")
    program = _Program(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        answers.write(f"{json.dumps(program.run(json.loads(line)))}\n")
        answers.flush()
    program.stop()
    os._exit(0)  # whatever threads there are


if __name__ == "__main__":
    main()
