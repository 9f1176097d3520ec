"""Instances of a service host, and the usage of the host's nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from oslo_log import log as logging

from wharfinger.exceptions import FieldUnset
from wharfinger.objects import (
    Context,
    Flavor,
    HostState,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)
from wharfinger.objects.field_types import MAX_COUNT

LOG: Final = logging.getLogger(__name__)


class Usage(NamedTuple):
    """Used CPUs, memory in MiB and disk in GiB."""

    vcpus_used: int = 0
    memory_mb_used: int = 0
    local_gb_used: int = 0


class KnownInstance(NamedTuple):
    """An instance as it was last read."""

    node: str | None
    revision: int | None
    task_state: str | None
    usage: Usage
    #: Amounts by resource class, by provider uuid; None if the row does not have them.
    allocations: Mapping[str, Mapping[str, int]] | None


_NOTHING: Final = Usage()


class HostUsage:
    """Cache of the instances of a service host and of its nodes' usage.

    An instance that moves counts at both ends.
    """

    def __init__(self, host: str) -> None:
        self._host: Final = host
        #: The revisions of the host's instances, by uuid.
        self.revisions: dict[str, int] = {}
        self._instances: dict[str, KnownInstance] = {}
        self._used: Mapping[str, Usage] = {}

    def update(self, rows: HostState) -> None:
        """Update the cache and the usage from newly read rows."""
        self.revisions = dict(rows.instance_revisions)
        kept = {uuid: one for uuid, one in self._instances.items() if uuid in self.revisions}
        self._instances = kept | known_instances(rows.instances)
        self._used = _sum(self._host, self._instances, rows.migrations)

    def claimed(self) -> dict[str, KnownInstance]:
        """Return the instances on a node, with no claim or release in progress, by uuid."""
        return {
            uuid: one
            for uuid, one in self._instances.items()
            if one.node is not None and one.revision is not None and one.task_state is None
        }

    def of_node(self, name: str) -> Usage:
        """Return the usage of a node; zeros for an unknown node."""
        return self._used.get(name, _NOTHING)


def usage_of_node(context: Context, host: str, name: str) -> Usage:
    """Read the usage of one node. Raises ObjectError and StateError."""
    instances = InstanceList.get_by_filters(context, host=host, node=name)
    moves = MigrationList.get_in_progress_by_host(context, host)
    return _sum(host, known_instances(instances), moves).get(name, _NOTHING)


def known_instances(instances: Iterable[Instance]) -> dict[str, KnownInstance]:
    """Return instances as KnownInstance, by uuid."""
    return {
        one.uuid: KnownInstance(
            node=one.known("node"),
            revision=one.known("revision"),
            task_state=one.known("task_state"),
            usage=_of(one, "flavor"),
            allocations=one.known("claimed_allocations"),
        )
        for one in instances
        if "uuid" in one
    }


def _sum(
    host: str, instances: Mapping[str, KnownInstance], moves: Iterable[Migration]
) -> dict[str, Usage]:
    usages: defaultdict[str, list[Usage]] = defaultdict(list)
    moving = set()
    for migration in moves:
        moving.add(migration.known("instance_uuid"))
        for end, flavor in (("source", "old_flavor"), ("dest", "new_flavor")):
            node = migration.known(f"{end}_node")
            if migration.known(f"{end}_compute") == host and node is not None:
                usages[node].append(_of(migration, flavor))
    for uuid, one in instances.items():
        if one.node is not None and uuid not in moving:
            usages[one.node].append(one.usage)
    return {
        node: Usage(*(min(sum(amounts), MAX_COUNT) for amounts in zip(*parts, strict=True)))
        for node, parts in usages.items()
    }


def _of(owner: Instance | Migration, field: str) -> Usage:
    try:
        flavor: Flavor = getattr(owner, field)
        return Usage(flavor.vcpus, flavor.memory_mb, flavor.root_gb + flavor.ephemeral_gb)
    except FieldUnset as error:
        LOG.error(
            "%s does not count in the usage of its node, since its flavor cannot be read: %s",
            owner.subject,
            error,
        )
        return _NOTHING
