"""Allocations of instances: claimed, and given back."""

from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from oslo_log import log as logging
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from wharfinger.allocations.consumers import Allocations, Change, Consumers, ConsumerType
from wharfinger.allocations.places import Suits, anywhere, node_of
from wharfinger.allocations.search import FlavorSearch
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentSave,
    ConcurrentUpdate,
    ObjectExists,
    ObjectNotFound,
    WharfingerError,
)
from wharfinger.objects import (
    ComputeNode,
    Context,
    Flavor,
    Instance,
    Migration,
    MigrationList,
    Reservation,
)
from wharfinger.placement.holds import Holds
from wharfinger.scheduling.filters import Surroundings
from wharfinger.tracker.claims import Claims

LOG: Final = logging.getLogger(__name__)
#: How often rows are read again that others have saved meanwhile.
_ATTEMPTS: Final = 5
#: What a move comes to whose instance is no more, by way of which others.
_WITHOUT_INSTANCE: Final = {
    "finished": ("confirming", "confirmed"),
    "confirming": ("confirmed",),
    "reverting": ("reverted",),
    "post-migrating": ("error",),
}

again: Final = retry(
    retry=retry_if_exception_type((ConcurrentSave, ConcurrentUpdate)),
    stop=stop_after_attempt(_ATTEMPTS),
    reraise=True,
)


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

    def __init__(self, surroundings: Surroundings, search: FlavorSearch) -> None:
        self._client: Final = surroundings.placement
        self._context: Final = surroundings.objects
        self._consumers: Final = Consumers(surroundings.placement)
        self._holds: Final = Holds(surroundings.placement, surroundings.objects)
        self._search: Final = search

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
        that uuid with another flavor, or of other people.
        """
        wanted = Instance(
            self._context,
            uuid=uuid or str(uuid4()),
            project_id=project_id,
            user_id=user_id,
            host=None,
            node=None,
            flavor=flavor,
        )
        # Before anything is allocated: a crash leaves nothing that nobody knows of.
        is_new = self._add(wanted)
        try:
            return self._claim(wanted.uuid, suits)
        except WharfingerError:
            if is_new:
                self._forget(wanted.uuid)
            raise

    @again
    def release(self, uuid: str) -> tuple[Reservation, ...]:
        """Have an instance be no more: what it has is given back, and what its moves have.

        What is cleaned after that is reserved first; returns those reservations. Raises
        ObjectNotFound.
        """
        places = self._leave(uuid)
        # From here on nobody allocates anything for it: who has read what it had is refused, and
        # who reads it now finds that it is nowhere.
        held = self._holds.give_back(uuid)
        for migration in moves_of(self._context, uuid):
            places |= ends_of(migration)
            held += self.end(migration)
        instance = Instance.get_by_uuid(self._context, uuid)
        if instance.node is not None:  # somebody has claimed it anew
            raise ConcurrentSave(kind=Instance.obj_name(), keys=(uuid,))
        instance.destroy()
        for host, node in places:
            Claims(self._context, host).note(node)
        return held

    @again
    def end(self, migration: Migration) -> tuple[Reservation, ...]:
        """Give back what a move has, and end it: its instance is no more."""
        held = self._holds.give_back(migration.uuid)
        found = Migration.get_by_uuid(self._context, migration.uuid)
        if found.is_in_progress:
            for status in _WITHOUT_INSTANCE.get(found.status, ("failed",)):
                found.status = status
            found.save()
        return held

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

    @again
    def _claim(self, uuid: str, suits: Suits) -> Claimed:
        held = self._consumers.get(uuid)
        # After that: what is decided by this row is refused if it is released from now on.
        instance = Instance.get_by_uuid(self._context, uuid)
        if instance.node is not None:
            if held.allocations:
                return Claimed(instance, held.allocations)
            if moves_of(self._context, uuid):
                raise AllocationRefused(
                    instance=uuid,
                    problem="it has no allocation, and is on its way.",
                    remedy="Confirm or revert its move first.",
                )
            suits = _is_at(instance)
        if held.allocations:  # a claim that was cut short
            allocations, node = held.allocations, self._node(uuid, held.allocations)
        else:
            choice = self._search.take(
                held,
                instance.flavor,
                suits,
                lambda choice: self._consumers.set(
                    instance, Change(held, choice.allocations, ConsumerType.INSTANCE)
                ),
            )
            allocations, node = choice.allocations, choice.node
        try:
            Claims(self._context, node.host).instance_claim(instance, node.hypervisor_hostname)
        except ObjectNotFound:  # released meanwhile; or the node is no more
            self._holds.give_back(uuid)
            raise
        return Claimed(instance, allocations)

    def _node(self, uuid: str, allocations: Allocations) -> ComputeNode:
        """The node that allocations are on; raises AllocationRefused where there is none."""
        found = [
            one for provider in allocations for one in self._client.list_providers(uuid=provider)
        ]
        node = node_of(self._context, {one.root_provider_uuid for one in found})
        if node is None:
            raise AllocationRefused(
                instance=uuid,
                problem=f"what it has, of {', '.join(sorted(allocations))}, is on no one node that "
                "a driver instance publishes.",
                remedy="Release it.",
            )
        return node

    def _leave(self, uuid: str) -> set[tuple[str, str]]:
        """Have an instance be nowhere; returns where it was."""
        instance = Instance.get_by_uuid(self._context, uuid)
        host, node = instance.host, instance.node
        if host is None or node is None:
            return set()
        instance.host = instance.node = None
        instance.save()
        return {(host, node)}

    def _forget(self, uuid: str) -> None:
        """Have a new instance that got nothing be no more; one that may have something stays."""
        try:
            if not self._consumers.get(uuid).allocations:
                instance = Instance.get_by_uuid(self._context, uuid)
                if instance.node is None:
                    instance.destroy()
        except WharfingerError as error:
            LOG.warning(
                "instance %s may have an allocation: claim it again, or release it. %s", uuid, error
            )


def moves_of(context: Context, instance_uuid: str) -> list[Migration]:
    """The moves of an instance that are in progress, as they began."""
    found = MigrationList.get_by_filters(context, instance_uuid=instance_uuid)
    return [one for one in found if one.is_in_progress]


def ends_of(migration: Migration) -> set[tuple[str, str]]:
    """The service hosts and nodes that a move comes from and goes to."""
    ends = {
        (migration.source_compute, migration.source_node),
        (migration.dest_compute, migration.dest_node),
    }
    return {(host, node) for host, node in ends if host is not None and node is not None}


def _is_at(instance: Instance) -> Suits:
    place = (instance.host, instance.node)
    return lambda node: (node.host, node.hypervisor_hostname) == place
