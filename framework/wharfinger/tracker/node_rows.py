"""The ComputeNodes of a driver instance, kept as its last complete listing has them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple

import os_resource_classes as orc
from oslo_utils.uuidutils import is_uuid_like
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from wharfinger.driver.capabilities import Capabilities
from wharfinger.exceptions import ConcurrentSave, FieldUnset, ObjectExists, ObjectNotFound
from wharfinger.objects import ComputeNode, ComputeNodeList, Context, PciDevice, PciDeviceList
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.record import Record
from wharfinger.tracker import instance_moves
from wharfinger.tracker.node import Node, PciStats, pci_stats_of
from wharfinger.tracker.revision_cache import Followed
from wharfinger.tracker.usage import NOTHING, HostUsage, Usage


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
    pci_stats: PciStats | None


class NodeRows:
    """The rows of one driver instance on one host.

    A node has a row while this instance publishes its root, and from just before. Raises
    ObjectError where others save rows at the same time, again and again: the next cycle makes up
    for it.
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
        self._usage: Final = HostUsage(context, host)
        self._rows: Final = Followed[_Figures | None](self._of_ours, _said_by)
        self._made: dict[str, tuple[tuple[object, ...], _Figures]] = {}

    def claim(self, nodes: Iterable[Node], records: Mapping[str, Record | None]) -> None:
        """Add rows for nodes whose roots are about to be published as the records say.

        From then on they are this instance's. Raises ObjectExists where another was faster.
        """
        new = []
        for node in nodes:
            record = records.get(node.uuid)
            if record is not None and record.applied is not None:
                row = ComputeNode(
                    self._context,
                    uuid=node.uuid,
                    host=self._host,
                    driver_instance=self._publisher.instance,
                )
                _set(row, self._figures(node, record.applied, NOTHING))
                new.append(row)
        if new:
            ComputeNodeList(self._context, objects=new).create()

    @retry(
        retry=retry_if_exception_type((ConcurrentSave, ObjectExists, ObjectNotFound)),
        stop=stop_after_attempt(5),
        reraise=True,
    )
    def keep(self, nodes: Collection[Node], records: Mapping[str, Record]) -> None:
        """Bring rows in line with what the driver says of nodes and what was published of them.

        ``records`` are by provider uuid. All other rows say what is taken of their nodes: of those
        that are gone, or that failed, no more is known.
        """
        self._rows.update(self._revisions())
        taken = self._usage.by_node()
        rows = self._rows.values
        changed = {
            node.uuid: (node, root)
            for node, root in _published(nodes, records)
            if rows.get(node.uuid) != self._figures(node, root, taken.get(node.name, NOTHING))
        }
        if changed:
            self._write(changed)
        published = {node.uuid for node, _root in _published(nodes, records)}
        others = [
            uuid
            for uuid, figures in rows.items()
            if figures is not None
            and uuid not in published
            and _used(figures) != taken.get(figures.hypervisor_hostname, NOTHING)
        ]
        if others:
            self._write_usage(others)

    def note_listing(
        self,
        nodes: Iterable[Node],
        records: Mapping[str, Record],
        damaged: Set[str],
        *,
        is_whole: bool,
    ) -> None:
        """Say that these nodes, all there are, have been seen.

        The row of another one goes when nothing is remembered of its root; ``damaged`` are the
        records that cannot be read. None goes where the listing is not ``is_whole``: it may be that
        of a node which could not be described. Comes after ``keep``.
        """
        seen = {node.uuid for node, _root in _published(nodes, records)}
        unseen = self._revisions().keys() - seen
        gone = sorted(unseen - records.keys() - damaged) if is_whole else []
        if gone:
            self._of_ours(gone).destroy()
        ComputeNodeList.note_seen(
            self._context,
            self._host,
            self._publisher.instance,
            sorted(seen) if unseen else None,
        )
        self._made = {uuid: made for uuid, made in self._made.items() if uuid in seen}

    def _revisions(self) -> dict[str, int]:
        return ComputeNodeList.get_revisions(self._context, self._host, self._publisher.instance)

    def _of_ours(self, uuids: Iterable[str]) -> ComputeNodeList:
        return ComputeNodeList.get_by_filters(
            self._context,
            host=self._host,
            driver_instance=self._publisher.instance,
            uuid=list(filter(is_uuid_like, uuids)),
        )

    def _figures(self, node: Node, root: Provider, used: Usage) -> _Figures:
        """What the node's row has to say; the same value again where nothing has changed."""
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
        said = node.facts
        return _Figures(
            hypervisor_hostname=node.name,
            owner=self._publisher.owner,
            vcpus=cpus if said.vcpus is None else said.vcpus,
            vcpus_used=used.vcpus,
            memory_mb=ram if said.memory_mb is None else said.memory_mb,
            memory_mb_used=used.memory_mb,
            local_gb=disk if said.local_gb is None else said.local_gb,
            local_gb_used=used.local_gb,
            cpu_allocation_ratio=cpu_ratio,
            ram_allocation_ratio=ram_ratio,
            disk_allocation_ratio=disk_ratio,
            capabilities=self._capabilities,
            pci_stats=said.pci_stats,
        )

    def _write(self, changed: Mapping[str, tuple[Node, Provider]]) -> None:
        """Save what rows have to say, with what is taken of the nodes by then.

        The sum is taken after the rows are read: whoever claims something saves the row after
        that, and one of the two finds that the other has.
        """
        rows = {row.uuid: row for row in self._of_ours(changed) if "uuid" in row}
        renamed = {
            row.hypervisor_hostname: changed[uuid][0].name
            for uuid, row in rows.items()
            if "hypervisor_hostname" in row and row.hypervisor_hostname != changed[uuid][0].name
        }
        if renamed:
            instance_moves.follow_names(self._context, self._host, renamed)
        taken = self._usage.by_node()
        for uuid, row in rows.items():
            node, root = changed[uuid]
            _set(row, self._figures(node, root, taken.get(node.name, NOTHING)))
        if rows:
            ComputeNodeList(self._context, objects=list(rows.values())).save()

    def _write_usage(self, uuids: Iterable[str]) -> None:
        """Save what is taken of nodes, as ``_write`` does, and nothing else."""
        rows = [row for row in self._of_ours(uuids) if _said_by(row) is not None]
        taken = self._usage.by_node()
        for row in rows:
            used = taken.get(row.hypervisor_hostname, NOTHING)
            row.vcpus_used, row.memory_mb_used = used.vcpus, used.memory_mb
            row.local_gb_used = used.local_gb
        ComputeNodeList(self._context, objects=rows).save()


def _published(
    nodes: Iterable[Node], records: Mapping[str, Record]
) -> Iterator[tuple[Node, Provider]]:
    """Of the nodes, those whose roots are published, and those."""
    for node in nodes:
        record = records.get(node.uuid)
        if record is not None and record.applied is not None:
            yield node, record.applied


def _offered(published: Mapping[str, Inventory], name: str) -> tuple[int, float]:
    """How much of a resource class there is, and how many times over it is given out."""
    inventory = published.get(name)
    return (0, 1.0) if inventory is None else (inventory.total, inventory.allocation_ratio)


def _used(figures: _Figures) -> Usage:
    return Usage(figures.vcpus_used, figures.memory_mb_used, figures.local_gb_used)


def _said_by(row: ComputeNode) -> _Figures | None:
    """What a row says, None where that is not all known."""
    special = {"capabilities", "pci_stats"}
    try:
        return _Figures(
            **{name: getattr(row, name) for name in _Figures._fields if name not in special},
            capabilities=tuple(sorted(row.capabilities.items())),
            pci_stats=pci_stats_of(row),
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


def _pci_stats(kinds: PciStats) -> PciDeviceList:
    return PciDeviceList(
        objects=[
            PciDevice(vendor_id=vendor, product_id=product, numa_node=numa, count=count)
            for vendor, product, numa, count in kinds
        ]
    )
