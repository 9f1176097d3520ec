"""Nodes of a driver instance."""

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Self

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.provider import Record, Uptime
from wharfinger.tracker.node_rows import Node


@dataclass(frozen=True, slots=True)
class NodeList:
    """The nodes that a driver lists, with the errors about them."""

    nodes: tuple[Node, ...] = ()
    #: Nodes that the driver could not describe, and the errors.
    failed: tuple[Node, ...] = ()
    problems: tuple[WharfingerError, ...] = ()
    #: The moment of a complete listing, None if it is not known.
    uptime: Uptime | None = None

    @property
    def roots(self) -> dict[str, str]:
        """The root uuids by node name; Placement may have other uuids."""
        return {node.name: node.uuid for node in (*self.nodes, *self.failed)}

    @property
    def listed(self) -> Set[str]:
        """The uuids of all nodes, including ``failed``."""
        return frozenset(self.roots.values())

    def only(self, uuids: Set[str]) -> "NodeList":
        """Return a list of the nodes with these uuids only."""
        return NodeList(
            nodes=tuple(node for node in self.nodes if node.uuid in uuids),
            failed=tuple(node for node in self.failed if node.uuid in uuids),
        )

    def uuids_of(self, names: Container[str]) -> frozenset[str]:
        """Return the uuids of the nodes with these names."""
        return frozenset(uuid for name, uuid in self.roots.items() if name in names)

    def with_changes(self, later: "NodeList") -> "NodeList":
        """Return the list after a later description of some nodes."""
        anew = {node.uuid for node in (*later.nodes, *later.failed)} | later.roots.keys()

        def others(nodes: Iterable[Node]) -> list[Node]:
            return [node for node in nodes if not {node.uuid, node.name} & anew]

        return NodeList(
            nodes=(*others(self.nodes), *later.nodes),
            failed=(*others(self.failed), *later.failed),
            problems=self.problems,
        )

    def has_unknown_nodes(self, records: Mapping[str, Record]) -> bool:
        """Return whether a problem may be about a node that has no record."""
        known = {node.uuid for node in self.failed} & records.keys()
        return len(self.problems) > len(known)

    def with_published_uuids(self, records: Mapping[str, Record]) -> Self:
        """Return the list with the recorded uuids of the nodes' roots."""
        known = {
            root.name: uuid
            for uuid, record in records.items()
            if (root := record.applied or record.live) and root.parent_uuid is None
        }
        # If a node of ``own`` was renamed, the root that has its new name belongs to another node.
        own = self.listed & records.keys()

        def published(nodes: Iterable[Node]) -> tuple[Node, ...]:
            return tuple(
                node
                if node.uuid in own or known.get(node.name) in own
                else node.with_root(known.get(node.name, node.uuid))
                for node in nodes
            )

        return replace(self, nodes=published(self.nodes), failed=published(self.failed))
