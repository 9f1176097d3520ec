"""Ends of moves: confirmed, reverted, or finished for a process that has died.

Each step may have been done already, by a process that died or by one that is at it now.
"""

from datetime import timedelta
from typing import Final

from wharfinger.allocations.allocation_writer import Change, Consumer, ConsumerType, was_refused
from wharfinger.allocations.candidate_attempts import FlavorSearch
from wharfinger.allocations.candidate_nodes import place_of
from wharfinger.allocations.claims import AllocationClaims
from wharfinger.allocations.release import AllocationRelease
from wharfinger.allocations.task_state import again, ends_of, is_recent, refuse_released, state_of
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentUpdate,
    DeviceProfileError,
    InvalidRequest,
    ObjectNotFound,
    PlacementError,
)
from wharfinger.objects import ComputeNode, Flavor, Instance, Migration, Reservation
from wharfinger.reconcile.reservations import Reservations
from wharfinger.scheduling.filters import Surroundings
from wharfinger.tracker.instance_claims import Claims, End

#: Statuses in which a move waits for nobody but whoever confirms or reverts it, or is about to.
_BEGUN: Final = ("finished", "confirming", "reverting")
#: Those in which it has been decided that the instance is where it was moved to.
_CONFIRMED: Final = ("confirming", "confirmed", "completed", "done")

#: A move, and what is reserved of what it has given back.
Ended = tuple[Migration, tuple[Reservation, ...]]


class Endings:
    """How moves end. Methods raise PlacementError, ObjectError, StateError and AllocationRefused.

    Who has said nothing of a move for ``down_time`` counts as dead.
    """

    def __init__(
        self, surroundings: Surroundings, search: FlavorSearch, down_time: timedelta
    ) -> None:
        self._context: Final = surroundings.objects
        self._search: Final = search
        self._consumers: Final = search.consumers
        self._reservations: Final = Reservations(surroundings.placement, surroundings.objects)
        self._releases: Final = AllocationRelease(surroundings.placement, surroundings.objects)
        self._claims: Final = AllocationClaims(surroundings, search, down_time)
        self._down_time: Final = down_time

    def recover(self, migration: Migration) -> Ended:
        """As ``Moves.recover``."""
        if self._is_released(migration):
            reserved = self._claims.end(migration)
            return Migration.get_by_uuid(self._context, migration.uuid), reserved
        if migration.status == "confirming":
            return self.confirm(migration.uuid)
        return self.revert(migration.uuid)

    def _is_released(self, migration: Migration) -> bool:
        """Whether the instance of a move is no more, or will be none."""
        try:
            instance = Instance.get_by_uuid(self._context, migration.instance_uuid)
        except ObjectNotFound:
            return True
        return state_of(instance) == "releasing"

    @again
    def confirm(self, uuid: str) -> Ended:
        """As ``Moves.confirm``, of a migration."""
        migration, instance = self._read(uuid)
        if migration.status == "confirmed":
            return migration, ()
        kept = self._consumers.get(instance.uuid).allocations
        if migration.status in {"finished", "confirming"} and not kept:
            raise AllocationRefused(
                instance=instance.uuid,
                problem="what it was to have has gone from Placement.",
                remedy="Revert its move, or release it.",
            )
        if migration.status == "finished":
            migration.status = "confirming"
            migration.save()  # of one who confirms and one who reverts, one is refused
        if migration.status != "confirming":
            raise self.refused(migration, "confirmed")
        reserved = self._releases.release(migration.uuid, kept=kept)
        self._drop(instance, migration, End.SOURCE)
        return migration, reserved

    @again
    def revert(self, uuid: str) -> Ended:
        """As ``Moves.revert``, of a migration."""
        migration = Migration.get_by_uuid(self._context, uuid)
        if migration.status in _CONFIRMED:
            raise self.refused(migration, "reverted")
        if not migration.is_in_progress:
            return migration, ()
        if migration.status == "finished":
            migration.status = "reverting"
            migration.save()
        had = self._consumers.get(migration.uuid)
        has = self._consumers.get(migration.instance_uuid)
        migration, instance = self._read(uuid)  # after that, as in start
        if had.allocations:
            self._take_back(instance, migration, had, has)
        elif migration.status == "reverting":
            self._see_back(instance, migration, has)
        elif has.allocations:
            self._renew(instance, has)
        reserved = self._reservations.after_release(instance.uuid)
        self._drop(instance, migration, End.DESTINATION)
        return migration, reserved

    def arrive(self, instance: Instance, migration: Migration, node: ComputeNode) -> None:
        """Have a move wait to be decided, whose instance has what it is to have on a node."""
        claims = Claims(self._context, node.host)
        claims.move_claim(instance, migration.new_flavor, node.hypervisor_hostname, migration)
        for status in ("migrating", "post-migrating", "finished"):
            migration.status = status
        migration.save()

    def _take_back(
        self, instance: Instance, migration: Migration, had: Consumer, has: Consumer
    ) -> None:
        """Have an instance have what it had; raises AllocationRefused where Placement does not."""
        lost = [one for one in has.allocations if one not in had.allocations]
        self._reservations.before_release(instance.uuid, lost)
        try:
            self._consumers.set(
                instance,
                Change(has, had.allocations, ConsumerType.INSTANCE),
                Change(had, {}, ConsumerType.MIGRATION),
            )
        except ConcurrentUpdate:
            raise
        except PlacementError as error:
            if not was_refused(error):
                raise
            self._reservations.cancel_release(instance.uuid)
            # It can still be confirmed.
            if migration.status == "reverting":
                migration.status = "finished"
                migration.save()
            elif (node := self._claims.where(has.allocations)) is not None:
                self.arrive(instance, migration, node)
            raise AllocationRefused(
                instance=instance.uuid,
                problem=f"it cannot have what it had before: {error}",
                remedy="Confirm its move, or release it.",
            ) from error

    def _renew(self, instance: Instance, has: Consumer) -> None:
        """Give an instance what it has again, of a new generation: who is moving it is refused."""
        try:
            self._consumers.set(instance, Change(has, has.allocations, ConsumerType.INSTANCE))
        except PlacementError as error:
            # Placement does not let it have that any more; nor does it let a migration.
            if isinstance(error, ConcurrentUpdate) or not was_refused(error):
                raise

    def _see_back(self, instance: Instance, migration: Migration, has: Consumer) -> None:
        """See that an instance is where it was: somebody else may have deleted what it had there.

        Raises AllocationRefused where it is not. On one node, what flavors ask for has to tell.
        """
        source = (migration.source_compute, migration.source_node)
        if source == (migration.dest_compute, migration.dest_node):
            is_back = self._may_be_of(migration.old_flavor, has)
        else:
            node = self._claims.where(has.allocations)
            is_back = node is None or place_of(node) == source
        if is_back:
            return
        migration.status = "finished"
        migration.save()
        raise AllocationRefused(
            instance=instance.uuid,
            problem="what it had before has gone from Placement.",
            remedy="Confirm its move, or release it.",
        )

    def _may_be_of(self, flavor: Flavor, has: Consumer) -> bool:
        """Whether what somebody has is a flavor's, as far as it is known what that asks for."""
        try:
            return self._search.fits(flavor, has.allocations)
        except (DeviceProfileError, InvalidRequest):
            return True

    def refused(self, migration: Migration, end: str) -> AllocationRefused:
        """The error of a move that cannot end so now."""
        if self.is_starting(migration):
            remedy = (
                "It is being started: wait until it is finished. If its process has died, "
                "`wharfinger migration recover` reverts it when that has been silent for "
                f"{int(self._down_time.total_seconds())} s."
            )
        elif migration.is_in_progress and migration.status not in _BEGUN:
            remedy = "Its process has died: revert it."
        else:
            remedy = "Somebody has decided otherwise."
        return AllocationRefused(
            instance=migration.instance_uuid,
            problem=f"its migration {migration.uuid} is {migration.status}, and cannot be {end}.",
            remedy=remedy,
        )

    def is_starting(self, migration: Migration) -> bool:
        """Whether a process is at work on the start of a move."""
        is_before = migration.is_in_progress and migration.status not in _BEGUN
        return is_before and is_recent(migration, self._down_time)

    def _read(self, uuid: str) -> tuple[Migration, Instance]:
        """A move, and its instance; raises AllocationRefused where that is being released."""
        migration = Migration.get_by_uuid(self._context, uuid)
        instance = Instance.get_by_uuid(self._context, migration.instance_uuid)
        refuse_released(instance)
        return migration, instance

    def _drop(self, instance: Instance, migration: Migration, end: End) -> None:
        """End a move with its claim at one of its ends; the nodes of both are told."""
        for host in sorted({host for host, _node in ends_of(migration) if host is not None}):
            Claims(self._context, host).drop_move_claim(instance, migration, end)
