"""Nodes as their drivers report them, and the rows (ComputeNode) of the nodes."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple, Self

import os_resource_classes as orc
from oslo_utils.uuidutils import is_uuid_like

from wharfinger.driver.capabilities import Capabilities
from wharfinger.exceptions import FieldUnset
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    HostState,
    PciDevice,
    PciDeviceList,
)
from wharfinger.objects.field_types import now
from wharfinger.providers import Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.provider import Record
from wharfinger.tracker.usage import HostUsage

#: PCI devices: vendor, product, NUMA node and count of each kind.
PciStats = tuple[tuple[str, str, int | None, int], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A node that a driver reports; a figure is None if the driver does not report it."""

    name: str
    #: The uuid of the root provider.
    uuid: str
    vcpus: int | None = None
    memory_mb: int | None = None
    local_gb: int | None = None
    pci_stats: PciStats | None = None
    #: The uuid that the driver reports, if the root in Placement has another uuid.
    reported_uuid: str | None = None

    def with_root(self, uuid: str) -> Self:
        """Return this node with another root uuid."""
        if uuid == self.uuid:
            return self
        return replace(self, uuid=uuid, reported_uuid=self.reported_uuid or self.uuid)


def pci_stats_of(node: ComputeNode) -> PciStats | None:
    """Return the reported number of PCI devices of each kind, or None. Raises FieldUnset."""
    kinds = getattr(node, "pci_stats", None)
    if kinds is None:
        return None
    return tuple(
        (one.vendor_id, one.product_id, one.known("numa_node"), one.count) for one in kinds
    )


class _Figures(NamedTuple):
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
    capabilities: Mapping[str, bool]
    pci_stats: PciStats | None
    last_seen: datetime | None


class NodeRows:
    """Computes and deletes the rows of a driver instance's nodes."""

    def __init__(
        self, context: Context, host: str, publisher: Publisher, capabilities: Capabilities
    ) -> None:
        self._context: Final = context
        self._host: Final = host
        self._publisher: Final = publisher
        self._capabilities: Final = {
            name: capabilities.supports(name) for name, _declared in capabilities.items()
        }
        self.usage: Final = HostUsage(host)
        #: The revisions of the rows as they were read or saved, by node uuid.
        self.revisions: dict[str, int] = {}
        self._figures: dict[str, _Figures | None] = {}

    def update(self, rows: HostState) -> None:
        """Note newly read rows, and update the usage from them."""
        self.saved(rows.nodes)
        self._forget(self.revisions.keys() - rows.node_revisions.keys())
        self.usage.update(rows)

    def saved(self, rows: Iterable[ComputeNode]) -> None:
        """Note rows that were just read or saved."""
        for row in rows:
            if "uuid" in row and "revision" in row:  # without them, a write cannot be checked
                self._figures[row.uuid] = _figures_of(row)
                self.revisions[row.uuid] = row.revision

    def new_row(self, node: Node, root: Provider) -> ComputeNode:
        """Return the row of a new node."""
        row = ComputeNode(
            self._context, uuid=node.uuid, host=self._host, driver_instance=self._publisher.instance
        )
        _set(row, self._wanted(node, root))
        return row

    def changed_row(self, node: Node, root: Provider) -> ComputeNode | None:
        """Return a node's row with new figures; None without a row or a change."""
        return self._changed(node.uuid, self._wanted(node, root))

    def changed_rows(
        self, nodes: Iterable[Node], records: Mapping[str, Record], *, is_listing: bool
    ) -> list[ComputeNode]:
        """Return the rows whose figures have changed, to be saved."""
        wanted = {
            node.uuid: self._wanted(node, record.applied)
            for node in nodes
            if (record := records.get(node.uuid)) is not None and record.applied is not None
        }
        for uuid, figures in self._figures.items():
            if figures is not None and uuid not in wanted:
                used = self.usage.of_node(figures.hypervisor_hostname)
                seen = now() if is_listing and figures.last_seen is None else figures.last_seen
                wanted[uuid] = figures._replace(last_seen=seen, **used._asdict())
        rows = (self._changed(uuid, figures) for uuid, figures in wanted.items())
        return [row for row in rows if row is not None]

    def delete_gone(self, recorded_uuids: Set[str]) -> None:
        """Delete the rows of nodes whose roots have no record. Raises ObjectError."""
        if gone := sorted(self.revisions.keys() - recorded_uuids):
            ComputeNodeList.get_by_filters(
                self._context,
                host=self._host,
                driver_instance=self._publisher.instance,
                uuid=list(filter(is_uuid_like, gone)),
            ).destroy()
            self._forget(gone)

    def _forget(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            del self.revisions[uuid], self._figures[uuid]

    def _changed(self, uuid: str, wanted: _Figures) -> ComputeNode | None:
        if uuid not in self._figures or self._figures[uuid] == wanted:
            return None
        row = ComputeNode(self._context, uuid=uuid, revision=self.revisions[uuid])
        row.host, row.driver_instance = self._host, self._publisher.instance
        before = self._figures[uuid]
        if before is not None:
            _set(row, before)
        row.obj_reset_changes(recursive=True)
        _set(row, wanted, before)
        return row

    def _wanted(self, node: Node, root: Provider) -> _Figures:
        stored = self._figures.get(node.uuid)
        # Until a new name is stored, the instances of the node have its old one.
        name = stored.hypervisor_hostname if stored else node.name
        cpus, cpu_ratio = _offered(root, orc.VCPU, node.vcpus)
        ram, ram_ratio = _offered(root, orc.MEMORY_MB, node.memory_mb)
        disk, disk_ratio = _offered(root, orc.DISK_GB, node.local_gb)
        return _Figures(
            hypervisor_hostname=node.name,
            owner=self._publisher.owner,
            vcpus=cpus,
            memory_mb=ram,
            local_gb=disk,
            cpu_allocation_ratio=cpu_ratio,
            ram_allocation_ratio=ram_ratio,
            disk_allocation_ratio=disk_ratio,
            capabilities=self._capabilities,
            pci_stats=node.pci_stats,
            last_seen=None,
            **self.usage.of_node(name)._asdict(),
        )


def _offered(root: Provider, name: str, total: int | None) -> tuple[int, float]:
    inventory = root.inventories.get(name)
    if inventory is None:
        return total or 0, 1.0
    return inventory.total if total is None else total, inventory.allocation_ratio


def _figures_of(row: ComputeNode) -> _Figures | None:
    special = {"pci_stats", "last_seen"}
    try:
        return _Figures(
            **{name: getattr(row, name) for name in _Figures._fields if name not in special},
            pci_stats=pci_stats_of(row),
            last_seen=row.known("last_seen"),
        )
    except FieldUnset:
        return None


def _set(row: ComputeNode, figures: _Figures, before: _Figures | None = None) -> None:
    for name, value in figures._asdict().items():
        if before is None or getattr(before, name) != value:
            is_devices = name == "pci_stats" and value is not None
            setattr(row, name, _pci_stats(value) if is_devices else value)


def _pci_stats(kinds: PciStats) -> PciDeviceList:
    names = ("vendor_id", "product_id", "numa_node", "count")
    devices = [PciDevice(**dict(zip(names, kind, strict=True))) for kind in kinds]
    return PciDeviceList(objects=devices)
