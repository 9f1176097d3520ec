"""The ComputeNodes of a driver instance, kept as its last complete listing has them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import os_resource_classes as orc
from oslo_log import log as logging

from wharfinger.driver.capabilities import Capabilities
from wharfinger.exceptions import FieldUnset
from wharfinger.objects import ComputeNode, ComputeNodeList, Context, PciDevice, PciDeviceList
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.record import Record
from wharfinger.tracker import usage
from wharfinger.tracker.desired import Node
from wharfinger.tracker.usage import NOTHING, Usage

LOG: Final = logging.getLogger(__name__)

#: vendor, product, NUMA node, count
_PciDevice = tuple[str, str, int | None, int]


class _Figures(NamedTuple):
    """What a node's row says, as a value: nothing is built or read for one that is the same.

    The names are ComputeNode's.
    """

    hypervisor_hostname: str
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
    capabilities: tuple[tuple[str, bool], ...]
    pci_stats: tuple[_PciDevice, ...] | None


class NodeRows:
    """The rows of one driver instance on one host.

    A node has a row while this instance publishes its root. Raises ObjectError where somebody else
    saves a row at the same time: the next cycle makes up for it.
    """

    def __init__(
        self,
        context: Context,
        host: str,
        publisher: Publisher,
        capabilities: Capabilities,
    ) -> None:
        self._context: Final = context
        self._host: Final = host
        self._publisher: Final = publisher
        self._capabilities: Final = tuple(
            sorted((name, bool(one and one.supported)) for name, one in capabilities.items())
        )
        self._written: dict[str, _Figures | None] | None = None

    def keep(
        self,
        nodes: Iterable[Node],
        records: Mapping[str, Record],
        damaged: Collection[str] = (),
    ) -> None:
        """Bring the rows in line with a complete listing and with what was published of it.

        ``records`` are by provider uuid; ``damaged`` are those that cannot be read. The row of a
        node that is gone goes when nothing is remembered of its root.
        """
        remembered = records.keys() | damaged
        taken = usage.by_node(self._context, self._host)
        wanted = {
            node.uuid: self._figures(node, record.applied, taken.get(node.name, NOTHING))
            for node in nodes
            if (record := records.get(node.uuid)) and record.applied
        }
        written = self._load() if self._written is None else self._written
        changed = [uuid for uuid, figures in wanted.items() if written.get(uuid) != figures]
        if changed:
            self._write({uuid: wanted[uuid] for uuid in changed})
        gone = written.keys() - wanted.keys() - remembered
        if gone:
            self._of_ours(uuid=sorted(gone)).destroy()
        ComputeNodeList.note_seen(self._context, self._host, self._publisher.instance, list(wanted))
        kept = {uuid: figures for uuid, figures in written.items() if uuid in remembered}
        self._written = {**kept, **wanted}

    def _load(self) -> dict[str, _Figures | None]:
        return {row.uuid: _said_by(row) for row in self._of_ours() if "uuid" in row}

    def _of_ours(self, **filters: object) -> ComputeNodeList:
        return ComputeNodeList.get_by_filters(
            self._context,
            host=self._host,
            driver_instance=self._publisher.instance,
            **filters,
        )

    def _figures(self, node: Node, root: Provider, used: Usage) -> _Figures:
        published = root.inventories
        cpus, cpu_ratio = _offered(published, orc.VCPU)
        ram, ram_ratio = _offered(published, orc.MEMORY_MB)
        disk, disk_ratio = _offered(published, orc.DISK_GB)
        said = node.resource
        return _Figures(
            hypervisor_hostname=node.name,
            owner=self._publisher.owner,
            vcpus=said.vcpus if "vcpus" in said else cpus,
            vcpus_used=used.vcpus,
            memory_mb=said.memory_mb if "memory_mb" in said else ram,
            memory_mb_used=used.memory_mb,
            local_gb=said.local_gb if "local_gb" in said else disk,
            local_gb_used=used.local_gb,
            cpu_allocation_ratio=cpu_ratio,
            ram_allocation_ratio=ram_ratio,
            disk_allocation_ratio=disk_ratio,
            capabilities=self._capabilities,
            pci_stats=_pci_devices(said) if "pci_stats" in said else None,
        )

    def _write(self, changed: Mapping[str, _Figures]) -> None:
        there = {
            row.uuid: row
            for row in ComputeNodeList.get_by_filters(self._context, uuid=list(changed))
        }
        new, saved = [], []
        for uuid, figures in changed.items():
            row = there.get(uuid)
            if row is None:
                row = ComputeNode(
                    self._context,
                    uuid=uuid,
                    host=self._host,
                    driver_instance=self._publisher.instance,
                )
                new.append(row)
            elif (row.host, row.driver_instance) != (self._host, self._publisher.instance):
                LOG.warning(
                    "node %s (%s) is kept by driver instance %s on host %s: left to it.",
                    figures.hypervisor_hostname,
                    uuid,
                    row.driver_instance,
                    row.host,
                )
                continue
            else:
                saved.append(row)
            _set(row, figures)
        if saved:
            ComputeNodeList(self._context, objects=saved).save()
        if new:
            ComputeNodeList(self._context, objects=new).create()


def _offered(published: Mapping[str, Inventory], name: str) -> tuple[int, float]:
    """How much of a resource class there is, and how many times over it is given out."""
    inventory = published.get(name)
    return (0, 1.0) if inventory is None else (inventory.total, inventory.allocation_ratio)


def _pci_devices(node: ComputeNode) -> tuple[_PciDevice, ...] | None:
    if node.pci_stats is None:
        return None
    return tuple(
        (
            kind.vendor_id,
            kind.product_id,
            kind.numa_node if "numa_node" in kind else None,
            kind.count,
        )
        for kind in node.pci_stats
    )


def _said_by(row: ComputeNode) -> _Figures | None:
    """What a row says, None where that is not all known."""
    special = {"capabilities", "pci_stats"}
    try:
        return _Figures(
            **{name: getattr(row, name) for name in _Figures._fields if name not in special},
            capabilities=tuple(sorted(row.capabilities.items())),
            pci_stats=_pci_devices(row),
        )
    except FieldUnset:
        return None


def _set(row: ComputeNode, figures: _Figures) -> None:
    """Have a row say the figures; what it says already is no change."""
    before = _said_by(row)
    for name, value in figures._asdict().items():
        if before is not None and getattr(before, name) == value:
            continue
        if name == "capabilities":
            row.capabilities = dict(value)
        elif name == "pci_stats":
            row.pci_stats = None if value is None else _pci_stats(value)
        else:
            setattr(row, name, value)


def _pci_stats(kinds: Iterable[_PciDevice]) -> PciDeviceList:
    return PciDeviceList(
        objects=[
            PciDevice(vendor_id=vendor, product_id=product, numa_node=numa, count=count)
            for vendor, product, numa, count in kinds
        ]
    )
