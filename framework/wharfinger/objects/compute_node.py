"""Nodes: hosts and bare metal machines, as driver instances report them."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import ClassVar, Final, Self

from wharfinger.db.row_statements import Following, NotIn
from wharfinger.db.tables import INSTANCE
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, register
from wharfinger.objects.database_context import Context
from wharfinger.objects.instance import Instance
from wharfinger.objects.migration import OVER, Migration
from wharfinger.objects.pci_device_pool import PciDeviceList
from wharfinger.objects.persistence import KeptList, KeptObject

_IN_PROGRESS: Final = {"status": NotIn(OVER)}
#: Where instances and moves name their nodes: a table, its columns of the host and the node, and a
#: condition of the rows.
NODE_COLUMNS: Final[tuple[tuple[str, str, str, dict[str, NotIn]], ...]] = (
    (Instance.TABLE, "host", "node", {}),
    (Migration.TABLE, "source_compute", "source_node", _IN_PROGRESS),
    (Migration.TABLE, "dest_compute", "dest_node", _IN_PROGRESS),
)


@register
class ComputeNode(KeptObject):
    """A host or a bare metal machine, as one driver instance reports it.

    - ``uuid``: the uuid of the root provider.
    - ``host``: the service host that publishes the node.
    - ``hypervisor_hostname``: the name of the node and of its root provider.
    - ``driver_instance``: the driver instance that reports the node.
    - ``owner``: the owner trait of that driver instance.
    - ``vcpus``: host CPUs; ``memory_mb``: MiB of memory; ``local_gb``: GiB of disk.
    - ``vcpus_used``, ``memory_mb_used``, ``local_gb_used``: the amounts in the flavors of the
      node's instances.
    - ``cpu_allocation_ratio``, ``ram_allocation_ratio``, ``disk_allocation_ratio``: the allocation
      ratios.
    - ``pci_stats``: the PCI devices, None if the driver does not report them.
    - ``capabilities``: the driver's capabilities by name, True if supported.
    - ``last_seen``: since when the driver does not list the node, in UTC; None while listed.
    - ``revision``: see KeptObject.
    """

    HISTORY = (Step("1.0", "first version"), Step("1.1", "the PCI devices", ("pci_stats",)))
    TABLE = "compute_nodes"
    uuid: str
    host: str
    hypervisor_hostname: str
    driver_instance: str
    owner: str
    vcpus: int
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    local_gb: int
    local_gb_used: int
    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    disk_allocation_ratio: float
    pci_stats: PciDeviceList | None
    capabilities: dict[str, bool]
    last_seen: datetime | None
    fields = {
        "uuid": field_types.uuid(),
        "host": field_types.name(),
        "hypervisor_hostname": field_types.name(),
        "driver_instance": field_types.text(INSTANCE),
        "owner": field_types.name(),
        "vcpus": field_types.count(default=0),
        "vcpus_used": field_types.count(default=0),
        "memory_mb": field_types.count(default=0),
        "memory_mb_used": field_types.count(default=0),
        "local_gb": field_types.count(default=0),
        "local_gb_used": field_types.count(default=0),
        "cpu_allocation_ratio": field_types.ratio(default=1.0),
        "ram_allocation_ratio": field_types.ratio(default=1.0),
        "disk_allocation_ratio": field_types.ratio(default=1.0),
        "pci_stats": field_base.ObjectField("PciDeviceList", nullable=True, default=None),
        "capabilities": field_types.flags_by_name(default={}),
        "last_seen": field_types.moment(nullable=True),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {"pci_stats": [("1.1", "1.0")]}

    @classmethod
    @base.remotable
    def get_by_uuid(cls, context: Context, uuid: str) -> Self:
        """Return the node with this uuid; raises ObjectNotFound."""
        return cls._get(context, uuid=uuid)

    @property
    def is_renamed(self) -> bool:
        """Return whether the node has a name that is not saved yet."""
        return "hypervisor_hostname" in self.obj_what_changed()


@register
class ComputeNodeList(KeptList[ComputeNode]):
    """Nodes.

    - ``objects``: the nodes.
    """

    HISTORY = (
        Step("1.0", "ComputeNode 1.0"),
        Step("1.1", "ComputeNode 1.1"),
        Step("1.2", "get_revisions, and note_seen of all of an instance's nodes"),
        Step("1.3", "move_to another host, with the instances and moves of the nodes"),
    )
    KIND = ComputeNode
    objects: list[ComputeNode]
    fields = {"objects": field_base.ListOfObjectsField("ComputeNode")}
    child_versions: ClassVar[dict[str, str]] = {
        "1.0": "1.0",
        "1.1": "1.1",
        "1.2": "1.1",
        "1.3": "1.1",
    }

    @classmethod
    @base.remotable
    def get_revisions(
        cls, context: Context, host: str | None, driver_instance: str
    ) -> dict[str, int]:
        """Return the revisions of a driver instance's nodes, by uuid; host None: on all hosts."""
        where = {} if host is None else {"host": host}
        return cls._revisions(context, driver_instance=driver_instance, **where)

    @classmethod
    @base.remotable
    def note_seen(
        cls, context: Context, host: str, driver_instance: str, uuids: Iterable[str] | None
    ) -> None:
        """Set ``last_seen`` of nodes to now. Only older releases call this."""
        only = {} if uuids is None else {"uuid": list(uuids)}
        context.db.touch(
            ComputeNode.TABLE,
            {"last_seen": ComputeNode._wanted("last_seen", field_types.now())},
            host=host,
            driver_instance=driver_instance,
            **only,
        )

    @base.remotable
    def move_to(self, host: str, driver_instance: str) -> None:
        """Move the nodes, with their instances, to a driver instance on a host.

        Raises ConcurrentSave and ObjectNotFound.
        """
        names: dict[str, list[str]] = {}
        for node in self.objects:
            if node.host != host:
                names.setdefault(node.host, []).append(node.hypervisor_hostname)
                node.host = host
            if node.driver_instance != driver_instance:
                node.driver_instance = driver_instance
        self._save([one for before in names for one in following(before, host, names[before])])


def following(old_host: str, new_host: str, node_names: Collection[str]) -> Iterator[Following]:
    """Yield the updates that give nodes' instances and moves in progress a new host."""
    saved = {"updated_at": Instance._wanted("updated_at", field_types.now())}
    for table, host, node, condition in NODE_COLUMNS:
        where = {host: old_host, node: node_names, **condition}
        yield Following(table, where, {host: new_host, **saved})
