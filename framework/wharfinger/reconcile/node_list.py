"""Nodes of a driver instance, as one snapshot of its backend has them."""

from collections.abc import Container, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Self

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.absence_timer import Uptime
from wharfinger.providers.provider_record import Record
from wharfinger.tracker.reported_node import Node


@dataclass(frozen=True, slots=True)
class NodeList:
    """Nodes of a driver.

    ``failed`` are nodes that the driver could not describe, with the errors in ``problems``.
    ``others`` are the uuids of the driver's other nodes. ``uptime`` is the moment of a complete
    listing, None where it is not known.
    """

    nodes: tuple[Node, ...] = ()
    failed: tuple[Node, ...] = ()
    problems: tuple[WharfingerError, ...] = ()
    others: frozenset[str] = frozenset()
    uptime: Uptime | None = None

    @property
    def roots(self) -> dict[str, str]:
        """The uuids of the nodes' roots by node name; Placement may have others."""
        return {node.name: node.uuid for node in (*self.nodes, *self.failed)}

    @property
    def listed(self) -> Set[str]:
        """The uuids of all nodes of the driver."""
        return self.others.union(self.roots.values())

    def only(self, uuids: Set[str]) -> "NodeList":
        """Return the described nodes with these uuids, without problems."""
        return NodeList(
            nodes=tuple(node for node in self.nodes if node.uuid in uuids),
            others=frozenset(self.listed - uuids),
        )

    def without(self, names: Container[str]) -> frozenset[str]:
        """Return the uuids of all nodes except those with these names."""
        return self.others.union(uuid for name, uuid in self.roots.items() if name not in names)

    def with_changes(self, later: "NodeList") -> "NodeList":
        """Return these nodes, with those of a later description in place of the former."""
        anew = {node.uuid for node in (*later.nodes, *later.failed)} | later.roots.keys()

        def others(nodes: Iterable[Node]) -> list[Node]:
            return [node for node in nodes if not {node.uuid, node.name} & anew]

        return NodeList(
            nodes=(*others(self.nodes), *later.nodes),
            failed=(*others(self.failed), *later.failed),
            problems=(*self.problems, *later.problems),
        )

    def has_unknown_nodes(self, records: Mapping[str, Record]) -> bool:
        """Return whether the list has a node of which not even the root is known."""
        known = {node.uuid for node in self.failed} & records.keys()
        return len(self.problems) > len(known)

    def with_published_uuids(self, records: Mapping[str, Record]) -> Self:
        """Return the list with the root uuids in our records, also of roots of other programs.

        So a root is found that another program has renamed, or that was adopted under another
        uuid than the driver's.
        """
        known = {
            root.name: uuid
            for uuid, record in records.items()
            if (root := record.applied or record.live) and root.parent_uuid is None
        }
        # A node that was published under its own uuid has another name now: the provider of
        # its name is not its own.
        own = self.listed & records.keys()

        def published(nodes: Iterable[Node]) -> tuple[Node, ...]:
            return tuple(
                node
                if node.uuid in own or known.get(node.name) in own
                else node.under(known.get(node.name, node.uuid))
                for node in nodes
            )

        return replace(self, nodes=published(self.nodes), failed=published(self.failed))
