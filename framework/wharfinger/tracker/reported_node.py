"""A node as its driver reports it: name, uuid and facts."""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from wharfinger.objects import ComputeNode

#: By kind: vendor, product, NUMA node, count.
PciStats = tuple[tuple[str, str, int | None, int], ...]


class NodeFacts(NamedTuple):
    """What a driver says of a node besides its tree; None where it says nothing."""

    vcpus: int | None = None
    memory_mb: int | None = None
    local_gb: int | None = None
    pci_stats: PciStats | None = None


_NO_FACTS: Final = NodeFacts()


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its name, its root's uuid unless Placement has another, and what the driver says.

    ``reported_uuid`` is the uuid that the driver gives it, None where ``uuid`` is that.
    """

    name: str
    uuid: str
    facts: NodeFacts = _NO_FACTS
    reported_uuid: str | None = None

    def under(self, uuid: str) -> Self:
        """Return the node with the uuid that its root has in Placement."""
        if uuid == self.uuid:
            return self
        return replace(self, uuid=uuid, reported_uuid=self.reported_uuid or self.uuid)


def pci_stats_of(node: ComputeNode) -> PciStats | None:
    """The PCI devices of a node as a value; None where they are not looked at.

    An old release's nodes have no such field.
    """
    if "pci_stats" not in node.fields or node.pci_stats is None:
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
