"""Nodes as their drivers report them."""

from dataclasses import dataclass, replace
from typing import Self

from wharfinger.objects import ComputeNode

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
