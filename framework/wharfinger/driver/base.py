"""The contract between the framework and a driver.

Names follow nova's ComputeDriver, so that what an author knows carries over.
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

#: By consumer uuid, what GET /allocations/{consumer} of the Placement API answers:
#: {"allocations": {provider uuid: {"resources": {class: amount}}}, "project_id": ...,
#: "user_id": ..., "consumer_generation": ...}.
Allocations = dict[str, dict[str, Any]]


class ComputeDriver(abc.ABC):
    """What a driver implements; one object per configured instance.

    A driver never talks to Placement and never adds an owner trait: the framework does
    both. Nothing here may sleep. ``get_available_nodes(refresh=True)`` opens each cycle
    and takes a snapshot of the backend; the other calls answer from it.

    A listing that failed, or is not known to be complete, raises (BackendError is meant
    for it). An empty one means that there is nothing.

    The framework calls one instance from one thread at a time.
    """

    #: Each one declared; see Capabilities.
    capabilities: ClassVar[Capabilities]
    #: The owner trait of what it publishes, where the configuration names no other.
    default_owner: ClassVar[str]
    #: The versions of the objects that it was written for, e.g. {"ComputeNode": "1.0"}.
    #: Loading fails where ours cannot stand in for them.
    object_versions: ClassVar[Mapping[str, str]] = {}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        """Read the configuration; nothing else yet.

        ``conf`` is the private configuration: register options under the group ``name``,
        the instance's. ``host`` is the service host. Raises ConfigurationError.
        """
        self.conf = conf
        self.host = host
        self.name = name

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> Iterable[str]:
        """Sections that the instance of that name reads besides [<name>]: [<name>:...].

        Others of that form in the configuration are refused. Also that which auth_section names,
        where keystoneauth's options are read.
        """
        return ()

    def init_host(self, service: Service) -> None:  # noqa: B027 - optional
        """Prepare, and connect where a connection is kept; called once, before all below."""

    def cleanup_host(self) -> None:  # noqa: B027 - optional
        """Let go of the backend; called once, after everything else."""

    @abc.abstractmethod
    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """The names of all nodes; with ``refresh``, from a new snapshot.

        A node's name is its root provider's. Raises where the list is not complete.
        """

    def node_is_available(self, nodename: str) -> bool:
        """Return whether the backend has the node, and this instance is to publish it.

        The framework asks before it removes a node that complete listings lack. Override it where
        the backend can be asked for one node. True keeps the node, False removes it. Raise
        BackendError for any other answer: the node stays, and the next full cycle asks again.
        """
        return nodename in self.get_available_nodes()

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        """Return whether the backend has the device of a child provider, and it is to be published.

        The framework asks before it removes a child that ``update_provider_tree`` has left out, or
        whose node is gone. Override it where the backend can be asked for one device: True, False
        and BackendError as for ``node_is_available``.
        """
        return False

    def get_available_resource(self, nodename: str) -> ComputeNode:
        """The node as an object; what it has to give is said by the tree."""
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)

    def get_inventory(self, nodename: str) -> Mapping[str, AnyInventory]:
        """The node's inventories by resource class: all that a flat driver has to say.

        Empty: a provider that has nothing to give.
        """
        raise NotImplementedError

    def get_traits(self, nodename: str) -> set[str]:
        """The node's traits, without its owner's."""
        return set()

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Edit the tree until it says what the node has.

        The tree holds what Placement has of the node's tree (its root in any case) and the
        sharing providers that this instance publishes; children that are gone have to be
        removed from it. What the driver says nothing of stays as it is, and a root of which
        it says nothing is taken to be someone else's. Nothing is written until all of the
        tree is known to be valid.

        Where inventory that is in use has to move between providers, raise ReshapeNeeded;
        the call is repeated with ``allocations``, to be edited in place. ``migrations``
        are those in progress on the node: a move's source still counts.
        """
        provider_tree.update_inventory(nodename, self.get_inventory(nodename))
        provider_tree.update_traits(nodename, self.get_traits(nodename))

    def capabilities_as_traits(self) -> dict[str, bool]:
        """Traits for the root provider: True, it has them; False, it must not."""
        return {}

    def get_problems(self) -> Sequence[str]:
        """What it could not publish since the last snapshot, for people; nothing else suffers.

        Asked after each round of ``update_provider_tree``, which need not be of all nodes.
        """
        return ()

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        """The nodes that changed since a mark, and the next mark (``change_feed``).

        Cheap enough for every two seconds. None asks for a first mark. What is asked of these nodes
        afterwards is answered as the backend had them now; one that is gone is not among them: that
        is for a complete listing to say.
        """
        raise NotImplementedError

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        """Whether a provider needs no cleaning any more (``cleans_after_release``).

        It was given back at about that time, or later: True where it has been cleaned after that,
        or where none will come. Otherwise it stays reserved until this driver has reported a
        reason to reserve it, and reports none any more.
        """
        return False

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        """Load an image into a device and wait for it (``programming``).

        The device is reserved, and nothing is allocated from it. ``image`` is a uuid; ``function``
        names what it does, where that is known. Raises ProgrammingRefused where the device has
        not been touched, ProgrammingFailed where it certainly does not hold the image, and
        BackendError where it is not known whether it does. It may take minutes, in a thread of its
        own; a snapshot was taken before, and nothing else is called meanwhile.
        """
        raise NotImplementedError

    def current_function(self, provider_uuid: str) -> str | None:
        """The function that a device holds at this moment, None for none (``programming``).

        As the device itself says: what somebody noted before the last ``program`` is not known to
        hold. Raises BackendError where it is not known.
        """
        raise NotImplementedError

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        """The uuids of all providers that lose what they hold when this one is programmed.

        Its own, and those of other parts of the same device where it is programmed as a whole.
        """
        return (provider_uuid,)

    def function_trait(self, provider_uuid: str, function: str) -> str:
        """The trait by which a device's provider says that it holds a function.

        Raises InvalidName.
        """
        return function_trait(function)
