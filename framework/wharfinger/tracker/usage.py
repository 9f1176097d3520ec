"""Usage of nodes, by the flavors of their instances."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

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
#: The node that an instance is on, and what its flavor takes there.
_Place = tuple[str | None, Usage]


class HostUsage:
    """Usage of the nodes of a service host: the sum over each node's instances.

    An instance that moves counts at both ends until the move is over: at the source with its old
    flavor, at the destination with its new one.
    """

    def __init__(self, host: str) -> None:
        self._host: Final = host
        self._places: dict[str, _Place] = {}
        self._revisions: dict[str, int] = {}
        self._used: Mapping[str, Usage] = {}
        self._had_moves = False

    @property
    def revisions(self) -> dict[str, int]:
        """The revisions of the host's instances as they were read, by uuid."""
        return self._revisions

    def update(self, rows: HostState) -> None:
        """Take the instances that have changed since the last read, and all migrations."""
        for one in rows.instances:
            if "uuid" in one:
                self._places[one.uuid] = _place(one)
        gone = self._places.keys() - rows.instance_revisions.keys()
        for uuid in gone:
            del self._places[uuid]
        self._revisions = dict(rows.instance_revisions)
        moves = list(rows.migrations)
        if rows.instances or gone or moves or self._had_moves:
            self._used = _sum(self._host, self._places, moves)
        self._had_moves = bool(moves)

    def rename(self, names: Mapping[str, str]) -> None:
        """Count what is on nodes under their new names, by the old ones."""
        self._places = {
            uuid: (names.get(node, node) if node else None, usage)
            for uuid, (node, usage) in self._places.items()
        }
        used: defaultdict[str, Usage] = defaultdict(Usage)
        for node, usage in self._used.items():
            used[names.get(node, node)] += usage
        self._used = used

    def of_node(self, name: str) -> Usage:
        """Return the usage of a node."""
        return self._used.get(name, NOTHING)


def usage_of_node(context: Context, host: str, name: str) -> Usage:
    """Return the usage of one node, from the database; raises ObjectError, StateError."""
    instances = InstanceList.get_by_filters(context, host=host, node=name)
    moves = MigrationList.get_in_progress_by_host(context, host)
    places = {one.uuid: _place(one) for one in instances if "uuid" in one}
    return _sum(host, places, moves).get(name, NOTHING)


def _sum(host: str, places: Mapping[str, _Place], moves: Iterable[Migration]) -> dict[str, Usage]:
    taken: defaultdict[str, Usage] = defaultdict(Usage)
    moving = set()
    for migration in moves:
        moving.add(_known(migration, "instance_uuid"))
        for end, flavor in (("source", "old_flavor"), ("dest", "new_flavor")):
            node = _known(migration, f"{end}_node")
            if _known(migration, f"{end}_compute") == host and node is not None:
                taken[node] += _of(migration, flavor)
    for uuid, (node, usage) in places.items():
        if node is not None and uuid not in moving:
            taken[node] += usage
    return dict(taken)


def _place(instance: Instance) -> _Place:
    return _known(instance, "node"), _of(instance, "flavor")


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
