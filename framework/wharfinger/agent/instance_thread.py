"""Run a driver instance in a thread of the agent."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import Final

from oslo_log import log as logging

from wharfinger.agent.status import InstanceReport, InstanceStatus, State
from wharfinger.agent.worker import Worker
from wharfinger.conf import AgentSection, Options
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient

LOG: Final = logging.getLogger(__name__)


class ThreadRunner:
    """Runs a driver instance in a thread."""

    def __init__(self, conf: Options, name: str, client: PlacementClient, context: Context) -> None:
        self.name: Final = name
        self._hang_timeout: Final = AgentSection.read(conf).hang_timeout
        self._latest: Final = _LatestReport()
        self._worker: Final = Worker(conf, name, client, context, self._latest)
        # The agent can end even if the driver hangs.
        self._thread: Final = Thread(target=self._worker.run, name=name, daemon=True)
        now = time.monotonic()
        self._status = InstanceStatus(name=name, state=State.STARTING, since=now, started_at=now)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def check(self) -> None:
        """Update the state, and log if a driver call hangs."""
        call, began = self._latest.call()
        now = time.monotonic()
        hangs = began is not None and now - began >= self._hang_timeout
        if hangs and self._status.state is not State.WEDGED:
            LOG.error(
                "driver instance %s: the driver has not returned from %s for %d s. Check the "
                "driver's backend. If the call never returns, restart the agent: a thread cannot "
                "be ended.",
                self.name,
                call,
                now - (began or now),
            )
            self._set_state(State.WEDGED)
        elif self._status.state is State.WEDGED and not hangs:
            LOG.warning(
                "driver instance %s: the driver call that hung has returned; the instance runs "
                "cycles again",
                self.name,
            )
            self._set_state(State.STARTING)
        if self._status.state is State.STARTING and self._latest.report.has_published:
            self._set_state(State.RUNNING)

    def stop(self) -> None:
        """Tell the thread to end after the cycle in progress."""
        self._worker.stop()
        self._set_state(State.STOPPING)

    def has_ended(self) -> bool:
        """Return whether the thread has ended."""
        return not self._thread.is_alive()

    def kill(self) -> None:
        """Do nothing: a thread cannot be killed."""

    def status(self) -> InstanceStatus:
        """Return the present status of the driver instance."""
        call, began = self._latest.call()
        return replace(self._status, driver_call=call, driver_call_began_at=began).with_report(
            self._latest.report
        )

    def _set_state(self, state: State) -> None:
        self._status = replace(self._status, state=state, since=time.monotonic())


class _LatestReport:
    def __init__(self) -> None:
        self.report = InstanceReport()
        self._calls: Final[list[tuple[str, float]]] = []

    def publish(self, report: InstanceReport) -> None:
        self.report = report

    @contextmanager
    def calling(self, operation: str) -> Iterator[None]:
        self._calls.append((operation, time.monotonic()))
        try:
            yield
        finally:
            self._calls.pop()

    def call(self) -> tuple[str, float | None]:
        calls = self._calls[-1:]
        return calls[0] if calls else ("", None)
