"""What has to hold after every complete cycle, whatever a rule is about.

Each provider has one owner, names and uuids belong together for good, and the objects of the nodes
agree with the trees.
"""

from collections.abc import Collection, Iterator
from typing import Final

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents
from wharfinger.driver import ComputeDriver
from wharfinger.objects import ComputeNode
from wharfinger.providers import Provider
from wharfinger.providers.ownership import Publisher, instance_trait, owners

#: The fields of a node, with the classes of the root of which the totals add up to it: those of
#: the first entry, or of another one.
_FIGURES: Final = {
    "vcpus": (("VCPU",), ("VCPU", "PCPU")),
    "memory_mb": (("MEMORY_MB",),),
    "local_gb": (("DISK_GB",),),
}


class TreeInvariants:
    """What is known of the providers of one driver instance since it began to publish.

    ``theirs`` is what Placement held before that. ``renames`` tells that a provider may get another
    name meanwhile.
    """

    def __init__(self, theirs: Contents, publisher: Publisher, *, renames: bool) -> None:
        self._publisher: Final = publisher
        self._mark: Final = instance_trait(publisher.instance)
        self._theirs: Final = {name for name, one in theirs.items() if self._mark not in one.traits}
        self._renames: Final = renames
        self._uuids: Final[dict[str, str]] = {}
        self._names: Final[dict[str, str]] = {}

    def see(self, driver: ComputeDriver, contents: Contents, things: Collection[str]) -> None:
        """See all providers of the driver, of which some are ``things``; raises Violation."""
        mine = self._mine(contents, things)
        for name in sorted(mine):
            found = owners(contents[name].traits)
            if found != {self._publisher.owner}:
                told = ", ".join(sorted(found)) or "none"
                raise Violation(f"{name}: owner {told}", f"owner {self._publisher.owner}")
        for name in sorted(mine):
            self._see_identity(name, contents[name].uuid)
        if type(driver).get_available_resource is ComputeDriver.get_available_resource:
            return
        for nodename in driver.get_available_nodes():
            root = contents.get(nodename)
            if root is not None and nodename not in self._theirs:
                see_agreement(driver.get_available_resource(nodename), root)

    def _mine(self, contents: Contents, things: Collection[str]) -> set[str]:
        """The names of what the driver publishes: tagged, or a thing, or without owner below one.

        A provider that another owner has below a thing is not the driver's.
        """
        by_uuid = {one.uuid: one for one in contents.values()}
        things = {*things}

        def is_below_a_thing(one: Provider) -> bool:
            above: Provider | None = one
            while above is not None and above.name not in things:
                above = by_uuid.get(above.parent_uuid or "")
            return above is not None

        return {
            name
            for name, one in contents.items()
            if self._mark in one.traits
            or name in things
            or (not owners(one.traits) and is_below_a_thing(one))
        }

    def _see_identity(self, name: str, uuid: str) -> None:
        before = self._uuids.setdefault(name, uuid)
        if before != uuid:
            raise Violation(f"{name}: uuid {uuid}", f"uuid {before}, as before")
        other = self._names.setdefault(uuid, name)
        if other != name and not self._renames:
            raise Violation(f"uuid {uuid} is of {name}", f"uuid {uuid} of {other}, as before")


def see_agreement(node: ComputeNode, root: Provider) -> None:
    """See that the object of a node agrees with the root of its tree; raises Violation."""
    name = root.name
    if "uuid" in node and node.uuid != root.uuid:
        raise Violation(f"{name}: the node has uuid {node.uuid}", f"its provider's, {root.uuid}")
    for field, said, totals in _figures(node, root):
        if said not in totals:
            told = " or ".join(map(str, totals))
            raise Violation(f"{name}: the node has {field} {said}", f"its provider's, {told}")


def _figures(node: ComputeNode, root: Provider) -> Iterator[tuple[str, int, list[int]]]:
    """The figures that both have: the field, what the node says, and what it may say."""
    for field, ways in _FIGURES.items():
        said = getattr(node, field) if field in node else None
        totals = [
            sum(root.inventories[kind].total for kind in kinds)
            for kinds in ways
            if root.inventories.keys() >= {*kinds}
        ]
        if said is not None and totals:
            yield field, said, totals
