"""Supervise the driver instances of a host."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Final

from oslo_log import log as logging

from wharfinger.agent.configuration_check import Check
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.agent.health_server import HealthServer
from wharfinger.agent.runner import Runner
from wharfinger.agent.status import AgentStatus, Intervals, State
from wharfinger.agent.systemd import SystemdNotifier
from wharfinger.conf import AgentSection, DefaultSection
from wharfinger.error_codes import with_code
from wharfinger.exceptions import AgentError, WharfingerError, printable
from wharfinger.objects import Context
from wharfinger.tracker import service_record
from wharfinger.tracker.heartbeat import Heartbeat

LOG: Final = logging.getLogger(__name__)
#: Seconds that all instances together have to end. systemd and operators grant 30.
PATIENCE: Final = 25.0
#: Seconds that the last report of the service may take.
_REPORT_TIMEOUT: Final = 2.0
#: Seconds of waiting after which the agent logs it.
_LOG_WAIT_AFTER: Final = 2.0
#: Seconds between two checks of the instances.
TICK: Final = 1.0
#: Seconds between two checks whether the instances have ended.
_STEP: Final = 0.05
#: States in which an instance does not work.
_BROKEN: Final = frozenset({State.WEDGED, State.ENDED, State.CRASH_LOOP})

#: Creates the runner of the driver instance with this name.
RunnerFactory = Callable[[Snapshot, str], Runner]


class _Event(Enum):
    STOP = "stop"
    RELOAD = "reload"
    LOOK = "look"


class Agent:
    """Runs the enabled driver instances of a host. The constructor raises ConfigurationError."""

    def __init__(
        self,
        snapshot: Snapshot,
        make_runner: RunnerFactory,
        context: Context,
        begin_check: Callable[[Snapshot], Check],
        systemd: SystemdNotifier,
    ) -> None:
        default = DefaultSection.read(snapshot.conf)
        self._host: Final = default.host
        self._down_time: Final = default.service_down_time
        self._snapshot = snapshot
        self._make_runner: Final = make_runner
        self._context: Final = context
        self._begin_check: Final = begin_check
        self._check: Check | None = None
        #: Whether to reload again after the check in progress.
        self._reads_again = False
        self._systemd: Final = systemd
        self._alive_at = 0.0
        self._runners: dict[str, Runner] = {
            name: make_runner(snapshot, name) for name in default.enabled_drivers
        }
        #: Runners that have to end, and when the agent kills each.
        self._leaving: dict[Runner, float] = {}
        #: New runners, until the former runner of the same instance has ended.
        self._waiting: list[Runner] = []
        # Unlike an Event, a signal handler may write to it while this thread waits for it.
        self._events: Final = SimpleQueue[_Event]()
        self._looked_at = now = time.monotonic()
        self._status = AgentStatus(started_at=now, looked_at=now, intervals=_intervals(snapshot))
        #: The error of the last report of the service ("": success), and when it was made.
        self._service: tuple[str, float | None] = ("", None)

    # Methods for any thread, and for signal handlers.

    def stop(self) -> None:
        """Tell the agent to stop."""
        self._events.put(_Event.STOP)

    def reload(self) -> None:
        """Tell the agent to read its configuration again."""
        self._events.put(_Event.RELOAD)

    def look(self) -> None:
        """Tell the agent to check its driver instances now."""
        self._events.put(_Event.LOOK)

    def status(self) -> AgentStatus:
        """Return the status of the agent without waiting."""
        instances = tuple(runner.status() for runner in list(self._runners.values()))
        error, reported_at = self._service
        return replace(
            self._status,
            looked_at=self._looked_at,
            instances=instances,
            service_error=error,
            service_reported_at=reported_at,
        )

    # Methods for the main thread.

    def run(self) -> tuple[str, ...]:
        """Run until the agent is stopped; return names of all work that did not end in time.

        Raises ConfigurationError.
        """
        LOG.info(
            "the agent of host %s starts with driver instances: %s",
            self._host,
            ", ".join(self._runners),
        )
        with ExitStack() as stack:
            stack.enter_context(HealthServer(AgentSection.read(self._snapshot.conf), self.status))
            heartbeat = stack.enter_context(
                Heartbeat(
                    self._host,
                    self._report,
                    self._down_time,
                    at_once=True,
                    exit_timeout=_REPORT_TIMEOUT,
                )
            )
            for runner in self._runners.values():
                runner.start()
            self._systemd.ready()
            try:
                while (event := self._next_event()) is not _Event.STOP:
                    heartbeat.progress()
                    if event is _Event.RELOAD:
                        self._begin_reload()
                    self._continue_reload()
                    self._look_after_instances()
                    self._looked_at = time.monotonic()
                    self._notify_systemd()
            finally:
                left = self._stop()
        if not heartbeat.has_ended:
            LOG.warning(
                "the agent of host %s ends, but the agent's last report that the service is up "
                "still waits for the database. Check the database",
                self._host,
            )
            left = (*left, "report of the service")
        return left

    def _next_event(self) -> _Event:
        try:
            return self._events.get(timeout=TICK)
        except Empty:
            return _Event.LOOK

    def _report(self) -> None:
        try:
            self._report_service()
        except Exception as error:
            self._service = printable(with_code(error)), time.monotonic()
            raise
        self._service = "", time.monotonic()

    def _report_service(self) -> None:
        statuses = [runner.status() for runner in list(self._runners.values())]
        if statuses and all(one.state in _BROKEN for one in statuses):
            states = ", ".join(f"{one.name}: {one.state}" for one in statuses)
            reason = f"no driver instance works ({states}); the log has their errors"
            raise AgentError(reason=reason)
        service_record.report(
            self._context,
            self._host,
            {one.report.owner for one in statuses if one.report.owner is not None},
            complete=bool(statuses) and all(one.report.is_complete for one in statuses),
        )

    # Reload.

    def _begin_reload(self) -> None:
        if self._check is not None:
            self._reads_again = True
            return
        self._systemd.reloading()
        LOG.info("the agent reads the configuration again")
        try:
            self._check = self._begin_check(self._snapshot)
        except WharfingerError as error:
            self._refuse(error)
            self._systemd.ready()

    def _continue_reload(self) -> None:
        if self._check is None:
            return
        try:
            new = self._check.result()
            if new is None:
                return
            self._use(new)
        except WharfingerError as error:
            self._refuse(error)
        self._check = None
        self._systemd.ready()
        if self._reads_again:
            self._reads_again = False
            self._begin_reload()

    def _refuse(self, error: WharfingerError) -> None:
        text = printable(f"{self._snapshot.name}: {with_code(error)}")
        LOG.error("the new configuration was refused, and the agent keeps the old one: %s.", text)
        self._status = replace(self._status, refused_reload=text, reloaded_at=time.monotonic())

    def _use(self, new: Snapshot) -> None:
        self._replace_instances(new)
        self._snapshot = new
        self._status = replace(
            self._status,
            refused_reload="",
            reloaded_at=time.monotonic(),
            reloads=self._status.reloads + 1,
            intervals=_intervals(new),
        )

    def _replace_instances(self, new: Snapshot) -> None:
        names = DefaultSection.read(new.conf).enabled_drivers
        changed = self._snapshot.changed_instances(new, names)
        before = self._runners
        kept = [name for name in names if name in before and name not in changed]
        self._runners = {
            name: before[name] if name in kept else self._make_runner(new, name) for name in names
        }
        started = [runner for name, runner in self._runners.items() if name not in kept]
        # A runner that has not started yet may be unchanged in this configuration.
        self._waiting = [one for one in self._waiting if one in self._runners.values()] + started
        for name, runner in before.items():
            if name not in kept:
                runner.stop()
                self._leaving[runner] = time.monotonic() + PATIENCE
        LOG.info(
            "the new configuration is used; driver instances started: %s; stopped: %s; "
            "unchanged: %s",
            *(
                ", ".join(those) or "none"
                for those in (
                    [one.name for one in started],
                    [name for name in before if name not in kept],
                    kept,
                )
            ),
        )

    def _look_after_instances(self) -> None:
        for runner in self._runners.values():
            if runner not in self._waiting:
                runner.check()
        for runner, end in list(self._leaving.items()):
            if runner.has_ended():
                del self._leaving[runner]
            elif time.monotonic() >= end:
                _kill(runner)
                self._leaving[runner] = float("inf")
        leaving = {runner.name for runner in self._leaving}
        for runner in [one for one in self._waiting if one.name not in leaving]:
            runner.start()
            self._waiting.remove(runner)

    def _notify_systemd(self) -> None:
        states = Counter(runner.status().state for runner in self._runners.values())
        self._systemd.status(", ".join(f"{count} {state}" for state, count in states.items()))
        interval, now = self._systemd.watchdog_interval, time.monotonic()
        if interval is not None and now - self._alive_at >= interval:
            self._systemd.alive()
            self._alive_at = now

    # Methods that end the agent.

    def _stop(self) -> tuple[str, ...]:
        LOG.info("the agent of host %s stops", self._host)
        self._systemd.stopping()
        self._status = replace(self._status, is_stopping=True)
        if self._check is not None:
            self._check.end()
        for runner in self._runners.values():
            runner.stop()
        runners = [*self._runners.values(), *self._leaving]
        begin = time.monotonic()
        has_said = False
        while left := [one for one in runners if not one.has_ended()]:
            elapsed = time.monotonic() - begin
            if elapsed >= PATIENCE:
                break
            if elapsed >= _LOG_WAIT_AFTER and not has_said:
                LOG.info(
                    "the agent waits at most %g s for the end of driver instances: %s",
                    PATIENCE,
                    _describe_work(left),
                )
                has_said = True
            time.sleep(_STEP)
        for runner in left:
            _kill(runner)
        return tuple(one.name for one in left)


def _kill(runner: Runner) -> None:
    LOG.warning(
        "driver instance %s: still at work %g s after the request to stop. The agent kills the "
        "process of the instance; with isolation = thread, the thread goes on. The next cycle of "
        "the instance completes unfinished changes.",
        runner.name,
        PATIENCE,
    )
    runner.kill()


def _describe_work(runners: Iterable[Runner]) -> str:
    parts = []
    for runner in runners:
        status = runner.status()
        work = status.report.cycle or "no cycle"
        call = f", driver call {status.driver_call}" if status.driver_call else ""
        parts.append(f"{runner.name} ({work}{call})")
    return "; ".join(parts)


def _intervals(snapshot: Snapshot) -> Intervals:
    section = AgentSection.read(snapshot.conf)
    return Intervals(
        poll=section.poll_interval,
        drift=section.drift_interval,
        full=section.full_interval,
        hang=section.hang_timeout,
    )
