"""A driver's nodes, as one snapshot of its backend has them."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from oslo_log import log as logging

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import (
    BackendError,
    DriverError,
    InvalidName,
    InvalidTree,
    PlacementError,
    ReshapeNeeded,
    WharfingerError,
    shown,
)
from wharfinger.objects import ComputeNode
from wharfinger.providers import names
from wharfinger.providers.absence import Uptime
from wharfinger.providers.record import Record
from wharfinger.reconcile import uptime
from wharfinger.tracker.node import Node, NodeFacts, pci_stats_of

LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class NodeListing:
    """Nodes of a driver.

    ``failed`` are those that cannot be described, with the errors in ``problems``; ``others`` are
    the uuids of nodes that there are besides. ``uptime`` is the moment of a complete listing, None
    where it is not known; ``answers`` are the driver's to questions about what that listing lacks.
    """

    nodes: list[Node] = field(default_factory=list)
    failed: list[Node] = field(default_factory=list)
    problems: list[WharfingerError] = field(default_factory=list)
    others: frozenset[str] = frozenset()
    uptime: Uptime | None = None
    answers: dict[str, bool | WharfingerError] = field(default_factory=dict)

    @property
    def roots(self) -> dict[str, str]:
        """The uuids of the nodes' roots, unless Placement has others, by the names of the nodes."""
        return {node.name: node.uuid for node in (*self.nodes, *self.failed)}

    @property
    def listed(self) -> Set[str]:
        """The uuids of all nodes that there are."""
        return self.others.union(self.roots.values())

    def only(self, uuids: Set[str]) -> "NodeListing":
        """Those of the nodes that have these uuids, and no problems."""
        return NodeListing(
            nodes=[node for node in self.nodes if node.uuid in uuids],
            others=frozenset(self.listed - uuids),
        )

    def without(self, names: Container[str]) -> frozenset[str]:
        """The uuids of all nodes but those of these names."""
        return self.others.union(uuid for name, uuid in self.roots.items() if name not in names)

    def with_changes(self, later: "NodeListing") -> "NodeListing":
        """These nodes, less those that were described later, and those."""
        anew = {node.uuid for node in (*later.nodes, *later.failed)} | later.roots.keys()

        def others(nodes: Iterable[Node]) -> list[Node]:
            return [node for node in nodes if not {node.uuid, node.name} & anew]

        return NodeListing(
            nodes=[*others(self.nodes), *later.nodes],
            failed=[*others(self.failed), *later.failed],
            problems=[*self.problems, *later.problems],
        )

    def has_unknown_nodes(self, records: Mapping[str, Record]) -> bool:
        """Whether a node is listed of which not even the root is known."""
        known = {node.uuid for node in self.failed} & records.keys()
        return len(self.problems) > len(known)

    def use_known_uuids(self, records: Mapping[str, Record]) -> None:
        """Give nodes the uuids under which their roots have been published, by whomever.

        By that, a root is found that somebody has renamed, or that was adopted under another
        uuid than the driver's; that of a node that failed, too.
        """
        known = {
            root.name: uuid
            for uuid, record in records.items()
            if (root := record.applied or record.live) and root.parent_uuid is None
        }
        # A node that has been published under its own uuid has another name now: the
        # provider of its name is not its own.
        own = self.listed & records.keys()
        for nodes in (self.nodes, self.failed):
            nodes[:] = [
                node
                if node.uuid in own or known.get(node.name) in own
                else node.under(known.get(node.name, node.uuid))
                for node in nodes
            ]


def list_nodes(
    driver: ComputeDriver, read_uptime: Callable[[], Uptime | None] = uptime.read
) -> NodeListing:
    """All nodes of a driver, from a new snapshot. Raises BackendError where there is no list."""
    operation = "get_available_nodes"
    listed = guarded(driver.name, operation, lambda: driver.get_available_nodes(refresh=True))
    listing = describe(driver, check_names(driver, operation, listed))
    listing.uptime = read_uptime()
    return listing


def check_names(
    driver: ComputeDriver, operation: str, found: object, *kinds: type
) -> Collection[str]:
    """The names of nodes that a driver returned; raises BackendError for anything else."""
    if _are_different_names(found, kinds or (list,)):
        return found
    raise BackendError(
        driver=driver.name,
        operation=operation,
        reason=f"it has to return a {(kinds or (list,))[0].__name__} of different names, "
        f"not {shown(found)}",
    )


def describe(
    driver: ComputeDriver, found: Iterable[str], others: frozenset[str] = frozenset()
) -> NodeListing:
    """The nodes of these names; ``others`` are the uuids of the nodes that there are besides."""
    listing = NodeListing(others=others)
    uuids: dict[str, str] = {}
    for name in found:
        try:
            node = _describe(driver, name)
            if uuids.setdefault(node.uuid, name) != name:
                raise InvalidTree(
                    driver=driver.name,
                    provider=name,
                    problem=f"node {uuids[node.uuid]} has its uuid ({node.uuid}) too",
                )
            listing.nodes.append(node)
        except WharfingerError as error:
            listing.problems.append(as_problem(driver, name, error))
            if not isinstance(error, InvalidName):  # nothing can have such a name
                listing.failed.append(Node(name, names.root_uuid(name)))
    return listing


def guarded(driver: str, operation: str, call: Callable[[], Any]) -> Any:
    """Call into the driver of that name; what it raises, unless ours, is a BackendError.

    The one place that isolates the framework from a driver.
    """
    try:
        return call()
    except ReshapeNeeded as error:
        raise BackendError(
            driver=driver,
            operation=operation,
            reason="it raised ReshapeNeeded, which is for update_provider_tree alone",
        ) from error
    except (WharfingerError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a driver that calls sys.exit() too
        LOG.debug("driver %s: %s failed", driver, operation, exc_info=True)
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise BackendError(driver=driver, operation=operation, reason=reason) from error


def guarded_bool(driver: str, operation: str, call: Callable[[], Any]) -> bool:
    """Ask the driver of that name a question; raises BackendError unless it answers with a bool."""
    answer = guarded(driver, operation, call)
    if isinstance(answer, bool):
        return answer
    reason = f"it has to return True or False, not {shown(answer)}"
    raise BackendError(driver=driver, operation=operation, reason=reason)


def text_of(error: BaseException) -> str:
    """What an error says, if it can."""
    try:
        return str(error)
    except Exception:
        return "it cannot say what"


def as_problem(driver: ComputeDriver, node: object, error: Exception) -> WharfingerError:
    """The error with the driver and the node in it, where it does not name them itself."""
    if isinstance(error, DriverError | PlacementError):
        return error
    place = node if isinstance(node, str) else shown(node)
    return InvalidTree(driver=driver.name, provider=place, problem=str(error))


def _describe(driver: ComputeDriver, name: str) -> Node:
    name = names.check_provider_name(name)
    if _says_nothing_of_nodes(driver):
        return Node(name, names.root_uuid(name))
    operation = f"get_available_resource({name})"
    resource = guarded(driver.name, operation, lambda: driver.get_available_resource(name))
    if not isinstance(resource, ComputeNode):
        raise BackendError(
            driver=driver.name,
            operation=operation,
            reason=f"it has to return a ComputeNode, not {shown(resource)}",
        )
    uuid = names.check_uuid(resource.uuid) if "uuid" in resource else names.root_uuid(name)
    return Node(name, uuid, _facts_of(resource))


def _says_nothing_of_nodes(driver: ComputeDriver) -> bool:
    """Whether a driver leaves that to the base class: then no object is made for each node."""
    method = getattr(driver.get_available_resource, "__func__", None)
    return method is ComputeDriver.get_available_resource


def _are_different_names(found: object, kinds: tuple[type, ...]) -> TypeGuard[Collection[str]]:
    if not isinstance(found, kinds) or not isinstance(found, Collection):
        return False
    strings = [name for name in found if isinstance(name, str)]
    return len(set(strings)) == len(strings)


def _facts_of(resource: ComputeNode) -> NodeFacts:
    vcpus, memory_mb, local_gb = (
        getattr(resource, name) if name in resource else None
        for name in ("vcpus", "memory_mb", "local_gb")
    )
    pci_stats = pci_stats_of(resource) if "pci_stats" in resource else None
    return NodeFacts(vcpus, memory_mb, local_gb, pci_stats)
