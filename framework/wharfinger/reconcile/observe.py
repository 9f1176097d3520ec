"""Read the trees of a driver instance from Placement and the database, and find changes."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from operator import attrgetter
from typing import Final

from wharfinger.exceptions import WharfingerError
from wharfinger.objects import DeviceJob, Reservation, ReservationList
from wharfinger.placement.tree_reader import PlacementReader, Reading
from wharfinger.providers import DesiredProvider, Provider, PublishingMode, full_reservation
from wharfinger.providers.device_function_traits import HeldFunction
from wharfinger.providers.plan import Plan
from wharfinger.providers.provider import Record
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.record_store import RecordStore
from wharfinger.reconcile.reservation_phases import stored_figures


class Observer:
    """Reads the trees of one driver instance, for its cycles.

    Methods raise PlacementError, ObjectError and StateError.
    """

    def __init__(self, reader: PlacementReader, store: RecordStore) -> None:
        self._reader: Final = reader
        self._store: Final = store

    def listing(self, state: CycleState) -> CycleState:
        """Return the state with all trees of the driver instance, as read from Placement."""
        named = self._store.contested | state.publisher.adopts
        reading = self._reader.read(state.every_node.roots, state.records, named=named)
        return self._with_reading(replace(state, is_listing=True), reading)

    def changes(
        self, state: CycleState, names: Set[str], failed: Set[str], *, all_trees: bool
    ) -> CycleState:
        """Read Placement; limit the state to the trees that have to be planned."""
        every = state.every_node
        changed = every.uuids_of(names)
        # The list by our instance trait lacks the roots of other owners. Only full cycles read
        # them.
        believed = every.listed - changed
        reading = self._reader.read(every.roots, state.records, believed, self._store.contested)
        state = self._with_reading(state, reading)
        if all_trees:
            return state
        scope = changed_trees(state) | changed | (failed & every.listed)
        return self.within(state, frozenset(scope))

    def remembered(self, state: CycleState, names: Set[str]) -> CycleState | None:
        """Return the state from our records; None if Placement has to be read."""
        roots = state.every_node.uuids_of(names)
        live = {uuid: record.live for uuid, record in state.records.items() if record.live}
        if not live.keys() >= roots or any(
            _has_to_be_read(record)
            or (
                record.root_uuid in roots
                and (
                    record.intended is not None
                    or uuid in state.reservations
                    or (record.is_ours and record.mode is PublishingMode.OVERLAY)
                )
            )
            for uuid, record in state.records.items()
        ):
            return None
        return self.within(replace(state, live=live, is_read=False), roots)

    def disabled(self, state: CycleState, due: Mapping[str, Record]) -> CycleState:
        """Return a state whose plan adds COMPUTE_STATUS_DISABLED to these roots."""
        roots = {record.applied.name: uuid for uuid, record in due.items() if record.applied}
        live = self._reader.read(roots, due).live
        return replace(
            state,
            records=dict(due),
            live=live,
            scope=frozenset(),
            blocked=frozenset(due),
            held=frozenset(state.reservations),
        )

    def within(self, state: CycleState, scope: frozenset[str]) -> CycleState:
        """Limit the state to these roots' trees, if sharing providers allow that."""
        if scope and any(provider.shares for provider in state.live.values()):
            return state
        return replace(state, scope=scope, nodes=state.nodes.only(scope))

    def _with_reading(self, state: CycleState, reading: Reading) -> CycleState:
        live = reading.live
        damaged = {
            live[uuid].root_uuid if uuid in live else uuid: error
            for uuid, error in self._store.damaged.items()
        }
        unreadable: dict[str, WharfingerError] = {**reading.unreadable, **damaged}
        reservations = {**state.reservations, **self._late_reservations(state, live)}
        strays = reading.strays if state.is_listing else ()
        state = replace(state, live=live, strays=strays, reservations=reservations)
        state = state.block(unreadable.keys(), *unreadable.values())
        return replace(state, records=_with_spare_figures(state))

    def _late_reservations(
        self, state: CycleState, live: Mapping[str, Provider]
    ) -> Mapping[str, tuple[Reservation, ...]]:
        wanted = sorted(
            uuid
            for uuid, provider in live.items()
            if uuid not in state.reservations
            and (state.record(uuid).is_ours or provider.traits >= state.publisher.traits)
            and full_reservation.foreign(provider.inventories, state.record(uuid))
        )
        if not wanted:
            return {}
        context = self._store.context
        return by_provider(ReservationList.get_by_filters(context, provider_uuid=wanted))


class UnchangedTrees:
    """Remembers the trees that the last full cycle left unchanged."""

    def __init__(self) -> None:
        self._desired: dict[str, list[DesiredProvider]] = {}

    def find(self, state: CycleState) -> frozenset[str]:
        """Return the roots of remembered trees that have not changed."""
        ends = {one.provider_uuid for one, phase in state.phases if phase is None}
        ends |= {one.provider_uuid for one in state.lost}
        changing = changed_trees(state).union(
            state.live[uuid].root_uuid for uuid in ends if uuid in state.live
        )
        same = {
            root
            for root, desired in _trees(state).items()
            if self._desired.get(root) == desired
            and all(
                (live := state.live.get(wanted.provider.uuid)) and live.root_uuid == root
                for wanted in desired
            )
        }
        return frozenset(same - changing)

    def forget(self, roots: Iterable[str]) -> None:
        """Forget trees that a cycle may have changed."""
        for root in roots:
            self._desired.pop(root, None)

    def update(self, state: CycleState, plan: Plan) -> None:
        """Note the trees that the plan of a full cycle leaves unchanged."""
        changed = {tree.root_uuid for tree in plan.trees} | state.blocked
        changed |= {step.root_uuid for step in plan.steps}
        planned = {uuid for tree in plan.trees for uuid in tree.records}
        planned |= {one.uuid for one in plan.pending}
        changed |= {state.live[uuid].root_uuid for uuid in planned & state.live.keys()}
        self._desired = {
            root: desired
            for root, desired in _trees(state).items()
            if root in state.unchanged or root not in changed
        }


def _trees(state: CycleState) -> dict[str, list[DesiredProvider]]:
    trees: dict[str, list[DesiredProvider]] = {}
    for wanted in state.desired.values():
        trees.setdefault(wanted.provider.root_uuid, []).append(wanted)
    return trees


def changed_trees(state: CycleState) -> set[str]:
    """Return the roots of changed and unfinished trees, and ``state.blocked``."""
    live = state.live
    found = {record.root_uuid for uuid, record in state.records.items() if uuid not in live}
    for uuid, provider in live.items():
        record = state.record(uuid)
        if (
            record.live is not provider  # an unchanged provider is the object in our record
            or (record.intended is not None and record.absence is None)
            or _reservation_changes(state, uuid, provider, record)
        ):
            found.add(provider.root_uuid)
    return {root for root in found if root is not None} | state.blocked


def _reservation_changes(state: CycleState, uuid: str, live: Provider, record: Record) -> bool:
    if uuid in state.reservations:
        return any(not one.is_fully_reserved for one in live.inventories.values())
    return bool(record.own_reserved) and not record.reservations


def _with_spare_figures(state: CycleState) -> Mapping[str, Record]:
    completed: dict[str, Record] = {}
    for uuid in state.reservations.keys() & state.live.keys():
        record, spare = state.record(uuid), stored_figures(state.reservations[uuid])
        if spare.keys() - record.own_reserved.keys():
            completed[uuid] = replace(record, own_reserved={**spare, **record.own_reserved})
    return {**state.records, **completed} if completed else state.records


def by_provider(rows: Iterable[Reservation]) -> dict[str, tuple[Reservation, ...]]:
    """Return reservations by provider uuid."""
    found: dict[str, tuple[Reservation, ...]] = {}
    for one in rows:
        if "provider_uuid" in one:
            found[one.provider_uuid] = (*found.get(one.provider_uuid, ()), one)
    return found


def held_functions(jobs: Iterable[DeviceJob]) -> dict[str, HeldFunction]:
    """Return the functions that jobs have loaded into devices, by provider uuid."""
    held: dict[str, HeldFunction] = {}
    known = (one for one in jobs if one.is_whole and one.held_since is not None)
    for one in sorted(known, key=attrgetter("held_since")):
        traits = frozenset(filter(None, [one.held_trait]))
        function = HeldFunction(traits, frozenset(one.stale_traits), one.scope, one.revision)
        held.update(dict.fromkeys(one.scope, function))
    return held


def _has_to_be_read(record: Record) -> bool:
    live = record.live
    return record.is_ours if live is None else live.generation is None
