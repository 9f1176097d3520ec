"""The driver class for Ironic."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from oslo_config import cfg
from oslo_utils.uuidutils import is_uuid_like

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration, Service
from wharfinger.providers import Inventory, ProviderTree
from wharfinger_ironic.client import Ironic
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.fleet import Fleet
from wharfinger_ironic.node import Node
from wharfinger_ironic.states import reasons

#: The inventory of each node, which is allocated as a whole.
_ONE: Final = Inventory(total=1, min_unit=1, max_unit=1, step_size=1)


class IronicDriver(ComputeDriver):
    """Publishes each selected node of Ironic as a root provider, whose name is the node's uuid.

    The provider is fully reserved while the node cannot be deployed.
    """

    capabilities = Capabilities(
        nested_providers=unsupported("a node is given out whole"),
        reshape=unsupported("a node has no inventory that could move"),
        change_feed=SUPPORTED,
        programming=unsupported("the instance on a node decides what the node runs"),
        cleans_after_release=SUPPORTED,
    )
    default_owner = "OWNER_NOVA"
    object_versions = {"Migration": "1.0", "Service": "1.0"}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self._section: Final = FleetSection.read(conf, name)
        self._fleet: Fleet | None = None

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> list[str]:
        """Return the section with the credentials, if it is a separate one."""
        credentials = FleetSection.read(conf, name).credentials
        return [credentials] if credentials != name else []

    def init_host(self, service: Service) -> None:
        """Find Ironic's endpoint. Raises BackendError and ConfigurationError."""
        ironic = Ironic.connect(self.conf, self._section)
        self._fleet = Fleet(ironic, self.name, self._section.max_pages)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the uuids of all selected nodes. Raises BackendError."""
        fleet = self._connected()
        if refresh:
            fleet.refresh()
        return list(fleet.nodes)

    def node_is_available(self, nodename: str) -> bool:
        """Ask Ironic whether a node exists, and the options select it. Raises BackendError."""
        return is_uuid_like(nodename) and self._connected().has(nodename)

    def get_inventory(self, nodename: str) -> Mapping[str, Inventory]:
        """Return a unit of the node's resource class. Raises BackendError without a valid class."""
        node = self._node(nodename)
        if node.custom_class is None:
            raise BackendError(
                driver=self.name,
                operation=f"publishing node {node.known_as()}",
                reason=f"{_problem(node)}. Set a resource class in Ironic: openstack baremetal "
                f"node set {node.uuid} --resource-class CLASS",
            )
        return {node.custom_class: _ONE}

    def get_traits(self, nodename: str) -> set[str]:
        """Return the node's traits in Ironic."""
        return set(self._node(nodename).traits)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Publish the node, and reserve its provider while the node cannot be deployed.

        Raises BackendError.
        """
        node = self._node(nodename)
        if node.custom_class is None and provider_tree.data(nodename).inventory:
            provider_tree.update_traits(nodename, self.get_traits(nodename))
            provider_tree.reserve(nodename, _problem(node))
        else:
            super().update_provider_tree(provider_tree, nodename)
        for reason in reasons(node):
            provider_tree.reserve(nodename, reason)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        """Return the uuids of nodes that may have changed, and the next ``since``.

        Raises BackendError.
        """
        fleet = self._connected()
        return fleet.changed_since(since) if since else (set(), fleet.begin_following())

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        """Return whether the node was free when it was last read."""
        node = self._connected().nodes.get(provider_uuid)
        return node is not None and not any(reasons(node))

    def _connected(self) -> Fleet:
        if self._fleet is None:
            raise BackendError(
                driver=self.name,
                operation="asking Ironic",
                reason="the driver instance is not connected: call init_host first",
            )
        return self._fleet

    def _node(self, nodename: str) -> Node:
        node = self._connected().nodes.get(nodename)
        if node is None:
            raise BackendError(
                driver=self.name,
                operation=f"looking up node {nodename}",
                reason="the last list of selected nodes from Ironic lacks this node. Each full "
                "cycle reads the list again",
            )
        return node


def _problem(node: Node) -> str:
    if not node.resource_class:
        return "it has no resource class"
    return f"its resource class {node.resource_class!r} cannot be a name in Placement"
