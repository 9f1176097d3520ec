"""Move instances to another flavor or node.

During a move, the migration has the former allocations, and the instance has the new ones.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final

from oslo_log import log as logging

from wharfinger.allocations.allocation_writer import Allocations, Consumer, was_refused
from wharfinger.allocations.candidate_attempts import FlavorSearch, Suits, anywhere, place_of
from wharfinger.allocations.claims import AllocationClaims
from wharfinger.allocations.operation_states import (
    is_recent,
    refuse_moving,
    refuse_released,
    seconds,
    with_retries,
)
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentSave,
    ConcurrentUpdate,
    Conflict,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    ObjectExists,
    ObjectNotFound,
    PlacementError,
    RequestFilterError,
    WharfingerError,
)
from wharfinger.objects import (
    ComputeNode,
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
    Reservation,
)
from wharfinger.objects.migration import IN_PROGRESS
from wharfinger.providers import names
from wharfinger.tracker.instance_claims import Claims, End, ends_of

LOG: Final = logging.getLogger(__name__)
#: Errors that occur before the first write.
_BEFORE_IT_WRITES: Final = (
    AllocationRefused,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    RequestFilterError,
)
#: The types of moves that this module starts.
_KINDS: Final = ("resize", "migration")
#: Statuses in which a process is working on a move.
_TRANSIENT: Final = ("accepted", "pre-migrating", "confirming", "reverting")
#: Statuses after the start of a move.
_STARTED: Final = ("finished", "confirming", "reverting")
#: Statuses in which the instance stays at the destination.
_CONFIRMED: Final = ("confirming", "confirmed", "completed", "done")

#: A move that has ended, and the reservations of providers to be cleaned.
Ended = tuple[Migration, tuple[Reservation, ...]]


class Moves:
    """Starts, confirms and reverts moves of instances.

    Several threads can share an object. Methods raise PlacementError, ObjectError and StateError.
    After an error, a repeated ``confirm`` or ``revert`` completes the work.
    """

    def __init__(self, search: FlavorSearch, down_time: timedelta = timedelta(seconds=60)) -> None:
        """A process that has not saved its move for ``down_time`` counts as dead."""
        self._context: Final = search.surroundings.objects
        self._search: Final = search
        self._consumers: Final = search.consumers
        self.claims: Final = AllocationClaims(search, down_time)
        self._reservations: Final = self.claims.reservations
        self._down_time: Final = down_time

    def start(
        self, instance_uuid: str, flavor: Flavor | None = None, *, suits: Suits = anywhere
    ) -> Migration:
        """Start a resize to a flavor, or without one a migration to another node.

        Return the migration, which waits for a confirm or revert. Raises AllocationRefused if the
        instance cannot be moved now; NoCandidates, InvalidRequest, DeviceProfileError and
        RequestFilterError.
        """
        instance_uuid = names.check_uuid(instance_uuid, "instance")
        held, instance = self.claims.read(instance_uuid)
        _check(instance, held, flavor)
        try:
            migration = self._begin(instance, flavor)
            self._claim_destination(instance, migration, held, suits)
        except (ConcurrentSave, ConcurrentUpdate) as error:
            raise AllocationRefused(
                instance=instance_uuid,
                problem="the move was not started, since another process has changed the instance "
                "or its allocations.",
                remedy=f"Check the instance (`wharfinger instance show {instance_uuid}`), and "
                "repeat the command.",
            ) from error
        return migration

    def confirm(self, instance_uuid: str) -> Ended:
        """Keep an instance at the destination of its move, and release the former allocations.

        Return the migration, and the reservations of providers to be cleaned. Raises
        AllocationRefused and ObjectNotFound.
        """
        return self._confirm(self._move_of(instance_uuid, "confirmed").uuid)

    def revert(self, instance_uuid: str) -> Ended:
        """Restore the former allocations of an instance, and release the new ones.

        Return the migration, and the reservations of providers to be cleaned. Raises
        AllocationRefused and ObjectNotFound.
        """
        migration = self._move_of(instance_uuid, "reverted", "failed")
        is_starting = migration.is_in_progress and migration.status not in _STARTED
        if is_starting and is_recent(migration, self._down_time):
            raise self._refused(migration, "reverted")
        return self._revert(migration.uuid)

    def interrupted(self) -> list[Migration]:
        """Return the moves that ``recover`` has to end."""
        moves = list(MigrationList.get_by_filters(self._context, status=IN_PROGRESS))
        wanted = sorted({one.instance_uuid for one in moves})
        found = InstanceList.get_by_filters(self._context, uuid=wanted) if wanted else ()
        there = {one.uuid for one in found}
        return [
            one
            for one in moves
            if one.instance_uuid not in there
            or (
                one.migration_type in _KINDS
                and one.status in _TRANSIENT
                and not is_recent(one, self._down_time)
            )
        ]

    def recover(self, migration: Migration) -> Ended:
        """End an interrupted move: confirm or revert it, or only release its allocations."""
        try:
            instance = Instance.get_by_uuid(self._context, migration.instance_uuid)
        except ObjectNotFound:
            instance = None
        if instance is None or instance.known("task_state") == "releasing":
            reserved = self.claims.end(migration)
            return Migration.get_by_uuid(self._context, migration.uuid), reserved
        if migration.status == "confirming":
            return self._confirm(migration.uuid)
        return self._revert(migration.uuid)

    # Starts.

    def _begin(self, instance: Instance, flavor: Flavor | None) -> Migration:
        migration = Migration(
            self._context,
            instance_uuid=instance.uuid,
            migration_type="resize" if flavor else "migration",
            source_compute=instance.host,
            source_node=instance.node,
            dest_compute=None,
            dest_node=None,
            old_flavor=instance.flavor,
            new_flavor=flavor or instance.flavor,
        )
        try:
            migration.create()
        except ObjectExists:
            refuse_moving(self._context, instance.uuid)
            raise
        return migration

    def _claim_destination(
        self, instance: Instance, migration: Migration, held: Consumer, suits: Suits
    ) -> None:
        is_resize, source = migration.migration_type == "resize", (instance.host, instance.node)
        try:
            _allocations, node = self._search.take(
                held,
                migration.new_flavor,
                lambda node: suits(node) and (is_resize or place_of(node) != source),
                partial(self._allocate, instance, migration, held),
            )
            self._arrive(instance, migration, node)
        except _BEFORE_IT_WRITES:
            migration.status = "failed"
            with suppress(ConcurrentSave):  # another process has ended it
                migration.save()
            raise
        except WharfingerError:
            self._undo(migration)
            raise

    def _allocate(
        self, instance: Instance, migration: Migration, held: Consumer, wanted: Allocations
    ) -> None:
        try:
            new_consumer = Consumer(migration.uuid)
            self._consumers.set(instance, (new_consumer, held.allocations), (held, wanted))
        except Conflict as error:
            if _is_about(error, held.allocations) and not _is_about(error, wanted):
                raise AllocationRefused(
                    instance=instance.uuid,
                    problem="the present allocations of the instance cannot be kept for the move: "
                    f"{error}",
                    remedy="Compare the allocations with the inventories that the driver publishes "
                    "for their providers.",
                ) from error
            raise

    def _arrive(self, instance: Instance, migration: Migration, node: ComputeNode) -> None:
        Claims(self._context, node.host).move_claim(instance, node.hypervisor_hostname, migration)
        for status in ("migrating", "post-migrating", "finished"):
            migration.status = status
        migration.save()

    def _undo(self, migration: Migration) -> None:
        try:
            self.recover(migration)
        except WharfingerError as error:
            LOG.warning(
                "Migration %s of instance %s could not be started, and was not undone. Wait %s, "
                "then run `wharfinger migration recover`. The error: %s",
                migration.uuid,
                migration.instance_uuid,
                seconds(self._down_time),
                error,
            )

    # Ends.

    def _move_of(self, instance_uuid: str, *ended: str) -> Migration:
        instance_uuid = Instance.get_by_uuid(self._context, instance_uuid).uuid
        moves = list(MigrationList.get_by_filters(self._context, instance_uuid=instance_uuid))
        for one in moves:
            if not one.is_in_progress:
                continue
            if one.migration_type not in _KINDS:
                raise AllocationRefused(
                    instance=instance_uuid,
                    problem=f"a move of the instance ({one.migration_type}) is in progress, which "
                    "another service has started.",
                    remedy="Wait until that service ends the move.",
                )
            return one
        decided = [one for one in moves if one.status != "failed" or "failed" in ended]
        if decided and decided[-1].status in ended:
            return decided[-1]
        last = f"; its last move, {moves[-1].uuid}, is {moves[-1].status}" if moves else ""
        raise AllocationRefused(
            instance=instance_uuid,
            problem=f"the instance has no move that could be {ended[0]}{last}.",
            remedy="List the moves of the instance with `wharfinger migration list --instance "
            f"{instance_uuid}`.",
        )

    @with_retries
    def _confirm(self, uuid: str) -> Ended:
        migration, instance = self._read(uuid)
        if migration.status == "confirmed":
            return migration, ()
        if migration.status not in {"finished", "confirming"}:
            raise self._refused(migration, "confirmed")
        kept = self._consumers.get(instance.uuid).allocations
        if not kept:
            raise AllocationRefused(
                instance=instance.uuid,
                problem="the move cannot be confirmed: the new allocations of the instance are no "
                "longer in Placement.",
                remedy="Release the instance. Or, if the move has status finished, revert the "
                "move.",
            )
        if migration.status == "finished":
            migration.status = "confirming"
            migration.save()  # fails if a concurrent revert was faster
        reserved = self._consumers.release(migration.uuid, self._reservations, not_cleaned=kept)
        instance.claimed_allocations = kept
        self._drop(instance, migration, End.SOURCE)
        return migration, reserved

    @with_retries
    def _revert(self, uuid: str) -> Ended:
        migration = Migration.get_by_uuid(self._context, uuid)
        if migration.status in _CONFIRMED:
            raise self._refused(migration, "reverted")
        if not migration.is_in_progress:
            return migration, ()
        if migration.status == "finished":
            migration.status = "reverting"
            migration.save()
        had = self._consumers.get(migration.uuid)
        has = self._consumers.get(migration.instance_uuid)
        migration, instance = self._read(uuid)  # after the consumers, as in AllocationClaims.read
        if had.allocations:
            self._restore_former_allocations(instance, migration, had, has)
        elif migration.status == "reverting":
            if not self._is_at_source(migration, has):
                self._finish(instance, migration, has)
                why = "the former allocations of the instance are no longer in Placement."
                raise _not_reverted(instance, why)
        elif has.allocations:
            try:
                # Write the same allocations to raise the consumer generation. Placement then
                # refuses the write of a process that still works on the start of this move.
                self._consumers.set(instance, (has, has.allocations))
            except PlacementError as error:
                # Placement would also refuse these allocations for the migration. So a process that
                # still starts the move cannot succeed.
                if not was_refused(error):
                    raise
        reserved = self._reservations.after_release(instance.uuid)
        self._drop(instance, migration, End.DESTINATION)
        return migration, reserved

    def _restore_former_allocations(
        self, instance: Instance, migration: Migration, had: Consumer, has: Consumer
    ) -> None:
        lost = [one for one in has.allocations if one not in had.allocations]
        self._reservations.before_release(instance.uuid, lost)
        try:
            self._consumers.set(instance, (has, had.allocations), (had, {}))
        except PlacementError as error:
            if not was_refused(error):
                raise
            self._reservations.cancel_release(instance.uuid)
            self._finish(instance, migration, has)
            why = f"Placement refuses the former allocations of the instance: {error}"
            raise _not_reverted(instance, why) from error

    def _is_at_source(self, migration: Migration, has: Consumer) -> bool:
        source = (migration.source_compute, migration.source_node)
        if source != (migration.dest_compute, migration.dest_node):
            node = self._search.where(has.allocations)
            return node is None or place_of(node) == source
        try:
            return self._search.fits(migration.old_flavor, has.allocations)
        except (DeviceProfileError, InvalidRequest):
            return True  # the amounts of the flavor are unknown

    def _finish(self, instance: Instance, migration: Migration, has: Consumer) -> None:
        """Finish a move that cannot be reverted, so that it can be confirmed."""
        if migration.status == "reverting":
            migration.status = "finished"
            migration.save()
        elif (node := self._search.where(has.allocations)) is not None:
            # The process that started the move has died before it claimed the node.
            self._arrive(instance, migration, node)

    def _refused(self, migration: Migration, end: str) -> AllocationRefused:
        if migration.is_in_progress and migration.status not in _STARTED:
            remedy = (
                "Wait until the migration has status finished. If the process that starts the "
                f"migration has died, run `wharfinger migration recover` after "
                f"{seconds(self._down_time)}, which reverts the migration."
            )
        else:
            remedy = (
                "Another process is ending the migration, or has ended it. If that process has "
                f"died, run `wharfinger migration recover` after {seconds(self._down_time)}."
            )
        return AllocationRefused(
            instance=migration.instance_uuid,
            problem=f"migration {migration.uuid} of the instance has status {migration.status}, "
            f"and cannot be {end}.",
            remedy=remedy,
        )

    def _read(self, uuid: str) -> tuple[Migration, Instance]:
        migration = Migration.get_by_uuid(self._context, uuid)
        instance = Instance.get_by_uuid(self._context, migration.instance_uuid)
        refuse_released(instance)
        return migration, instance

    def _drop(self, instance: Instance, migration: Migration, end: End) -> None:
        for host in sorted({host for host, _node in ends_of(migration)}):
            Claims(self._context, host).drop_move_claim(instance, migration, end)


def _check(instance: Instance, held: Consumer, flavor: Flavor | None) -> None:
    if instance.node is None or not held.allocations:
        raise AllocationRefused(
            instance=instance.uuid,
            problem="the instance cannot be moved, since it has no allocation, or is on no node.",
            remedy=f"Repair the instance (`wharfinger instance repair {instance.uuid}`), or "
            "release it. If it is on no node, claim it again with its uuid.",
        )
    if flavor and flavor.is_same_as(instance.flavor):
        raise AllocationRefused(
            instance=instance.uuid,
            problem=f"the instance cannot be resized, since it already has flavor {flavor.name}.",
            remedy="To move the instance to another node, migrate the instance.",
        )


def _not_reverted(instance: Instance, why: str) -> AllocationRefused:
    return AllocationRefused(
        instance=instance.uuid,
        problem=f"the move cannot be reverted, since {why}",
        remedy="Confirm the move, or release the instance.",
    )


def _is_about(error: Conflict, providers: Iterable[str]) -> bool:
    return any(uuid in error.detail for uuid in providers)
