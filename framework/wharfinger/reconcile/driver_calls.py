"""Calls of a driver, each isolated from the framework, and checks of their answers."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Protocol

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
from wharfinger.providers.absence_timer import Uptime
from wharfinger.reconcile import kernel_uptime
from wharfinger.reconcile.node_list import NodeList
from wharfinger.tracker.reported_node import Node, NodeFacts, pci_stats_of

LOG: Final = logging.getLogger(__name__)


def list_nodes(
    driver: ComputeDriver, read_uptime: Callable[[], Uptime | None] = kernel_uptime.read
) -> NodeList:
    """Return all nodes of a driver, from a new snapshot; raises BackendError without a list."""
    operation = "get_available_nodes"
    listed = guarded(driver.name, operation, lambda: driver.get_available_nodes(refresh=True))
    nodes = describe(driver, check_names(driver, operation, listed))
    return replace(nodes, uptime=read_uptime())


def check_names(
    driver: ComputeDriver, operation: str, found: object, kinds: tuple[type, ...] = (list,)
) -> Collection[str]:
    """Return the node names that a driver returned; raises BackendError for anything else."""
    if isinstance(found, kinds) and isinstance(found, Collection):
        strings = [name for name in found if isinstance(name, str)]
        if len(set(strings)) == len(strings):
            return found
    raise wrong_answer(driver.name, operation, f"a {kinds[0].__name__} of different names", found)


def describe(
    driver: ComputeDriver, found: Iterable[str], others: frozenset[str] = frozenset()
) -> NodeList:
    """Return the nodes of these names; ``others`` are the uuids of the driver's other nodes."""
    nodes: list[Node] = []
    failed: list[Node] = []
    problems: list[WharfingerError] = []
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
            nodes.append(node)
        except WharfingerError as error:
            problems.append(as_problem(driver, name, error))
            if not isinstance(error, InvalidName):  # no node can have such a name
                failed.append(Node(name, names.root_uuid(name)))
    return NodeList(tuple(nodes), tuple(failed), tuple(problems), others)


def changed_nodes(driver: ComputeDriver, since: str | None) -> tuple[frozenset[str], str]:
    """Return the nodes that the driver's change feed names, and the next mark.

    Raises BackendError.
    """
    operation = "changed_nodes"
    answer = guarded(driver.name, operation, lambda: driver.changed_nodes(since))
    match answer:
        case (found, str(mark)):
            return frozenset(check_names(driver, operation, found, (set, frozenset, list))), mark
    raise wrong_answer(driver.name, operation, "names of nodes and a mark", answer)


class CallObserver(Protocol):
    """Observer of the calls to a driver."""

    def began(self, operation: str) -> None:
        """Note that a call has begun."""

    def ended(self) -> None:
        """Note that the call has returned or raised."""


#: Observer of the calls that this thread makes to drivers.
observer: Final[ContextVar[CallObserver | None]] = ContextVar("observer", default=None)


@contextmanager
def observed(operation: str) -> Iterator[None]:
    """Let the observer of this thread know that the block is a call to the driver."""
    watching = observer.get()
    if watching is None:
        yield
        return
    watching.began(operation)
    try:
        yield
    finally:
        watching.ended()


def guarded(driver: str, operation: str, call: Callable[[], Any]) -> Any:
    """Call the driver of that name; raise BackendError for errors that are not ours.

    This is the one place that isolates the framework from a driver.
    """
    try:
        with observed(operation):
            return call()
    except ReshapeNeeded as error:
        raise BackendError(
            driver=driver,
            operation=operation,
            reason="it raised ReshapeNeeded, which only update_provider_tree may raise",
        ) from error
    except (WharfingerError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a driver that calls sys.exit() too
        LOG.debug("driver %s: %s failed", driver, operation, exc_info=True)
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise BackendError(driver=driver, operation=operation, reason=reason) from error


def guarded_bool(driver: str, operation: str, call: Callable[[], Any]) -> bool:
    """Ask the driver of that name a question; raise BackendError unless it returns a bool."""
    answer = guarded(driver, operation, call)
    if isinstance(answer, bool):
        return answer
    raise wrong_answer(driver, operation, "True or False", answer)


def wrong_answer(driver: str, operation: str, expected: str, answer: object) -> BackendError:
    """Return the error for an answer that is not what the driver of that name has to return."""
    reason = f"it must return {expected}, not {shown(answer)}"
    return BackendError(driver=driver, operation=operation, reason=reason)


def text_of(error: BaseException) -> str:
    """Return the text of an error; its __str__ may raise."""
    try:
        return str(error)
    except Exception:
        return "its text cannot be read"


def as_problem(driver: ComputeDriver, node: object, error: Exception) -> WharfingerError:
    """Return the error of a node; add the driver and the node if it does not name them."""
    if isinstance(error, DriverError | PlacementError):
        return error
    place = node if isinstance(node, str) else shown(node)
    return InvalidTree(driver=driver.name, provider=place, problem=str(error))


def _describe(driver: ComputeDriver, name: str) -> Node:
    name = names.check_provider_name(name)
    method = getattr(driver.get_available_resource, "__func__", None)
    if method is ComputeDriver.get_available_resource:  # no need for an object per node
        return Node(name, names.root_uuid(name))
    operation = f"get_available_resource({name})"
    resource = guarded(driver.name, operation, lambda: driver.get_available_resource(name))
    if not isinstance(resource, ComputeNode):
        raise wrong_answer(driver.name, operation, "a ComputeNode", resource)
    uuid = names.check_uuid(resource.uuid) if "uuid" in resource else names.root_uuid(name)
    return Node(name, uuid, _facts_of(resource))


def _facts_of(resource: ComputeNode) -> NodeFacts:
    known = {
        name: getattr(resource, name)
        for name in ("vcpus", "memory_mb", "local_gb")
        if name in resource
    }
    return NodeFacts(**known, pci_stats=pci_stats_of(resource) if "pci_stats" in resource else None)
