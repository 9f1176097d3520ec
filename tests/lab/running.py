"""Run programming jobs of devices: beside the test, or in processes that are killed at a boundary.

Beside the test, a job is the program in a process of its own, or, which is quicker, the program's
function in a thread. There is a boundary before and after each writing request, to Placement or to
another service, and before and after each write to the database (see tests/lab/killing.py).
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import fixtures
import openstack.connection  # noqa: F401 - so that processes that are forked have it
from requests.adapters import HTTPAdapter

from tests.lab import at_work, killing
from tests.lab.database_writes import DatabaseWrites
from tests.lab.placement import adapter_to
from tests.lab.program import Done
from tests.lab.sqlite import WithoutSync
from wharfinger import jobs
from wharfinger.cli.app import main
from wharfinger.conf import parse
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import DeviceJob, connect
from wharfinger.placement.client import PlacementClient
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.driver_calls import list_nodes
from wharfinger.scheduling import provider_details
from wharfinger_harnesses.daemons import TIMEOUT, LabError

_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTEXT: Final = multiprocessing.get_context("forkserver")

# A further call would replace the list, so it also has the modules of the other lab modules.
_CONTEXT.set_forkserver_preload(
    ["__main__", killing.__name__, at_work.__name__, __name__, "psycopg"]
)


@dataclass(frozen=True)
class Work:
    """A programming job as ``wharfinger device program`` runs it: a device, an image, options."""

    config: Path
    placement: str
    instance: str
    device: str
    image: str
    function: str | None = None
    wait_for_idle: float = 0.0
    down_time: float = 60.0

    def do(self, on_step: Callable[[str, str], None] = lambda _step, _detail: None) -> DeviceJob:
        """Run the job in this process, with a new client, driver and database context.

        ``on_step`` is called with each step and its details.
        """
        conf = parse([str(self.config)], [])
        client = PlacementClient(adapter_to(self.placement), connections=4)
        context = connect(conf)
        try:
            driver = driver_instance_loader.load(conf, self.instance).driver
            with driver_instance_loader.connected(driver):
                list_nodes(driver)
                return jobs.program(
                    client,
                    context,
                    driver,
                    provider_details.find(client, self.device),
                    image=self.image,
                    function=self.function,
                    wait_for_idle=self.wait_for_idle,
                    down_time=timedelta(seconds=self.down_time),
                    on_step=on_step,
                )
        finally:
            context.close()


class _Told:
    """A running job. ``told`` has the lines of its output so far, each with the time."""

    def __init__(self) -> None:
        self.begun = time.time()
        self.told: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._is_over = False

    def wait_for(self, step: str) -> float:
        """Wait until the job has printed a step; return the time of that line."""
        with self._news:
            if not self._news.wait_for(lambda: self.when(step) or self._is_over, TIMEOUT):
                raise LabError(f"the job does not print {step}: {self.told}")
            when = self.when(step)
        if when is None:
            raise LabError(f"the job ended before {step}: {self.told}, {self.end()}")
        return when

    def when(self, step: str) -> float | None:
        """Return the time at which the job has printed a step, None if it has not."""
        return next((at for at, line in self.told if f": {step}: " in line), None)

    def steps(self) -> list[str]:
        """Return the lines of the output so far, without their first word."""
        return [line.split(" ", 1)[1] for _, line in self.told]

    def end(self) -> Done:
        """Wait for the end of the job; return its exit code and output."""
        self._thread.join(TIMEOUT)
        if self._thread.is_alive():
            raise LabError(f"the job does not end: {self.told}")
        code, err = self._ended()
        return Done(code, "\n".join(line for _, line in self.told), err)

    def _follow(self) -> None:
        try:
            self._listen()
        finally:
            with self._news:
                self._is_over = True
                self._news.notify_all()

    def _note(self, line: str) -> None:
        with self._news:
            self.told.append((time.time(), line))
            self._news.notify_all()

    def _listen(self) -> None:
        """Record the lines of the job with ``_note`` until the job ends."""
        raise NotImplementedError

    def _ended(self) -> tuple[int, str]:
        """Return the exit code and the error text of the ended job."""
        raise NotImplementedError


class Working(_Told):
    """A job in a thread of this process."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work
        self._error: BaseException | None = None
        self._thread.start()

    def _listen(self) -> None:
        try:
            self._work.do(
                lambda step, detail: self._note(f"- {self._work.device}: {step}: {detail}")
            )
        except BaseException as error:
            self._error = error

    def _ended(self) -> tuple[int, str]:
        if self._error is None:
            return 0, ""
        if not isinstance(self._error, WharfingerError):
            raise self._error
        return 1, str(self._error)


class Running(_Told):
    """A job that the program runs in a process of its own."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        super().__init__()
        self._err = directory / f"{uuid4()}.err"
        lines, out = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_run, args=(arguments, out, self._err), daemon=True)
        self._process.start()
        out.close()
        self._lines = lines
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._thread.start()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process of the job."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process of the job, and wait for its end."""
        self._process.kill()
        self.end()

    def _listen(self) -> None:
        with self._lines, os.fdopen(os.dup(self._lines.fileno())) as lines:
            for line in lines:
                self._note(line.rstrip())

    def _ended(self) -> tuple[int, str]:
        self._process.join(TIMEOUT)
        code = self._process.exitcode
        if code is None:
            raise LabError(f"the job does not end: {self.told}")
        return code, self._err.read_text() if self._err.exists() else ""


def _run(arguments: Sequence[str], out: Connection, err: Path) -> None:
    """Run the program in this process, with its output to the pipe and the file."""
    # Tests may run in the background of a shell, which lets them and this process ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(out.fileno(), 1)
    out.close()
    with err.open("wb") as file:
        os.dup2(file.fileno(), 2)
    with WithoutSync():
        sys.exit(main(arguments))


class _Watched(fixtures.Fixture):
    """Adds boundaries to the writes of this process."""

    def __init__(self, names: Mapping[str, str], boundaries: killing.Boundaries) -> None:
        super().__init__()
        self._names = names
        self._reach = boundaries.reach

    def _setUp(self) -> None:
        self.useFixture(DatabaseWrites(self._writing))
        self._watch(HTTPAdapter, "send", self._about_request)

    @contextmanager
    def _writing(self, name: str, _work: object) -> Iterator[None]:
        self._reach(f"before {name}")
        yield
        self._reach(f"after {name}")

    def _watch(self, owner: type, name: str, told: Callable[..., str | None]) -> None:
        act = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            what = told(*args[1:])
            if what is None:
                return act(*args, **kwargs)
            self._reach(f"before {what}")
            result = act(*args, **kwargs)
            self._reach(f"after {what}")
            return result

        path = f"{owner.__module__}.{owner.__qualname__}.{name}"
        self.useFixture(fixtures.MonkeyPatch(path, watched))

    def _about_request(self, request: Any, *_more: Any) -> str | None:
        if request.method == "GET":
            return None
        path = _UUID.sub(lambda match: self._names.get(match[0], "*"), request.path_url)
        return f"{request.method} {path}"


def play(
    command: Sequence[str],
    names: Mapping[str, str],
    out: Path,
    err: Path,
    report: Connection,
    *,
    port: int | None,
    kill_at: int | None,
) -> None:
    """Run the program in a process of ``killing.run``, which is killed at a boundary.

    ``names`` replaces uuids in the names of boundaries. The files ``out`` and ``err`` get the
    output. ``port`` is not used, since the program has its own configuration.
    """
    for path, descriptor in ((out, 1), (err, 2)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), descriptor)
    boundaries = killing.Boundaries(kill_at, report)
    with WithoutSync(), _Watched(names, boundaries):
        code = main(command)
    sys.stdout.flush()
    report.send(boundaries.passed)
    sys.exit(code)


def play_work(
    work: Work,
    names: Mapping[str, str],
    report: Connection,
    *,
    port: int | None,
    kill_at: int | None,
) -> None:
    """Do as ``play``, but run only the job and not the command of the program."""
    boundaries = killing.Boundaries(kill_at, report)
    with WithoutSync(), _Watched(names, boundaries):
        work.do()
    report.send(boundaries.passed)
