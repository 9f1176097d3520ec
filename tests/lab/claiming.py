"""Create instances and moves, and count the resources that they use without the tracker's code."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from wharfinger.objects import (
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)

#: VCPUs, MiB of memory and GiB of disk.
Amounts = tuple[int, int, int]
#: A service host and one of its nodes.
Place = tuple[str, str]
NOTHING: Amounts = (0, 0, 0)


def flavor(vcpus: int = 0, **amounts: int) -> Flavor:
    made = Flavor(flavorid="f", name="f", vcpus=vcpus, **({"memory_mb": 0} | amounts))
    made.obj_set_defaults()
    return made


def instance(
    context: Context, vcpus: int = 0, *, place: Place | None = None, **amounts: int
) -> Instance:
    """Create an instance in the database, on a node or without one."""
    host, node = place or (None, None)
    made = Instance(
        context,
        project_id="p",
        user_id="u",
        host=host,
        node=node,
        flavor=flavor(vcpus, **amounts),
    )
    made.create()
    return made


def migration(
    context: Context,
    moved: Instance,
    source: Place,
    *,
    kind: str = "migration",
    status: str = "accepted",
    **values: Any,
) -> Migration:
    """Create the migration of an instance in the database."""
    made = Migration(
        context,
        instance_uuid=moved.uuid,
        migration_type=kind,
        status=status,
        source_compute=source[0],
        source_node=source[1],
        old_flavor=moved.flavor,
        **({"new_flavor": moved.flavor} | values),
    )
    made.create()
    return made


def lead(one: Migration, *statuses: str) -> None:
    """Save a migration with each of these statuses, one after the other."""
    for status in statuses:
        one.status = status
        one.save()


def taken(context: Context) -> dict[Place, Amounts]:
    """Count the resources that instances and moves use on each node with a row.

    On the source and the destination host of a move the migration counts, elsewhere the instance.
    """
    counted: dict[Place, Counter[str]] = {}
    moving = set()
    for one in MigrationList.get_by_filters(context):
        if not one.is_in_progress:
            continue
        moving |= {(one.instance_uuid, host) for host in (one.source_compute, one.dest_compute)}
        _add(counted, one.source_compute, one.source_node, one.old_flavor)
        _add(counted, one.dest_compute, one.dest_node, one.new_flavor)
    for each in InstanceList.get_by_filters(context):
        if (each.uuid, each.host) not in moving:
            _add(counted, each.host, each.node, each.flavor)
    empty: Counter[str] = Counter()
    return {place: _amounts(counted.get(place, empty)) for place in noted(context)}


def noted(context: Context) -> dict[Place, Amounts]:
    """Return the used resources that the row of each node has."""
    return {
        (row.host, row.hypervisor_hostname): (
            row.vcpus_used,
            row.memory_mb_used,
            row.local_gb_used,
        )
        for row in ComputeNodeList.get_by_filters(context)
    }


def _add(
    counted: dict[Place, Counter[str]], host: str | None, node: str | None, what: Flavor
) -> None:
    if host is not None and node is not None:
        counted.setdefault((host, node), Counter()).update(
            vcpus=what.vcpus, memory_mb=what.memory_mb, local_gb=what.root_gb + what.ephemeral_gb
        )


def _amounts(counter: Mapping[str, int]) -> Amounts:
    return counter["vcpus"], counter["memory_mb"], counter["local_gb"]
