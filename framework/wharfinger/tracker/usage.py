"""Usage of nodes, by the flavors of their instances."""

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
    """Used CPUs, MiB of memory and GiB of disk, with the field names of ComputeNode."""

    vcpus_used: int = 0
    memory_mb_used: int = 0
    local_gb_used: int = 0


_NOTHING: Final = Usage()
#: The node of an instance, and what its flavor uses.
_Place = tuple[str | None, Usage]


class HostUsage:
    """Usage of the nodes of a service host: the sum of the flavors of each node's instances.

    An instance that moves counts at both ends until the move is over: at the source with its old
    flavor, at the destination with its new one.
    """

    def __init__(self, host: str) -> None:
        self._host: Final = host
        #: The revisions of the host's instances as they were read, by uuid.
        self.revisions: dict[str, int] = {}
        self._places: dict[str, _Place] = {}
        self._used: Mapping[str, Usage] = {}

    def update(self, rows: HostState) -> None:
        """Update the usage from the instances that have changed, and from all migrations."""
        self.revisions = dict(rows.instance_revisions)
        kept = {uuid: place for uuid, place in self._places.items() if uuid in self.revisions}
        self._places = kept | _places(rows.instances)
        self._used = _sum(self._host, self._places, rows.migrations)

    def rename(self, names: Mapping[str, str]) -> None:
        """Move the usage of renamed nodes to their new names; ``names`` has these by old name."""
        self._places = {
            uuid: (names.get(node, node) if node else None, usage)
            for uuid, (node, usage) in self._places.items()
        }
        usages: defaultdict[str, list[Usage]] = defaultdict(list)
        for node, usage in self._used.items():
            usages[names.get(node, node)].append(usage)
        self._used = _totals(usages)

    def of_node(self, name: str) -> Usage:
        """Return the usage of a node."""
        return self._used.get(name, _NOTHING)


def usage_of_node(context: Context, host: str, name: str) -> Usage:
    """Read the usage of one node from the database; raises ObjectError, StateError."""
    instances = InstanceList.get_by_filters(context, host=host, node=name)
    moves = MigrationList.get_in_progress_by_host(context, host)
    return _sum(host, _places(instances), moves).get(name, _NOTHING)


def _places(instances: Iterable[Instance]) -> dict[str, _Place]:
    return {one.uuid: (one.known("node"), _of(one, "flavor")) for one in instances if "uuid" in one}


def _sum(host: str, places: Mapping[str, _Place], moves: Iterable[Migration]) -> dict[str, Usage]:
    usages: defaultdict[str, list[Usage]] = defaultdict(list)
    moving = set()
    for migration in moves:
        moving.add(migration.known("instance_uuid"))
        for end, flavor in (("source", "old_flavor"), ("dest", "new_flavor")):
            node = migration.known(f"{end}_node")
            if migration.known(f"{end}_compute") == host and node is not None:
                usages[node].append(_of(migration, flavor))
    for uuid, (node, usage) in places.items():
        if node is not None and uuid not in moving:
            usages[node].append(usage)
    return _totals(usages)


def _totals(usages: Mapping[str, Iterable[Usage]]) -> dict[str, Usage]:
    return {
        node: Usage(*(min(sum(amounts), MAX_COUNT) for amounts in zip(*parts, strict=True)))
        for node, parts in usages.items()
    }


def _of(owner: Instance | Migration, field: str) -> Usage:
    """Return what the flavor in a field uses; if it cannot be read, log that and return zeros."""
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
