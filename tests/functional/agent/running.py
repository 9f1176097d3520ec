"""An agent that runs in a thread of this process, and its log."""

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import fixtures
import pytest

from tests.functional.agent.drivers import FLEETS, TIMEOUT, Fleet, install
from tests.lab.cycles import HOST, make_state
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture
from wharfinger import agent
from wharfinger.agent.agent import Agent
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.agent.instance_thread import ThreadRunner
from wharfinger.agent.runner import Runner
from wharfinger.agent.status import State
from wharfinger.agent.systemd import SystemdNotifier
from wharfinger.objects import AGENT_BINARY, Context, Service
from wharfinger.placement.client import PlacementClient
from wharfinger.tracker import heartbeat

#: An interval in seconds that is longer than any test.
NEVER = 10_000.0
SOON = 0.01


class Log(logging.Handler):
    """Collects the log records of the agent."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._records: list[logging.LogRecord] = []
        self._told = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._told:
            self._records.append(record)
            self._told.notify_all()

    def records(self, part: str) -> list[logging.LogRecord]:
        with self._told:
            return [one for one in self._records if part in one.getMessage()]

    def lines(self, part: str = "") -> list[str]:
        return [one.getMessage() for one in self.records(part)]

    def wait_for(self, part: str) -> None:
        """Wait until a message that contains ``part`` is logged."""
        with self._told:
            assert self._told.wait_for(lambda: self.records(part), TIMEOUT), (part, self.lines())


class PassedCheck:
    """A finished check of a configuration, which found no problem."""

    def __init__(self, new: Snapshot) -> None:
        self._new = new

    def result(self) -> Snapshot:
        return self._new

    def end(self) -> None:
        """Do nothing, because the check is finished."""


class Running(fixtures.Fixture):
    """An agent with one driver instance for each fleet. It runs after ``start()``."""

    def __init__(self, placement: PlacementFixture, directory: Path, **fleets: Fleet) -> None:
        super().__init__()
        self._placement = placement
        self._directory = directory
        self.fleets = fleets
        self.log = Log()
        self.left: tuple[str, ...] | None = None

    def _setUp(self) -> None:
        patch = pytest.MonkeyPatch()
        self.addCleanup(patch.undo)
        # Report three times a second. A short service_down_time instead would make plans expire.
        patch.setattr(heartbeat, "BEATS", 180)
        patch.syspath_prepend(str(install(self._directory)))
        FLEETS.update(self.fleets)
        self.addCleanup(FLEETS.clear)
        for module in (agent, heartbeat):
            logger = logging.getLogger(module.__name__)
            self.addCleanup(logger.setLevel, logger.level)
            self.addCleanup(logger.removeHandler, self.log)
            logger.setLevel(logging.INFO)
            logger.addHandler(self.log)
        self.state = self._directory / "state"
        make_state(self.state)
        self.context = opened(self.state)
        self.addCleanup(self.context.close)

    def configure(
        self,
        *more: str,
        poll: float = SOON,
        drift: float = NEVER,
        full: float = NEVER,
        hang: float = NEVER,
        drivers: Iterable[str] = (),
    ) -> Snapshot:
        """Return a configuration with these intervals."""
        names = [*self.fleets, *drivers]
        path = self._directory / "wharfinger.conf"
        path.write_text(
            f"[DEFAULT]\nenabled_drivers = {', '.join(names)}\nhost = {HOST}\n"
            f"state_path = {self.state}\nservice_down_time = 60\n"
            f"[agent]\nisolation = thread\nhang_timeout = {hang}\n"
            f"poll_interval = {poll}\ndrift_interval = {drift}\nfull_interval = {full}\n"
            + "".join(f"[{name}]\ndriver = fleet\n" for name in self.fleets)
            + "\n".join(more)
        )
        return Snapshot([str(path)])

    def start(self, *more: str, drivers: Iterable[str] = (), **intervals: float) -> None:
        """Run the agent until the end of the test, or until ``stop()``."""
        self.agent = self.make_agent(self.configure(*more, drivers=drivers, **intervals))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.addCleanup(self.stop)

    def make_agent(
        self,
        snapshot: Snapshot,
        make_client: Callable[[], PlacementClient] | None = None,
        context: Context | None = None,
    ) -> Agent:
        """Return an agent whose driver instances run in threads."""
        new_client = make_client or self._placement.new_client

        def make_runner(snapshot: Snapshot, name: str) -> Runner:
            return ThreadRunner(snapshot.conf, name, new_client(), context or self.context)

        return Agent(
            snapshot,
            make_runner,
            context or self.context,
            self._begin_check,
            SystemdNotifier({}),
        )

    def _begin_check(self, current: Snapshot) -> "PassedCheck":
        new = Snapshot([str(self._directory / "wharfinger.conf")])
        current.check_successor(new)
        return PassedCheck(new)

    def stop(self) -> None:
        self.agent.stop()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()

    def service(self) -> Service:
        return Service.get_by_host_and_binary(self.context, HOST, AGENT_BINARY)

    def state_of(self, name: str) -> State:
        return next(one.state for one in self.agent.status().instances if one.name == name)

    def _run(self) -> None:
        self.left = self.agent.run()
