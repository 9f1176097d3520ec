"""Rows of nodes (ComputeNode): from the driver's facts, the published root and the usage."""

from collections.abc import Iterable, Iterator, Mapping, Set
from datetime import datetime
from typing import Final, NamedTuple

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
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.provider_record import Record
from wharfinger.tracker import node_rename
from wharfinger.tracker.reported_node import Node, PciStats, pci_stats_of
from wharfinger.tracker.usage import HostUsage, Usage


class _Figures(NamedTuple):
    """Figures of a node's row as a value. The names are ComputeNode's.

    No object is built or read for a row that has not changed.
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
    pci_stats: PciStats | None
    last_seen: datetime | None


class NodeRows:
    """Rows of the nodes of one driver instance on one host.

    A node has a row while this instance publishes its root, and from just before. The rows are
    read with the rest of a cycle's state, and written with its results: nothing is read or written
    here but for nodes that are renamed or gone.
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
        self.usage: Final = HostUsage(host)
        self._figures: dict[str, _Figures | None] = {}
        self._revisions: dict[str, int] = {}
        self._made: dict[str, tuple[tuple[object, ...], _Figures]] = {}

    @property
    def revisions(self) -> dict[str, int]:
        """The revisions of the rows as they were read or saved, by node uuid."""
        return self._revisions

    def update(self, rows: HostState) -> None:
        """Take the rows that have changed since the last read."""
        for row in rows.nodes:
            if "uuid" in row:
                self._note(row)
        for uuid in self._revisions.keys() - rows.node_revisions.keys():
            self._forget(uuid)
        self.usage.update(rows)

    def saved(self, rows: Iterable[ComputeNode]) -> None:
        """Note rows that were saved just now."""
        for row in rows:
            if "revision" in row:
                self._note(row)

    def new_row(self, node: Node, root: Provider) -> ComputeNode:
        """Return the row of a node whose root is about to be published."""
        row = ComputeNode(
            self._context,
            uuid=node.uuid,
            host=self._host,
            driver_instance=self._publisher.instance,
        )
        _set(row, self._wanted(node, root))
        return row

    def changed_row(self, node: Node, root: Provider) -> ComputeNode | None:
        """Return the row of a published node with new figures; None without a change."""
        wanted = self._wanted(node, root)
        if node.uuid not in self._figures or self._figures[node.uuid] == wanted:
            return None
        return self._row(node.uuid, wanted)

    def changed_rows(
        self, nodes: Iterable[Node], records: Mapping[str, Record], *, is_listing: bool
    ) -> list[ComputeNode]:
        """Return all rows that do not say what is known of their nodes.

        ``records`` are by provider uuid. The row of a node that is gone or has failed keeps its
        figures, except its usage; in a complete listing, it says when the node was last seen.
        """
        published = list(_published(nodes, records))
        uuids = {node.uuid for node, _root in published}
        rows = [self.changed_row(node, root) for node, root in published]
        others = (
            self._other_row(uuid, figures, is_listing=is_listing)
            for uuid, figures in self._figures.items()
            if figures is not None and uuid not in uuids
        )
        return [row for row in (*rows, *others) if row is not None]

    def follow_names(self, nodes: Iterable[Node], records: Mapping[str, Record]) -> None:
        """Have instances and migrations follow nodes that were renamed; raises ObjectError."""
        renamed = {
            before.hypervisor_hostname: node.name
            for node, _root in _published(nodes, records)
            if (before := self._figures.get(node.uuid)) is not None
            and before.hypervisor_hostname != node.name
        }
        if renamed:
            node_rename.follow_names(self._context, self._host, renamed)
            self.usage.rename(renamed)

    def delete_gone(
        self, nodes: Iterable[Node], records: Mapping[str, Record], damaged: Set[str]
    ) -> None:
        """Delete the rows of nodes that a complete listing lacks and that have no record.

        ``damaged`` are the providers whose records cannot be read. Raises ObjectError.
        """
        seen = {node.uuid for node, _root in _published(nodes, records)}
        gone = sorted(self._revisions.keys() - seen - records.keys() - damaged)
        if gone:
            ComputeNodeList.get_by_filters(
                self._context,
                host=self._host,
                driver_instance=self._publisher.instance,
                uuid=list(filter(is_uuid_like, gone)),
            ).destroy()
            for uuid in gone:
                self._forget(uuid)
        self._made = {uuid: made for uuid, made in self._made.items() if uuid in seen}

    def _note(self, row: ComputeNode) -> None:
        if "revision" in row:  # otherwise no write of it could be checked
            self._figures[row.uuid] = _figures_of(row)
            self._revisions[row.uuid] = row.revision

    def _forget(self, uuid: str) -> None:
        self._revisions.pop(uuid, None)
        self._figures.pop(uuid, None)

    def _row(self, uuid: str, wanted: _Figures) -> ComputeNode:
        """Return a row to save, with what it had as unchanged."""
        row = ComputeNode(self._context, uuid=uuid, revision=self._revisions[uuid])
        row.host, row.driver_instance = self._host, self._publisher.instance
        before = self._figures[uuid]
        if before is not None:
            _set(row, before)
        row.obj_reset_changes(recursive=True)
        _set(row, wanted)
        return row

    def _other_row(self, uuid: str, figures: _Figures, *, is_listing: bool) -> ComputeNode | None:
        used = self.usage.of_node(figures.hypervisor_hostname)
        wanted = figures._replace(
            vcpus_used=used.vcpus,
            memory_mb_used=used.memory_mb,
            local_gb_used=used.local_gb,
            last_seen=now() if is_listing and figures.last_seen is None else figures.last_seen,
        )
        return None if wanted == figures else self._row(uuid, wanted)

    def _wanted(self, node: Node, root: Provider) -> _Figures:
        """Return the figures for a node's row; the same value again where nothing has changed."""
        used = self.usage.of_node(node.name)
        source = (node.name, node.facts, root.inventories, used)
        before, figures = self._made.get(node.uuid, (None, None))
        if figures is None or before != source:
            figures = self._new_figures(node, root, used)
            self._made[node.uuid] = source, figures
        return figures

    def _new_figures(self, node: Node, root: Provider, used: Usage) -> _Figures:
        published = root.inventories
        cpus, cpu_ratio = _offered(published, orc.VCPU)
        ram, ram_ratio = _offered(published, orc.MEMORY_MB)
        disk, disk_ratio = _offered(published, orc.DISK_GB)
        facts = node.facts
        return _Figures(
            hypervisor_hostname=node.name,
            owner=self._publisher.owner,
            vcpus=cpus if facts.vcpus is None else facts.vcpus,
            vcpus_used=used.vcpus,
            memory_mb=ram if facts.memory_mb is None else facts.memory_mb,
            memory_mb_used=used.memory_mb,
            local_gb=disk if facts.local_gb is None else facts.local_gb,
            local_gb_used=used.local_gb,
            cpu_allocation_ratio=cpu_ratio,
            ram_allocation_ratio=ram_ratio,
            disk_allocation_ratio=disk_ratio,
            capabilities=self._capabilities,
            pci_stats=facts.pci_stats,
            last_seen=None,
        )


def _published(
    nodes: Iterable[Node], records: Mapping[str, Record]
) -> Iterator[tuple[Node, Provider]]:
    """Yield the nodes whose roots this instance has published, with these roots."""
    for node in nodes:
        record = records.get(node.uuid)
        if record is not None and record.applied is not None:
            yield node, record.applied


def _offered(published: Mapping[str, Inventory], name: str) -> tuple[int, float]:
    """Return the total and the allocation ratio of a resource class."""
    inventory = published.get(name)
    return (0, 1.0) if inventory is None else (inventory.total, inventory.allocation_ratio)


def _figures_of(row: ComputeNode) -> _Figures | None:
    """Return the figures of a row; None if one of them cannot be read."""
    special = {"capabilities", "pci_stats", "last_seen"}
    try:
        return _Figures(
            **{name: getattr(row, name) for name in _Figures._fields if name not in special},
            capabilities=tuple(sorted(row.capabilities.items())),
            pci_stats=pci_stats_of(row),
            last_seen=row.last_seen if "last_seen" in row else None,
        )
    except FieldUnset:
        return None


def _set(row: ComputeNode, figures: _Figures) -> None:
    """Set the figures of a row; a figure that it has already is no change."""
    before = _figures_of(row)
    for name, value in figures._asdict().items():
        if before is not None and getattr(before, name) == value:
            continue
        if name == "capabilities":
            row.capabilities = dict(value)
        elif name == "pci_stats":
            row.pci_stats = None if value is None else _pci_stats(value)
        else:
            setattr(row, name, value)


def _pci_stats(kinds: PciStats) -> PciDeviceList:
    return PciDeviceList(
        objects=[
            PciDevice(vendor_id=vendor, product_id=product, numa_node=numa, count=count)
            for vendor, product, numa, count in kinds
        ]
    )
