"""The cycle: driver snapshot -> desired trees -> plan -> apply -> remember."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from http.client import INTERNAL_SERVER_ERROR
from typing import Final, Self

from oslo_log import log as logging
from oslo_utils.uuidutils import is_uuid_like
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import (
    BackendError,
    ConcurrentSave,
    ConcurrentUpdate,
    DriverError,
    DuplicateProvider,
    NameTaken,
    NotFound,
    ObjectError,
    ObjectExists,
    ObjectNotFound,
    PlacementError,
    PlacementUnavailable,
    StateError,
    UnknownTrait,
    WharfingerError,
    shown,
)
from wharfinger.objects import ComputeNode, ComputeNodeList, Context
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.absence import Uptime
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import (
    DeleteProvider,
    ForeignReservation,
    PendingRemoval,
    Plan,
    Step,
    UpdateProvider,
)
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import adoption, uptime
from wharfinger.reconcile.apply import PlanApplier
from wharfinger.reconcile.circumstances import Circumstances
from wharfinger.reconcile.node_list import NodeListing, check_names, describe, guarded, list_nodes
from wharfinger.reconcile.planning import Planned, Planner
from wharfinger.reconcile.records import InstanceMemory
from wharfinger.reconcile.takeover import Handover
from wharfinger.tracker.node_rows import NodeRows

LOG: Final = logging.getLogger(__name__)
#: How often one cycle plans a tree that others keep changing, and the longest wait
#: between two plans, in seconds.
_ATTEMPTS: Final = 5
_LONGEST_WAIT: Final = 2.0
_BACKOFF: Final = wait_random_exponential(max=_LONGEST_WAIT)
#: Errors that come from somebody else's write between our look and our write.
_OTHERS_WORK: Final = (
    ConcurrentUpdate,
    DuplicateProvider,
    NotFound,
    ConcurrentSave,
    ObjectExists,
    ObjectNotFound,
)

#: Errors that may be over two seconds later; others are left to the next drift cycle.
_PASSING: Final = (*_OTHERS_WORK, ObjectError, PlacementUnavailable, StateError)

OnPlan = Callable[[Plan], None]
OnStep = Callable[[Step], None]


def _ignore(_what: object) -> None:
    """Be told, and do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cycle did, and what it could not do.

    ``steps`` are those that were taken; ``pending`` the removals that wait; ``foreign`` what
    somebody else has reserved.
    """

    steps: tuple[Step, ...] = ()
    pending: tuple[PendingRemoval, ...] = ()
    foreign: tuple[ForeignReservation, ...] = ()
    problems: tuple[WharfingerError, ...] = ()

    def with_problems(self, more: Iterable[WharfingerError]) -> Self:
        """The same, with more that could not be done."""
        return replace(self, problems=(*self.problems, *more))


@dataclass(frozen=True, slots=True)
class _Pass:
    """One round of planning and applying, and the trees that failed in it.

    ``goes_on``: it has prepared what only another one can plan.
    """

    plan: Plan
    failures: tuple[WharfingerError, ...] = ()
    goes_on: bool = False

    @property
    def is_worth_another(self) -> bool:
        """Whether there is more to do, or somebody else changed a tree at the same time."""
        return self.goes_on or any(isinstance(one, _OTHERS_WORK) for one in self.failures)


@dataclass(frozen=True, slots=True)
class _Changes:
    """What a change feed has: the names of nodes, and the next mark."""

    names: tuple[str, ...] = ()
    mark: str | None = None


#: Makes a plan; told whether it is made again, since the one before did not come to its end.
_Planning = Callable[[Circumstances, bool], Planned]


class DriverCycle:
    """The cycles of one driver instance, one at a time, at three paces.

    ``sync`` starts from a complete listing of the backend; ``drift`` from what others have changed
    in Placement since; ``poll`` from what the backend's change feed has. A tree that fails is
    reported in the outcome and leaves the others alone. A tree that another writer changes at the
    same time is read and planned again, a bounded number of times.

    They raise BackendError where the driver cannot say what there is, PlacementError where
    Placement does not answer or refuses our credentials, ObjectError and StateError where the
    objects cannot be had. ``on_plan`` is given each plan before it is applied, ``on_step`` each
    step that was taken.

    ``down_time`` is how long another host's service may be silent before its nodes are taken over.
    ``read_uptime`` returns the uptime, in which absences are counted.
    """

    def __init__(
        self,
        driver: ComputeDriver,
        publisher: Publisher,
        client: PlacementClient,
        context: Context,
        policy: RemovalPolicy,
        *,
        down_time: timedelta = timedelta(seconds=60),
        read_uptime: Callable[[], Uptime | None] = uptime.read,
    ) -> None:
        self._driver: Final = driver
        self._publisher: Final = publisher
        self._context: Final = context
        self.memory: Final = InstanceMemory(context, driver.host, publisher.instance)
        self._nodes: Final = NodeRows(context, driver.host, publisher, driver.capabilities)
        self._handover: Final = Handover(context, driver.host, publisher.instance, down_time)
        self._planner_with: Final = partial(
            Planner,
            driver,
            publisher,
            client,
            policy,
            context=context,
            handover=self._handover,
        )
        self._planner: Final = self._planner_with(memory=self.memory)
        self._applier: Final = PlanApplier(client, self.memory)
        self._read_uptime: Final = read_uptime
        self._listing: NodeListing | None = None
        self._mark: str | None = None
        self._unfinished: frozenset[str] = frozenset()
        self._given_back: frozenset[str] = frozenset()
        self._known: frozenset[tuple[str, int]] = frozenset()

    @property
    def instance(self) -> str:
        """The name of the driver instance."""
        return self._publisher.instance

    def plan(self) -> Plan:
        """What ``sync`` would do now. Nothing is written, and nothing is remembered."""
        circumstances = self._circumstances()
        listing, now = list_nodes(self._driver, self._read_uptime), time.time()
        inherited = self._handover.inherited(self._to_inherit(listing, circumstances), self.memory)
        planner = self._planner_with(memory=self.memory.imagine(inherited))
        planned = planner.plan_listing(listing, now, circumstances)
        for row in planned.coming:
            LOG.warning("node %s comes from host %s with a sync", row.hypervisor_hostname, row.host)
        return planned.plan

    def sync(self, on_plan: OnPlan = _ignore, on_step: OnStep = _ignore) -> Outcome:
        """Publish all that the backend has."""
        self.memory.read_damaged_again()
        circumstances = self._circumstances()
        try:
            if self._mark is None:
                self._mark = self._changes().mark  # before there is anything to miss
            listing, now = list_nodes(self._driver, self._read_uptime), time.time()
        except DriverError:
            for problem in self._disable(circumstances, on_step):
                LOG.warning("%s", problem)
            raise

        def planning(circumstances: Circumstances, _again: bool) -> Planned:
            self._inherit(listing, circumstances)
            return self._planner.plan_listing(listing, now, circumstances)

        outcome = self._run(planning, circumstances, on_plan, on_step)
        self._listing, self._unfinished = listing, frozenset()
        return outcome.with_problems(self._keep(listing, is_listing=True))

    def plan_adoption(self, uuids: frozenset[str]) -> Planned:
        """Return the plan of ``adopt`` without writing it; raises AdoptionRefused."""
        listing = list_nodes(self._driver, self._read_uptime)
        return self._plan_adoption(uuids, listing, time.time(), self._circumstances())

    def adopt(
        self, uuids: frozenset[str], on_plan: OnPlan = _ignore, on_step: OnStep = _ignore
    ) -> Outcome:
        """Adopt the providers of these uuids, all or none, and write nothing else.

        The publisher of this instance names them in ``adopts``. Raises AdoptionRefused if one of
        them cannot be adopted.
        """
        circumstances = self._circumstances()
        listing, now = list_nodes(self._driver, self._read_uptime), time.time()

        def planning(circumstances: Circumstances, _again: bool) -> Planned:
            return self._plan_adoption(uuids, listing, now, circumstances)

        return self._run(planning, circumstances, on_plan, on_step)

    def _plan_adoption(
        self,
        uuids: frozenset[str],
        listing: NodeListing,
        now: float,
        circumstances: Circumstances,
    ) -> Planned:
        planned = self._planner.plan_listing(listing, now, circumstances)
        return adoption.only(planned, uuids, self.memory, self.instance)

    def drift(self, on_plan: OnPlan = _ignore, on_step: OnStep = _ignore) -> Outcome:
        """Mend what others have changed, and note what is taken of the nodes.

        What polls could not bring to its end is tried again. The backend is not asked anew. One
        list from Placement where nothing has changed.
        """
        before = self._listing
        if before is None:
            return self.sync(on_plan, on_step)
        self._unfinished |= self._repaired(before)
        now = time.time()
        unfinished = describe(self._driver, self._unfinished, before.without(self._unfinished))
        listing = before.with_changes(unfinished)

        def planning(circumstances: Circumstances, _again: bool) -> Planned:
            self._inherit(listing, circumstances)
            return self._planner.plan_drift(listing, now, circumstances, unfinished)

        # The snapshot is older than what is read now.
        circumstances = self._circumstances(frozenset())
        outcome = self._run(planning, circumstances, on_plan, on_step)
        outcome = outcome.with_problems(self._keep(listing))
        if not outcome.problems:
            self._unfinished = frozenset()
        self._given_back = self._nodes_given_back(circumstances, listing)
        return outcome

    def poll(self, on_plan: OnPlan = _ignore, on_step: OnStep = _ignore) -> Outcome:
        """Publish the nodes that the backend's change feed names.

        Where it names none, neither Placement nor an object is asked for anything. Nothing is done
        for a driver without a feed. What fails for a reason that stays is not tried again before
        the next drift cycle.
        """
        before = self._listing
        if before is None:
            return self.sync(on_plan, on_step)
        changes = self._changes(self._mark)
        names = self._given_back.union(changes.names)
        if not names:
            self._mark = changes.mark
            return Outcome()
        now = time.time()
        changed = describe(self._driver, names, before.without(names))
        listing = before.with_changes(changed)

        def planning(circumstances: Circumstances, again: bool) -> Planned:
            self._inherit(listing, circumstances)
            if again:
                return self._planner.plan_drift(listing, now, circumstances, changed)
            return self._planner.plan_changed(changed, listing, now, circumstances)

        circumstances = self._circumstances(self._known)
        outcome = self._run(planning, circumstances, on_plan, on_step)
        self._listing = listing
        outcome = outcome.with_problems(self._keep(changed))
        if not any(map(self._may_pass, outcome.problems)):
            self._mark = changes.mark  # else they are to be named again
            self._given_back = self._nodes_given_back(circumstances, listing)
            if outcome.problems:
                self._unfinished = self._unfinished.union(changes.names)
        return outcome

    def _repaired(self, listing: NodeListing) -> frozenset[str]:
        """Return the names of nodes whose damaged records can be read again."""
        records = self.memory.records
        repaired = self.memory.read_damaged_again() & records.keys()
        roots = {records[uuid].root_uuid for uuid in repaired}
        return frozenset(node.name for node in listing.nodes if node.uuid in roots)

    def _may_pass(self, problem: WharfingerError) -> bool:
        """Whether it may be over with the next poll; a record that cannot be read stays so."""
        if isinstance(problem, PlacementError) and problem.status >= INTERNAL_SERVER_ERROR:
            return True
        return isinstance(problem, _PASSING) and problem not in self.memory.damaged.values()

    def _nodes_given_back(
        self, circumstances: Circumstances, listing: NodeListing
    ) -> frozenset[str]:
        """The nodes of what was given back after the snapshot: the next poll's is not older."""
        if not self._has_feed:
            return frozenset()
        records = self.memory.records
        later = circumstances.reservations.later
        roots = {records[uuid].root_uuid for uuid in later if uuid in records}
        return frozenset(node.name for node in listing.nodes if node.uuid in roots)

    def _circumstances(self, earlier: frozenset[tuple[str, int]] | None = None) -> Circumstances:
        """As they are now; ``earlier`` as StoredReservations has it, None: all that there are."""
        read = Circumstances.read(self._context, self._driver.host, self.instance)
        self._known = read.reservations.known
        return read.seen_by_snapshot(self._known if earlier is None else earlier)

    @property
    def _has_feed(self) -> bool:
        return self._driver.capabilities.supports("change_feed")

    def _changes(self, since: str | None = None) -> _Changes:
        """What the driver's feed has, if it has one."""
        driver = self._driver
        if not self._has_feed:
            return _Changes()
        operation = "changed_nodes"
        answer = guarded(driver.name, operation, lambda: driver.changed_nodes(since))
        match answer:
            case (names, str(mark)):
                return _Changes(
                    tuple(check_names(driver, operation, names, set, frozenset, list)), mark
                )
        raise BackendError(
            driver=driver.name,
            operation=operation,
            reason=f"it has to return names of nodes and a mark, not {shown(answer)}",
        )

    def _inherit(self, listing: NodeListing, circumstances: Circumstances) -> None:
        """See that what another host knew of nodes that have come from it is known here."""
        self._handover.inherit(self._to_inherit(listing, circumstances), self.memory)

    def _to_inherit(self, listing: NodeListing, circumstances: Circumstances) -> dict[str, str]:
        """Return the names, by uuid, of nodes for which another host may have newer records."""
        records = self.memory.records
        listed = {node.uuid: node.name for node in listing.nodes}
        # One that has been away may have been another host's, and come back.
        back = {
            uuid: name
            for uuid, name in listed.items()
            if uuid in circumstances.rows
            and uuid in records
            and records[uuid].absent_since is not None
        }
        unknown = filter(is_uuid_like, circumstances.rows - records.keys())
        return {uuid: listed.get(uuid, "") for uuid in unknown} | back

    def _disable(self, circumstances: Circumstances, on_step: OnStep) -> Iterator[WharfingerError]:
        """Have the roots say so if the service is disabled, though the driver cannot be asked."""
        try:
            if circumstances.disabled:
                planned = self._planner.plan_disabled()
                yield from planned.plan.problems
                yield from self._applier.apply(planned.plan, planned.live, on_step).errors
        except (ObjectError, PlacementError, StateError) as error:
            yield error

    def _keep(self, listing: NodeListing, *, is_listing: bool = False) -> Iterator[WharfingerError]:
        """Bring the rows of the nodes up to date."""
        records = self.memory.records
        listing.use_known_uuids(records)  # of what was adopted just now, too
        try:
            self._nodes.keep(listing.nodes, records)
            if is_listing:
                self._nodes.note_listing(
                    listing.nodes,
                    records,
                    self.memory.damaged.keys(),
                    is_whole=not listing.has_unknown_nodes(records),
                )
        except (ObjectError, StateError) as error:
            yield error

    def _run(
        self,
        planning: _Planning,
        circumstances: Circumstances,
        on_plan: OnPlan,
        on_step: OnStep,
    ) -> Outcome:
        """Plan and apply until there is no more to do, or too often."""
        applied: list[Step] = []
        earlier = circumstances.reservations.earlier

        def note(step: Step) -> None:
            applied.append(step)
            on_step(step)

        def attempt() -> _Pass:
            nonlocal circumstances
            if again := bool(passes):
                circumstances = self._circumstances(earlier)
            passes.append(self._pass(planning, circumstances, again, on_plan, note))
            return passes[-1]

        passes: list[_Pass] = []
        Retrying(
            retry=retry_if_result(lambda one: one.is_worth_another),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=_wait,
            retry_error_callback=lambda _state: None,
        )(attempt)
        last = passes[-1]
        return Outcome(
            steps=tuple(applied),
            pending=last.plan.pending,
            foreign=last.plan.foreign,
            problems=(*last.plan.problems, *last.failures),
        )

    def _pass(
        self,
        planning: _Planning,
        circumstances: Circumstances,
        again: bool,
        on_plan: OnPlan,
        on_step: OnStep,
    ) -> _Pass:
        try:
            planned = planning(circumstances, again)
        except _OTHERS_WORK as gone:
            return _Pass(Plan(), (gone,))
        plan = planned.plan
        on_plan(plan)
        try:
            # What was known before another host had them is out of date.
            self.memory.forget(self._handover.known_there(planned.coming))
            self._handover.take(planned.coming)
            self._nodes.claim(planned.new, {**self.memory.records, **plan.records})
            planned.judgement.note_figures(plan.records)
            self._see_ours(planned)
        except _OTHERS_WORK as faster:
            return _Pass(plan, (faster,))
        applied = self._applier.apply(plan, planned.live, on_step)
        for error in applied.errors:
            LOG.debug("a tree failed: %s", error)
            if isinstance(error, UnknownTrait) and error.trait == self._publisher.owner:
                raise error  # nothing can be published
        # One failed tree does not hold back the results of the others.
        planned.judgement.save(self._context, applied.unfinished)
        planned.remember(applied.unfinished)
        return _Pass(plan, applied.errors, goes_on=bool(planned.coming) or _makes_room(plan))

    def _see_ours(self, planned: Planned) -> None:
        """See that nodes of which something is to be deleted are still this instance's.

        Raises ConcurrentSave where another host has taken one over since it was planned.
        """
        roots = {step.root_uuid for step in planned.plan.steps if isinstance(step, DeleteProvider)}
        if roots & planned.rows:
            host, instance = self._driver.host, self.instance
            gone = (
                roots
                & planned.rows - ComputeNodeList.get_revisions(self._context, host, instance).keys()
            )
            if gone:
                raise ConcurrentSave(kind=ComputeNode.obj_name(), keys=sorted(gone))


def _makes_room(plan: Plan) -> bool:
    """Whether it renames some, and others want a name that may be free after that."""
    waits = any(isinstance(problem, NameTaken) for problem in plan.problems)
    return waits and any(
        isinstance(step, UpdateProvider) and step.before.name != step.after.name
        for step in plan.steps
    )


def _wait(state: RetryCallState) -> float:
    """Seconds until another round: none where nobody is in the way."""
    assert state.outcome is not None
    return _BACKOFF(state) if state.outcome.result().failures else 0.0
