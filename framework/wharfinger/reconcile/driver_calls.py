"""Call driver methods, and check the answers."""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

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
from wharfinger.reconcile import kernel_uptime
from wharfinger.reconcile.node_list import NodeList
from wharfinger.tracker.node_rows import Node, pci_stats_of

LOG: Final = logging.getLogger(__name__)


def list_nodes(driver: ComputeDriver) -> NodeList:
    """List and describe all nodes of a driver. Raises BackendError if it cannot list them."""
    operation = "get_available_nodes"
    listed = guarded(driver.name, operation, lambda: driver.get_available_nodes(refresh=True))
    nodes = describe(driver, check_names(driver, operation, listed))
    return replace(nodes, uptime=kernel_uptime.read())


def check_names(
    driver: ComputeDriver, operation: str, found: object, kinds: tuple[type, ...] = (list,)
) -> Collection[str]:
    """Return the answer if it is of one of these kinds and repeats no string.

    Raises BackendError.
    """
    if isinstance(found, kinds) and isinstance(found, Collection):
        strings = [name for name in found if isinstance(name, str)]
        if len(set(strings)) == len(strings):
            return found
    raise wrong_answer(driver.name, operation, f"a {kinds[0].__name__} of different names", found)


def describe(driver: ComputeDriver, found: Iterable[str]) -> NodeList:
    """Describe the nodes with these names; the result also has the errors."""
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
                    problem=f"node {uuids[node.uuid]} has the same uuid ({node.uuid})",
                )
            nodes.append(node)
        except WharfingerError as error:
            problems.append(as_problem(driver, name, error))
            if not isinstance(error, InvalidName):
                failed.append(Node(name, names.root_uuid(name)))
    return NodeList(tuple(nodes), tuple(failed), tuple(problems))


def changed_nodes(driver: ComputeDriver, since: str | None) -> tuple[frozenset[str], str]:
    """Return the names of nodes changed since a mark of the change feed, and a new mark.

    None asks for a first mark. Raises BackendError.
    """
    operation = "changed_nodes"
    answer = guarded(driver.name, operation, lambda: driver.changed_nodes(since))
    match answer:
        case (found, str(mark)):
            return frozenset(check_names(driver, operation, found, (set, frozenset, list))), mark
    raise wrong_answer(driver.name, operation, "names of nodes and a mark", answer)


#: Returns the context manager for a call to a driver, from the name of the operation.
in_progress: Final[ContextVar[Callable[[str], AbstractContextManager[object]]]] = ContextVar(
    "in_progress", default=nullcontext
)


def guarded(driver: str, operation: str, call: Callable[[], Any]) -> Any:
    """Call a method of a driver and return the answer.

    Unexpected exceptions become BackendError.
    """
    try:
        with in_progress.get()(operation):
            return call()
    except ReshapeNeeded as error:
        raise BackendError(
            driver=driver,
            operation=operation,
            reason="the method raised ReshapeNeeded, which only update_provider_tree may raise. "
            "Correct the driver",
        ) from error
    except (WharfingerError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit, if a driver calls sys.exit()
        LOG.debug("driver %s: %s failed", driver, operation, exc_info=True)
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise BackendError(driver=driver, operation=operation, reason=reason) from error


def guarded_bool(driver: str, operation: str, call: Callable[[], Any]) -> bool:
    """Call a method of a driver that has to return a bool. Raises BackendError."""
    answer = guarded(driver, operation, call)
    if isinstance(answer, bool):
        return answer
    raise wrong_answer(driver, operation, "True or False", answer)


def wrong_answer(driver: str, operation: str, expected: str, answer: object) -> BackendError:
    """Return the error for a wrong answer of a driver."""
    reason = f"it must return {expected}, not {shown(answer)}"
    return BackendError(driver=driver, operation=operation, reason=reason)


def text_of(error: BaseException) -> str:
    """Return the text of an error, or a substitute if its __str__ raises."""
    try:
        return str(error)
    except Exception:
        return "its text cannot be read"


def as_problem(driver: ComputeDriver, node: str, error: Exception) -> WharfingerError:
    """Return the error, or an InvalidTree with its text."""
    if isinstance(error, DriverError | PlacementError):
        return error
    return InvalidTree(driver=driver.name, provider=node, problem=str(error))


def _describe(driver: ComputeDriver, name: str) -> Node:
    name = names.check_provider_name(name)
    method = getattr(driver.get_available_resource, "__func__", None)
    if method is ComputeDriver.get_available_resource:  # saves an object for each node
        return Node(name, names.root_uuid(name))
    operation = f"get_available_resource({name})"
    resource = guarded(driver.name, operation, lambda: driver.get_available_resource(name))
    if not isinstance(resource, ComputeNode):
        raise wrong_answer(driver.name, operation, "a ComputeNode", resource)
    uuid = names.check_uuid(resource.uuid) if "uuid" in resource else names.root_uuid(name)
    return Node(
        name,
        uuid,
        vcpus=resource.known("vcpus"),
        memory_mb=resource.known("memory_mb"),
        local_gb=resource.known("local_gb"),
        pci_stats=pci_stats_of(resource) if "pci_stats" in resource else None,
    )
