"""The contract between the framework and a driver.

Names follow nova's ComputeDriver, which driver authors know.
"""

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
    """Base class of drivers; each configured instance is one object.

    A driver never sends requests to Placement and never adds an owner trait: the framework does
    both. No method may sleep. Each cycle starts with ``get_available_nodes(refresh=True)``, which
    takes a snapshot of the backend; the other methods answer from the snapshot.

    A listing that fails, or that may be incomplete, raises BackendError. An empty listing means
    that the backend has no nodes.

    The framework calls one instance from one thread at a time.
    """

    #: The declared capabilities; see Capabilities.
    capabilities: ClassVar[Capabilities]
    #: The owner trait of its providers, unless the configuration sets another.
    default_owner: ClassVar[str]
    #: The versions of the objects that the driver was written for, e.g. {"ComputeNode": "1.0"}.
    #: Loading fails if the framework's versions are not compatible.
    object_versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        """Read the configuration, and do nothing else.

        ``conf`` is the private configuration: register options in the group ``name``, which is the
        name of the instance. ``host`` is the service host. Raises ConfigurationError.
        """
        self.conf = conf
        self.host = host
        self.name = name

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> Iterable[str]:
        """Return the sections [<name>:...] that the instance reads besides [<name>].

        The framework refuses other sections of that form. Include the section that the option
        auth_section of keystoneauth names.
        """
        return ()

    def init_host(self, service: Service) -> None:  # noqa: B027 - optional
        """Prepare the driver and open its connections; called once, before the methods below."""

    def cleanup_host(self) -> None:  # noqa: B027 - optional
        """Close the connections to the backend; called once, as the last method."""

    @abc.abstractmethod
    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the names of all nodes; with ``refresh``, from a new snapshot.

        The name of a node is the name of its root provider. Raises BackendError if the list may be
        incomplete.
        """

    def node_is_available(self, nodename: str) -> bool:
        """Return whether the backend has the node, and this instance has to publish it.

        The framework calls it before it removes a node that complete listings lack. Override it if
        the backend can return one node. True keeps the node, False removes it. Raise BackendError
        for any other answer: the node stays, and the next full cycle calls again.
        """
        return nodename in self.get_available_nodes()

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        """Return whether the backend has the device of a child provider that has to be published.

        The framework calls it before it removes a child that ``update_provider_tree`` has left
        out, or whose node is absent. Override it if the backend can return one device. True, False
        and BackendError mean the same as for ``node_is_available``.
        """
        return False

    def get_available_resource(self, nodename: str) -> ComputeNode:
        """Return the node as an object; its resources are in the provider tree."""
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)

    def get_inventory(self, nodename: str) -> Mapping[str, AnyInventory]:
        """Return the node's inventories by resource class; enough for a driver without children.

        An empty mapping publishes a provider without inventories.
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

        The tree has the node's providers in Placement (at least its root) and the sharing
        providers of this instance. The driver has to remove the children that are gone. Data that
        the driver does not change stay as they are; a root that it does not change belongs to
        another program. The framework writes only if the whole tree is valid.

        Raise ReshapeNeeded to move inventory that is in use between providers; the framework then
        calls again with ``allocations``, which the driver edits in place. ``migrations`` are those
        in progress on the node; their source still holds resources.
        """
        provider_tree.update_inventory(nodename, self.get_inventory(nodename))
        provider_tree.update_traits(nodename, self.get_traits(nodename))

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Return traits of the root provider: True to set a trait, False to remove it."""
        return {}

    def get_problems(self) -> Sequence[str]:
        """Return, for the operator, problems since the last snapshot that no other method reports.

        The framework calls it after each round of ``update_provider_tree``, which may be for some
        of the nodes only.
        """
        return ()

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        """Return the nodes that changed since a mark, and the next mark (``change_feed``).

        The framework calls it every two seconds; None requests a first mark. Later calls for these
        nodes answer with their state at this call. Deleted nodes are not included; only a complete
        listing shows that a node is gone.
        """
        raise NotImplementedError

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        """Return whether a released provider needs no more cleaning (``cleans_after_release``).

        It was released at about ``since``, or later. Return True if it was cleaned after that, or
        will not be cleaned. Otherwise it stays reserved until this driver has reported a reason to
        reserve it, and then no longer reports one.
        """
        return False

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        """Load an image into a device and wait for it (``programming``).

        The device is reserved and has no allocations. ``image`` is a uuid; ``function`` is the
        function of the image, if known. Raises ProgrammingRefused if the device is unchanged,
        ProgrammingFailed if the device certainly does not have the image, and BackendError if that
        is unknown. It may take minutes, in its own thread. The framework takes a snapshot before,
        and calls no other method meanwhile.
        """
        raise NotImplementedError

    def current_function(self, provider_uuid: str) -> str | None:
        """Return the present function of a device, None if it has none (``programming``).

        Read it from the device: records from before the last ``program`` may be wrong. Raises
        BackendError if it is unknown.
        """
        raise NotImplementedError

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        """Return the uuids of all providers whose function is lost when this one is programmed.

        These are its own, and those of the other parts of a device that is programmed as a whole.
        """
        return (provider_uuid,)

    def function_trait(self, provider_uuid: str, function: str) -> str:
        """Return the trait of a device's provider for a function; raises InvalidName."""
        return function_trait(function)
