"""Invariants of a driver's providers and ComputeNodes."""

from collections.abc import Collection, Iterator, Set
from typing import Final

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents, trees
from wharfinger.driver import ComputeDriver
from wharfinger.objects import ComputeNode
from wharfinger.providers import Provider
from wharfinger.providers.ownership import Publisher, instance_trait, owners

#: The figures of a ComputeNode. Each is the sum of the root's totals of some classes: of those in
#: one of the entries.
_FIGURES: Final = {
    "vcpus": (("VCPU",), ("VCPU", "PCPU")),
    "memory_mb": (("MEMORY_MB",),),
    "local_gb": (("DISK_GB",),),
}


class TreeInvariants:
    """Checks the providers and ComputeNodes of a driver instance."""

    def __init__(
        self, contents_before: Contents, publisher: Publisher, *, may_rename: bool
    ) -> None:
        self._publisher: Final = publisher
        self._mark: Final = instance_trait(publisher.instance)
        self._theirs: Final = {
            name for name, one in contents_before.items() if self._mark not in one.traits
        }
        self._renames: Final = may_rename
        self._uuids: Final[dict[str, str]] = {}
        self._names: Final[dict[str, str]] = {}
        #: The tree and the figures of each ComputeNode after the last cycle, by node.
        self._facts: Final[dict[str, tuple[Contents, dict[str, object]]]] = {}

    def check(
        self,
        driver: ComputeDriver,
        contents: Contents,
        things: Collection[str],
        *,
        checks_compute_nodes: bool = True,
    ) -> None:
        """Raise Violation if the driver's providers or ComputeNodes break an invariant."""
        mine = self._names_of_driver(contents, {*things})
        for name in sorted(mine):
            found = owners(contents[name].traits)
            if found != {self._publisher.owner}:
                text = ", ".join(sorted(found)) or "none"
                raise Violation(
                    f"provider {name} has the owner traits {text}",
                    f"only the owner trait {self._publisher.owner}",
                )
        for name in sorted(mine):
            self._check_identity(name, contents[name].uuid)
        is_inherited = type(driver).get_available_resource is ComputeDriver.get_available_resource
        if is_inherited or not checks_compute_nodes:
            return
        by_root = trees(contents)
        for nodename in driver.get_available_nodes():
            if nodename in contents:
                node, root = driver.get_available_resource(nodename), contents[nodename]
                _check_names(node, nodename, driver.host)
                if nodename not in self._theirs:
                    check_agreement(node, root)
                self._check_figures(node, by_root[root.root_uuid])

    def _names_of_driver(self, contents: Contents, things: Set[str]) -> set[str]:
        tagged = {name for name, one in contents.items() if self._mark in one.traits}
        mine = tagged | (things & contents.keys())
        its_trees = {contents[name].root_uuid for name in mine}
        return mine | {
            name
            for name, one in contents.items()
            if one.root_uuid in its_trees and not owners(one.traits) and name not in self._theirs
        }

    def _check_figures(self, node: ComputeNode, tree: Contents) -> None:
        name = node.hypervisor_hostname
        facts = {field: getattr(node, field) for field in _FIGURES if field in node}
        before = self._facts.get(name)
        self._facts[name] = tree, facts
        if before is not None and before[0] == tree and before[1] != facts:
            raise Violation(
                f"the ComputeNode of node {name} now has {facts}, but its tree has not changed",
                f"the figures from before: {before[1]}",
            )

    def _check_identity(self, name: str, uuid: str) -> None:
        before = self._uuids.setdefault(name, uuid)
        if before != uuid:
            raise Violation(
                f"provider {name} now has the uuid {uuid}", f"the same uuid as before, {before}"
            )
        other = self._names.setdefault(uuid, name)
        if other != name and not self._renames:
            raise Violation(
                f"provider {name} now has the uuid {uuid}, which belonged to provider {other}",
                f"the uuid {uuid} for {other} alone",
            )


def _check_names(node: ComputeNode, name: str, host: str) -> None:
    for field, expected in (("hypervisor_hostname", name), ("host", host)):
        if (found := getattr(node, field)) != expected:
            raise Violation(
                f"the ComputeNode of node {name} has {field} {found}", f"{field} {expected}"
            )


def check_agreement(node: ComputeNode, root: Provider) -> None:
    """Raise Violation if a ComputeNode and the root provider disagree."""
    name = root.name
    if "uuid" in node and node.uuid != root.uuid:
        raise Violation(
            f"the ComputeNode of node {name} has uuid {node.uuid}",
            f"uuid {root.uuid} of the node's root provider",
        )
    for field, figure, totals in _figures_with_permitted_totals(node, root):
        if figure not in totals:
            allowed = " or ".join(map(str, totals))
            raise Violation(
                f"the ComputeNode of node {name} has {field} {figure}",
                f"{field} {allowed}, the total of the node's root provider",
            )


def _figures_with_permitted_totals(
    node: ComputeNode, root: Provider
) -> Iterator[tuple[str, int, list[int]]]:
    for field, ways in _FIGURES.items():
        figure = getattr(node, field) if field in node else None
        totals = [
            sum(root.inventories[kind].total for kind in kinds)
            for kinds in ways
            if root.inventories.keys() >= {*kinds}
        ]
        if figure is not None and totals:
            yield field, figure, totals
