"""The interface between the framework and a driver; its names are those of nova's ComputeDriver."""

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

    A driver never sends requests to Placement and never adds an owner trait: the framework does
    both. Each full cycle starts with ``get_available_nodes(refresh=True)``, which takes a snapshot
    of the backend. The other methods answer from the snapshot. Only ``program`` may sleep. Other
    methods may pause for less than 5 s before they repeat a failed call of the backend.

    A method that lists nodes or devices raises BackendError if the list fails or may be incomplete.
    An empty list means that the backend has none.

    The framework calls the methods of one driver instance from one thread at a time.
    """

    #: The declared capabilities; see Capabilities.
    capabilities: ClassVar[Capabilities]
    #: The owner trait of the driver's providers, unless the configuration sets another.
    default_owner: ClassVar[str]
    #: The versions of the versioned objects that the driver was written for, such as
    #: {"ComputeNode": "1.0"}. Loading fails if the framework's versions are not compatible.
    object_versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        """Read the driver's configuration, and do nothing else; raises ConfigurationError.

        ``conf`` has the options of this driver instance only: register them in the group ``name``,
        which is the name of the instance. ``host`` is the name of the service host.
        """
        self.conf = conf
        self.host = host
        self.name = name

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> Iterable[str]:
        """Return the sections [<name>:...] that the driver instance reads besides [<name>].

        The framework refuses other sections whose names start with ``<name>:``.
        """
        return ()

    def init_host(self, service: Service) -> None:  # noqa: B027 - optional
        """Prepare the driver and open its connections, before other methods use the backend."""

    def cleanup_host(self) -> None:  # noqa: B027 - optional
        """Close the connections to the backend.

        If ``init_host`` has succeeded, the framework calls this method once, as the last one.
        """

    @abc.abstractmethod
    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the names of all nodes; with ``refresh``, take a new snapshot first.

        The name of a node is the name of its root provider. Raises BackendError if the list may be
        incomplete.
        """

    def node_is_available(self, nodename: str) -> bool:
        """Return whether the backend has this node, and this driver instance has to publish it.

        The framework asks before it removes a node that the list of nodes lacks: False removes the
        node. Raise BackendError if the backend gives no clear answer: the node stays. Override the
        method if the backend can look up a single node.
        """
        return nodename in self.get_available_nodes()

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        """Return whether the backend has the device of a child provider that has to be published.

        The framework asks before it removes a child provider that the tree lacks: False removes the
        provider. Raise BackendError if the backend gives no clear answer. Override the method if
        the backend can look up a single device.
        """
        return False

    def get_available_resource(self, nodename: str) -> ComputeNode:
        """Return the ComputeNode object for a node.

        The framework does not publish the resources in it.
        """
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)

    def get_inventory(self, nodename: str) -> Mapping[str, AnyInventory]:
        """Return the node's inventories by resource class.

        The default ``update_provider_tree`` publishes them.
        """
        raise NotImplementedError

    def get_traits(self, nodename: str) -> set[str]:
        """Return the node's traits, without its owner trait."""
        return set()

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Edit the provider tree so that it describes the node.

        The tree has the node's providers in Placement and the sharing providers of this driver
        instance. Remove child providers whose devices are gone. Data that the driver does not
        change stays as it is. A root provider that it has never changed counts as another
        program's.

        Raise ReshapeNeeded to move inventory that is in use from one provider to another. The
        framework then calls this method again with ``allocations``, which the driver edits in
        place. ``migrations`` are the moves of instances that are in progress from or to the node.
        """
        provider_tree.update_inventory(nodename, self.get_inventory(nodename))
        provider_tree.update_traits(nodename, self.get_traits(nodename))

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return traits of each node's root by name: True adds the trait, False removes it.

        They are ignored for a root that the driver does not report.
        """
        return {}

    def get_problems(self) -> Sequence[str]:
        """Return messages about problems since the last snapshot that no other method reports.

        The framework shows them to the operator.
        """
        return ()

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        """Return the names of nodes that changed after a mark, and a new mark.

        Only a driver that supports ``change_feed`` overrides this method. A mark is a point in the
        driver's feed of changes; the driver chooses its form. ``since`` is a mark from an earlier
        call, or None to get a first one. Return only nodes that ``get_available_nodes`` lists.
        Raise BackendError if some may be missing. The other methods answer for the returned nodes
        with their new state.
        """
        raise NotImplementedError

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        """Return whether a released provider needs no more cleaning.

        Only a driver that supports ``cleans_after_release`` overrides this method. The provider was
        released at about ``since``, or later. Return True if the backend has cleaned it after that
        time, or will not clean it. After False, the provider stays reserved.
        """
        return False

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        """Load an image into a device, and return when the device has it.

        Only a driver that supports ``programming`` overrides this method. ``image`` is a uuid.
        ``function`` is the id of the function that the image gives the device, None if unknown. The
        call may take minutes. Raises ProgrammingRefused if the device is unchanged,
        ProgrammingFailed if the device certainly does not have the image, and BackendError if that
        is unknown.
        """
        raise NotImplementedError

    def current_function(self, provider_uuid: str) -> str | None:
        """Return the id of a device's present function, or None if it has none.

        Only a driver that supports ``programming`` overrides this method. Read it from the device,
        not from a snapshot. Raises BackendError if the function is unknown.
        """
        raise NotImplementedError

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        """Return the uuids of all providers that lose their function if a provider is programmed.

        Its own uuid is among them.
        """
        return (provider_uuid,)

    def function_trait(self, provider_uuid: str, function: str) -> str:
        """Return the trait that a device's provider gets when a function is loaded into the device.

        Raises InvalidName.
        """
        return function_trait(function)
