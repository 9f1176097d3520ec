"""What instances take of a host's nodes, noted as they come, move and go.

What there is to be had is decided in Placement, by allocations; a claim says who has it. The names
are those of nova's resource tracker.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType, TracebackType
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
from wharfinger.tracker.usage import usage_of_node


class End(StrEnum):
    """An end of a move."""

    SOURCE = "source"
    DESTINATION = "destination"


#: What a move comes to when the claim at one of its ends is dropped: by that end, from each status
#: that it can have then, by way of which others.
_DROPPED: Final[Mapping[End, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
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
            "accepted": ("failed",),
            "queued": ("failed",),
            "preparing": ("failed",),
            "running": ("failed",),
            "pre-migrating": ("failed",),
            "migrating": ("failed",),
            "post-migrating": ("error",),
        },
    }
)


#: How often a claim looks at a node's rows while others save them.
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class Claim:
    """What an instance takes of a node; as a context, it is aborted where the block raises.

    ``has_come``: it was not there before.
    """

    claims: "Claims"
    instance: Instance
    node: str
    migration: Migration | None = None
    has_come: bool = True

    def abort(self) -> None:
        """Give it up; as ``Claims.abort``."""
        self.claims.abort(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()


class Claims:
    """The claims on the nodes of a service host.

    Who has what is said by the instances and the migrations, each saved at once; the nodes' rows
    are brought in line after that, here or by the next cycle. Methods raise ObjectError and
    StateError, and ClaimRefused for what cannot be meant; then nothing is written.
    """

    def __init__(self, context: Context, host: str) -> None:
        self._context: Final = context
        self._host: Final = host

    def instance_claim(self, instance: Instance, node: str) -> Claim:
        """Put an instance, as its flavor has it, on a node of this host.

        One that is there already stays; one that is elsewhere has to move.
        """
        self._rows(node)
        place = (instance.host, instance.node)
        if place not in {(None, None), (self._host, node)}:
            raise ClaimRefused(
                instance=instance.uuid,
                node=node,
                host=self._host,
                problem=f"it is on node {instance.node} of host {instance.host}: move it",
            )
        if place != (self._host, node):
            instance.host, instance.node = self._host, node
        instance.save()
        claim = Claim(self, instance, node, has_come=place != (self._host, node))
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
        """Have an instance come to a node of this host, with a flavor of its own there.

        It counts at both ends until one of the two claims is dropped. Without a migration that is
        there already, one of that type begins; where the node is gone by then, it has failed. What
        becomes of one that is given then is for who began it.
        """
        self._rows(node)
        if migration is None:
            migration = self._begun(instance, migration_type, node)
        elif not migration.is_in_progress or migration.instance_uuid != instance.uuid:
            raise ClaimRefused(
                instance=instance.uuid,
                node=node,
                host=self._host,
                problem=f"migration {migration.uuid} is {migration.status}, "
                f"and of instance {migration.instance_uuid}",
            )
        is_new = "revision" not in migration
        before = None if is_new else (migration.dest_compute, migration.dest_node)
        migration.dest_compute, migration.dest_node = self._host, node
        migration.old_flavor, migration.new_flavor = instance.flavor, new_flavor
        if migration.status == "accepted" and migration.migration_type != "live-migration":
            migration.status = "pre-migrating"
        if is_new:
            self._create(migration, node)
        else:
            migration.save()
        claim = Claim(self, instance, node, migration)
        self._settle(claim, gives_up=is_new)
        if before is not None and before[0] == self._host and before[1] not in {None, node}:
            self.note(str(before[1]))  # it was to go there
        return claim

    def drop_move_claim(self, instance: Instance, migration: Migration, end: End) -> None:
        """End a move by dropping what is claimed at one of its ends.

        At the source: the instance is at the destination now, with the flavor that it has there. At
        the destination: it is where it was. A move that has ended so stays as it is.
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
            if host == self._host and node is not None:
                self.note(node)

    def abort(self, claim: Claim) -> None:
        """Give a claim up: its instance is where it was before, if it was anywhere.

        Raises ObjectError, ClaimRefused.
        """
        if claim.migration is not None:
            self.drop_move_claim(claim.instance, claim.migration, End.DESTINATION)
            return
        instance = claim.instance
        if claim.has_come and (instance.host, instance.node) == (self._host, claim.node):
            instance.host = instance.node = None
            instance.save()
        self.note(claim.node)

    def _settle(self, claim: Claim, *, gives_up: bool = True) -> None:
        """Note a claim on its node; one whose node has gone, or has another name, is given up."""
        try:
            self._rows(claim.node)
        except ObjectNotFound:
            if gives_up:
                claim.abort()
            raise
        self.note(claim.node)

    def _begun(self, instance: Instance, migration_type: str, node: str) -> Migration:
        if instance.host is None or instance.node is None:
            raise ClaimRefused(
                instance=instance.uuid,
                node=node,
                host=self._host,
                problem="it is nowhere, and cannot move",
            )
        self._refuse_second(instance.uuid, node)
        migration = Migration(
            self._context,
            instance_uuid=instance.uuid,
            migration_type=migration_type,
            source_compute=instance.host,
            source_node=instance.node,
        )
        migration.obj_set_defaults("status")
        return migration

    def _create(self, migration: Migration, node: str) -> None:
        """Store a new move; raises ClaimRefused where another one began meanwhile."""
        try:
            migration.create()
        except ObjectExists:
            self._refuse_second(migration.instance_uuid, node)
            raise  # the other move is over by now, or another value is taken

    def _refuse_second(self, instance_uuid: str, node: str) -> None:
        """Raise ClaimRefused where an instance has a move in progress."""
        for one in MigrationList.get_by_filters(self._context, instance_uuid=instance_uuid):
            if one.is_in_progress:
                raise ClaimRefused(
                    instance=instance_uuid,
                    node=node,
                    host=self._host,
                    problem=f"it is on its way by migration {one.uuid}: end that first",
                )

    def _steps(self, instance: Instance, migration: Migration, end: End) -> tuple[str, ...]:
        """By way of which statuses a move ends; none where it has ended so."""
        dropped = _DROPPED[end]
        if migration.instance_uuid == instance.uuid:
            if migration.status in dropped:
                return dropped[migration.status]
            if migration.status in {steps[-1] for steps in dropped.values()}:
                return ()
        raise ClaimRefused(
            instance=instance.uuid,
            node=f"{migration.source_node} or {migration.dest_node}",
            host=self._host,
            problem=f"migration {migration.uuid}, of instance {migration.instance_uuid}, is "
            f"{migration.status}: what is claimed at its {end} cannot be dropped",
        )

    def _rows(self, node: str) -> ComputeNodeList:
        """The rows of a node; raises ObjectNotFound where this host has no such node."""
        rows = ComputeNodeList.get_by_filters(
            self._context, host=self._host, hypervisor_hostname=node
        )
        if not rows.objects:
            raise ObjectNotFound(kind=ComputeNode.obj_name(), key=f"{node} on host {self._host}")
        return rows

    @retry(
        retry=retry_if_exception_type((ConcurrentSave, ObjectNotFound)) | retry_if_result(bool),
        stop=stop_after_attempt(_ATTEMPTS),
        retry_error_callback=lambda _state: None,  # the next cycle does it
    )
    def note(self, node: str) -> bool:
        """Have the rows of a node say what is taken of it, until they do; whether they did not.

        The sum is taken after they are read: of two that do this at a time, one sees the other. And
        once more when they are saved: the other may have found them as they were to be.
        """
        rows = ComputeNodeList.get_by_filters(
            self._context, host=self._host, hypervisor_hostname=node
        )
        used = usage_of_node(self._context, self._host, node)
        for row in rows:
            for name in ("vcpus", "memory_mb", "local_gb"):
                field = f"{name}_used"
                if field not in row or getattr(row, field) != getattr(used, name):
                    setattr(row, field, getattr(used, name))
        is_wrong = any(row.obj_what_changed() for row in rows)
        if is_wrong:
            rows.save()
        return is_wrong
