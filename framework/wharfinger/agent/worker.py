"""Run the cycles of one driver instance until it is stopped."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import Final, Protocol

from oslo_log import log as logging

from wharfinger.agent.problem_log import Problems, is_outage
from wharfinger.agent.schedule import Backoff, CycleType, Timetable
from wharfinger.agent.status import InstanceReport
from wharfinger.agent.work_report import WorkReport, became_free, became_reserved
from wharfinger.conf import AgentSection, Options
from wharfinger.exceptions import printable
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.plan import Step
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_calls, driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.request_id import same_request

LOG: Final = logging.getLogger(__name__)
#: The largest number of providers that one log line names.
_NAMED: Final = 10


class Reporter(Protocol):
    """Receives the reports of a driver instance."""

    def calling(self, operation: str) -> AbstractContextManager[object]:
        """Show, during a block, that a driver call is in progress."""

    def publish(self, report: InstanceReport) -> None:
        """Replace the former report."""


class Worker:
    """Runs the cycles of one driver instance.

    No other process may run this driver instance at the same time.
    """

    def __init__(
        self,
        conf: Options,
        name: str,
        client: PlacementClient,
        context: Context,
        reporter: Reporter,
    ) -> None:
        self.name: Final = name
        self._conf: Final = conf
        self._section: Final = AgentSection.read(conf)
        self._client: Final = client
        self._context: Final = context
        self._reporter: Final = reporter
        self._problems: Final = Problems(name)
        self._report: Final = WorkReport(client)
        self._stopping: Final = Event()

    def stop(self) -> None:
        """Let ``run`` end after the cycle in progress."""
        self._stopping.set()

    def run(self) -> None:
        """Run cycles until ``stop`` is called, also after errors."""
        driver_calls.in_progress.set(self._reporter.calling)
        backoff = Backoff(self._section.drift_interval)
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._serve()
            except BaseException as error:
                # This isolates other instances from the driver, even if it calls sys.exit().
                self._problems.found("start", [error], ends_check=True)
                self._report.failed(error)
            self._reporter.publish(self._report.current)
            self._stopping.wait(max(0.0, began + backoff.failed() - time.monotonic()))

    def _serve(self) -> None:
        with self._reporter.calling("import"):
            instance = driver_instance_loader.load(self._conf, self.name)
        owner = instance.publisher.owner
        self._report.loaded(instance.section.driver, owner)
        self._reporter.publish(self._report.current)
        with driver_instance_loader.running(
            instance,
            self._client,
            self._context,
            policy=RemovalPolicy(delay=instance.section.removal_delay),
        ) as cycle:
            self._problems.found("start")
            LOG.info(
                "%s: driver %s publishes providers of owner %s",
                self.name,
                instance.section.driver,
                owner,
            )
            self._run_cycles(cycle)

    def _run_cycles(self, cycle: Reconciler) -> None:
        timetable = Timetable(self._section)
        while not self._stopping.is_set():
            kind = timetable.due(time.monotonic())
            if kind is None:
                self._stopping.wait(max(0.0, timetable.next - time.monotonic()))
            else:
                succeeded = self._run_cycle(cycle, kind)
                timetable.ended(kind, time.monotonic(), failed=not succeeded)

    @same_request()
    def _run_cycle(self, cycle: Reconciler, kind: CycleType) -> bool:
        runs: dict[CycleType, Callable[..., CycleResult]] = {
            CycleType.FULL: cycle.sync,
            CycleType.DRIFT: cycle.drift,
            CycleType.POLL: cycle.poll,
        }
        steps: list[Step] = []

        def note(step: Step) -> None:
            self._report.written(step)
            steps.append(step)

        self._report.begin(kind)
        self._reporter.publish(self._report.current)
        result = None
        error: BaseException | None = None
        try:
            result = runs[kind](on_step=note)
        except BaseException as raised:
            # The next cycle may succeed.
            error = raised
        if steps:
            LOG.info("%s: %s", self.name, _summary(steps))
        LOG.debug("%s: %s: %d changes written to Placement", self.name, kind.value, len(steps))
        if result is not None:
            self._report.completed(result, cycle.store.records)
        elif error is not None:
            self._report.failed(error)
        self._reporter.publish(self._report.current)
        return self._note_problems(kind, result, error)

    def _note_problems(
        self, kind: CycleType, result: CycleResult | None, error: BaseException | None
    ) -> bool:
        problems = result.problems if result is not None else ()
        outages = [problem for problem in problems if is_outage(problem)]
        others = [problem for problem in problems if problem not in outages]
        failure = [error] if error is not None else outages
        self._problems.found(kind, failure, ends_check=True)
        if kind is CycleType.FULL and not failure:
            self._problems.found(CycleType.DRIFT)  # a full cycle does all that a drift cycle does
        if result is not None and kind is CycleType.FULL:
            self._problems.found("cycles", others)
        elif result is not None:
            # Drift cycles and polls examine only changes, so other problems may persist.
            self._problems.also_found("cycles", others)
        return not failure


def _summary(steps: Sequence[Step]) -> str:
    parts = [f"{len(steps)} {'change' if len(steps) == 1 else 'changes'} written"]
    for word, changes in (("reserved", became_reserved), ("released", became_free)):
        names = sorted({printable(step.name) for step in steps if changes(step)})
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            parts.append(f"{word}: {', '.join(names[:_NAMED])}{more}")
    return "; ".join(parts)
