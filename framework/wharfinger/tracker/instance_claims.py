"""Claims of instances on the nodes of a host: when they come, move and go.

Allocations in Placement decide which amounts are free; a claim notes who has them. The names are
those of nova's resource tracker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from tenacity import retry, retry_if_exception_type, retry_if_result, stop_after_attempt

from wharfinger.exceptions import ClaimRefused, ConcurrentSave, ObjectExists, ObjectNotFound
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    Migration,
    MigrationList,
)
from wharfinger.tracker.overlaid_nodes import overlaid_nodes
from wharfinger.tracker.usage import usage_of_node


class End(StrEnum):
    """The source or the destination of a move."""

    SOURCE = "source"
    DESTINATION = "destination"


#: The statuses that end a move when the claim at this end is dropped, by the status before.
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
#: How often a claim reads the rows of a node while others save them.
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of an instance on a node; as a context, it is aborted if the block raises.

    ``has_come``: the instance was not there before.
    """

    claims: "Claims"
    instance: Instance
    node: str
    migration: Migration | None = None
    has_come: bool = True

    def abort(self) -> None:
        """Give the claim up: its instance is where it was before, if it was anywhere.

        Raises ObjectError, ClaimRefused.
        """
        if self.migration is not None:
            self.claims.drop_move_claim(self.instance, self.migration, End.DESTINATION)
            return
        here = (self.claims.host, self.node)
        if self.has_come and (self.instance.host, self.instance.node) == here:
            self.instance.host = self.instance.node = None
            self.instance.save()
        self.claims.note(self.node)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is not None:
            self.abort()


class Claims:
    """The claims on the nodes of a service host.

    Instances and migrations are saved first. The rows of the nodes follow, here or in the next
    cycle. Methods raise ObjectError and StateError. They raise ClaimRefused for a claim that
    contradicts these objects; then nothing is written.
    """

    def __init__(self, context: Context, host: str) -> None:
        self._context: Final = context
        self.host: Final = host

    def instance_claim(self, instance: Instance, node: str) -> Claim:
        """Put an instance, with its flavor, on a node of this host.

        An instance that is there already stays. An instance on another node has to move.
        """
        self._check_node(node)
        place = (instance.host, instance.node)
        has_come = place != (self.host, node)
        if has_come:
            if place != (None, None):
                problem = f"it is on node {instance.node} of host {instance.host}: move it"
                raise self._refused(instance, node, problem)
            instance.host, instance.node = self.host, node
        instance.save()
        claim = Claim(self, instance, node, has_come=has_come)
        self._settle(claim)
        return claim

    def move_claim(
        self,
        instance: Instance,
        new_flavor: Flavor,
        node: str,
        migration: Migration | None = None,
        *,
        migration_type: str = "migration",
    ) -> Claim:
        """Claim a node of this host for an instance that moves there, with its flavor there.

        It counts at both ends until one of the two claims is dropped. Without a ``migration``, one
        of this type begins, and fails if the node is gone by then. A given ``migration`` is stored
        already, and stays as it is then.
        """
        self._check_node(node)
        is_new = migration is None
        if migration is None:
            migration = self._begun(instance, migration_type, node)
        elif not migration.is_in_progress or migration.instance_uuid != instance.uuid:
            problem = (
                f"migration {migration.uuid} is {migration.status}, "
                f"and of instance {migration.instance_uuid}"
            )
            raise self._refused(instance, node, problem)
        before = migration.dest_node if migration.dest_compute == self.host else None
        migration.dest_compute, migration.dest_node = self.host, node
        migration.old_flavor, migration.new_flavor = instance.flavor, new_flavor
        if migration.status == "accepted" and migration.migration_type != "live-migration":
            migration.status = "pre-migrating"
        if is_new:
            try:
                migration.create()
            except ObjectExists:
                self._refuse_second(instance, node)
                raise  # the other move is over by now, or another value is taken
        else:
            migration.save()
        claim = Claim(self, instance, node, migration)
        self._settle(claim, gives_up=is_new)
        if before is not None and before != node:
            self.note(before)  # the instance was to come there
        return claim

    def drop_move_claim(self, instance: Instance, migration: Migration, end: End) -> None:
        """End a move by dropping the claim at one of its ends.

        At the source: the instance is at the destination now, with the flavor that it has there. At
        the destination: it is where it was. A move that already ended this way does not change.
        """
        *on_the_way, last = self._steps(instance, migration, end) or (migration.status,)
        for status in on_the_way:
            migration.status = status
            migration.save()  # of two that end a move in different ways, one is refused
        if end is End.SOURCE and migration.status != last:
            # First: until the migration has ended, it is what counts.
            instance.host, instance.node = migration.dest_compute, migration.dest_node
            if not instance.flavor.is_as(migration.new_flavor):
                instance.flavor = migration.new_flavor
            instance.save()
        migration.status = last
        migration.save()
        ends = {
            migration.source_node: migration.source_compute,
            migration.dest_node: migration.dest_compute,
        }
        for node, host in ends.items():
            if host == self.host and node is not None:
                self.note(node)

    @retry(
        retry=retry_if_exception_type((ConcurrentSave, ObjectNotFound)) | retry_if_result(bool),
        stop=stop_after_attempt(_ATTEMPTS),
        retry_error_callback=lambda _state: None,  # the next cycle does it
    )
    def note(self, node: str) -> bool:
        """Save the usage of a node in its rows; return whether the rows had to change.

        The decorator repeats this until nothing changes. The rows are read before the usage is
        summed, so of two concurrent claims at least one counts the other. After a save, the usage
        is summed again: the other claim may have read the row before that save.
        """
        rows = self._rows(node)
        used = usage_of_node(self._context, self.host, node)
        for row in rows:
            for field, amount in used._asdict().items():
                if field not in row or getattr(row, field) != amount:
                    setattr(row, field, amount)
        is_wrong = any(row.obj_what_changed() for row in rows)
        if is_wrong:
            rows.save()
        return is_wrong

    def _settle(self, claim: Claim, *, gives_up: bool = True) -> None:
        """Note a claim on its node; give it up if the node is gone, or has another name."""
        try:
            self._check_node(claim.node)
        except ObjectNotFound:
            if gives_up:
                claim.abort()
            raise
        self.note(claim.node)

    def _begun(self, instance: Instance, migration_type: str, node: str) -> Migration:
        if instance.host is None or instance.node is None:
            raise self._refused(
                instance, node, "it is on no node, so it cannot move. Claim it first"
            )
        self._refuse_second(instance, node)
        return Migration(
            self._context,
            instance_uuid=instance.uuid,
            migration_type=migration_type,
            status="accepted",
            source_compute=instance.host,
            source_node=instance.node,
            dest_compute=None,
            dest_node=None,
        )

    def _refuse_second(self, instance: Instance, node: str) -> None:
        """Raise ClaimRefused if an instance has a move in progress."""
        for one in MigrationList.get_by_filters(self._context, instance_uuid=instance.uuid):
            if one.is_in_progress:
                problem = f"its migration {one.uuid} is in progress. Confirm or revert that first"
                raise self._refused(instance, node, problem)

    def _steps(self, instance: Instance, migration: Migration, end: End) -> tuple[str, ...]:
        """Return the next statuses of a move until its end; none if it has ended at this end."""
        dropped = _DROPPED[end]
        if migration.instance_uuid == instance.uuid:
            if migration.status in dropped:
                return dropped[migration.status]
            if migration.status in {steps[-1] for steps in dropped.values()}:
                return ()
        raise self._refused(
            instance,
            f"{migration.source_node} or {migration.dest_node}",
            f"migration {migration.uuid}, of instance {migration.instance_uuid}, is "
            f"{migration.status}, so its claim at the {end} cannot be dropped",
        )

    def _refused(self, instance: Instance, node: str, problem: str) -> ClaimRefused:
        return ClaimRefused(instance=instance.uuid, node=node, host=self.host, problem=problem)

    def _check_node(self, node: str) -> None:
        """Raise ObjectNotFound if this host has no such node, and overlays none of that name."""
        if not self._rows(node).objects and not any(
            one.hypervisor_hostname == node for one in overlaid_nodes(self._context, host=self.host)
        ):
            raise ObjectNotFound(kind=ComputeNode.obj_name(), key=f"{node} on host {self.host}")

    def _rows(self, node: str) -> ComputeNodeList:
        return ComputeNodeList.get_by_filters(
            self._context, host=self.host, hypervisor_hostname=node
        )
