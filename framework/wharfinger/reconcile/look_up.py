"""Read the facts that a plan needs besides the desired trees."""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from oslo_log import log as logging

from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.exceptions import (
    MassRemoval,
    NotFound,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    RootDeletionBlocked,
    WharfingerError,
)
from wharfinger.objects import JOB_HOLDER, Reservation, ReservationList
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.tree_reader import FEW, PlacementReader
from wharfinger.providers import PublishingMode, full_reservation, ownership
from wharfinger.providers.device_function_traits import with_claims, with_functions
from wharfinger.providers.ownership import Standing
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.absence_confirmation import Availability
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.detachment import with_detached
from wharfinger.reconcile.driver_calls import guarded, guarded_bool
from wharfinger.reconcile.lost_allocations import LostAllocations
from wharfinger.reconcile.observe import by_provider
from wharfinger.reconcile.record_store import RecordStore
from wharfinger.reconcile.reservation_phases import next_phases
from wharfinger.reconcile.takeover import Takeovers
from wharfinger.tracker.usage import HostUsage

LOG: Final = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUp:
    """Looks up facts for the plans of one driver instance."""

    driver: ComputeDriver
    client: PlacementClient
    reader: PlacementReader
    store: RecordStore
    takeovers: Takeovers
    policy: RemovalPolicy
    usage: HostUsage

    def with_facts(self, state: CycleState) -> CycleState:
        """Return the state with all further facts that its plan needs."""
        state = self._functions(state)
        state = self.takeovers.find(state)
        if state.is_listing:
            cleans = self.driver.capabilities.supports("cleans_after_release")
            lost = LostAllocations(self.client, self.store.context, cleans)
            state = lost.find(state, self.usage.claimed())
            state = self._undeletable_roots(state)
        state = self._reservations(state)
        state = self._name_owners(state)
        return self._obstacles(state)

    def confirm_removals(
        self, state: CycleState, gone: Set[str], questions: dict[str, bool | WharfingerError]
    ) -> CycleState:
        """Return the state in which the removal of ``gone`` providers is confirmed or refused."""
        ours = sum(record.is_ours for record in state.records.values())
        if not self.policy.allows(len(gone), ours):
            refused = MassRemoval(instance=state.publisher.instance, count=len(gone), total=ours)
            return replace(state, withheld=True, other_problems=(*state.other_problems, refused))
        asked = Availability(self.driver, self.client, state, questions)
        kept, problems = asked.keep(gone)
        return replace(state, kept=kept, other_problems=(*state.other_problems, *problems))

    def allocations_of(self, uuids: Iterable[str]) -> Allocations:
        """Return all allocations of the consumers of these providers, by consumer uuid.

        Raises PlacementError.
        """
        wanted = sorted(uuids)
        consumers = {one for uuid in wanted for one in self.client.get_provider_allocations(uuid)}
        found: Allocations = {}
        for consumer in sorted(consumers):
            held = self.client.get_allocations(consumer)
            # Otherwise, the consumer was deleted meanwhile.
            if not held["allocations"].keys().isdisjoint(wanted):
                found[consumer] = held
        return found

    def _functions(self, state: CycleState) -> CycleState:
        if not state.functions:
            return state
        records = with_claims(state.records, state.functions)
        desired, superseded = with_functions(
            state.desired,
            state.functions,
            state.live,
            records,
            ownership.instance_trait(state.publisher.instance),
        )
        return replace(state, desired=desired, records=records, superseded=superseded)

    def _undeletable_roots(self, state: CycleState) -> CycleState:
        # nova deletes the children first. If a child has allocations, the child and the root stay.
        deleted: dict[str, dict[str, str]] = {}
        for uuid, record in state.records.items():
            if uuid in state.live or not record.is_own or record.applied is None:
                continue
            root_uuid = record.root_uuid or uuid
            if root_uuid in state.live and not state.record(root_uuid).is_own:
                deleted.setdefault(root_uuid, {})[record.applied.name] = uuid
        problems = []
        for root_uuid, gone in deleted.items():
            left = {
                live.name: uuid
                for uuid, live in state.live.items()
                if live.root_uuid == root_uuid != uuid and state.record(uuid).is_own
            }
            blocking = []
            for name, uuid in sorted(left.items()):
                state, has = _asked(state, root_uuid, self.client.get_provider_allocations, uuid)
                if has:
                    blocking.append(name)
            if blocking:
                devices = sorted((gone | left).items())
                commands = [f"`wharfinger provider detach {uuid}`" for _, uuid in devices]
                problems.append(
                    RootDeletionBlocked(
                        root=state.live[root_uuid].name,
                        uuid=root_uuid,
                        deleted=", ".join(sorted(gone)),
                        children=", ".join(blocking),
                        commands=", ".join(commands),
                    )
                )
        return replace(state, other_problems=(*state.other_problems, *problems))

    def _reservations(self, state: CycleState) -> CycleState:
        problems: list[WharfingerError] = []
        late = self._reservations_without_record(state)
        state = with_detached(replace(state, reservations={**state.reservations, **late}))

        def is_clean(uuid: str, since: Any) -> bool:
            operation = f"is_clean({uuid})"
            try:
                return guarded_bool(
                    self.driver.name, operation, lambda: self.driver.is_clean(uuid, since)
                )
            except WharfingerError as error:
                problems.append(error)
                return False

        def is_released(uuid: str, consumer: str) -> bool:
            try:
                return uuid not in self.client.get_allocations(consumer)["allocations"]
            except (PlacementUnavailable, PermissionRefused):
                raise
            except PlacementError as error:
                problems.append(error)
                return False

        held, phases = next_phases(state, is_clean=is_clean, is_released=is_released)
        held |= {one.provider_uuid for one in state.lost}
        held |= self._programmed_together(state)
        return replace(
            state,
            held=state.held | held,
            phases=phases,
            problems=(*state.problems, *problems),
        )

    def _reservations_without_record(
        self, state: CycleState
    ) -> Mapping[str, tuple[Reservation, ...]]:
        # Their records may be lost.
        new = state.desired.keys() - state.records.keys() - state.reservations.keys()
        if state.attempt == 0:  # a reservation makes the write fail, and the next attempt reads it
            new &= state.live.keys()
        if not new:
            return {}
        context = self.store.context
        return by_provider(ReservationList.get_by_filters(context, provider_uuid=sorted(new)))

    def _programmed_together(self, state: CycleState) -> set[str]:
        found: set[str] = set()
        for uuid, reservations in state.reservations.items():
            if uuid not in state.desired or all(
                one.known("holder") != JOB_HOLDER for one in reservations
            ):
                continue
            scope = partial(self.driver.programming_scope, uuid)
            try:
                found.update(guarded(self.driver.name, "programming_scope", scope))
            except WharfingerError as error:
                LOG.debug(
                    "the driver does not report which providers are programmed together with "
                    "provider %s: %s",
                    uuid,
                    error,
                )
        return found & state.desired.keys()

    def _name_owners(self, state: CycleState) -> CycleState:
        new = {
            wanted.provider.name: wanted.provider.root_uuid
            for uuid, wanted in state.desired.items()
            if wanted.stated
            and (
                (live := state.live.get(uuid)) is None
                or (live.name != wanted.provider.name and wanted.mode is PublishingMode.OWN)
            )
        }
        if not new:
            return state
        here = {provider.name: provider for provider in state.live.values()}
        looked_up = (
            {name for name, uuid in state.nodes.roots.items() if uuid not in state.live}
            if state.is_read
            else set()
        )
        unknown = new.keys() - looked_up - here.keys()
        found = {name: here[name] for name in new.keys() & here.keys()}
        if len(unknown) > FEW:
            found |= self.reader.by_name(unknown)
        else:
            for name in sorted(unknown):
                state, owner = _asked(state, new[name], self.reader.by_name, [name])
                found |= owner or {}
        if state.publisher.adopts_matching:
            self.store.contested.update(
                one.uuid
                for one in found.values()
                if one.uuid not in state.live and one.root_uuid in state.live
            )
        return replace(state, name_owners=found)

    def _obstacles(self, state: CycleState) -> CycleState:
        asked = [uuid for uuid in state.live if _depends_on_allocations(state, uuid)]
        allocated = set()
        for uuid in asked:
            root = state.live[uuid].root_uuid
            state, has = _asked(state, root, self.client.get_provider_allocations, uuid)
            if has:
                allocated.add(uuid)
        removed = {state.live[uuid].root_uuid for uuid in asked if uuid not in state.desired}
        parents: frozenset[str] = frozenset()
        for root in sorted(removed):
            state, found = _asked(state, root, self.reader.unseen_parents, root, state.live.keys())
            parents |= found or frozenset()
        return replace(state, allocated=frozenset(allocated), parents=parents)


def _depends_on_allocations(state: CycleState, uuid: str) -> bool:
    live, wanted, record = state.live[uuid], state.desired.get(uuid), state.record(uuid)
    publisher = state.publisher
    if wanted is None:  # it may be removed
        return (
            state.is_listing
            and record.absence is not None
            and record.absence.has_lasted(state.removal_delay, state.uptime)
            and live.root_uuid not in state.blocked
        )
    changes_owner = (
        publisher.owner not in live.traits
        and bool(ownership.owners(live.traits))
        and ownership.standing(live, publisher, record) is Standing.OURS
    )
    return changes_owner or (
        (publisher.adopts_matching or live.uuid in publisher.adopts)
        and bool(full_reservation.foreign(live.inventories, record))
        and not ownership.explains_reserved(live, wanted, is_allocated=False)
        and ownership.explains_reserved(live, wanted, is_allocated=True)
        and ownership.is_adoption(publisher, live, wanted, record)
        and ownership.adopts(publisher, live, wanted)
    )


def _asked(
    state: CycleState, root_uuid: str, question: Callable[..., _Answer], *arguments: Any
) -> tuple[CycleState, _Answer | None]:
    try:
        return state, question(*arguments)
    except (PlacementUnavailable, PermissionRefused, NotFound):
        raise
    except PlacementError as error:
        return state.block({root_uuid}, error), None
