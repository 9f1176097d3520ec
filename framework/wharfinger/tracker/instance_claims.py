"""Claim nodes for instances and moves.

Most method names are those of nova's resource tracker.
"""

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Final

from wharfinger.exceptions import ClaimRefused, ConcurrentSave, ObjectError, ObjectNotFound
from wharfinger.objects import ComputeNode, ComputeNodeList, Context, Instance, Migration, NodeClaim
from wharfinger.tracker.overlaid_nodes import nodes_named
from wharfinger.tracker.usage import usage_of_node


class End(StrEnum):
    """The source or the destination of a move."""

    SOURCE = "source"
    DESTINATION = "destination"


#: The statuses through which dropping a claim ends a move, by end and by present status.
_DROPPED: Final[Mapping[End, Mapping[str, tuple[str, ...]]]] = {
    End.SOURCE: {
        "finished": ("confirming", "confirmed"),
        "confirming": ("confirmed",),
        "running": ("completed",),
        "accepted": ("done",),
        "pre-migrating": ("done",),
    },
    End.DESTINATION: {
        "finished": ("reverting", "reverted"),
        "reverting": ("reverted",),
        "post-migrating": ("error",),
        **dict.fromkeys(
            ("accepted", "queued", "preparing", "running", "pre-migrating", "migrating"),
            ("failed",),
        ),
    },
}
#: Attempts to save the rows of a node.
_ATTEMPTS: Final = 10


class Claims:
    """Claims nodes of a service host for instances.

    Methods raise ClaimRefused, ObjectError and StateError.
    """

    def __init__(self, context: Context, host: str) -> None:
        self._context: Final = context
        self.host: Final = host

    def instance_claim(self, instance: Instance, node: str) -> None:
        """Put an instance on a node of this host. Raises ClaimRefused and ObjectNotFound."""
        claimed = self._node(node)
        place = (instance.host, instance.node)
        if place not in ((None, None), (self.host, node)):
            problem = (
                f"the instance is on node {instance.node} of host {instance.host}. Move the "
                "instance instead"
            )
            raise self._refused(instance, node, problem)
        if place == (None, None):
            instance.host, instance.node = self.host, node
        try:
            NodeClaim(self._context, node=claimed, instances=[instance]).save()
        except ObjectError:
            instance.host, instance.node = place
            raise
        self.save_usage(node)

    def abort_instance_claim(self, instance: Instance, node: str) -> None:
        """Take an instance off a node of this host, unless it has moved."""
        if (instance.host, instance.node) == (self.host, node):
            instance.host = instance.node = None
            instance.save()
        self.save_usage(node)

    def move_claim(self, instance: Instance, node: str, migration: Migration) -> None:
        """Claim a node of this host for an instance that moves there.

        Raises ClaimRefused and ObjectNotFound.
        """
        claimed = self._node(node)
        if not migration.is_in_progress or migration.instance_uuid != instance.uuid:
            problem = (
                "the claim needs a migration of the instance in progress, but migration "
                f"{migration.uuid} of instance {migration.instance_uuid} has status "
                f"{migration.status}"
            )
            raise self._refused(instance, node, problem)
        before = migration.dest_node if migration.dest_compute == self.host else None
        migration.dest_compute, migration.dest_node = self.host, node
        if migration.status == "accepted" and migration.migration_type != "live-migration":
            migration.status = "pre-migrating"
        NodeClaim(self._context, node=claimed, migrations=[migration]).save()
        self.save_usage(node)
        if before is not None and before != node:
            self.save_usage(before)  # the instance no longer moves to that node

    def drop_move_claim(self, instance: Instance, migration: Migration, end: End) -> None:
        """End a move by dropping the claim at its source or destination.

        The instance is at the other end then. Raises ClaimRefused.
        """
        final = {steps[-1] for steps in _DROPPED[end].values()}
        can_end = migration.status in _DROPPED[end] or migration.status in final
        if migration.instance_uuid != instance.uuid or not can_end:
            raise self._refused(
                instance,
                f"{migration.source_node} or {migration.dest_node}",
                f"the status of migration {migration.uuid} of instance {migration.instance_uuid} "
                f"is {migration.status}, so the claim at the {end} cannot be dropped",
            )
        end_move(migration, end)
        if migration.obj_what_changed():  # also after a call whose save has failed
            self._save_end(instance, migration, end)
        for host, node in ends_of(migration):
            if host == self.host:
                self.save_usage(node)

    def save_usage(self, node: str) -> None:
        """Save the usage of a node in its rows."""
        for _attempt in range(_ATTEMPTS):  # after that, the next cycle saves the usage
            with suppress(ConcurrentSave, ObjectNotFound):
                rows = ComputeNodeList.get_by_filters(
                    self._context, host=self.host, hypervisor_hostname=node
                )
                used = usage_of_node(self._context, self.host, node)
                for row in rows:
                    for field, amount in used._asdict().items():
                        if row.known(field) != amount:
                            setattr(row, field, amount)
                if not any(row.obj_what_changed() for row in rows):
                    return
                rows.save()  # then look again: a claim may have read the rows before this save

    def _save_end(self, instance: Instance, migration: Migration, end: End) -> None:
        claim = NodeClaim(self._context, node=None, instances=[], migrations=[migration])
        if end is End.SOURCE:
            instance.host, instance.node = migration.dest_compute, migration.dest_node
            if not instance.flavor.is_same_as(migration.new_flavor):
                instance.flavor = migration.new_flavor
            claim.instances = [instance]
            claim.node = next(iter(nodes_named(self._context, instance.host, instance.node)), None)
        try:
            claim.save()
        except ObjectNotFound as error:
            if error.kind != ComputeNode.obj_name():
                raise
            claim.node = None  # the node was deleted after it was read
            claim.save()

    def _refused(self, instance: Instance, node: str, problem: str) -> ClaimRefused:
        return ClaimRefused(instance=instance.uuid, node=node, host=self.host, problem=problem)

    def _node(self, name: str) -> ComputeNode:
        found = nodes_named(self._context, self.host, name)
        if not found:
            raise ObjectNotFound(kind=ComputeNode.obj_name(), key=f"{name} on host {self.host}")
        return found[0]


def end_move(migration: Migration, end: End) -> None:
    """Set the final status of a move whose claim at this end is dropped; save nothing."""
    for status in _DROPPED[end].get(migration.status, ()):
        migration.status = status


def ends_of(migration: Migration) -> list[tuple[str, str]]:
    """Return the different (service host, node) pairs at the known ends of a move."""
    source = (migration.source_compute, migration.source_node)
    destination = (migration.dest_compute, migration.dest_node)
    ends = dict.fromkeys((source, destination))
    return [(host, node) for host, node in ends if host is not None and node is not None]
