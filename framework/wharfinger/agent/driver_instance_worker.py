"""One driver instance, run in a thread of its own."""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from threading import Event, Thread
from typing import Final

from oslo_log import log as logging

from wharfinger.agent.problem_log import Problems, is_outage
from wharfinger.agent.schedule import Backoff, Pace, Timetable
from wharfinger.conf import AgentSection, DefaultSection, Options
from wharfinger.exceptions import printable
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import SetInventories, Step
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.request_id import same_request
from wharfinger.tracker.heartbeat import HANGS_AFTER

LOG: Final = logging.getLogger(__name__)
#: How many providers one line names.
_NAMED: Final = 10


class Worker:
    """Runs a driver instance, one cycle after the other, until it is stopped.

    It logs each failure and tries again. The instance belongs to this process for as long; the
    worker loads it anew only where it could not be loaded or connected.

    It hangs when its work has made no progress for ``HANGS_AFTER`` seconds.

    ``owner`` is the owner trait that it publishes with, None until that is known. ``is_complete``
    is True if its last full cycle published all nodes and devices.
    """

    def __init__(self, conf: Options, name: str, client: PlacementClient, context: Context) -> None:
        self.name: Final = name
        self.owner: str | None = None
        self.is_complete = False
        self._conf: Final = conf
        self._section: Final = AgentSection.read(conf)
        self._down_time: Final = timedelta(seconds=DefaultSection.read(conf).service_down_time)
        self._client: Final = client
        self._context: Final = context
        self._problems: Final = Problems(name)
        #: Moment of the last progress of its work; None while it has no work.
        self._progressed: float | None = None
        self._stopping: Final = Event()
        # A driver that hangs does not keep the process from its end.
        self._thread: Final = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Come to an end after the cycle that is under way."""
        self._stopping.set()

    def join(self, timeout: float) -> bool:
        """Whether it has come to its end, within so many seconds."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def hangs(self) -> bool:
        """Whether its work has made no progress for too long."""
        progressed = self._progressed
        return progressed is not None and time.monotonic() - progressed >= HANGS_AFTER

    def _progress(self, _what: object = None) -> None:
        """Note that the work goes on."""
        self._progressed = time.monotonic()

    def _run(self) -> None:
        backoff = Backoff(self._section.drift_interval)
        while not self._stopping.is_set():
            self._progress()
            began = time.monotonic()
            try:
                self._serve()
            except BaseException as error:
                # Isolates the other instances from this one's driver, one that exits too.
                self._problems.found("start", [error], is_whole=True)
            self._progressed = None
            self._stopping.wait(max(0.0, began + backoff.failed() - time.monotonic()))

    def _serve(self) -> None:
        """Load and connect the instance, and run its cycles until the end."""
        instance = driver_instance_loader.load(self._conf, self.name)
        self.owner = instance.publisher.owner
        with driver_instance_loader.running(
            instance,
            self._client,
            self._context,
            policy=RemovalPolicy(delay=instance.section.removal_delay),
            down_time=self._down_time,
        ) as cycle:
            self._problems.found("start")
            LOG.info(
                "%s: driver %s publishes for %s", self.name, instance.section.driver, self.owner
            )
            self._keep_pace(cycle)

    def _keep_pace(self, cycle: Reconciler) -> None:
        timetable = Timetable(self._section)
        while not self._stopping.is_set():
            pace = timetable.due(time.monotonic())
            if pace is None:
                self._progressed = None
                self._stopping.wait(max(0.0, timetable.next - time.monotonic()))
            else:
                succeeded = self._take(cycle, pace)
                timetable.ended(pace, time.monotonic(), failed=not succeeded)

    @same_request()
    def _take(self, cycle: Reconciler, pace: Pace) -> bool:
        """Run a cycle and log its result; return whether it ended, and no dependency was away."""
        run = {Pace.FULL: cycle.sync, Pace.DRIFT: cycle.drift, Pace.POLL: cycle.poll}[pace]
        steps: list[Step] = []

        def note(step: Step) -> None:
            self._progress()
            steps.append(step)

        self._progress()
        outcome = None
        failure: tuple[BaseException, ...] = ()
        try:
            outcome = run(on_plan=self._progress, on_step=note)
        except BaseException as error:
            # The next cycle may fare better.
            failure = (error,)
        if pace is Pace.FULL:
            self.is_complete = outcome is not None and not outcome.problems
        if steps:
            LOG.info("%s: %s", self.name, _told(steps))
        LOG.debug("%s: %s: %d changes written", self.name, pace.value, len(steps))
        problems = outcome.problems if outcome is not None else ()
        failure += tuple(problem for problem in problems if is_outage(problem))
        self._problems.found(pace, failure, is_whole=True)
        if pace is Pace.FULL and not failure:
            self._problems.found(Pace.DRIFT)  # a full cycle does all that a drift cycle does
        others = [problem for problem in problems if problem not in failure]
        if outcome is not None and pace is Pace.FULL:
            self._problems.found("cycles", others)
        elif outcome is not None:
            # The others look at what has changed: of the rest, they do not know.
            self._problems.also_found("cycles", others)
        return not failure


def _told(steps: Sequence[Step]) -> str:
    """How much was written, and which providers are reserved or released by it."""
    reserved: dict[str, bool] = {}
    for step in steps:
        if isinstance(step, SetInventories) and _is_full(step.before) != _is_full(step.after):
            reserved[step.name] = _is_full(step.after)
    told = [f"{len(steps)} {'change' if len(steps) == 1 else 'changes'} written"]
    for word, wanted in (("reserved", True), ("released", False)):
        names = [printable(name) for name, is_full in reserved.items() if is_full is wanted]
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            told.append(f"{word}: {', '.join(names[:_NAMED])}{more}")
    return "; ".join(told)


def _is_full(inventories: Mapping[str, Inventory]) -> bool:
    return bool(inventories) and all(one.is_fully_reserved for one in inventories.values())
