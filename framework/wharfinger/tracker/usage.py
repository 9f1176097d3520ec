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
from wharfinger.objects.kinds import MAX_COUNT

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """CPUs, MiB of memory and GiB of disk."""

    vcpus: int = 0
    memory_mb: int = 0
    local_gb: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            min(self.vcpus + other.vcpus, MAX_COUNT),
            min(self.memory_mb + other.memory_mb, MAX_COUNT),
            min(self.local_gb + other.local_gb, MAX_COUNT),
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
        moving.add(_known(migration, "instance_uuid"))
        for end, flavor in (("source", "old_flavor"), ("dest", "new_flavor")):
            node = _known(migration, f"{end}_node")
            if _known(migration, f"{end}_compute") == host and node is not None:
                taken[node] += _of(migration, flavor)
    for instance in InstanceList.get_by_filters(context, host=host):
        node = _known(instance, "node")
        if node is not None and _known(instance, "uuid") not in moving:
            taken[node] += _of(instance, "flavor")
    return dict(taken)


def _known(owner: Instance | Migration, field: str) -> str | None:
    value: str | None = getattr(owner, field) if field in owner else None
    return value


def _of(owner: Instance | Migration, field: str) -> Usage:
    """What a flavor takes; nothing where that cannot be known, which is told."""
    try:
        flavor: Flavor = getattr(owner, field)
        return Usage(flavor.vcpus, flavor.memory_mb, flavor.root_gb + flavor.ephemeral_gb)
    except FieldUnset as error:
        LOG.error("%s counts for nothing on its node: %s", owner.subject, error)
        return NOTHING
