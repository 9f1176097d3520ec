"""The base class of drivers, modelled on nova's ComputeDriver."""

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from oslo_config import cfg

from wharfinger.driver.capabilities import Capabilities
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import AnyInventory, ProviderTree
from wharfinger.providers.device_function_traits import function_trait

#: The answers of GET /allocations/{consumer} of the Placement API, by consumer uuid:
#: {"allocations": {provider uuid: {"resources": {class: amount}}}, "project_id": ...,
#: "user_id": ..., "consumer_generation": ...}.
Allocations = dict[str, dict[str, Any]]


class ComputeDriver(abc.ABC):
    """Base class of drivers; each configured driver instance is one object.

    A driver sends no requests to Placement, and adds no owner traits.
    ``get_available_nodes(refresh=True)`` takes a snapshot of the backend. The driver describes its
    nodes from the snapshot. Only ``program`` may sleep while the backend works. While the backend
    fails, a call may wait between its attempts, for less than 5 s in all.

    A method that lists nodes or devices raises BackendError if the list may be incomplete. An empty
    list means that the backend has none.

    The framework calls the methods of one driver instance from one thread at a time.
    """

    #: The declared capabilities; see Capabilities.
    capabilities: ClassVar[Capabilities]
    #: The owner trait of the driver's providers, unless the configuration sets another.
    default_owner: ClassVar[str]
    #: The versions of the objects that the driver was written for, such as {"ComputeNode": "1.0"}.
    #: The loader refuses versions that are not compatible with the framework's.
    object_versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        """Read the driver's configuration, and do nothing else. Raises ConfigurationError.

        Register the options in the group ``name``, which is the name of the driver instance.
        ``host`` is the name of the service host.
        """
        self.conf = conf
        self.host = host
        self.name = name

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> Iterable[str]:
        """Return the names of further sections, such as ``<name>:a``, that the instance reads.

        The framework refuses other sections whose names start with ``<name>:``.
        """
        return ()

    def init_host(self, service: Service) -> None:  # noqa: B027 - optional
        """Prepare the driver, and open its connections to the backend."""

    def cleanup_host(self) -> None:  # noqa: B027 - optional
        """Close the connections to the backend. No other call follows."""

    @abc.abstractmethod
    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the names of all nodes; with ``refresh``, take a new snapshot first.

        The name of a node is the name of its root provider. Raises BackendError if the list may be
        incomplete.
        """

    def node_is_available(self, nodename: str) -> bool:
        """Return whether this driver instance has to publish the node.

        The framework asks about nodes that the list lacks: False lets it remove the node. Raise
        BackendError if the backend gives no clear answer. Override the method if the backend can
        look up a single node.
        """
        return nodename in self.get_available_nodes()

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        """Return whether the backend has the device of a child provider.

        The framework asks about providers that the tree lacks: False lets it remove the provider.
        Raise BackendError if the backend gives no clear answer. Override the method if the backend
        can look up a single device.
        """
        return False

    def get_available_resource(self, nodename: str) -> ComputeNode:
        """Return the ComputeNode object of a node.

        The framework does not publish the resources in it.
        """
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)

    def get_inventory(self, nodename: str) -> Mapping[str, AnyInventory]:
        """Return the inventories of the root provider by resource class.

        The default ``update_provider_tree`` publishes them.
        """
        raise NotImplementedError

    def get_traits(self, nodename: str) -> set[str]:
        """Return the traits of the root provider, without an owner trait."""
        return set()

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Edit the provider tree so that it describes the node.

        The tree has the node's providers in Placement, and the sharing providers of this driver
        instance. Remove child providers whose devices are gone. Data that the driver does not
        change stays as it is.

        Raise ReshapeNeeded to move used inventory to another provider. The framework then calls
        this method again with ``allocations``, which the driver edits in place. ``migrations`` are
        the unfinished moves of instances from or to the node.
        """
        provider_tree.update_inventory(nodename, self.get_inventory(nodename))
        provider_tree.update_traits(nodename, self.get_traits(nodename))

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return traits for the root providers of nodes: True adds a trait, False removes it."""
        return {}

    def get_problems(self) -> Sequence[str]:
        """Return messages for the operator about all current problems."""
        return ()

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        """Return the names of the nodes that have changed since a mark, and a new mark.

        Only for drivers that support ``change_feed``. A mark is a text by which the driver finds
        later changes. None asks for a first mark. Return only nodes that ``get_available_nodes``
        lists. The driver then describes these nodes in their new state. Raise BackendError if some
        nodes may be missing.
        """
        raise NotImplementedError

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        """Return whether a released provider needs no more cleaning.

        Only for drivers that support ``cleans_after_release``. A cleaning before ``since`` does not
        count. After False, the provider stays reserved.
        """
        return False

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        """Load an image into a device, and return when the device has it.

        Only for drivers that support ``programming``. ``image`` is a uuid. ``function`` is the id
        of the function that the image gives the device, None if unknown. The call may take minutes.
        Raises ProgrammingRefused if the device is unchanged, ProgrammingFailed if the device does
        not have the image, and BackendError if neither is certain.
        """
        raise NotImplementedError

    def current_function(self, provider_uuid: str) -> str | None:
        """Return the id of a device's present function, or None if it has none.

        Only for drivers that support ``programming``. Read the function from the device, not from a
        snapshot. Raises BackendError if the function is unknown.
        """
        raise NotImplementedError

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        """Return the uuids of all providers that lose their function if this one is programmed.

        The uuid of this provider is among them.
        """
        return (provider_uuid,)

    def function_trait(self, provider_uuid: str, function: str) -> str:
        """Return the trait of a provider whose device has the function. Raises InvalidName."""
        return function_trait(function)
