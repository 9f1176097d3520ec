"""An agent with stand-ins: its instances do nothing, and a datagram socket replaces systemd.

The tests of ``integration/systemd`` run a real systemd.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fixtures

from tests.functional.agent.drivers import TIMEOUT
from tests.functional.agent.running import Log
from tests.lab import fleet_file
from tests.lab.cycles import HOST, make_state
from tests.lab.objects import opened
from wharfinger import agent as agent_package
from wharfinger.agent.agent import Agent
from wharfinger.agent.configuration_check import Check
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.agent.status import InstanceStatus, State
from wharfinger.agent.systemd import SystemdNotifier
from wharfinger.cli.config import check as problems_of
from wharfinger.exceptions import WharfingerError

_STEP = 0.01


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    """Wait at most a minute until the function returns a true value; then fail with ``what``."""
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end, what or "it does not happen"
        time.sleep(_STEP)


class StandInRunner:
    """A driver instance that does nothing. A stop ends it, unless it ``hangs``."""

    def __init__(self, snapshot: Snapshot, name: str, calls: list[str], *, hangs: bool) -> None:
        self.name = name
        self.snapshot = snapshot
        self.hangs = hangs
        self.is_at_work = False
        self.checks = 0
        self._calls = calls
        now = time.monotonic()
        self._status = InstanceStatus(name=name, state=State.STARTING, since=now, started_at=now)

    def start(self) -> None:
        self._calls.append(f"start {self.name}")
        self.is_at_work = True

    def check(self) -> None:
        assert self.is_at_work
        self.checks += 1

    def stop(self) -> None:
        self._calls.append(f"stop {self.name}")
        self._status = replace(self._status, state=State.STOPPING)
        if not self.hangs:
            self.is_at_work = False

    def has_ended(self) -> bool:
        return not self.is_at_work

    def kill(self) -> None:
        self._calls.append(f"kill {self.name}")
        self.is_at_work = False

    def status(self) -> InstanceStatus:
        return self._status


class StandInCheck:
    """A check of a configuration in this process. It has no result while ``holds`` is set."""

    def __init__(self, new: Snapshot, holds: threading.Event) -> None:
        self._new = new
        self._holds = holds
        self.was_ended = False

    def result(self) -> Snapshot | None:
        if self._holds.is_set():
            return None
        _sections, problems = problems_of(self._new.conf)
        if problems:
            raise WharfingerError(reason=" ".join(map(str, problems)))
        return self._new

    def end(self) -> None:
        self.was_ended = True


class StandIn(fixtures.Fixture):
    """An agent with the instances ``a`` and ``b``, which runs in a thread.

    ``calls`` has the calls of all its instances, ``runners`` all instances that it has started.
    ``hanging`` has the names of the instances that a stop does not end.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory
        self.config = directory / "wharfinger.conf"
        self.log = Log()
        self.calls: list[str] = []
        self.runners: list[StandInRunner] = []
        self.hanging: set[str] = set()
        self.checks: list[StandInCheck] = []
        self.check_holds = threading.Event()
        self.left: tuple[str, ...] | None = None

    def _setUp(self) -> None:
        logger = logging.getLogger(agent_package.__name__)
        self.addCleanup(logger.setLevel, logger.level)
        self.addCleanup(logger.removeHandler, self.log)
        logger.setLevel(logging.INFO)
        logger.addHandler(self.log)
        self.state = self.directory / "state"
        make_state(self.state)
        self.context = opened(self.state)
        self.addCleanup(self.context.close)
        self.useFixture(fixtures.MonkeyPatch("wharfinger.agent.agent.TICK", _STEP))
        self._systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self._systemd.close)
        address = f"@wharfinger-{id(self)}"
        self._systemd.bind(f"\0{address[1:]}")
        self._systemd.setblocking(False)
        self._notifier = SystemdNotifier({"NOTIFY_SOCKET": address})
        self._notified: list[str] = []
        self.text = (
            f"[DEFAULT]\nenabled_drivers = a, b\nhost = {HOST}\nstate_path = {self.state}\n"
            "[agent]\npoll_interval = 1\n[placement]\nembedded = true\n"
            f"[a]\ndriver = file\npath = {self.directory}/a.json\n"
            f"[b]\ndriver = file\npath = {self.directory}/b.json\n"
        )
        self.config.write_text(self.text)
        self.agent = Agent(
            Snapshot([str(self.config)]),
            self._make_runner,
            self.context,
            self._begin_check,
            self._notifier,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.addCleanup(self.stop)
        wait_until(lambda: "READY=1" in self.notified())
        self.calls.clear()

    def rewrite(self, *changes: tuple[str, str], more: str = "") -> None:
        """Write the first configuration again, with these parts replaced and ``more`` added."""
        text = self.text
        for before, after in changes:
            assert before in text, before
            text = text.replace(before, after)
        self.config.write_text(text + more)

    def reload(self) -> None:
        """Reload the configuration as SIGHUP does; wait until the agent has used or refused it."""
        count = self.reloads()
        self.agent.reload()
        wait_until(lambda: self.reloads() > count)

    def reloads(self) -> int:
        """Return the number of configurations that were used or refused."""
        return self.agent.status().reloads + len(self.refusals())

    def refusals(self) -> list[logging.LogRecord]:
        return self.log.records("the new configuration was refused")

    def notified(self) -> list[str]:
        """Return the first line of each message to systemd, without messages of the status."""
        while True:
            try:
                message = self._systemd.recv(4096).decode()
            except BlockingIOError:
                return self._notified
            if not message.startswith("STATUS="):
                self._notified.append(message.partition("\n")[0])

    def runner(self, name: str) -> StandInRunner:
        """Return the instance of this name that was started last."""
        return next(one for one in reversed(self.runners) if one.name == name)

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        self.left = self.agent.run()

    def _make_runner(self, snapshot: Snapshot, name: str) -> StandInRunner:
        self.runners.append(StandInRunner(snapshot, name, self.calls, hangs=name in self.hanging))
        return self.runners[-1]

    def _begin_check(self, current: Snapshot) -> Check:
        new = Snapshot([str(self.config)])
        current.check_successor(new)
        self.checks.append(StandInCheck(new, self.check_holds))
        return self.checks[-1]


def install(directory: Path) -> Path:
    """Let this process find the drivers of the configuration."""
    return fleet_file.install(directory)
