"""Find instances whose allocations another program has deleted.

A list of providers does not show this: a deletion leaves the generations unchanged.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import chain

from wharfinger import request_id
from wharfinger.exceptions import (
    AllocationLost,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    WharfingerError,
)
from wharfinger.objects import Context, Instance, InstanceList, MigrationList, Reservation
from wharfinger.objects.field_types import now
from wharfinger.objects.migration import IN_PROGRESS
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import full_reservation
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.tracker.usage import KnownInstance, known_instances

_Allocations = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class LostAllocations:
    """Finds instances whose allocations were deleted, for one driver instance."""

    client: PlacementClient
    context: Context
    cleans_after_release: bool

    def find(self, state: CycleState, instances: Mapping[str, KnownInstance]) -> CycleState:
        """Return the state with new and changed reservations for lost allocations.

        Raises PlacementUnavailable, PermissionRefused, ObjectError and StateError.
        """
        wanted = dict(_relevant(state, instances))
        with request_id.thread_pool(self.client.connections) as pool:
            answers = dict(zip(wanted, pool.map(self._read, wanted), strict=True))
        problems = [one for one in answers.values() if isinstance(one, WharfingerError)]
        allocations = {
            uuid: one for uuid, one in answers.items() if not isinstance(one, WharfingerError)
        }
        different = {
            uuid: wanted[uuid]
            for uuid, present in allocations.items()
            if present != (wanted[uuid].allocations or {})
        }
        idle = self._idle_rows(different)
        lost: list[Reservation] = []
        noted: list[Instance] = []
        for uuid, row in idle.items():
            if present := allocations[uuid]:
                if "claimed_allocations" in row:
                    row.claimed_allocations = present
                    noted.append(row)
            elif new := list(self._reservations(state, uuid, wanted[uuid])):
                lost += new
                problems.append(_problem(state, row, new))
        unclear = different.keys() - idle.keys()
        return replace(
            state,
            lost=tuple(lost),
            settled=self._settled(state, allocations, unclear),
            noted_instances=tuple(noted),
            other_problems=(*state.other_problems, *problems),
        )

    def _read(self, uuid: str) -> _Allocations | WharfingerError:
        try:
            allocations = self.client.get_allocations(uuid)["allocations"]
        except (PlacementUnavailable, PermissionRefused):
            raise
        except PlacementError as error:
            return error
        return {provider: part["resources"] for provider, part in allocations.items()}

    def _idle_rows(self, known: Mapping[str, KnownInstance]) -> dict[str, Instance]:
        if not known:
            return {}
        # Read after the allocations: a claim, a move or a release changes a row first.
        uuids = sorted(known)
        rows = InstanceList.get_by_filters(self.context, uuid=uuids)
        moves = MigrationList.get_by_filters(self.context, instance_uuid=uuids, status=IN_PROGRESS)
        moving = {one.instance_uuid for one in moves}
        present = known_instances(rows)
        return {
            one.uuid: one
            for one in rows
            if one.uuid not in moving and present[one.uuid] == known[one.uuid]
        }

    def _reservations(
        self, state: CycleState, uuid: str, claimed: KnownInstance
    ) -> Iterator[Reservation]:
        holder = lost_by(uuid)
        for provider in sorted(claimed.allocations or ()):
            known = state.reservations.get(provider, ())
            if not _is_ours(state, provider) or any(one.known("holder") == holder for one in known):
                continue
            live, record = state.live.get(provider), state.records[provider]
            yield Reservation(
                self.context,
                provider_uuid=provider,
                reason=f"allocation of instance {uuid} is gone",
                holder=holder,
                since=now(),
                consumer_uuid=uuid,
                phase=None,
                own_reserved=full_reservation.own_reserved(
                    live.inventories if live else {}, record
                ),
            )

    def _settled(
        self, state: CycleState, allocations: Mapping[str, _Allocations], unclear: Set[str]
    ) -> dict[str, str | None]:
        settled: dict[str, str | None] = {}
        unknown: dict[str, list[str]] = {}
        for one in filter(is_lost, chain.from_iterable(state.reservations.values())):
            uuid = one.consumer_uuid or ""
            if allocations.get(uuid):
                if uuid not in unclear:
                    settled[one.uuid] = None
            elif uuid not in state.rows.instance_revisions:
                unknown.setdefault(uuid, []).append(one.uuid)
        if unknown:
            rows = InstanceList.get_by_filters(self.context, uuid=sorted(unknown))
            after = "released" if self.cleans_after_release else None
            for uuid in unknown.keys() - {one.uuid for one in rows}:
                settled.update(dict.fromkeys(unknown[uuid], after))
        return settled


def lost_by(instance_uuid: str) -> str:
    """Return the ``holder`` of reservations for the lost allocations of an instance."""
    return f"lost allocation of {instance_uuid}"


def is_lost(one: Reservation) -> bool:
    """Return whether a reservation is for a lost allocation, not the later cleaning."""
    return (
        (consumer := one.known("consumer_uuid")) is not None
        and one.known("holder") == lost_by(consumer)
        and "phase" in one
        and one.phase is None
    )


def _relevant(
    state: CycleState, instances: Mapping[str, KnownInstance]
) -> Iterator[tuple[str, KnownInstance]]:
    moving = {one.known("instance_uuid") for one in state.rows.migrations}
    for uuid, claimed in instances.items():
        if uuid in moving:
            continue
        if claimed.allocations is None:
            if claimed.node in state.roots:
                yield uuid, claimed
        elif any(_is_ours(state, provider) for provider in claimed.allocations):
            yield uuid, claimed


def _is_ours(state: CycleState, uuid: str) -> bool:
    record = state.record(uuid)
    if record.root_uuid in state.released_roots:
        return False
    return record.is_own or (record.is_ours and record.root_uuid != uuid)


def _problem(
    state: CycleState, row: Instance, reservations: Iterable[Reservation]
) -> AllocationLost:
    names = []
    for uuid in (one.provider_uuid for one in reservations):
        record = state.records[uuid]
        provider = state.live.get(uuid) or record.applied or record.intended
        names.append(f"{provider.name} ({uuid})" if provider else uuid)
    return AllocationLost(
        instance=row.uuid, node=row.node, host=row.host, providers=", ".join(names)
    )
