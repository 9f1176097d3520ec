"""Claim, release and repair the allocations of instances."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import uuid4

from oslo_log import log as logging

from wharfinger.allocations.allocation_writer import Allocations, Consumer, is_unsure, was_refused
from wharfinger.allocations.candidate_attempts import FlavorSearch, Suits, anywhere, place_of
from wharfinger.allocations.operation_states import (
    is_recent,
    moves_of,
    refuse_claimed,
    refuse_moving,
    refuse_released,
    seconds,
    with_retries,
)
from wharfinger.conf import DefaultSection
from wharfinger.exceptions import (
    AllocationRefused,
    ClaimedAnew,
    ConcurrentSave,
    ConcurrentUpdate,
    ObjectExists,
    ObjectNotFound,
    PlacementError,
    ReservationRefused,
    WharfingerError,
)
from wharfinger.objects import Flavor, Instance, Migration, Reservation
from wharfinger.objects.field_types import now
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.tracker.instance_claims import Claims, End, end_move, ends_of
from wharfinger.tracker.overlaid_nodes import nodes_named

LOG: Final = logging.getLogger(__name__)
#: How often a claim reports within the down time, at least.
_BEATS: Final = 3


@dataclass(slots=True)
class _Attempt:
    instance: Instance
    #: The consumer of the instance, as last read.
    held: Consumer
    #: Whether a write was sent, so that the instance may have allocations.
    has_asked: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """An instance and its allocations."""

    instance: Instance
    #: Amounts by resource class, by provider uuid.
    allocations: Allocations


class AllocationClaims:
    """Claims, releases and repairs the allocations of instances.

    Several threads can share an object. Methods raise PlacementError, ObjectError and StateError.
    After an error, the call can be repeated with the same uuid.
    """

    def __init__(self, search: FlavorSearch, down_time: timedelta = timedelta(seconds=60)) -> None:
        """A process that has not saved its claim for ``down_time`` counts as dead.

        Then another process may claim, repair or release the instance.
        """
        self._client: Final = search.surroundings.placement
        self._context: Final = search.surroundings.objects
        down_time_of_services = DefaultSection.read(search.surroundings.conf).service_down_time
        self.reservations: Final = Reservations(self._client, self._context, down_time_of_services)
        self._search: Final = search
        self._consumers: Final = search.consumers
        self._down_time: Final = down_time

    def claim(
        self,
        flavor: Flavor,
        *,
        project_id: str,
        user_id: str,
        uuid: str | None = None,
        suits: Suits = anywhere,
    ) -> Claimed:
        """Allocate the resources of a flavor to an instance, on a node that ``suits``.

        If the instance does not exist, it is created. A claimed instance keeps its allocations.

        Raises NoCandidates, AllocationRefused, InvalidRequest, DeviceProfileError and
        RequestFilterError.
        """
        # Read the consumer before the row: an instance has a row before it has allocations.
        held = (
            Consumer(str(uuid4()))
            if uuid is None
            else self._consumers.get(names.check_uuid(uuid, "instance"))
        )
        try:
            wanted = Instance(
                self._context,
                uuid=held.uuid,
                project_id=project_id,
                user_id=user_id,
                host=None,
                node=None,
                flavor=flavor,
                task_state="claiming",
            )
        except ValueError as error:
            raise AllocationRefused(
                instance=held.uuid, problem=f"{error}.", remedy="Correct this value of the claim."
            ) from error
        attempt = _Attempt(wanted, held)
        try:
            if self._create(wanted, held):
                return self._claim_new(attempt, suits)
            return self._claim_existing(attempt, suits)
        except ObjectNotFound as error:
            if not _is_of_instance(error):
                raise
            raise AllocationRefused(
                instance=wanted.uuid,
                problem="another process has released the instance during this claim.",
                remedy="Claim the instance again.",
            ) from error

    @with_retries
    def release(self, uuid: str) -> tuple[Reservation, ...]:
        """Delete an instance, its allocations, and the allocations of its moves.

        Return the reservations of providers to be cleaned. Raises ObjectNotFound and
        AllocationRefused.
        """
        uuid = names.check_uuid(uuid, "instance")
        instance = Instance.get_by_uuid(self._context, uuid)
        refuse_claimed(instance, self._down_time)
        if instance.known("task_state") != "releasing":
            instance.task_state = "releasing"
            instance.save()
        # From here on, no process allocates for the instance. Placement refuses a process that has
        # read the consumer earlier. A process that reads the row now finds "releasing".
        lost = [one.provider_uuid for one in self.reservations.lost(uuid)]
        held = self._consumers.release(
            uuid,
            self.reservations,
            also_cleaned=lost,
            check=lambda: self._check_same(instance),
        )
        places = {(instance.host, instance.node)}
        for migration in moves_of(self._context, uuid):
            places.update(ends_of(migration))
            held += self.end(migration)
        self.reservations.end_lost(uuid)
        instance.destroy()
        for host, node in places:
            if host is not None and node is not None:
                Claims(self._context, host).save_usage(node)
        return held

    # Lost allocations.

    @with_retries
    def repair(self, uuid: str) -> Claimed:
        """Restore the lost allocation of an instance.

        Raises ObjectNotFound and AllocationRefused.
        """
        uuid = names.check_uuid(uuid, "instance")
        held, instance = self.read(uuid)
        refuse_claimed(instance, self._down_time)
        if not held.allocations or instance.known("task_state") == "claiming":
            refuse_moving(self._context, uuid)
            wanted = instance.known("claimed_allocations")
            if instance.node is None or not wanted:
                raise AllocationRefused(
                    instance=uuid,
                    problem="the instance is on no node, or its former allocation is unknown.",
                    remedy="To claim the instance again, run `wharfinger instance claim --uuid "
                    f"{uuid} --flavor {instance.flavor.name}` with the --project and --user of the "
                    "instance.",
                )
            # This keeps other processes from a repair or claim, and cycles from the instance.
            instance.task_state, instance.updated_at = "claiming", now()
            instance.save()
            held = self._allocate_again(instance, held, wanted)
            instance.task_state, instance.claimed_allocations = None, held.allocations
            Claims(self._context, instance.host or "").instance_claim(instance, instance.node)
        self.reservations.end_lost(uuid)
        return Claimed(instance, held.allocations)

    def release_lost(self, uuid: str) -> tuple[Reservation, ...]:
        """Release an instance whose allocation another program has deleted.

        Return the reservations of providers to be cleaned. Raises ObjectNotFound and
        AllocationRefused.
        """
        uuid = names.check_uuid(uuid, "instance")
        instance = Instance.get_by_uuid(self._context, uuid)
        if instance.known("task_state") != "releasing" and self._consumers.get(uuid).allocations:
            raise AllocationRefused(
                instance=uuid,
                problem="the instance has its allocation, and `wharfinger instance repair "
                "--release` is only for lost allocations.",
                remedy="To release the instance with its allocation, run `wharfinger instance "
                f"release {uuid}`.",
            )
        return self.release(uuid)

    def _allocate_again(self, instance: Instance, held: Consumer, wanted: Allocations) -> Consumer:
        uuid = instance.uuid
        lost = {one.provider_uuid: one for one in self.reservations.lost(uuid)}
        try:
            if not held.allocations.keys() <= wanted.keys():
                return held  # an interrupted claim has allocated other providers
            free = {one: wanted[one] for one in wanted.keys() - lost.keys()}
            if not free.keys() <= held.allocations.keys():
                self._consumers.set(instance, (held, {**held.allocations, **free}))
                held = self._consumers.get(uuid)
            for provider in sorted(wanted.keys() - held.allocations.keys()):
                after = {**held.allocations, provider: wanted[provider]}
                self.reservations.allocate(
                    self._provider(instance, provider),
                    wanted[provider],
                    self._consumers.body(instance, (held, after)),
                )
                held = self._consumers.get(uuid)
            for one in lost.values():
                self.reservations.keep_reserved(one.uuid, one.provider_uuid)
        except WharfingerError as error:
            if not is_unsure(error):
                self._undo_repair(instance, lost.values())
            if isinstance(error, ReservationRefused) or was_refused(error):
                raise AllocationRefused(
                    instance=uuid,
                    problem=f"the allocation of the instance cannot be restored: {error}",
                    remedy="To release the instance, run `wharfinger instance repair --release "
                    f"{uuid}`.",
                ) from error
            raise
        return held

    def _undo_repair(self, instance: Instance, lost: Iterable[Reservation]) -> None:
        try:
            for one in lost:  # reserve before the deletion, so that no consumer takes the units
                self.reservations.keep_reserved(one.uuid, one.provider_uuid)
            held = self._client.get_allocations(instance.uuid)
            if held["allocations"]:
                self._consumers.delete_allocations(instance.uuid, held)
            instance.task_state = None
            instance.save()
        except WharfingerError as error:
            LOG.warning(
                "The repair of instance %s failed, and the allocation may be incomplete. "
                "Wait %s, then run `wharfinger instance repair` again. The error: %s",
                instance.uuid,
                seconds(self._down_time),
                error,
            )

    def _provider(self, instance: Instance, uuid: str) -> ProviderSummary:
        for found in self._client.list_providers(uuid=uuid):
            return found
        raise AllocationRefused(
            instance=instance.uuid,
            problem=f"provider {uuid} of the instance's allocation no longer exists.",
            remedy="To release the instance, run `wharfinger instance repair --release "
            f"{instance.uuid}`.",
        )

    def _check_same(self, instance: Instance) -> None:
        found = Instance.get_by_uuid(self._context, instance.uuid)
        if found.known("task_state") != "releasing" or found.revision != instance.revision:
            raise ClaimedAnew(instance=instance.uuid)

    def _release_late_allocations(self, uuid: str) -> None:
        def check() -> None:
            with suppress(ObjectNotFound):
                if Instance.get_by_uuid(self._context, uuid).known("task_state") != "releasing":
                    raise ClaimedAnew(instance=uuid)

        self._consumers.release(uuid, self.reservations, check=check)

    @with_retries
    def end(self, migration: Migration) -> tuple[Reservation, ...]:
        """End a move whose instance is released, and delete the move's allocations.

        Return the reservations of providers to be cleaned.
        """
        held = self._consumers.release(migration.uuid, self.reservations)
        found = Migration.get_by_uuid(self._context, migration.uuid)
        if found.is_in_progress:
            has_arrived = found.status in {"finished", "confirming"}
            end_move(found, End.SOURCE if has_arrived else End.DESTINATION)
            found.save()
        return held

    def read(self, uuid: str) -> tuple[Consumer, Instance]:
        """Return an instance and its consumer. Raises AllocationRefused during a release."""
        # Read the row last. If another process releases or moves the instance after that, the
        # consumer generation changes, and Placement refuses our writes.
        held = self._consumers.get(uuid)
        instance = Instance.get_by_uuid(self._context, uuid)
        refuse_released(instance)
        return held, instance

    def _create(self, wanted: Instance, held: Consumer) -> bool:
        """Store a new instance; return False if the same instance is stored already."""
        if not held.allocations:
            # Store the row before the allocations: a crash leaves no allocations without a row.
            with suppress(ObjectExists):
                wanted.create()
                return True
        try:
            found = Instance.get_by_uuid(self._context, wanted.uuid)
        except ObjectNotFound:
            if not held.allocations:
                raise  # another process has released the instance since
            raise AllocationRefused(
                instance=wanted.uuid,
                problem="a consumer that is not an instance of Wharfinger has allocations under "
                "this uuid.",
                remedy="Use another uuid for the instance.",
            ) from None
        _refuse_different(found, wanted)
        return False

    def _claim_new(self, attempt: _Attempt, suits: Suits) -> Claimed:
        try:
            return self._claim(attempt, suits)
        except (ClaimedAnew, ConcurrentSave, ConcurrentUpdate):
            # Another process also claims this instance.
            return self._claim_existing(attempt, suits)
        except WharfingerError as error:
            self._delete_new(attempt, error)
            raise

    @with_retries
    def _claim_existing(self, attempt: _Attempt, suits: Suits) -> Claimed:
        uuid = attempt.instance.uuid
        try:
            attempt.held, attempt.instance = held, instance = self.read(uuid)
        except (AllocationRefused, ObjectNotFound):
            if attempt.has_asked:
                self._release_late_allocations(uuid)
            raise
        if instance.node is not None:
            self._check_suits(instance, suits)
            if held.allocations:
                return Claimed(instance, held.allocations)
            suits = _is_at(instance)
        if not held.allocations:
            refuse_moving(self._context, uuid)
            # Let one process claim at a time: if two processes create a consumer at once, Placement
            # (16, as observed) may lose the allocations of one process after it confirmed them.
            refuse_claimed(instance, self._down_time)
            instance.task_state, instance.updated_at = "claiming", now()
            instance.save()
            attempt.has_asked = True  # an earlier process may have sent a write
        try:
            return self._claim(attempt, suits)
        except WharfingerError as error:
            if not held.allocations:
                self._stop(attempt, error)
            raise

    def _stop(self, attempt: _Attempt, error: WharfingerError) -> None:
        if isinstance(error, ClaimedAnew | ConcurrentSave) or is_unsure(error):
            return  # another process is working on it, or Placement may still allocate
        if attempt.instance.node is None and not isinstance(error, PlacementError):
            self._delete_new(attempt, error)
            return
        with suppress(ConcurrentSave, ObjectNotFound):
            attempt.instance.task_state = None
            attempt.instance.save()

    def _check_suits(self, instance: Instance, suits: Suits) -> None:
        if suits is anywhere:
            return
        host, name = instance.host, instance.node
        if not any(map(suits, nodes_named(self._context, host, name))):
            raise AllocationRefused(
                instance=instance.uuid,
                problem=f"the instance is on node {name} of host {host}, which is not the "
                "requested node.",
                remedy="Move the instance to the requested node, or repeat the claim without a "
                "requested node.",
            )

    def _claim(self, attempt: _Attempt, suits: Suits) -> Claimed:
        instance, held = attempt.instance, attempt.held
        if held.allocations:  # an interrupted claim
            allocations, node = held.allocations, self._search.where(held.allocations)
            if node is None or not self._search.fits(instance.flavor, allocations):
                raise AllocationRefused(
                    instance=instance.uuid,
                    problem="the allocations of the instance, from providers "
                    f"{', '.join(sorted(allocations))}, do not match its flavor, or are not on a "
                    "single node of a driver instance.",
                    remedy="Release the instance.",
                )
        else:
            claim = partial(self._allocate, attempt)
            allocations, node = self._search.take(held, instance.flavor, suits, claim)
        instance.task_state = None
        instance.claimed_allocations = allocations
        try:
            Claims(self._context, node.host).instance_claim(instance, node.hypervisor_hostname)
        except ObjectNotFound as error:
            if _is_of_instance(error):
                self._release_late_allocations(instance.uuid)
            else:  # the node no longer exists
                self._consumers.release(instance.uuid, self.reservations)
            raise
        return Claimed(instance, allocations)

    def _allocate(self, attempt: _Attempt, allocations: Allocations) -> None:
        instance = attempt.instance
        # Show other processes that this claim is in progress.
        if not is_recent(instance, self._down_time / _BEATS):
            instance.updated_at = now()
            instance.save()
        attempt.has_asked = True
        self._consumers.set(instance, (attempt.held, allocations))

    def _delete_new(self, attempt: _Attempt, error: WharfingerError) -> None:
        uuid = attempt.instance.uuid
        if _is_of_instance(error):
            return  # another process has released the instance, and may claim it anew
        try:
            if not is_unsure(error):
                # Save this before reading the allocations: from now on, other processes release
                # what they allocate for the instance.
                instance = Instance.get_by_uuid(self._context, uuid)
                instance.task_state = "releasing"
                instance.save()
                if not self._may_have_allocations(attempt):
                    instance.destroy()
                    return
                instance.task_state = "claiming"
                instance.save()
        except ObjectNotFound:
            return
        except WharfingerError as problem:
            LOG.warning("%s", problem)
        LOG.warning(
            "The claim of instance %s failed, but the instance may have an allocation. Wait %s, "
            "then claim the instance again with this uuid, or release the instance.",
            uuid,
            seconds(self._down_time),
        )

    def _may_have_allocations(self, attempt: _Attempt) -> bool:
        try:
            return attempt.has_asked and bool(self._consumers.get(attempt.held.uuid).allocations)
        except PlacementError as error:
            LOG.warning("%s", error)
            return True


def _refuse_different(stored: Instance, wanted: Instance) -> None:
    same = {
        "flavor": stored.flavor.is_same_as(wanted.flavor),
        "project": stored.project_id == wanted.project_id,
        "user": stored.user_id == wanted.user_id,
    }
    for name, is_same in same.items():
        if not is_same:
            raise AllocationRefused(
                instance=stored.uuid,
                problem=f"an instance with this uuid, but another {name}, already exists.",
                remedy="Use another uuid for the new instance.",
            )


def _is_at(instance: Instance) -> Suits:
    place = (instance.host, instance.node)
    return lambda node: place_of(node) == place


def _is_of_instance(error: WharfingerError) -> bool:
    return isinstance(error, ObjectNotFound) and error.kind == Instance.obj_name()
