"""nova's fake driver, with the nodes that an HTTP service lists."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

import nova.conf
import requests
from nova import exception
from nova.virt import fake
from oslo_config import cfg

#: The resource class of each node's child. Before the reshape, the nodes have it.
MAGIC: Final = "CUSTOM_MAGIC"
MAGIC_TOTAL: Final = 10

CONF: Final = nova.conf.CONF
CONF.register_opts(
    [
        cfg.StrOpt("url", help="URL from which this driver reads the list of nodes."),
        cfg.FloatOpt("timeout", default=1.0),
    ],
    group="fleet",
)


class FleetDriver(fake.MediumFakeDriver):  # type: ignore[misc]
    """A compute driver with simulated nodes, each with a child provider."""

    def __init__(self, virtapi: Any) -> None:
        super().__init__(virtapi)
        self._fleet: dict[str, Any] = {}

    def init_host(self, host: str) -> None:
        """Request the list of nodes."""
        self._host = host
        self.get_available_nodes(refresh=True)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the names of the nodes. Raises VirtDriverNotReady."""
        if refresh:
            try:
                answer = requests.get(CONF.fleet.url, timeout=CONF.fleet.timeout)
                answer.raise_for_status()
                self._fleet = answer.json()
            except requests.RequestException as error:
                raise exception.VirtDriverNotReady from error
        return list(self._fleet)

    def get_nodenames_by_uuid(self, refresh: bool = False) -> dict[str, str]:
        """Return the names of the nodes by uuid."""
        return {node_uuid(name): name for name in self.get_available_nodes(refresh)}

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """Return the resources of a node."""
        resource: dict[str, Any] = super().get_available_resource(nodename)
        return resource | {"uuid": node_uuid(nodename), "vcpus": self._fleet[nodename]["vcpus"]}

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        """Describe a node and its child. Raises ReshapeNeeded if it needs the allocations."""
        node, child = self._fleet[nodename], f"{nodename}-magic"
        root = provider_tree.data(nodename)
        if MAGIC in root.inventory and allocations is None:
            raise exception.ReshapeNeeded
        self.vcpus = node["vcpus"]
        super().update_provider_tree(provider_tree, nodename)
        if not provider_tree.exists(child):
            provider_tree.new_child(child, nodename)
        magic = {MAGIC: {"total": MAGIC_TOTAL, "max_unit": MAGIC_TOTAL}}
        provider_tree.update_inventory(child, magic)
        provider_tree.add_traits(child, "OWNER_NOVA")
        if allocations is not None:
            _move(allocations, root.uuid, provider_tree.data(child).uuid)
        if node.get("busy"):
            for name in (nodename, child):
                inventory = provider_tree.data(name).inventory
                for record in inventory.values():
                    record["reserved"] = record["total"]
                provider_tree.update_inventory(name, inventory)


def node_uuid(name: str) -> str:
    """Return the uuid of a node, computed from its name."""
    return str(uuid5(NAMESPACE_DNS, name))


def _move(allocations: Mapping[str, Any], root: str, child: str) -> None:
    for consumer in allocations.values():
        held = consumer["allocations"]
        used = held.get(root, {}).get("resources", {}).pop(MAGIC, 0)
        if used:
            held[child] = {"resources": {MAGIC: used}}
            if not held[root]["resources"]:
                del held[root]
