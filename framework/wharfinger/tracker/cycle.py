"""The cycle: driver snapshot -> desired trees -> plan -> apply -> remember."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from oslo_log import log as logging
from tenacity import RetryCallState, Retrying, retry_if_result, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.exceptions import (
    ConcurrentUpdate,
    DuplicateProvider,
    MassRemoval,
    PlacementError,
    UnknownTrait,
    WharfingerError,
)
from wharfinger.placement.apply import PlanApplier
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.reader import PlacementReader
from wharfinger.providers import DesiredProvider, Provider, ownership
from wharfinger.providers.diff import plan_trees
from wharfinger.providers.ownership import Publisher, Standing
from wharfinger.providers.plan import PendingRemoval, Plan, Step
from wharfinger.providers.record import Record
from wharfinger.providers.removal import Removals, is_mass_removal, orphan
from wharfinger.tracker.desired import Answers, NodeListing, ask
from wharfinger.tracker.memory import InstanceMemory

LOG: Final = logging.getLogger(__name__)
#: How often one cycle plans a tree that others keep changing, and the longest wait
#: between two plans, in seconds.
_ATTEMPTS: Final = 5
_LONGEST_WAIT: Final = 2.0


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
        return any(isinstance(one, ConcurrentUpdate | DuplicateProvider) for one in self.failures)


class DriverCycle:
    """The cycles of one driver instance, one at a time.

    ``removal_delay`` is in seconds; with ``allow_mass_removal``, any number of providers may be
    gone at once.
    """

    def __init__(
        self,
        driver: ComputeDriver,
        publisher: Publisher,
        client: PlacementClient,
        memory: InstanceMemory,
        *,
        removal_delay: float,
        allow_mass_removal: bool = False,
    ) -> None:
        self._driver: Final = driver
        self._publisher: Final = publisher
        self._client: Final = client
        self._memory: Final = memory
        self._removal_delay: Final = removal_delay
        self._allow_mass_removal: Final = allow_mass_removal
        self._reader: Final = PlacementReader(client, publisher.instance)
        self._applier: Final = PlanApplier(client, memory)

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
        listing, now = NodeListing(self._driver), time.time()
        applied: list[Step] = []

        def note(step: Step) -> None:
            applied.append(step)
            on_step(step)

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
            problems=(*last.plan.problems, *last.failures),
        )

    def _pass(
        self,
        listing: NodeListing,
        now: float,
        on_plan: Callable[[Plan], None],
        on_step: Callable[[Step], None],
    ) -> _Pass:
        plan, live = self._plan(listing, now)
        on_plan(plan)
        failures = self._applier.apply(plan, live, on_step)
        for error in failures:
            LOG.debug("a tree failed: %s", error)
            if isinstance(error, UnknownTrait) and error.trait == self._publisher.owner:
                raise error  # nothing can be published
        return _Pass(plan, tuple(failures))

    def _plan(self, listing: NodeListing, now: float) -> tuple[Plan, Mapping[str, Provider]]:
        """The plan, and what Placement has, of which it was made."""
        records = self._memory.records
        listing.use_known_uuids(records)
        roots = {node.name: node.uuid for node in (*listing.nodes, *listing.failed)}
        reading = self._reader.read(roots, records)
        live = reading.live
        answers = ask(
            self._driver,
            listing,
            live,
            records,
            self._allocations_of,
            unreadable=reading.unreadable,
        )
        removals = Removals(
            now=now,
            delay=self._removal_delay,
            children_may_be_elsewhere=bool(answers.problems),
        )
        planning = partial(
            _plan_scopes,
            self._publisher,
            list(_scopes(answers, live, records)),
            allocated=self._allocated(answers, live, records, removals),
            elsewhere=self._elsewhere(answers, live, roots),
        )
        plans = [
            Plan(
                problems=tuple(answers.problems),
                pending=tuple(orphan(one.uuid, one.name) for one in reading.strangers),
            ),
            planning(removals),
        ]
        gone, ours = len(plans[1].gone), sum(record.is_ours for record in records.values())
        if is_mass_removal(gone, ours) and not self._allow_mass_removal:
            refused = MassRemoval(instance=self.instance, count=gone, total=ours)
            plans[1:] = [planning(replace(removals, withheld=True)), Plan(problems=(refused,))]
        return Plan.merge(plans), live

    def _elsewhere(
        self, answers: Answers, live: Mapping[str, Provider], roots: Mapping[str, str]
    ) -> dict[str, Provider]:
        """Other providers that have the names of what is to be created or renamed."""
        new = {
            wanted.provider.name
            for uuid, wanted in answers.desired.items()
            if wanted.stated and (uuid not in live or live[uuid].name != wanted.provider.name)
        }
        if not new:
            return {}
        here = {provider.name: provider for provider in live.values()}
        # Roots that are not there have been looked up by name, and what had it was read.
        looked_up = {name for name, uuid in roots.items() if uuid not in live}
        unknown = new - looked_up - here.keys()
        return {name: here[name] for name in new & here.keys()} | (
            self._reader.elsewhere(unknown) if unknown else {}
        )

    def _allocated(
        self,
        answers: Answers,
        live: Mapping[str, Provider],
        records: Mapping[str, Record],
        removals: Removals,
    ) -> frozenset[str]:
        """What has allocations, of what is due to be removed or to change its owner."""
        asked = [
            uuid
            for uuid, record in records.items()
            if uuid in live
            and live[uuid].root_uuid not in answers.failed
            and (
                self._changes_owner(live[uuid], record)
                if uuid in answers.desired
                else removals.is_due(record)
            )
        ]
        return self._reader.allocated(asked)

    def _changes_owner(self, live: Provider, record: Record) -> bool:
        return (
            self._publisher.owner not in live.traits
            and ownership.standing(live, self._publisher, record) is Standing.OURS_BEFORE
        )

    def _allocations_of(self, uuids: Iterable[str]) -> Allocations:
        consumers = {
            consumer for uuid in uuids for consumer in self._client.get_provider_allocations(uuid)
        }
        return {consumer: self._client.get_allocations(consumer) for consumer in sorted(consumers)}


@dataclass(frozen=True, slots=True)
class _Scope:
    """Trees that are planned together."""

    desired: list[DesiredProvider]
    live: dict[str, Provider]
    records: dict[str, Record]


def _scopes(
    answers: Answers, live: Mapping[str, Provider], records: Mapping[str, Record]
) -> Iterator[tuple[_Scope, tuple[Allocations, Allocations] | None]]:
    """The trees to plan: each that is reshaped alone, and all the others together.

    Those of which nothing is known are left out: they stay as they are.
    """
    scopes: dict[str | None, _Scope] = {None: _Scope([], {}, {})}
    scopes.update((root, _Scope([], {}, {})) for root in answers.reshapes)

    def scope_of(root: str | None) -> _Scope | None:
        if root in answers.failed:
            return None
        return scopes[root if root in scopes else None]

    for wanted in answers.desired.values():
        if scope := scope_of(wanted.provider.root_uuid):
            scope.desired.append(wanted)
    for uuid, provider in live.items():
        if scope := scope_of(provider.root_uuid):
            scope.live[uuid] = provider
    for uuid, record in records.items():
        if scope := scope_of(live[uuid].root_uuid if uuid in live else record.root_uuid):
            scope.records[uuid] = record
    for root, scope in scopes.items():
        yield scope, answers.reshapes.get(root or "")


def _plan_scopes(
    publisher: Publisher,
    scopes: Iterable[tuple[_Scope, tuple[Allocations, Allocations] | None]],
    removals: Removals,
    *,
    allocated: frozenset[str],
    elsewhere: Mapping[str, Provider],
) -> Plan:
    return Plan.merge(
        plan_trees(
            publisher,
            scope.desired,
            scope.live,
            scope.records,
            removals=removals,
            allocated=allocated,
            elsewhere=elsewhere,
            reshape=reshape,
        )
        for scope, reshape in scopes
    )


def _last_result(state: RetryCallState) -> _Pass:
    assert state.outcome is not None
    result: _Pass = state.outcome.result()
    return result
