"""On which node a candidate is: an instance is placed on one, by its host's name and its own."""

from collections.abc import Callable, Iterable
from typing import Final

import os_traits

from wharfinger.objects import ComputeNode, ComputeNodeList, Context
from wharfinger.scheduling import ResourceRequest
from wharfinger.scheduling.filters import Candidate, RequestFilter

SHARES: Final = os_traits.MISC_SHARES_VIA_AGGREGATE

#: Whether an instance may come to a node.
Suits = Callable[[ComputeNode], bool]


def anywhere(_node: ComputeNode) -> bool:
    """Every node will do."""
    return True


def place_of(node: ComputeNode) -> tuple[str, str]:
    """Where an instance on a node is: the service host, and the node's name."""
    return node.host, node.hypervisor_hostname


def nodes_of(context: Context, roots: Iterable[str]) -> list[ComputeNode]:
    """The nodes of these roots that are published here; raises ObjectError, StateError."""
    wanted = sorted(roots)
    found = ComputeNodeList.get_by_filters(context, uuid=wanted) if wanted else ()
    return [one for one in found if "host" in one and "hypervisor_hostname" in one]


class Places(RequestFilter):
    """Takes only from trees whose roots are nodes that are published here, and suit.

    For one search: a node that is found is remembered.
    """

    def __init__(self, context: Context, suits: Suits = anywhere) -> None:
        self._context: Final = context
        self._suits: Final = suits
        self._nodes: Final[dict[str, ComputeNode | None]] = {}

    def node(self, candidate: Candidate) -> ComputeNode | None:
        """The node of a candidate; one that only shares with it is none."""
        roots = self._roots(candidate)
        if not roots <= self._nodes.keys():
            self._look({one.root_provider_uuid for one in candidate.providers.values()} | roots)
        nodes = [node for root in roots if (node := self._nodes[root]) is not None]
        return nodes[0] if len(nodes) == 1 else None

    def objection(self, request: ResourceRequest, candidate: Candidate) -> str | None:
        """Names the root that is no node, or the node that does not suit."""
        node = self.node(candidate)
        if node is None:
            roots = ", ".join(sorted(self._roots(candidate)))
            return f"no driver instance publishes {roots} as a node"
        if not self._suits(node):
            return f"it is on node {node.hypervisor_hostname} of host {node.host}"
        return None

    def _roots(self, candidate: Candidate) -> set[str]:
        providers = [candidate.providers[uuid] for uuid in candidate.allocations]
        own = [one for one in providers if SHARES not in one.traits]
        return {one.root_provider_uuid for one in own or providers}

    def _look(self, roots: set[str]) -> None:
        """Look for the nodes of all trees of an answer at once."""
        wanted = roots - self._nodes.keys()
        found = {one.uuid: one for one in nodes_of(self._context, wanted)}
        self._nodes.update((root, found.get(root)) for root in wanted)
