"""Moves of instances: from one flavor, node or owner's resources to others.

While a move is under way both ends are held: the migration's uuid is the consumer of what the
instance had, the instance of what it is to have. They change hands in one request; of two that do
that at a time, Placement refuses one, by the consumers' generations.
"""

from datetime import timedelta
from typing import Final

from oslo_log import log as logging

from wharfinger.allocations.claims import AllocationClaims, again, ends_of, moves_of
from wharfinger.allocations.consumers import Change, Consumer, Consumers, ConsumerType
from wharfinger.allocations.places import Suits, anywhere
from wharfinger.allocations.search import FlavorSearch
from wharfinger.exceptions import (
    AllocationRefused,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    ObjectNotFound,
    RequestFilterError,
    WharfingerError,
)
from wharfinger.objects import (
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
    Reservation,
)
from wharfinger.objects.kinds import now
from wharfinger.placement.holds import Holds
from wharfinger.scheduling.filters import Surroundings
from wharfinger.tracker.claims import Claims, End

LOG: Final = logging.getLogger(__name__)
#: Times are kept in whole seconds.
_LEAST: Final = timedelta(seconds=3)
#: What says that nothing was asked for but candidates.
_BEFORE_IT_WRITES: Final = (NoCandidates, InvalidRequest, DeviceProfileError, RequestFilterError)
#: What is begun here, and its statuses in which a process is at work on it for a moment.
_KINDS: Final = ("resize", "migration")
_OF_A_MOMENT: Final = ("accepted", "pre-migrating", "confirming", "reverting")
#: Statuses in which a move waits for nobody but whoever confirms or reverts it, or is about to.
_BEGUN: Final = ("finished", "confirming", "reverting")
#: Those in which it has been decided that the instance is where it was moved to.
_CONFIRMED: Final = ("confirming", "confirmed", "completed", "done")


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
        self._consumers: Final = Consumers(surroundings.placement)
        self._holds: Final = Holds(surroundings.placement, surroundings.objects)
        self._claims: Final = AllocationClaims(surroundings, search)
        self._search: Final = search
        self._down_time: Final = max(down_time, _LEAST)

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
                lambda choice: self._consumers.set(
                    instance,
                    Change(Consumer(migration.uuid), held.allocations, ConsumerType.MIGRATION),
                    Change(held, choice.allocations, ConsumerType.INSTANCE),
                ),
            )
            node = choice.node
            claims = Claims(self._context, node.host)
            claims.move_claim(instance, migration.new_flavor, node.hypervisor_hostname, migration)
            for status in ("migrating", "post-migrating", "finished"):
                migration.status = status
            migration.save()
        except WharfingerError as error:
            self._undo(migration, is_sure=isinstance(error, _BEFORE_IT_WRITES))
            raise
        return migration

    def confirm(self, instance_uuid: str) -> tuple[Migration, tuple[Reservation, ...]]:
        """Have an instance be where it was moved to: what it had before is given back.

        What is cleaned after that is reserved first; returns the migration, and those reservations.
        One that has been confirmed stays so. Raises AllocationRefused, ObjectNotFound.
        """
        migration = self._move_of(instance_uuid, "confirmed")
        return self._confirm(migration.uuid)

    def revert(self, instance_uuid: str) -> tuple[Migration, tuple[Reservation, ...]]:
        """Have an instance have what it had: what it was to have is given back.

        As ``confirm``. A start whose process has died is undone by it, too.
        """
        migration = self._move_of(instance_uuid, "reverted", "failed")
        if self._is_starting(migration):
            raise self._refused(migration, "reverted")
        return self._revert(migration.uuid)

    def left(self) -> list[Migration]:
        """The moves that processes have left which died, for ``recover``.

        One that waits to be confirmed or reverted is none, unless its instance is no more; and
        none is what others do who take their time: a live migration, or the copying of a disk.
        """
        moves = [one for one in MigrationList.get_by_filters(self._context) if one.is_in_progress]
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
                and not self._is_recent(one)
            )
        ]

    def recover(self, migration: Migration) -> tuple[Migration, tuple[Reservation, ...]]:
        """Finish a move that was left: one that was being confirmed is, every other is reverted.

        Where its instance is no more, what it has is given back. Returns as ``confirm``.
        """
        try:
            Instance.get_by_uuid(self._context, migration.instance_uuid)
        except ObjectNotFound:
            reserved = self._claims.end(migration)
            return Migration.get_by_uuid(self._context, migration.uuid), reserved
        if migration.status == "confirming":
            return self._confirm(migration.uuid)
        return self._revert(migration.uuid)

    @again
    def _confirm(self, uuid: str) -> tuple[Migration, tuple[Reservation, ...]]:
        migration, instance = self._read(uuid)
        if migration.status == "confirmed":
            return migration, ()
        if migration.status == "finished":
            migration.status = "confirming"
            migration.save()  # of one who confirms and one who reverts, one is refused
        if migration.status != "confirming":
            raise self._refused(migration, "confirmed")
        kept = self._consumers.get(instance.uuid).allocations
        reserved = self._holds.give_back(migration.uuid, kept=kept)
        self._drop(instance, migration, End.SOURCE)
        return migration, reserved

    @again
    def _revert(self, uuid: str) -> tuple[Migration, tuple[Reservation, ...]]:
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
        migration, instance = self._read(uuid)  # after that, as in start
        if had.allocations:
            lost = [one for one in has.allocations if one not in had.allocations]
            self._holds.before_release(instance.uuid, lost)
            self._consumers.set(
                instance,
                Change(has, had.allocations, ConsumerType.INSTANCE),
                Change(had, {}, ConsumerType.MIGRATION),
            )
        elif has.allocations and migration.status not in _BEGUN:
            # The same again, of a new generation: who is starting it yet is refused.
            self._consumers.set(instance, Change(has, has.allocations, ConsumerType.INSTANCE))
        reserved = self._holds.after_release(instance.uuid)
        self._drop(instance, migration, End.DESTINATION)
        return migration, reserved

    def _begin(self, instance: Instance, flavor: Flavor | None) -> Migration:
        """A new move; raises AllocationRefused where there is another."""
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
        migration.create()
        for other in moves_of(self._context, instance.uuid):
            if other.uuid != migration.uuid:
                self._fail(migration)
                raise AllocationRefused(
                    instance=instance.uuid,
                    problem=f"it is on its way by migration {other.uuid}, which is {other.status}.",
                    remedy="Confirm or revert that first.",
                )
        return migration

    def _undo(self, migration: Migration, *, is_sure: bool) -> None:
        """Have a move that could not be started be none; ``is_sure``: nothing was written of it."""
        try:
            if is_sure:
                self._fail(migration)
            else:
                self._revert(migration.uuid)
        except WharfingerError as error:
            LOG.warning(
                "migration %s of instance %s was not undone: revert it. %s",
                migration.uuid,
                migration.instance_uuid,
                error,
            )

    def _fail(self, migration: Migration) -> None:
        migration.status = "failed"
        migration.save()

    def _read(self, uuid: str) -> tuple[Migration, Instance]:
        """A move, and its instance; raises AllocationRefused where that is being released."""
        migration = Migration.get_by_uuid(self._context, uuid)
        instance = Instance.get_by_uuid(self._context, migration.instance_uuid)
        if instance.node is None:
            raise AllocationRefused(
                instance=instance.uuid,
                problem="it is being released.",
                remedy="Release it again, if that was cut short.",
            )
        return migration, instance

    def _drop(self, instance: Instance, migration: Migration, end: End) -> None:
        """End a move with its claim at one of its ends; the nodes of both are told."""
        for host in sorted({host for host, _node in ends_of(migration)}):
            Claims(self._context, host).drop_move_claim(instance, migration, end)

    def _move_of(self, instance_uuid: str, *ended: str) -> Migration:
        """The move of an instance that is in progress, or else the last one if it has ended so."""
        Instance.get_by_uuid(self._context, instance_uuid)
        moves = list(MigrationList.get_by_filters(self._context, instance_uuid=instance_uuid))
        # One that is about to be refused, for another that there is, has just been accepted.
        under_way = sorted(
            (one for one in moves if one.is_in_progress), key=lambda one: one.status == "accepted"
        )
        if under_way and under_way[0].migration_type not in _KINDS:
            raise AllocationRefused(
                instance=instance_uuid,
                problem=f"it is on its way by a {under_way[0].migration_type}.",
                remedy="Who began that ends it.",
            )
        if under_way:
            return under_way[0]
        if moves and moves[-1].status in ended:
            return moves[-1]
        last = f"; the last, {moves[-1].uuid}, is {moves[-1].status}" if moves else ""
        raise AllocationRefused(
            instance=instance_uuid,
            problem=f"it has no move that could be {ended[0]}{last}.",
            remedy=f"`wharfinger migration list --instance {instance_uuid}` lists its moves.",
        )

    def _refused(self, migration: Migration, end: str) -> AllocationRefused:
        if self._is_starting(migration):
            remedy = "It is being started: wait until it is finished."
        elif migration.is_in_progress and migration.status not in _BEGUN:
            remedy = "Its process has died: revert it."
        else:
            remedy = "Somebody has decided otherwise."
        return AllocationRefused(
            instance=migration.instance_uuid,
            problem=f"its migration {migration.uuid} is {migration.status}, and cannot be {end}.",
            remedy=remedy,
        )

    def _is_starting(self, migration: Migration) -> bool:
        """Whether a process is at work on the start of a move."""
        is_before = migration.is_in_progress and migration.status not in _BEGUN
        return is_before and self._is_recent(migration)

    def _is_recent(self, migration: Migration) -> bool:
        said = migration.updated_at or migration.created_at
        return now() - said <= self._down_time


def _check(instance: Instance, held: Consumer, flavor: Flavor | None) -> None:
    """Raise AllocationRefused for what cannot be moved so."""
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


def _but(instance: Instance, suits: Suits) -> Suits:
    """Nodes that suit, and are not an instance's own."""
    place = (instance.host, instance.node)
    return lambda node: suits(node) and (node.host, node.hypervisor_hostname) != place
