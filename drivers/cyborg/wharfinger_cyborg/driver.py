"""The driver class for Cyborg."""

from collections.abc import Sequence
from typing import Final

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree, PublishingMode
from wharfinger_cyborg.accelerators import Accelerators
from wharfinger_cyborg.client import Cyborg
from wharfinger_cyborg.config import CyborgSection
from wharfinger_cyborg.deployable import Deployable, host_of


class CyborgDriver(ComputeDriver):
    """Publishes deployables of Cyborg below their hosts' root providers.

    With publish = overlay, the default, Cyborg publishes the providers. The driver then adds
    traits and reservations.
    """

    capabilities = Capabilities(
        nested_providers=SUPPORTED,
        reshape=unsupported("an accelerator never moves to another provider"),
        change_feed=SUPPORTED,
        programming=SUPPORTED,
        cleans_after_release=unsupported("Cyborg does not clean a released device"),
    )
    default_owner = "OWNER_CYBORG"
    object_versions = {"Migration": "1.0", "Service": "1.0"}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self._section: Final = CyborgSection.read(conf, name)
        self._cyborg: Cyborg | None = None
        self._accelerators: Accelerators | None = None
        #: The hosts whose trees were updated since the last snapshot, and the host of each
        #: provider.
        self._updated_hosts: set[str] = set()
        self._host_by_provider: dict[str, str] = {}
        #: Why deployables cannot be published, by provider uuid.
        self._unpublished: dict[str, str] = {}
        #: The providers whose devices this process programmed: the function that Cyborg reports may
        #: be older.
        self._programmed: set[str] = set()

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> list[str]:
        """Return the section with the credentials, if it is a separate one."""
        credentials = CyborgSection.read(conf, name).credentials
        return [credentials] if credentials != name else []

    def init_host(self, service: Service) -> None:
        """Find Cyborg's endpoint. Raises BackendError and ConfigurationError."""
        self._cyborg = Cyborg.connect(self.conf, self._section)
        self._accelerators = Accelerators(self._cyborg, self.name)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the hosts that have devices. Raises BackendError."""
        accelerators = self._connected()
        if refresh:
            accelerators.refresh()
            self._updated_hosts.clear()
            self._host_by_provider.clear()
            self._unpublished.clear()
        return sorted(accelerators.snapshot.hosts)

    def node_is_available(self, nodename: str) -> bool:
        """Ask Cyborg whether the host has devices. Raises BackendError."""
        return self._client().has_host(nodename)

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        """Ask Cyborg whether it has the provider's deployable. Raises BackendError."""
        cyborg = self._client()
        deployable_uuid = self._connected().seen.get(provider_uuid)
        if deployable_uuid is None:
            return any(one.provider_uuid == provider_uuid for one in cyborg.deployables())
        found = cyborg.find(deployable_uuid)
        return found is not None and found.provider_uuid == provider_uuid

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Describe the host's accelerators in the tree; reserve devices that Cyborg is binding."""
        self._updated_hosts.add(nodename)
        self._host_by_provider = {
            uuid: node for uuid, node in self._host_by_provider.items() if node != nodename
        }
        if self._section.publish is PublishingMode.OWN:
            self._publish(provider_tree, nodename)
        else:
            self._overlay(provider_tree, nodename)
        snapshot = self._connected().snapshot
        for uuid, node in self._host_by_provider.items():
            if node == nodename:
                for request in snapshot.being_bound(uuid):
                    provider_tree.reserve(uuid, f"being bound to accelerator request {request}")

    def _overlay(self, provider_tree: ProviderTree, nodename: str) -> None:
        deployables = self._connected().snapshot.deployables
        for uuid in provider_tree.get_provider_uuids(nodename):
            if uuid in deployables and deployables[uuid].rp_uuid is not None:
                provider_tree.set_publishing_mode(uuid, PublishingMode.OVERLAY)
                self._host_by_provider[uuid] = nodename

    def _publish(self, provider_tree: ProviderTree, nodename: str) -> None:
        snapshot = self._connected().snapshot
        places = {
            uuid: host_of(one.name, snapshot.hosts) for uuid, one in snapshot.deployables.items()
        }
        wanted = {
            uuid: one for uuid, one in snapshot.deployables.items() if places[uuid] == nodename
        }
        root = provider_tree.data(nodename).uuid
        for uuid in provider_tree.get_provider_uuids(nodename):
            is_below = provider_tree.exists(uuid) and provider_tree.data(uuid).parent_uuid == root
            if is_below and places.get(uuid, "") not in (nodename, None):
                provider_tree.remove(uuid)  # a provider of unknown host may be another instance's
        for uuid, one in wanted.items():
            self._unpublished.pop(uuid, None)
            try:
                inventory, traits = one.inventory, one.traits
            except ValueError as error:
                self._unpublished[uuid] = str(error)  # the provider keeps its published values
                continue
            if not provider_tree.exists(uuid):
                provider_tree.new_child(one.name, nodename, uuid=uuid)
            provider_tree.update_inventory(uuid, inventory)
            provider_tree.update_traits(uuid, traits)
            self._host_by_provider[uuid] = nodename

    def get_problems(self) -> list[str]:
        """Return a message for each deployable that could not be overlaid or published."""
        snapshot = self._connected().snapshot
        is_overlay = self._section.publish is PublishingMode.OVERLAY
        why = self._not_overlaid if is_overlay else self._not_published
        return [
            f"deployable {one.name} ({one.uuid}): {problem}"
            for uuid, one in sorted(snapshot.deployables.items())
            if (problem := why(uuid, one))
        ]

    def _not_overlaid(self, uuid: str, one: Deployable) -> str | None:
        if one.rp_uuid is None:
            return "it has no resource provider: Cyborg has not published it yet"
        hosts = self._connected().snapshot.hosts
        if uuid not in self._host_by_provider and self._updated_hosts >= hosts:
            return (
                f"its resource provider {uuid} is below none of {', '.join(sorted(hosts))}. If the "
                "provider is gone, Cyborg creates it again after one report of its agent without "
                "the device, and another with it"
            )
        return None

    def _not_published(self, uuid: str, one: Deployable) -> str | None:
        hosts = self._connected().snapshot.hosts
        if host_of(one.name, hosts) is None:
            names = ", ".join(sorted(hosts))
            return f"it is not published, since its name does not show which of {names} has it"
        return self._unpublished.get(uuid)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        """Return the hosts that may have changed, and the next ``since``. Raises BackendError."""
        accelerators = self._connected()
        if since is None:
            return set(), accelerators.mark()
        changed, mark = accelerators.changed_since(since)
        hosts = accelerators.snapshot.hosts
        nodes = {self._host_by_provider.get(uuid) for uuid in changed}
        # A provider whose host is unknown may be on any host.
        return set(hosts) if None in nodes else {node for node in nodes if node in hosts}, mark

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        """Let Cyborg load an image from Glance into the device.

        Raises ProgrammingRefused, ProgrammingFailed and BackendError.
        """
        deployable = self._deployable(provider_uuid)
        self._programmed.update(self.programming_scope(provider_uuid))
        self._client().program(deployable, image)

    def current_function(self, provider_uuid: str) -> str:
        """Return the function that Cyborg reports. Raises BackendError if it is unknown."""
        deployable = self._deployable(provider_uuid)
        operation = f"looking for the function of {deployable.name}"
        if provider_uuid in self._programmed:
            reason = (
                "this process has programmed the device, and Cyborg does not report whether its "
                "agent found the function before or after that"
            )
            raise BackendError(driver=self.name, operation=operation, reason=reason)
        found = self._client().deployable(deployable.uuid)
        try:
            function = found.function
        except ValueError as error:
            raise BackendError(driver=self.name, operation=operation, reason=str(error)) from error
        if function is None:
            reason = "Cyborg reports no function of this device, or several"
            raise BackendError(driver=self.name, operation=operation, reason=reason)
        return function

    def programming_scope(self, provider_uuid: str) -> list[str]:
        """Return the provider uuids of all deployables of the device."""
        deployables = self._connected().snapshot.deployables
        device = self._deployable(provider_uuid).device_id
        return [uuid for uuid, one in deployables.items() if one.device_id == device]

    def function_trait(self, provider_uuid: str, function: str) -> str:
        """Return the trait for a function of this device."""
        return self._deployable(provider_uuid).function_trait(function)

    def _deployable(self, provider_uuid: str) -> Deployable:
        deployable = self._connected().snapshot.deployables.get(provider_uuid)
        if deployable is None:
            raise BackendError(
                driver=self.name,
                operation=f"looking up the deployable of provider {provider_uuid}",
                reason="the last list of deployables from Cyborg has no deployable of this "
                "provider. Each full cycle reads the list again",
            )
        return deployable

    def _connected(self) -> Accelerators:
        if self._accelerators is None:
            raise self._unconnected()
        return self._accelerators

    def _client(self) -> Cyborg:
        if self._cyborg is None:
            raise self._unconnected()
        return self._cyborg

    def _unconnected(self) -> BackendError:
        return BackendError(
            driver=self.name,
            operation="asking Cyborg",
            reason="the driver instance is not connected: call init_host first",
        )
