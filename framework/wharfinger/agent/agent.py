"""All driver instances of a host, and the service that says that they are at work."""

import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from oslo_log import log as logging

from wharfinger.agent.driver_instance_worker import Worker
from wharfinger.agent.problem_log import Problems
from wharfinger.conf import DefaultSection, Options
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.tracker import service_record
from wharfinger.tracker.heartbeat import BEATS, HANGS_AFTER

LOG: Final = logging.getLogger(__name__)
#: Seconds that workers have, together, to come to the end of what they do.
PATIENCE: Final = 30.0


class Agent:
    """Runs every enabled driver instance, and keeps the host's service up.

    They share the ``client`` and the ``context``, which are safe for threads. The service is up for
    as long as one of them does not hang. Otherwise other hosts would take over the nodes of the
    instances that still work. Raises ConfigurationError.
    """

    def __init__(self, conf: Options, client: PlacementClient, context: Context) -> None:
        default = DefaultSection.read(conf)
        self._host: Final = default.host
        self._interval: Final = default.service_down_time / BEATS
        self._context: Final = context
        self._workers: Final = [
            Worker(conf, name, client, context) for name in default.enabled_drivers
        ]
        self._problems: Final = Problems(f"the service of {self._host}")
        # Unlike an Event, it may be written by a signal's handler while this thread waits for it.
        self._stopping: Final = SimpleQueue[None]()

    def stop(self) -> None:
        """Have ``run`` come to its end; for any thread, and for the handlers of signals."""
        self._stopping.put(None)

    def run(self) -> tuple[str, ...]:
        """Run until it is stopped; the names of instances that are still at work then.

        Those hang: what they are doing is ended by the end of the process, as a kill would end it.
        """
        self._report()  # other hosts take the nodes of a service that is down
        names = ", ".join(worker.name for worker in self._workers)
        LOG.info("the agent of %s runs %s", self._host, names)
        for worker in self._workers:
            worker.start()
        try:
            while not self._has_to_stop():
                self._report()
        finally:
            LOG.info("the agent of %s stops", self._host)
            left = self._stop()
        return left

    def _has_to_stop(self) -> bool:
        """Wait until the next report is due, or until it is stopped."""
        with suppress(Empty):
            self._stopping.get(timeout=self._interval)
            return True
        return False

    def _report(self) -> None:
        hanging = [worker.name for worker in self._workers if worker.hangs]
        self._problems.found("hanging", [self._hangs(name, len(hanging)) for name in hanging])
        if hanging and len(hanging) == len(self._workers):
            return
        owners = {worker.owner for worker in self._workers if worker.owner is not None}
        complete = all(worker.is_complete for worker in self._workers)
        try:
            service_record.report(self._context, self._host, owners, complete=complete)
        except Exception as error:
            # The instances go on, and so does this.
            self._problems.found("report", [error], is_whole=True)
        else:
            LOG.debug("the service of %s is up, its cycles complete: %s", self._host, complete)
            self._problems.found("report")

    def _hangs(self, name: str, count: int) -> WharfingerError:
        is_last = count == len(self._workers)
        down = "All instances hang, so the service is not reported as up, and other hosts may take "
        return WharfingerError(
            reason=f"driver instance {name} hangs: its cycle has made no progress for "
            f"{HANGS_AFTER:g} seconds. "
            + (f"{down}over its nodes. " if is_last else "")
            + "Find out what its backend does, and restart the agent."
        )

    def _stop(self) -> tuple[str, ...]:
        for worker in self._workers:
            worker.stop()
        end = time.monotonic() + PATIENCE
        left = [one.name for one in self._workers if not one.join(max(0.0, end - time.monotonic()))]
        for name in left:
            LOG.warning("%s: still at work after %g seconds, and left behind", name, PATIENCE)
        return tuple(left)
