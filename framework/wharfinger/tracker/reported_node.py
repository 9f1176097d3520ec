"""A node as its driver reports it."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from wharfinger.objects import ComputeNode

#: The PCI devices by kind: vendor, product, NUMA node, count.
PciStats = tuple[tuple[str, str, int | None, int], ...]


class NodeFacts(NamedTuple):
    """Figures of a node that the driver reports besides its tree; None if it does not."""

    vcpus: int | None = None
    memory_mb: int | None = None
    local_gb: int | None = None
    pci_stats: PciStats | None = None


_NO_FACTS: Final = NodeFacts()


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, the uuid of its root, and its facts.

    ``reported_uuid`` is the uuid that the driver reports if Placement has the root under another.
    """

    name: str
    uuid: str
    facts: NodeFacts = _NO_FACTS
    reported_uuid: str | None = None

    def under(self, uuid: str) -> Self:
        """Return a copy with the uuid that its root has in Placement."""
        if uuid == self.uuid:
            return self
        return replace(self, uuid=uuid, reported_uuid=self.reported_uuid or self.uuid)


def pci_stats_of(node: ComputeNode) -> PciStats | None:
    """Return the PCI devices of a node as a value; None if the node does not have them.

    Nodes of old releases have no such field. Raises FieldUnset.
    """
    kinds = getattr(node, "pci_stats", None)
    if kinds is None:
        return None
    return tuple(
        (one.vendor_id, one.product_id, one.numa_node if "numa_node" in one else None, one.count)
        for one in kinds
    )
