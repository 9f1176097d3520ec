"""How much of each node is taken, by what its instances were promised."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from oslo_log import log as logging
from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import FieldUnset
from wharfinger.objects import (
    Context,
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)
from wharfinger.objects.field_types import MAX_COUNT
from wharfinger.tracker.revision_cache import Followed

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
    """What is taken of the nodes of a service host.

    The sum over a node's instances. One that moves counts at both ends until that is over: at the
    source with its old flavor, at the destination with its new one.
    """

    def __init__(self, context: Context, host: str) -> None:
        self._context: Final = context
        self._host: Final = host
        self._places: Final = Followed[_Place](
            lambda uuids: InstanceList.get_by_filters(
                context, host=host, uuid=list(filter(is_uuid_like, uuids))
            ),
            _place,
        )
        self._taken: Mapping[str, Usage] = {}
        self._had_moves = False

    def by_node(self) -> Mapping[str, Usage]:
        """What is taken, by node; a node that is free is not in it.

        What has not changed is not read again.
        """
        moves = list(MigrationList.get_in_progress_by_host(self._context, self._host))
        changed = self._places.update(InstanceList.get_revisions(self._context, self._host))
        if changed or moves or self._had_moves:
            self._taken = _sum(self._host, self._places.values, moves)
        self._had_moves = bool(moves)
        return self._taken

    def of_node(self, name: str) -> Usage:
        """What is taken of one node."""
        instances = InstanceList.get_by_filters(self._context, host=self._host, node=name)
        moves = MigrationList.get_in_progress_by_host(self._context, self._host)
        places = {one.uuid: _place(one) for one in instances if "uuid" in one}
        return _sum(self._host, places, moves).get(name, NOTHING)


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
