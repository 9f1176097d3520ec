"""Reconcile Placement with a driver: full cycles, drift cycles and polls."""

import random
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http.client import INTERNAL_SERVER_ERROR
from typing import Final

import os_traits
from oslo_log import log as logging
from tenacity import nap, wait_none

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import (
    ChangedMeanwhile,
    ConcurrentSave,
    DriverError,
    NameTaken,
    ObjectError,
    PlacementError,
    PlacementUnavailable,
    StateError,
    UnknownTrait,
    WharfingerError,
)
from wharfinger.objects import ComputeNode, Context, HostState, InstanceList
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.tree_reader import PlacementReader
from wharfinger.providers import fights
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Plan, Step, UpdateProvider
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import adoption_plan, driver_calls
from wharfinger.reconcile.apply import BATCH, Writer
from wharfinger.reconcile.cycle_result import Attempts, CycleResult
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.desire import collect_desired
from wharfinger.reconcile.device_jobs import delete_jobs, supersede_functions
from wharfinger.reconcile.kernel_uptime import boottime
from wharfinger.reconcile.look_up import LookUp
from wharfinger.reconcile.node_list import NodeList
from wharfinger.reconcile.observe import Observer, UnchangedTrees, by_provider, held_functions
from wharfinger.reconcile.plan import plan_cycle
from wharfinger.reconcile.record_store import RecordStore, RowChanges
from wharfinger.reconcile.reservation_phases import released_since
from wharfinger.reconcile.takeover import Takeovers
from wharfinger.reconcile.tree_write import TreeWrite, readable, tree_writes
from wharfinger.request_id import same_request
from wharfinger.retries import retry_on
from wharfinger.tracker.node_rows import NodeRows

LOG: Final = logging.getLogger(__name__)
#: Attempts at a tree that other processes keep changing; the longest wait between two, in seconds.
_ATTEMPTS: Final = 5
_LONGEST_WAIT: Final = 2.0
#: Errors after which the next poll tries again; after other errors, the next drift cycle does.
_TRANSIENT: Final = (ChangedMeanwhile, ObjectError, PlacementUnavailable, StateError)

OnPlan = Callable[[Plan], None]
OnStep = Callable[[Step], None]


def _ignore(_what: object) -> None:
    """Do nothing."""


class Reconciler:
    """Runs the cycles of one driver instance, one at a time.

    Results have the errors of single trees. Cycles raise BackendError, PlacementError, ObjectError
    and StateError.
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
    ) -> None:
        self._driver: Final = driver
        self._publisher: Final = publisher
        self._policy: Final = policy
        self.store: Final = RecordStore(context, driver.host, publisher.instance)
        self._rows: Final = NodeRows(context, driver.host, publisher, driver.capabilities)
        self._takeovers: Final = Takeovers(self.store, down_time)
        reader = PlacementReader(client, publisher.instance)
        self._observer: Final = Observer(reader, self.store)
        self._look_up: Final = LookUp(
            driver=driver,
            client=client,
            reader=reader,
            store=self.store,
            takeovers=self._takeovers,
            policy=policy,
            usage=self._rows.usage,
        )
        self._valid_for: Final = (down_time / 2).total_seconds()
        self._writer: Final = Writer(client, valid_for=down_time / 2, reports_service=True)
        self._unchanged: Final = UnchangedTrees()
        #: The nodes as the driver last listed or described them; None: list them again.
        self._nodes: NodeList | None = None
        #: The position in the driver's change feed.
        self._mark: str | None = None
        #: The names of nodes that polls could not write, or whose records were repaired.
        self._unfinished: frozenset[str] = frozenset()
        #: The names of nodes that consumers released after the driver's last snapshot.
        self._released: frozenset[str] = frozenset()
        #: The reservations of the last read, as (uuid, revision).
        self._reservations: frozenset[tuple[str, int]] = frozenset()
        #: Whether the roots have COMPUTE_STATUS_DISABLED, except those of ``_failed`` trees.
        self._was_disabled: bool | None = None
        #: The roots of trees whose last write failed.
        self._failed: frozenset[str] = frozenset()

    @property
    def instance(self) -> str:
        """The name of the driver instance."""
        return self._publisher.instance

    # Cycles.

    @same_request()
    def plan(self) -> Plan:
        """Return the plan of a full cycle, and write nothing.

        Takeovers are only logged.
        """
        state, plan = self._dry_run()
        for row in filter(None, state.takeovers.values()):
            LOG.warning(
                "a sync on this host would take over node %s (%s) from driver instance %s on host "
                "%s: the host is down, the instance no longer lists the node, or the node no "
                "longer has the trait of the instance",
                row.hypervisor_hostname,
                row.uuid,
                row.driver_instance,
                row.host,
            )
        return plan

    @same_request()
    def sync(self, on_plan: OnPlan = _ignore, on_step: OnStep = _ignore) -> CycleResult:
        """Run a full cycle: publish all nodes that the driver lists."""
        state = self._read_state()
        state = replace(state, snapshot_reservations=self._reservations)
        try:
            if self._mark is None:
                _names, self._mark = self._changes()  # from here on, polls miss no change
            nodes = driver_calls.list_nodes(self._driver)
        except DriverError:
            for problem in self._disable_roots(state, on_step):
                LOG.warning("%s", problem)
            raise
        result = self._run(self._observer.listing, state, nodes, on_step=on_step, on_plan=on_plan)
        self._unfinished = frozenset()
        return result.with_problems(self._update_node_rows(nodes, is_listing=True))

    @same_request()
    def drift(self, on_step: OnStep = _ignore) -> CycleResult:
        """Run a drift cycle: repair what other programs have changed in Placement."""
        before = self._nodes
        if before is None:
            return self.sync(on_step=on_step)
        state = self._read_state()
        described = driver_calls.describe(self._driver, self._unfinished)
        nodes = before.with_changes(described)
        observe = partial(self._observe_changes, names=self._unfinished)
        result = self._run(observe, state, nodes, on_step=on_step)
        result = result.with_problems((*described.problems, *self._update_node_rows(nodes)))
        if not result.problems:
            self._unfinished = frozenset()
        self._released = self._nodes_released(state, nodes)
        return result

    @same_request()
    def poll(self, on_step: OnStep = _ignore) -> CycleResult:
        """Run a poll: publish nodes that have changed or that consumers have released."""
        before = self._nodes
        if before is None:
            return self.sync(on_step=on_step)
        names, mark = self._changes()
        wanted = self._released.union(names)
        if not wanted:
            self._mark = mark
            return CycleResult()
        state = self._read_state(snapshot_reservations=self._reservations)
        described = driver_calls.describe(self._driver, wanted)
        nodes = before.with_changes(described)

        def observe(state: CycleState) -> CycleState:
            found = self._observer.remembered(state, wanted) if state.attempt == 0 else None
            return found or self._observe_changes(state, wanted)

        result = self._run(observe, state, nodes, on_step=on_step)
        result = result.with_problems((*described.problems, *self._update_node_rows(nodes, wanted)))
        if not any(map(self._may_pass, result.problems)):
            self._mark = mark  # with the old mark, the feed would name these nodes again
            self._released = self._nodes_released(state, nodes)
            if result.problems:
                self._unfinished |= wanted
        return result

    @same_request()
    def plan_adoption(self) -> tuple[Plan, tuple[ComputeNode, ...]]:
        """Return the plan of ``adopt``, and the rows of nodes to take over.

        Raises AdoptionRefused.
        """
        state, plan = adoption_plan.only(*self._dry_run())
        return plan, tuple(filter(None, state.takeovers.values()))

    @same_request()
    def adopt(self, on_plan: OnPlan = _ignore) -> CycleResult:
        """Adopt the providers in ``Publisher.adopts``, and change no others.

        Raises AdoptionRefused.
        """
        state = self._read_state()
        nodes = driver_calls.list_nodes(self._driver)
        return self._run(
            self._observer.listing, state, nodes, on_plan=on_plan, restrict=adoption_plan.only
        )

    # Stages.

    def _read_state(
        self, attempt: int = 0, snapshot_reservations: Set[tuple[str, int]] = frozenset()
    ) -> CycleState:
        read_at = boottime()
        rows = HostState.get(
            self.store.context,
            self._driver.host,
            self.instance,
            {
                "nodes": self._rows.revisions,
                "instances": self._rows.usage.revisions,
                "records": self.store.revisions,
            },
            self._driver.capabilities.supports("programming"),
        )
        repaired_records = self.store.update(rows)
        if repaired_records and self._nodes is not None:
            self._unfinished |= self._names_of(self._nodes, repaired_records)
        self._rows.update(rows)
        self._reservations = frozenset(
            (one.uuid, one.revision) for one in readable(rows.reservations)
        )
        return CycleState(
            publisher=self._publisher,
            removal_delay=self._policy.delay,
            attempt=attempt,
            read_at=read_at,
            snapshot_reservations=snapshot_reservations,
            rows=rows,
            records=dict(self.store.records),
            reservations=by_provider(rows.reservations),
            functions=held_functions(rows.jobs),
        )

    def _dry_run(self) -> tuple[CycleState, Plan]:
        state = self._read_state()
        nodes = driver_calls.list_nodes(self._driver)
        base = _with_nodes(state, nodes)
        return self._planned(partial(self._observer.listing, base), {})

    def _observe_changes(self, state: CycleState, names: Set[str]) -> CycleState:
        is_changed = state.rows.service_disabled != self._was_disabled
        return self._observer.changes(state, names, self._failed, all_trees=is_changed)

    def _planned(
        self, observe: Callable[[], CycleState], questions: dict[str, bool | WharfingerError]
    ) -> tuple[CycleState, Plan]:
        contested = set(self.store.contested)
        state = self._completed(observe())
        if state.is_listing and self.store.contested != contested:
            # These providers to adopt have no instance trait of ours, so the list did not have
            # them: read again, with these.
            state = self._completed(observe())
        if state.is_listing:
            state = replace(state, unchanged=self._unchanged.find(state))
        plan = plan_cycle(state)
        if gone := frozenset().union(*(tree.gone for tree in plan.trees)):
            state = self._look_up.confirm_removals(state, gone, questions)
            plan = plan_cycle(state)
        return state, plan

    def _completed(self, state: CycleState) -> CycleState:
        if state.scope is not None and not state.scope:
            return state  # no tree is planned
        state = collect_desired(state, self._driver, self._look_up.allocations_of)
        return self._look_up.with_facts(state)

    def _run(
        self,
        observe: Callable[[CycleState], CycleState],
        state: CycleState,
        nodes: NodeList,
        *,
        on_step: OnStep = _ignore,
        on_plan: OnPlan = _ignore,
        restrict: Callable[[CycleState, Plan], tuple[CycleState, Plan]] | None = None,
    ) -> CycleResult:
        attempts, expires = Attempts(), state.read_at + self._valid_for
        self._nodes = nodes
        questions: dict[str, bool | WharfingerError] = {}

        def note(step: Step) -> None:
            attempts.steps.append(step)
            on_step(step)

        def observed() -> CycleState:
            found = observe(_with_nodes(state, nodes))
            if attempts.remaining is None:
                return found
            found = replace(found, is_partial=bool(attempts.plan.errors), nodes=found.every_node)
            roots = found.every_node.uuids_of(attempts.remaining)
            return self._observer.within(found, roots.union(attempts.remaining))

        for number in range(_ATTEMPTS):
            if number:
                if attempts.is_blocked and boottime() > expires:
                    self._nodes = None  # another process may have published newer facts
                    break
                if attempts.is_blocked:
                    nap.sleep(random.uniform(0, min(2 ** (number - 1), _LONGEST_WAIT)))
                state = self._read_state(number, state.snapshot_reservations)
            try:
                planned, plan = self._planned(observed, questions)
            except ChangedMeanwhile as error:
                attempts.conflict, attempts.is_blocked = error, True
                attempts.conflicts += 1
                continue
            if restrict is not None:
                planned, plan = restrict(planned, plan)
            attempts.add(plan)
            on_plan(plan)
            self._apply(planned, plan, attempts, note)
            if not attempts.remaining:
                break
        return attempts.result()

    def _apply(self, state: CycleState, plan: Plan, attempts: Attempts, on_step: OnStep) -> None:
        not_taken = self._takeovers.take_each(state.takeovers, state.live)
        writes = tree_writes(state, plan, self._rows)
        before = {uuid: self.store.get(uuid) for tree in plan.trees for uuid in tree.records}
        self._writer.apply(writes, self.store, on_step)
        for uuid, known in before.items():
            if fights.has_begun(known, record := self.store.get(uuid)):
                LOG.warning("%s", fights.description(uuid, record, self.instance))
        attempts.failures |= {uuid: [error] for uuid, error in not_taken.items()}
        attempts.failures |= {tree.plan.root_uuid: tree.errors for tree in writes if tree.errors}
        conflicts = set()
        for tree in writes:
            self._rows.saved((*tree.intent_rows.new_nodes, *tree.result_rows.changed_nodes))
            for failure in tree.errors:
                LOG.debug("a provider tree could not be written: %s", failure)
                if isinstance(failure, UnknownTrait) and failure.trait == self._publisher.owner:
                    raise failure  # without its owner trait, the instance can publish nothing
                if isinstance(failure, ChangedMeanwhile):
                    conflicts.add(tree.plan.root_uuid)
        attempts.is_blocked = bool(not_taken or conflicts)
        attempts.conflicts += len(not_taken) + len(conflicts)
        remaining = conflicts.union(state.takeovers, _waiting_for_names(plan))
        # The next attempt may know another uuid of the node.
        attempts.remaining = remaining.union(
            *(
                (node.name, node.uuid)
                for node in state.nodes.nodes
                if state.roots.get(node.name) in remaining
            )
        )
        self._remember(state, plan, writes)

    def _remember(self, state: CycleState, plan: Plan, writes: Sequence[TreeWrite]) -> None:
        failed = frozenset(tree.plan.root_uuid for tree in writes if tree.unfinished)
        unfinished = frozenset().union(*(tree.unfinished for tree in writes))
        if state.functions:
            if state.is_listing:
                known = state.live.keys() | state.records.keys() | state.desired.keys()
                gone = state.functions.keys() - known
                delete_jobs(self.store.context, self._driver.host, self.instance, gone)
            supersede_functions(
                self.store.context,
                {
                    uuid: state.functions[uuid].revision
                    for uuid in state.superseded
                    if unfinished.isdisjoint((uuid, *state.functions[uuid].parts))
                },
            )
        if state.noted_instances:
            with suppress(ChangedMeanwhile):  # the next full cycle notes them
                InstanceList(self.store.context, objects=list(state.noted_instances)).save()
        if state.is_listing and state.scope is None:
            self._unchanged.update(state, plan)
            self._failed = failed
        else:
            planned = state.scope if state.scope is not None else frozenset(state.roots.values())
            self._unchanged.forget(planned)
            self._failed = failed | self._failed - planned
        if state.scope is None:
            self._was_disabled = state.rows.service_disabled

    def _update_node_rows(
        self, nodes: NodeList, names: Set[str] | None = None, *, is_listing: bool = False
    ) -> Iterator[WharfingerError]:
        records = self.store.records
        nodes = nodes.with_published_uuids(records)
        if names is not None:
            nodes = nodes.only(nodes.uuids_of(names))
        try:
            self._save_rows(nodes, is_listing=is_listing)
            if is_listing and not nodes.has_unknown_nodes(records):
                self._rows.delete_gone(records.keys() | self.store.damaged.keys())
        except (ObjectError, StateError) as error:
            yield error

    @retry_on(ConcurrentSave, attempts=_ATTEMPTS, wait=wait_none())
    def _save_rows(self, nodes: NodeList, *, is_listing: bool) -> None:
        rows = self._rows.changed_rows(nodes.nodes, self.store.records, is_listing=is_listing)
        renamed = [row for row in rows if row.is_renamed]  # together: nodes may swap their names
        others = [row for row in rows if not row.is_renamed]
        batches = [others[start : start + BATCH] for start in range(0, len(others), BATCH)]
        try:
            for batch in filter(None, (renamed, *batches)):
                self.store.write([RowChanges(changed_nodes=batch)])
                self._rows.saved(batch)
        except ConcurrentSave:
            self._read_state()
            raise

    # Parts of the cycles.

    def _disable_roots(self, state: CycleState, on_step: OnStep) -> Iterator[WharfingerError]:
        due = {
            uuid: record
            for uuid, record in state.records.items()
            if record.applied
            and record.applied.parent_uuid is None
            and record.absence is None
            and os_traits.COMPUTE_STATUS_DISABLED not in record.claimed_traits
        }
        if not (state.rows.service_disabled and due):
            return
        try:
            state = self._observer.disabled(state, due)
            plan = plan_cycle(state)
            self._unchanged.forget(due)
            writes = tree_writes(state, plan, self._rows)
            self._writer.apply(writes, self.store, on_step)
            yield from plan.problems
            yield from (error for tree in writes for error in tree.errors)
        except (ObjectError, PlacementError, StateError) as error:
            yield error

    def _changes(self) -> tuple[frozenset[str], str | None]:
        if not self._driver.capabilities.supports("change_feed"):
            return frozenset(), None
        return driver_calls.changed_nodes(self._driver, self._mark)

    def _nodes_released(self, state: CycleState, nodes: NodeList) -> frozenset[str]:
        if not self._driver.capabilities.supports("change_feed"):
            return frozenset()
        return self._names_of(nodes, released_since(state))

    def _names_of(self, nodes: NodeList, uuids: Set[str]) -> frozenset[str]:
        records = self.store.records
        roots = {records[uuid].root_uuid for uuid in uuids & records.keys()}
        return frozenset(node.name for node in nodes.nodes if node.uuid in roots)

    def _may_pass(self, problem: WharfingerError) -> bool:
        if isinstance(problem, PlacementError) and problem.status >= INTERNAL_SERVER_ERROR:
            return True
        return isinstance(problem, _TRANSIENT) and problem not in self.store.damaged.values()


def _with_nodes(state: CycleState, nodes: NodeList) -> CycleState:
    published = nodes.with_published_uuids(state.records)
    return replace(
        state, nodes=published, every_node=published, now=time.time(), uptime=published.uptime
    )


def _waiting_for_names(plan: Plan) -> set[str]:
    renames = any(
        isinstance(step, UpdateProvider) and step.before.name != step.after.name
        for step in plan.steps
    )
    return {
        tree.root_uuid
        for tree in plan.trees
        if renames and any(isinstance(one, NameTaken) for one in tree.problems)
    }
