"""How much of each node is taken, by what its instances were promised."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from oslo_log import log as logging

from wharfinger.exceptions import FieldUnset
from wharfinger.objects import (
    Context,
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """CPUs, MiB of memory and GiB of disk."""

    vcpus: int = 0
    memory_mb: int = 0
    local_gb: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.vcpus + other.vcpus,
            self.memory_mb + other.memory_mb,
            self.local_gb + other.local_gb,
        )


NOTHING: Final = Usage()


def by_node(context: Context, host: str) -> dict[str, Usage]:
    """What is taken of the nodes of a service host, by node; a node that is free is not in it.

    The sum over a node's instances. One that moves counts at both ends until that is over: at the
    source with its old flavor, at the destination with its new one.
    """
    taken: defaultdict[str, Usage] = defaultdict(Usage)
    moving = set()
    for migration in MigrationList.get_in_progress_by_host(context, host):
        moving.add(migration.instance_uuid)
        for where, node, flavor in (
            (migration.source_compute, migration.source_node, "old_flavor"),
            (migration.dest_compute, migration.dest_node, "new_flavor"),
        ):
            if where == host and node is not None:
                taken[node] += _of(migration, flavor)
    for instance in InstanceList.get_by_filters(context, host=host):
        if instance.node is not None and instance.uuid not in moving:
            taken[instance.node] += _of(instance, "flavor")
    return dict(taken)


def _of(owner: Instance | Migration, field: str) -> Usage:
    """What a flavor takes; nothing where that cannot be known, which is told."""
    try:
        flavor: Flavor = getattr(owner, field)
        return Usage(flavor.vcpus, flavor.memory_mb, flavor.root_gb + flavor.ephemeral_gb)
    except FieldUnset as error:
        LOG.error("%s counts for nothing on its node: %s", owner.subject, error)
        return NOTHING
