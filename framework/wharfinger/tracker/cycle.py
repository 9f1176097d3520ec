"""The cycle: driver snapshot -> desired trees -> plan -> apply -> remember."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from oslo_log import log as logging
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import (
    ConcurrentUpdate,
    DriverError,
    DuplicateProvider,
    NotFound,
    ObjectError,
    PlacementError,
    StateError,
    UnknownTrait,
    WharfingerError,
)
from wharfinger.objects import Context
from wharfinger.placement.apply import PlanApplier
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import PendingRemoval, Plan, Step
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.tracker import services
from wharfinger.tracker.desired import NodeListing
from wharfinger.tracker.memory import InstanceMemory
from wharfinger.tracker.nodes import NodeRows
from wharfinger.tracker.planning import Planner

LOG: Final = logging.getLogger(__name__)
#: How often one cycle plans a tree that others keep changing, and the longest wait
#: between two plans, in seconds.
_ATTEMPTS: Final = 5
_LONGEST_WAIT: Final = 2.0
#: Errors that come from somebody else's write between our look and our write.
_OTHERS_WORK: Final = (ConcurrentUpdate, DuplicateProvider, NotFound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cycle did, and what it could not do.

    ``steps`` are those that were taken; ``pending`` the removals that wait.
    """

    steps: tuple[Step, ...] = ()
    pending: tuple[PendingRemoval, ...] = ()
    problems: tuple[WharfingerError, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round of planning and applying, and the trees that failed in it."""

    plan: Plan
    failures: tuple[PlacementError, ...]

    @property
    def is_worth_another(self) -> bool:
        """Whether somebody else changed a tree at the same time."""
        return any(isinstance(one, _OTHERS_WORK) for one in self.failures)


class DriverCycle:
    """The cycles of one driver instance, one at a time."""

    def __init__(
        self,
        driver: ComputeDriver,
        publisher: Publisher,
        client: PlacementClient,
        context: Context,
        policy: RemovalPolicy,
    ) -> None:
        self._driver: Final = driver
        self._publisher: Final = publisher
        self._context: Final = context
        self.memory: Final = InstanceMemory(context, driver.host, publisher.instance)
        self._planner: Final = Planner(driver, publisher, client, policy)
        self._applier: Final = PlanApplier(client, self.memory)
        self._nodes: Final = NodeRows(context, driver.host, publisher, driver.capabilities)

    @property
    def instance(self) -> str:
        """The name of the driver instance."""
        return self._publisher.instance

    def plan(self) -> Plan:
        """What a cycle would do now. Nothing is written, and nothing is remembered.

        Raises BackendError, PlacementError.
        """
        plan, _live = self._plan(NodeListing(self._driver), time.time())
        return plan

    def sync(
        self,
        on_plan: Callable[[Plan], None] = lambda _plan: None,
        on_step: Callable[[Step], None] = lambda _step: None,
    ) -> Outcome:
        """Run one cycle.

        A tree that somebody else changes at the same time is read and planned again, a
        bounded number of times. One that fails is reported in the outcome and leaves the
        others alone. Raises BackendError where the driver cannot list its nodes, and
        PlacementError where Placement does not answer or refuses our credentials.
        """
        applied: list[Step] = []

        def note(step: Step) -> None:
            applied.append(step)
            on_step(step)

        try:
            listing, now = NodeListing(self._driver), time.time()
        except DriverError:
            for problem in self._disable(note):
                LOG.warning("%s", problem)
            raise
        retrying = Retrying(
            retry=retry_if_result(lambda one: one.is_worth_another),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(max=_LONGEST_WAIT),
            retry_error_callback=_last_result,
        )
        last: _Pass = retrying(self._pass, listing, now, on_plan, note)
        return Outcome(
            steps=tuple(applied),
            pending=last.plan.pending,
            problems=(*last.plan.problems, *last.failures, *self._keep(listing)),
        )

    def _disable(self, on_step: Callable[[Step], None]) -> Iterator[WharfingerError]:
        """Have the roots say so if the service is disabled, though the driver cannot be asked."""
        try:
            if services.is_disabled(self._context, self._driver.host):
                plan, live = self._planner.plan_disabled(self.memory)
                yield from plan.problems
                yield from self._applier.apply(plan, live, on_step)
        except (ObjectError, PlacementError, StateError) as error:
            yield error

    def _keep(self, listing: NodeListing) -> Iterator[WharfingerError]:
        listing.use_known_uuids(self.memory.records)  # of what was adopted just now, too
        try:
            self._nodes.keep(listing.nodes, self.memory.records, self.memory.damaged)
        except (ObjectError, StateError) as error:
            yield error

    def _plan(self, listing: NodeListing, now: float) -> tuple[Plan, Mapping[str, Provider]]:
        disabled = services.is_disabled(self._context, self._driver.host)
        return self._planner.plan(listing, self.memory, now, disabled=disabled)

    def _pass(
        self,
        listing: NodeListing,
        now: float,
        on_plan: Callable[[Plan], None],
        on_step: Callable[[Step], None],
    ) -> _Pass:
        try:
            plan, live = self._plan(listing, now)
        except _OTHERS_WORK as gone:
            return _Pass(Plan(), (gone,))
        on_plan(plan)
        failures = self._applier.apply(plan, live, on_step)
        for error in failures:
            LOG.debug("a tree failed: %s", error)
            if isinstance(error, UnknownTrait) and error.trait == self._publisher.owner:
                raise error  # nothing can be published
        return _Pass(plan, tuple(failures))


def _last_result(state: RetryCallState) -> _Pass:
    assert state.outcome is not None
    result: _Pass = state.outcome.result()
    return result
