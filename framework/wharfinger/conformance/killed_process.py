"""A driver that publishes from another process, which the kit can kill."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import IO, Any, Final

from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from wharfinger import conf
from wharfinger.conformance.driver_observer import observe
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.conformance.subject import Subject
from wharfinger.driver import loader
from wharfinger.exceptions import WharfingerError
from wharfinger.objects.database_context import local
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Audit events that change a directory (https://docs.python.org/3/library/audit_events.html).
_CHANGES: Final = ("os.mkdir", "os.rename", "os.link", "os.symlink")


class Forks:
    """Makes processes with a driver: forks of one process that has imported the driver."""

    def __init__(self, process: "subprocess.Popen[str]", directory: Path) -> None:
        self._process: Final = process
        self._directory: Final = directory
        self._count = 0

    @classmethod
    @contextmanager
    def of(cls, subject: Subject) -> Iterator["Forks"]:
        """Start the parent of the forks; kill it after the block."""
        path = os.pathsep.join(filter(None, sys.path))
        with (
            TemporaryDirectory() as directory,
            subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", "-m", __name__, subject.name],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            ) as process,
        ):
            try:
                yield cls(process, Path(directory))
            finally:
                process.kill()

    def make(self, question: dict[str, Any]) -> tuple[int, IO[str], IO[str]]:
        """Fork a process; return its id, and its pipes for orders and for answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._count += 1
        orders, answers = (self._directory / f"{name}-{self._count}" for name in ("in", "out"))
        for pipe in (orders, answers):
            os.mkfifo(pipe)
        line = json.dumps({**question, "orders": str(orders), "answers": str(answers)})
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        number = int(self._process.stdout.readline())
        return number, orders.open("w"), answers.open()


class Elsewhere:
    """A driver in another process, which ``run`` starts anew after a kill."""

    def __init__(self, subject: Subject, forks: Forks) -> None:
        self._subject: Final = subject
        self._forks: Final = forks
        self._process: tuple[int, IO[str], IO[str]] | None = None
        #: The index of the file at which the process has to kill itself in the next cycle.
        self.at_write: int | None = None
        #: The number of files that the driver has written, and of processes that have died.
        self.writes = 0
        self.died = 0

    def run(self, cycle_type: str) -> Sequence[str]:
        """Run a cycle or restart the driver; return the problems."""
        with self._subject.in_another_process():
            return self._run(cycle_type)

    def _run(self, cycle_type: str) -> Sequence[str]:
        if cycle_type == "restart":
            self._stop()
        if self._process is None:
            self._process = self._forks.make(
                {
                    "files": [str(file) for file in self._subject.files()],
                    "instance": self._subject.instance_name,
                    "state": str(self._subject.state_path),
                    "url": self._subject.placement.url,
                }
            )
        _, orders, answers = self._process
        order = {"cycle_type": cycle_type, "at_write": self.at_write}
        self.at_write = None
        line = ""
        with suppress(OSError):
            orders.write(f"{json.dumps(order)}\n")
            orders.flush()
            line = answers.readline()
        if not line:
            self.died += 1
            self._forget()
            return ["the process of the driver has died"]
        report: dict[str, Any] = json.loads(line)
        self.writes += report["writes"]
        problems: Sequence[str] = report["problems"]
        return problems

    def kill(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process[0], signal.SIGKILL)

    def stop(self) -> None:
        """Let the process end, and wait for it."""
        with self._subject.in_another_process():
            self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            _, orders, answers = self._process
            with suppress(OSError):
                orders.close()
                answers.read()  # to its end
            self._forget()

    def _forget(self) -> None:
        if self._process is not None:
            for end in self._process[1:]:
                with suppress(OSError):
                    end.close()
        self._process = None


# A write is a file that is opened to write it, or a change of a directory.
class _Writes:
    def __init__(self) -> None:
        self.count = 0
        #: The index of the write at which the process kills itself; None for no kill.
        self.at: int | None = None
        self._depth = 0
        sys.addaudithook(self._hear)

    def before(self, method: str) -> None:
        self._depth += 1

    def after(self, method: str) -> None:
        self._depth -= 1

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._depth or not _writes(event, arguments):
            return
        if self.count == self.at:
            sys.setprofile(_die)  # kills at the next function call, after the file is opened
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
    def __init__(self, question: dict[str, Any]) -> None:
        self._question: Final = question
        self._writes: Final = _Writes()
        self._open = ExitStack()
        self._cycle: Reconciler | None = None

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        self._writes.count, self._writes.at = 0, order["at_write"]
        try:
            cycle = self._started()
            if order["cycle_type"] == "restart":
                problems: Sequence[object] = ()
            else:
                problems = getattr(cycle, order["cycle_type"])().problems
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
    """Fork a process with a driver for each line of standard input."""
    with suppress(WharfingerError):
        loader.load(sys.argv[1])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    for line in sys.stdin:
        number = os.fork()
        if not number:
            try:
                _be_driver(json.loads(line))
            finally:
                os._exit(0)  # without waiting for threads of the driver
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def _be_driver(question: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    with Path(question["orders"]).open() as orders, Path(question["answers"]).open("w") as answers:
        program = _Program(question)
        for line in orders:
            answers.write(f"{json.dumps(program.run(json.loads(line)))}\n")
            answers.flush()
        program.stop()


if __name__ == "__main__":
    main()
