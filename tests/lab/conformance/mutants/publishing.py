"""Mutants of what a driver says, and what is published of that (WHF-20.)."""

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
    """It lists a machine once for each of its two power supplies."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        names = super().get_available_nodes(refresh)
        return [*names, *names]


@mutant("WHF-201")
class ListsOtherwise(MachinesDriver):
    """Its list has another order when it comes from memory."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        names = super().get_available_nodes(refresh)
        return names if refresh else names[::-1]


@mutant("WHF-202")
class SaysWhatIsUsed(DevicesDriver):
    """It sets a field of the node that is the framework's."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.vcpus_used = 1
        return node


@mutant("WHF-202")
class SaysItsOwnHost(DevicesDriver):
    """It gives a host of its own to its node."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host=NODE, hypervisor_hostname=nodename)


@mutant("WHF-203")
class InventsTraits(DevicesDriver):
    """It takes names of traits from its backend as they are."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | {"lab-fast"}


@mutant("WHF-203")
class HasNothing(DevicesDriver):
    """It offers a class of which there is nothing."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, facts) | {"CUSTOM_LAB_SPARE": Inventory(total=0)}


@mutant("WHF-204")
class TagsItself(DevicesDriver):
    """It adds the owner trait, which is the framework's to add."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | {self.default_owner}


@mutant("WHF-205")
class NamesATraitNobodyHas(DevicesDriver):
    """Its capabilities become traits that there are not."""

    def capabilities_as_traits(self) -> dict[str, bool]:
        return {"COMPUTE_LAB_DEVICES": True}


@mutant("WHF-205")
class OnlyReports(DevicesDriver):
    """It reports devices that it has described as problems."""

    def get_problems(self) -> list[str]:
        return [f"{name} is not known" for name in self.devices]


@mutant("WHF-206")
class NamesShortly(DevicesDriver):
    """A child of its own has a name that another host's may have."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        if not tree.exists("numa0"):
            tree.new_child("numa0", node)
        tree.update_inventory("numa0", {"CUSTOM_LAB_PAGES": Inventory(total=2)})


@mutant("WHF-207")
class GivesOutMoreThanItHas(DevicesDriver):
    """It gives out twice what it has, to one user too."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        units = facts["units"]
        return {UNITS: Inventory(total=units, max_unit=2 * units, allocation_ratio=2.0)}


@mutant("WHF-208")
class MarksAllChildren(DevicesDriver):
    """It marks every child below its node, whosever it is."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        for uuid in tree.get_provider_uuids(node):
            tree.add_traits(uuid, "CUSTOM_LAB_MARK")


@mutant("WHF-208")
class CountsAllChildren(DevicesDriver):
    """It writes the inventory of every child below its node anew."""

    def update_others(self, tree: ProviderTree, node: str) -> None:
        for uuid in tree.get_provider_uuids(node)[1:]:
            tree.update_inventory(uuid, {SLOTS: Inventory(total=1)})

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        self.update_others(tree, node)


@mutant("WHF-208")
class ReservesItsClass(DevicesDriver):
    """It reserves what it does not know and has its class, whosever that is."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        for uuid in tree.get_provider_uuids(node)[1:]:
            one = tree.data(uuid)
            if UNITS in one.inventory and not one.name.removeprefix(self.world.prefix).isdigit():
                tree.reserve(uuid, "it is unknown")
