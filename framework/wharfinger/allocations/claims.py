"""Allocations of instances: claimed, and given back."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import uuid4

from oslo_log import log as logging

from wharfinger.allocations.allocation_writer import (
    Allocations,
    Change,
    Consumer,
    ConsumerType,
    is_unsure,
)
from wharfinger.allocations.candidate_attempts import Choice, FlavorSearch
from wharfinger.allocations.candidate_nodes import SHARES, Suits, anywhere, nodes_of, place_of
from wharfinger.allocations.release import AllocationRelease
from wharfinger.allocations.task_state import (
    again,
    ends_of,
    is_recent,
    moves_of,
    refuse_claimed,
    refuse_released,
    seconds,
    state_of,
)
from wharfinger.exceptions import (
    AllocationRefused,
    ClaimedAnew,
    ConcurrentSave,
    ConcurrentUpdate,
    ObjectExists,
    ObjectNotFound,
    PlacementError,
    WharfingerError,
)
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Flavor,
    Instance,
    Migration,
    Reservation,
)
from wharfinger.objects.field_types import now
from wharfinger.providers import names
from wharfinger.scheduling.filters import Surroundings
from wharfinger.tracker.instance_claims import Claims

LOG: Final = logging.getLogger(__name__)
#: How often, at least, a claim that is under way says so before it would count as left.
_BEATS: Final = 3
#: What a move comes to whose instance is no more, by way of which others.
_WITHOUT_INSTANCE: Final = {
    "finished": ("confirming", "confirmed"),
    "confirming": ("confirmed",),
    "reverting": ("reverted",),
    "post-migrating": ("error",),
}


@dataclass(slots=True)
class _Attempt:
    """A claim for an instance that has had this; whether Placement was asked to allocate it."""

    instance: Instance
    held: Consumer
    has_asked: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """An instance with what it has: amounts by resource class, by provider uuid."""

    instance: Instance
    allocations: Allocations


class AllocationClaims:
    """What instances have of a Placement.

    Safe for several threads. Methods raise PlacementError, ObjectError and StateError; what they
    have begun then is finished by calling them again.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        search: FlavorSearch,
        down_time: timedelta = timedelta(seconds=60),
    ) -> None:
        """Who has said nothing of an instance for ``down_time`` counts as dead."""
        self._client: Final = surroundings.placement
        self._context: Final = surroundings.objects
        self._releases: Final = AllocationRelease(surroundings.placement, surroundings.objects)
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
        """Give an instance what its flavor asks for, on a node that ``suits``.

        One that has it is left as it is: a claim that was cut short goes on where it was. Without
        a uuid it is a new one. Raises NoCandidates, InvalidRequest and DeviceProfileError, and then
        there is no such instance, if there was none; and AllocationRefused where there is one of
        that uuid with another flavor or of other people, or that is being released, or where
        somebody else uses the uuid.
        """
        # Before its row is looked at: what is allocated here has one, from before that.
        held = (
            Consumer(str(uuid4()))
            if uuid is None
            else self._consumers.get(names.check_uuid(uuid, "instance"))
        )
        if held.allocations:
            self._refuse_unknown(held.uuid)
        wanted = self._new(held.uuid, flavor, project_id=project_id, user_id=user_id)
        # Before anything is allocated: a crash leaves nothing that nobody knows of.
        try:
            attempt = _Attempt(wanted, held)
            if not self._add(wanted):
                return self._go_on(attempt, suits)
            if held.allocations:  # of one that has been released since
                attempt.held = self._consumers.get(held.uuid)
            return self._claim_new(attempt, suits)
        except ObjectNotFound as error:
            if error.kind != Instance.obj_name():
                raise
            raise AllocationRefused(
                instance=wanted.uuid, problem="it was released meanwhile.", remedy="Claim it again."
            ) from error

    @again
    def release(self, uuid: str) -> tuple[Reservation, ...]:
        """Have an instance be no more: what it has is given back, and what its moves have.

        What is cleaned after that is reserved first; returns those reservations. Raises
        ObjectNotFound, and AllocationRefused while it is being claimed.
        """
        uuid = names.check_uuid(uuid, "instance")
        instance = Instance.get_by_uuid(self._context, uuid)
        refuse_claimed(instance, self._down_time)
        if state_of(instance) != "releasing":
            instance.task_state = "releasing"
            instance.save()
        # From here on nobody allocates anything for it: who has read what it had is refused, and
        # who reads it now finds that it is being released.
        held = self._releases.release(uuid, check=lambda: self._see_same(instance))
        places = {(instance.host, instance.node)}
        for migration in moves_of(self._context, uuid):
            places |= ends_of(migration)
            held += self.end(migration)
        instance.destroy()
        for host, node in places:
            if host is not None and node is not None:
                Claims(self._context, host).note(node)
        return held

    def _see_same(self, instance: Instance) -> None:
        """See that nobody has released it, and claimed it anew; raises ClaimedAnew."""
        found = Instance.get_by_uuid(self._context, instance.uuid)
        if state_of(found) != "releasing" or found.revision != instance.revision:
            raise ClaimedAnew(instance=instance.uuid)

    def _see_released(self, uuid: str) -> None:
        """See that it is no more, or is being released; raises ClaimedAnew."""
        try:
            found = Instance.get_by_uuid(self._context, uuid)
        except ObjectNotFound:
            return
        if state_of(found) != "releasing":
            raise ClaimedAnew(instance=uuid)

    @again
    def end(self, migration: Migration) -> tuple[Reservation, ...]:
        """Give back what a move has, and end it: its instance is no more."""
        held = self._releases.release(migration.uuid)
        found = Migration.get_by_uuid(self._context, migration.uuid)
        if found.is_in_progress:
            for status in _WITHOUT_INSTANCE.get(found.status, ("failed",)):
                found.status = status
            found.save()
        return held

    def where(self, allocations: Allocations) -> ComputeNode | None:
        """The node that allocations are on; None where that is no one node that is published."""
        # As in a search: what only shares with it says nothing of where that is.
        roots = self._roots(allocations, f"!{SHARES}") or self._roots(allocations)
        nodes = nodes_of(self._context, roots)
        return nodes[0] if len(nodes) == 1 else None

    def _roots(self, providers: Iterable[str], *required: str) -> set[str]:
        return {
            one.root_provider_uuid
            for uuid in providers
            for one in self._client.list_providers(uuid=uuid, required=required)
        }

    def _new(self, uuid: str, flavor: Flavor, **whose: str) -> Instance:
        """A new instance; raises AllocationRefused for what none can have."""
        try:
            return Instance(
                self._context,
                uuid=uuid,
                host=None,
                node=None,
                flavor=flavor,
                task_state="claiming",
                **whose,
            )
        except ValueError as error:
            raise AllocationRefused(
                instance=uuid, problem=f"{error}.", remedy="Correct that."
            ) from error

    def _refuse_unknown(self, uuid: str) -> None:
        """Raise AllocationRefused for a consumer that is no instance."""
        try:
            Instance.get_by_uuid(self._context, uuid)
        except ObjectNotFound:
            raise AllocationRefused(
                instance=uuid,
                problem="something else has allocations by that uuid.",
                remedy="Give the instance one of its own.",
            ) from None

    def _add(self, wanted: Instance) -> bool:
        """Add an instance, if it is new; whether it is. Raises AllocationRefused."""
        try:
            wanted.create()
        except ObjectExists:
            found = Instance.get_by_uuid(self._context, wanted.uuid)
            for name, is_same in (
                ("flavor", found.flavor.is_as(wanted.flavor)),
                ("project", found.project_id == wanted.project_id),
                ("user", found.user_id == wanted.user_id),
            ):
                if not is_same:
                    raise AllocationRefused(
                        instance=found.uuid,
                        problem=f"there is one of that uuid, with another {name}.",
                        remedy="Give the new one a uuid of its own.",
                    ) from None
            return False
        return True

    def _claim_new(self, attempt: _Attempt, suits: Suits) -> Claimed:
        """Claim for a new instance, which is no more where nothing is free for it."""
        try:
            return self._claim(attempt, suits)
        except (ConcurrentSave, ConcurrentUpdate):  # somebody claims it, too
            return self._go_on(attempt, suits)
        except WharfingerError as error:
            if not (isinstance(error, ObjectNotFound) and error.kind == Instance.obj_name()):
                self._forget(attempt, error)
            raise

    @again
    def _go_on(self, attempt: _Attempt, suits: Suits) -> Claimed:
        """Claim for an instance that is there."""
        uuid = attempt.instance.uuid
        attempt.held = held = self._consumers.get(uuid)
        # After that: what is decided by this row is refused if it is released from now on.
        try:
            attempt.instance = instance = Instance.get_by_uuid(self._context, uuid)
            refuse_released(instance)
        except (AllocationRefused, ObjectNotFound):
            if attempt.has_asked:  # and has got it after the release
                self._releases.release(uuid, check=lambda: self._see_released(uuid))
            raise
        if held.allocations:
            if instance.node is None:
                return self._claim(attempt, suits)
            self._see_suits(instance, suits)
            return Claimed(instance, held.allocations)
        if instance.node is not None:
            self._see_suits(instance, suits)
            suits = _is_at(instance)
        if moves_of(self._context, uuid):
            raise AllocationRefused(
                instance=uuid,
                problem="it has no allocation, and is on its way.",
                remedy="Confirm or revert its move first.",
            )
        self._start(instance)
        attempt.has_asked = True  # whoever was at work on it before, perhaps
        try:
            return self._claim(attempt, suits)
        except WharfingerError as error:
            self._stop(attempt, error)
            raise

    def _start(self, instance: Instance) -> None:
        """Be the only one who has Placement allocate something for an instance.

        Of two who have it make a consumer at a time, Placement (16, as observed) may leave the one
        without it whom it has answered that he has it. Raises BeingClaimed, ConcurrentSave.
        """
        refuse_claimed(instance, self._down_time)
        instance.task_state = "claiming"
        instance.updated_at = now()
        instance.save()

    def _stop(self, attempt: _Attempt, error: WharfingerError) -> None:
        """Have an instance for which nothing was found be as before; one without a node is none."""
        if isinstance(error, ConcurrentSave) or is_unsure(error):
            return  # others are at work on it, or what was asked may be allocated yet
        if attempt.instance.node is None and not isinstance(error, PlacementError):
            self._forget(attempt, error)
            return
        with suppress(ConcurrentSave, ObjectNotFound):
            attempt.instance.task_state = None
            attempt.instance.save()

    def _see_suits(self, instance: Instance, suits: Suits) -> None:
        """See that an instance is on a node that suits; raises AllocationRefused."""
        if suits is anywhere:
            return
        host, name = instance.host, instance.node
        found = ComputeNodeList.get_by_filters(self._context, host=host, hypervisor_hostname=name)
        if not any(map(suits, found)):
            raise AllocationRefused(
                instance=instance.uuid,
                problem=f"it is on node {name} of host {host}.",
                remedy="Move it, or leave out where it is to be.",
            )

    def _claim(self, attempt: _Attempt, suits: Suits) -> Claimed:
        """Have an instance have what it has, or else something; and its row say where that is."""
        instance, held = attempt.instance, attempt.held
        if held.allocations:  # a claim that was cut short
            allocations, node = held.allocations, self._node(instance, held.allocations)
        else:
            choice = self._search.take(
                held,
                instance.flavor,
                suits,
                lambda choice: self._allocate(attempt, choice),
            )
            allocations, node = choice.allocations, choice.node
        instance.task_state = None
        try:
            Claims(self._context, node.host).instance_claim(instance, node.hypervisor_hostname)
        except ObjectNotFound as error:
            if error.kind != Instance.obj_name():  # the node is no more
                self._releases.release(instance.uuid)
            else:
                self._releases.release(
                    instance.uuid, check=lambda: self._see_released(instance.uuid)
                )
            raise
        return Claimed(instance, allocations)

    def _allocate(self, attempt: _Attempt, choice: Choice) -> None:
        """Allocate a candidate; from time to time the row says that somebody is at work on it."""
        instance, held = attempt.instance, attempt.held
        if not is_recent(instance, self._down_time / _BEATS):
            instance.updated_at = now()
            instance.save()
        attempt.has_asked = True
        change = Change(held, choice.allocations, ConsumerType.INSTANCE)
        self._consumers.set(instance, change)

    def _node(self, instance: Instance, allocations: Allocations) -> ComputeNode:
        """The node that allocations are on; raises AllocationRefused for what is not its own."""
        node = self.where(allocations)
        if node is None or not self._search.fits(instance.flavor, allocations):
            raise AllocationRefused(
                instance=instance.uuid,
                problem=f"what it has, of {', '.join(sorted(allocations))}, is not what its flavor "
                "asks for, or is on no one node that a driver instance publishes.",
                remedy="Release it.",
            )
        return node

    def _forget(self, attempt: _Attempt, error: WharfingerError) -> None:
        """Have a new instance that got nothing be no more; one that may have something stays."""
        uuid = attempt.instance.uuid
        try:
            if not attempt.has_asked or not is_unsure(error):
                # Before a look at what it has: who claims it, too, gives that back from now on.
                instance = Instance.get_by_uuid(self._context, uuid)
                instance.task_state = "releasing"
                instance.save()
                if not attempt.has_asked or not self._consumers.get(uuid).allocations:
                    instance.destroy()
                    return
                instance.task_state = "claiming"
                instance.save()
        except ObjectNotFound:
            return
        except WharfingerError as problem:
            LOG.warning("%s", problem)
        LOG.warning(
            "instance %s may have an allocation: claim it again by that uuid, or release it, which "
            "can be done in %s.",
            uuid,
            seconds(self._down_time),
        )


def _is_at(instance: Instance) -> Suits:
    place = (instance.host, instance.node)
    return lambda node: place_of(node) == place
