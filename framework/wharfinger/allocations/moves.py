"""Moves of instances: from one flavor, node or owner's resources to others.

While a move is under way both ends are held: the migration's uuid is the consumer of what the
instance had, the instance of what it is to have. They change hands in one request; of two that do
that at a time, Placement refuses one, by the consumers' generations.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from oslo_log import log as logging

from wharfinger.allocations.allocation_writer import Change, Consumer, ConsumerType
from wharfinger.allocations.candidate_attempts import Choice, FlavorSearch
from wharfinger.allocations.candidate_nodes import Suits, anywhere, place_of
from wharfinger.allocations.move_endings import Ended, Endings
from wharfinger.allocations.task_state import is_recent, moves_of, refuse_released
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentSave,
    ConcurrentUpdate,
    Conflict,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    ObjectExists,
    RequestFilterError,
    WharfingerError,
)
from wharfinger.objects import (
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)
from wharfinger.objects.migration import IN_PROGRESS
from wharfinger.providers import names
from wharfinger.scheduling.filters import Surroundings

LOG: Final = logging.getLogger(__name__)
#: What says that nothing was asked for but candidates.
_BEFORE_IT_WRITES: Final = (
    AllocationRefused,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    RequestFilterError,
)
#: What is begun here, and its statuses in which a process is at work on it for a moment.
_KINDS: Final = ("resize", "migration")
_OF_A_MOMENT: Final = ("accepted", "pre-migrating", "confirming", "reverting")


class Moves:
    """The moves of instances between what a Placement has.

    Safe for several threads. Methods raise PlacementError, ObjectError and StateError; what they
    have begun then is finished by calling them again.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        search: FlavorSearch,
        down_time: timedelta = timedelta(seconds=60),
    ) -> None:
        """Who has said nothing of a move for ``down_time`` counts as dead."""
        self._context: Final = surroundings.objects
        self._consumers: Final = search.consumers
        self._endings: Final = Endings(surroundings, search, down_time)
        self._search: Final = search
        self._down_time: Final = down_time

    def start(
        self,
        instance_uuid: str,
        flavor: Flavor | None = None,
        *,
        suits: Suits = anywhere,
    ) -> Migration:
        """Have an instance hold what it is to have, beside what it has.

        With a ``flavor``: a resize, to any node that ``suits``, its own too; without: a migration
        to another node. Returns the migration, finished: it waits to be confirmed or reverted.
        Raises NoCandidates, InvalidRequest, DeviceProfileError and AllocationRefused, and then the
        instance is as it was.
        """
        instance_uuid = names.check_uuid(instance_uuid, "instance")
        # Before all that is decided by rows: who writes those changes this first, or is refused.
        held = self._consumers.get(instance_uuid)
        instance = Instance.get_by_uuid(self._context, instance_uuid)
        _check(instance, held, flavor)
        migration = self._begin(instance, flavor)
        try:
            choice = self._search.take(
                held,
                migration.new_flavor,
                suits if flavor else _but(instance, suits),
                lambda choice: self._allocate(instance, migration, held, choice),
            )
            self._endings.arrive(instance, migration, choice.node)
        except _BEFORE_IT_WRITES:
            self._fail(migration)
            raise
        except WharfingerError as error:
            self._undo(migration)
            if isinstance(error, ConcurrentUpdate | ConcurrentSave):
                raise AllocationRefused(
                    instance=instance_uuid,
                    problem="somebody else has changed it, or what it has, meanwhile.",
                    remedy="Look at it, and do it again.",
                ) from error
            raise
        return migration

    def confirm(self, instance_uuid: str) -> Ended:
        """Have an instance be where it was moved to: what it had before is given back.

        What is cleaned after that is reserved first; returns the migration, and those reservations.
        One that has been confirmed stays so. Raises AllocationRefused, ObjectNotFound.
        """
        migration = self._move_of(instance_uuid, "confirmed")
        return self._endings.confirm(migration.uuid)

    def revert(self, instance_uuid: str) -> Ended:
        """Have an instance have what it had: what it was to have is given back.

        As ``confirm``. A start whose process has died is undone by it, too.
        """
        migration = self._move_of(instance_uuid, "reverted", "failed")
        if self._endings.is_starting(migration):
            raise self._endings.refused(migration, "reverted")
        return self._endings.revert(migration.uuid)

    def left(self) -> list[Migration]:
        """The moves that processes have left which died, for ``recover``.

        One that waits to be confirmed or reverted is none, unless its instance is no more; and
        none is what others do who take their time: a live migration, or the copying of a disk.
        """
        moves = list(MigrationList.get_by_filters(self._context, status=IN_PROGRESS))
        wanted = sorted({one.instance_uuid for one in moves})
        there = InstanceList.get_by_filters(self._context, uuid=wanted) if wanted else ()
        uuids = {one.uuid for one in there}
        return [
            one
            for one in moves
            if one.instance_uuid not in uuids
            or (
                one.migration_type in _KINDS
                and one.status in _OF_A_MOMENT
                and not is_recent(one, self._down_time)
            )
        ]

    def recover(self, migration: Migration) -> Ended:
        """Finish a move that was left: one that was being confirmed is, every other is reverted.

        Where its instance is no more, or is being released, what it has is given back. Returns as
        ``confirm``.
        """
        return self._endings.recover(migration)

    def _begin(self, instance: Instance, flavor: Flavor | None) -> Migration:
        """A new move; raises AllocationRefused where there is one that has begun before."""
        for other in moves_of(self._context, instance.uuid):
            raise _second(other)
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
        except ObjectExists as error:  # two moves began at the same time
            for other in moves_of(self._context, instance.uuid):
                raise _second(other) from error
            raise
        return migration

    def _allocate(
        self, instance: Instance, migration: Migration, held: Consumer, choice: Choice
    ) -> None:
        """Have the migration have what the instance has, and that a candidate."""
        try:
            self._consumers.set(
                instance,
                Change(Consumer(migration.uuid), held.allocations, ConsumerType.MIGRATION),
                Change(held, choice.allocations, ConsumerType.INSTANCE),
            )
        except Conflict as error:
            if _is_about(error, held.allocations) and not _is_about(error, choice.allocations):
                raise AllocationRefused(
                    instance=instance.uuid,
                    problem=f"what it has cannot be held for the move: {error}",
                    remedy="Its provider has changed since: see what its driver publishes.",
                ) from error
            raise

    def _undo(self, migration: Migration) -> None:
        """Have a move that could not be started be none."""
        try:
            self._endings.recover(migration)
        except WharfingerError as error:
            LOG.warning(
                "migration %s of instance %s was not undone: `wharfinger migration recover` does "
                "that, in %s s. %s",
                migration.uuid,
                migration.instance_uuid,
                int(self._down_time.total_seconds()),
                error,
            )

    def _fail(self, migration: Migration) -> None:
        migration.status = "failed"
        with suppress(ConcurrentSave):  # somebody else has ended it
            migration.save()

    def _move_of(self, instance_uuid: str, *ended: str) -> Migration:
        """The move of an instance that is in progress, or else the last one if it has ended so."""
        instance_uuid = Instance.get_by_uuid(self._context, instance_uuid).uuid
        moves = list(MigrationList.get_by_filters(self._context, instance_uuid=instance_uuid))
        for one in moves:
            if not one.is_in_progress:
                continue
            if one.migration_type not in _KINDS:
                raise AllocationRefused(
                    instance=instance_uuid,
                    problem=f"it is on its way by a {one.migration_type}.",
                    remedy="The service that started this migration has to end it.",
                )
            return one
        # One that could not be started is the end of nothing but itself.
        decided = [one for one in moves if one.status != "failed" or "failed" in ended]
        if decided and decided[-1].status in ended:
            return decided[-1]
        last = f"; the last, {moves[-1].uuid}, is {moves[-1].status}" if moves else ""
        raise AllocationRefused(
            instance=instance_uuid,
            problem=f"it has no move that could be {ended[0]}{last}.",
            remedy=f"`wharfinger migration list --instance {instance_uuid}` lists its moves.",
        )


def _second(first: Migration) -> AllocationRefused:
    """The error of a move that would be the second one."""
    return AllocationRefused(
        instance=first.instance_uuid,
        problem=f"it is on its way by migration {first.uuid}, which is {first.status}.",
        remedy="Confirm or revert that first.",
    )


def _check(instance: Instance, held: Consumer, flavor: Flavor | None) -> None:
    """Raise AllocationRefused for what cannot be moved so."""
    refuse_released(instance)
    if instance.node is None or not held.allocations:
        raise AllocationRefused(
            instance=instance.uuid,
            problem="it has no allocation, or is on no node.",
            remedy="Claim it again, or release it.",
        )
    if flavor and flavor.is_as(instance.flavor):
        raise AllocationRefused(
            instance=instance.uuid,
            problem=f"it has flavor {flavor.name}.",
            remedy="To have it go to another node, migrate it.",
        )


def _is_about(error: Conflict, providers: Iterable[str]) -> bool:
    """Whether Placement names one of these providers as what it cannot allocate from."""
    return any(uuid in error.detail for uuid in providers)


def _but(instance: Instance, suits: Suits) -> Suits:
    """Nodes that suit, and are not an instance's own."""
    place = (instance.host, instance.node)
    return lambda node: suits(node) and place_of(node) != place
