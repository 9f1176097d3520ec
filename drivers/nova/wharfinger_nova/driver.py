"""The driver class, which calls a compute driver of nova."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import ProviderTree
from wharfinger_nova import nova_process
from wharfinger_nova.config import NovaSection

#: Fields that both a node of nova's driver and a ComputeNode have.
_FIGURES: Final = ("vcpus", "memory_mb", "local_gb")
#: nova-compute reports this trait only if its own PCI tracker has such a device.
_OF_PCI_TRACKER: Final = "COMPUTE_REMOTE_MANAGED_PORTS"


class NovaDriver(ComputeDriver):
    """Publishes the nodes and provider trees of any compute driver of nova."""

    capabilities = Capabilities(
        nested_providers=SUPPORTED,
        reshape=SUPPORTED,
        change_feed=unsupported("a driver of nova does not say which nodes have changed"),
        programming=unsupported("a driver of nova programs no devices"),
        cleans_after_release=unsupported("a driver of nova does not say when a node is clean"),
    )
    default_owner = "OWNER_NOVA"
    object_versions = {"ComputeNode": "1.0", "Migration": "1.0", "Service": "1.0"}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self._section: Final = NovaSection.read(conf, name)
        self._driver: Any = None
        self._nodes: list[str] | None = None

    def init_host(self, service: Service) -> None:
        """Load and initialize nova's driver. Raises BackendError and ConfigurationError."""
        driver = nova_process.load(self._section, self.host)
        with nova_process.translated_errors(self.name, "init_host"):
            driver.init_host(self.host)
        self._driver = driver

    def cleanup_host(self) -> None:
        """Let nova's driver close its connections. Raises BackendError."""
        driver, self._driver, self._nodes = self._driver, None, None
        if driver is not None:
            with nova_process.translated_errors(self.name, "cleanup_host"):
                driver.cleanup_host(self.host)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the nodes that nova's driver lists. Raises BackendError."""
        if refresh or self._nodes is None:
            with nova_process.translated_errors(self.name, "get_available_nodes"):
                self._nodes = [*self._loaded().get_available_nodes(refresh=True)]
        return [*self._nodes]

    def node_is_available(self, nodename: str) -> bool:
        """Ask nova's driver whether the node is available. Raises BackendError."""
        with nova_process.translated_errors(self.name, f"node_is_available({nodename})"):
            return bool(self._loaded().node_is_available(nodename))

    def get_available_resource(self, nodename: str) -> ComputeNode:
        """Return the node's resources from nova's driver. Raises BackendError."""
        with nova_process.translated_errors(self.name, f"get_available_resource({nodename})"):
            resource = self._loaded().get_available_resource(nodename)
        if not resource:
            raise BackendError(
                driver=self.name,
                operation=f"get_available_resource({nodename})",
                reason="nova's compute driver returns no resources for this node",
            )
        known: dict[str, Any] = {
            name: int(resource[name]) for name in _FIGURES if resource.get(name) is not None
        }
        if uuid := self._uuid(resource):
            known["uuid"] = uuid
        return ComputeNode(host=self.host, hypervisor_hostname=nodename, **known)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Let nova's driver edit the tree. Raises ReshapeNeeded and BackendError."""
        driver, before = self._loaded(), _tagged(provider_tree)
        with nova_process.translated_errors(self.name, f"update_provider_tree({nodename})"):
            try:
                driver.update_provider_tree(provider_tree, nodename, allocations=allocations)
            except NotImplementedError:
                provider_tree.update_inventory(nodename, self._inventory_only(driver, nodename))
        # nova's drivers add nova's owner trait to some child providers. Only the framework may add
        # owner traits.
        for uuid in _tagged(provider_tree) - before:
            provider_tree.remove_traits(uuid, self.default_owner)

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return traits of the root providers: True adds the trait, False removes it."""
        with nova_process.translated_errors(self.name, "capabilities_as_traits"):
            traits = {**self._loaded().capabilities_as_traits()}
        if _OF_PCI_TRACKER in traits:
            traits[_OF_PCI_TRACKER] = False
        return traits

    def _loaded(self) -> Any:
        if self._driver is None:
            raise BackendError(
                driver=self.name,
                operation="asking nova's driver",
                reason="the driver instance is not connected: call init_host first",
            )
        return self._driver

    def _uuid(self, resource: Mapping[str, Any]) -> str | None:
        if uuid := resource.get("uuid"):
            return str(uuid)
        is_only = len(self.get_available_nodes()) == 1
        return nova_process.local_node_uuid() if is_only else None

    def _inventory_only(self, driver: Any, nodename: str) -> Mapping[str, Mapping[str, Any]]:
        if not hasattr(driver, "get_inventory"):
            raise BackendError(
                driver=self.name,
                operation=f"update_provider_tree({nodename})",
                reason=f"{type(driver).__name__} has neither update_provider_tree nor "
                "get_inventory. Configure another compute_driver",
            )
        inventory: Mapping[str, Mapping[str, Any]] = driver.get_inventory(nodename)
        return inventory


def _tagged(tree: ProviderTree) -> set[str]:
    owner = [NovaDriver.default_owner]
    return {uuid for uuid in tree.get_provider_uuids() if tree.has_traits(uuid, owner)}
