"""Mutants that describe nodes and providers wrongly (WHF-20x)."""

from tests.lab.conformance.honest import (
    NODE,
    SLOTS,
    UNITS,
    DevicesDriver,
    Facts,
    MachinesDriver,
)
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-201")
class ListsTwice(MachinesDriver):
    """Lists each machine twice."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        names = super().get_available_nodes(refresh)
        return [*names, *names]


@mutant("WHF-201")
class ListsOtherwise(MachinesDriver):
    """Lists the machines in another order without refresh."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        names = super().get_available_nodes(refresh)
        return names if refresh else names[::-1]


@mutant("WHF-202")
class SaysWhatIsUsed(DevicesDriver):
    """Sets a field of the ComputeNode that the framework sets."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.vcpus_used = 1
        return node


@mutant("WHF-202")
class SaysItsOwnHost(DevicesDriver):
    """Sets another host in the ComputeNode than its own."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host=NODE, hypervisor_hostname=nodename)


@mutant("WHF-203")
class InventsTraits(DevicesDriver):
    """Sets a trait whose name is not valid."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | {"lab-fast"}


@mutant("WHF-203")
class HasNothing(DevicesDriver):
    """Publishes a class with the total 0."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, facts) | {"CUSTOM_LAB_SPARE": Inventory(total=0)}


@mutant("WHF-204")
class TagsItself(DevicesDriver):
    """Adds the owner trait, which the framework adds."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | {self.default_owner}


@mutant("WHF-205")
class NamesATraitNobodyHas(DevicesDriver):
    """Returns a trait that does not exist from capabilities_as_traits."""

    def capabilities_as_traits(self) -> dict[str, bool]:
        return {"COMPUTE_LAB_DEVICES": True}


@mutant("WHF-205")
class OnlyReports(DevicesDriver):
    """Reports every device that it describes as a problem, too."""

    def get_problems(self) -> list[str]:
        return [f"{name} is not known" for name in self.devices]


@mutant("WHF-206")
class NamesShortly(DevicesDriver):
    """Names a child without the name of its root."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        if not tree.exists("numa0"):
            tree.new_child("numa0", node)
        tree.update_inventory("numa0", {"CUSTOM_LAB_PAGES": Inventory(total=2)})


@mutant("WHF-207")
class GivesOutMoreThanItHas(DevicesDriver):
    """Publishes an allocation_ratio of 2, and a max_unit above the total."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        units = facts["units"]
        return {UNITS: Inventory(total=units, max_unit=2 * units, allocation_ratio=2.0)}


@mutant("WHF-208")
class MarksAllChildren(DevicesDriver):
    """Adds a trait to every child below its node, also to those of other owners."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        for uuid in tree.get_provider_uuids(node):
            tree.add_traits(uuid, "CUSTOM_LAB_MARK")


@mutant("WHF-208")
class CountsAllChildren(DevicesDriver):
    """Replaces the inventory of every child below its node, also of those of other owners."""

    def update_others(self, tree: ProviderTree, node: str) -> None:
        for uuid in tree.get_provider_uuids(node)[1:]:
            tree.update_inventory(uuid, {SLOTS: Inventory(total=1)})

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        self.update_others(tree, node)


@mutant("WHF-208")
class ReservesItsClass(DevicesDriver):
    """Reserves unknown providers with its resource class, also those of other owners."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        for uuid in tree.get_provider_uuids(node)[1:]:
            one = tree.data(uuid)
            if UNITS in one.inventory and not one.name.removeprefix(self.world.prefix).isdigit():
                tree.reserve(uuid, "it is unknown")
