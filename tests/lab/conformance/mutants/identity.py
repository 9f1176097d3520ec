"""Mutants that give a provider the wrong name, uuid or owner (WHF-311, WHF-404 and others)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar
from uuid import NAMESPACE_URL, uuid5

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.driver import Allocations
from wharfinger.objects import ComputeNode, Migration
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-311")
class HasOneUuidEverywhere(DevicesDriver):
    """Gives its node the same uuid on every host."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = str(uuid5(NAMESPACE_URL, "lab"))
        return node


@mutant("WHF-311")
class HasUuidsOfSlots(DevicesDriver):
    """Gives a part of a device a uuid that is made of the slot alone, the same on every host."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        part = f"{name}_part"
        if not tree.exists(part):
            tree.new_child(part, name, str(uuid5(NAMESPACE_URL, name.rpartition("device")[2])))
        tree.update_inventory(part, {"CUSTOM_LAB_PART": Inventory(total=1)})
        super().describe(tree, name, facts)
        if facts["busy"]:
            tree.reserve(part, "its device is busy")

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        return [one for one in super().gone(tree, node) if not one.endswith("_part")]


@mutant("WHF-311")
class HasNodesByNumber(MachinesDriver):
    """Makes the uuid of a machine from its number, not from its name."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = str(uuid5(NAMESPACE_URL, nodename.rpartition("-")[2]))
        return node


class HasFunctions(DevicesDriver):
    """Base of drivers that publish a function for each device, as a further child of the node."""

    def update_functions(self, tree: ProviderTree, node: str, numbers: Iterable[int]) -> None:
        wanted = {f"{node}_function{number}" for number in numbers}
        for uuid in tree.get_provider_uuids(node)[1:]:
            name = tree.data(uuid).name
            if name.startswith(f"{node}_function") and name not in wanted:
                tree.remove(name)
        for name in sorted(wanted):
            if not tree.exists(name):
                tree.new_child(name, node)
            tree.update_inventory(name, {"CUSTOM_LAB_FUNCTION": Inventory(total=1)})


@mutant("WHF-404")
class NumbersFunctionsInOrder(HasFunctions):
    """Numbers the functions by their position, so that a removal changes which one is gone."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        self.update_functions(tree, node, range(len(self.devices)))


@mutant("WHF-404")
class NumbersFunctionsAtTheStart(HasFunctions):
    """Numbers the functions when the driver starts, so that numbers change at a restart."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.numbers: dict[str, int] = {}

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        for name in self.devices:
            self.numbers.setdefault(name, len(self.numbers))
        self.update_functions(tree, node, (self.numbers[name] for name in self.devices))


@mutant("WHF-402")
class NumbersPartsInOrder(DevicesDriver):
    """Numbers the parts of devices over all devices, so that a removal renumbers them."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        node = tree.data(name).parent_uuid
        assert node is not None
        part = f"{tree.data(node).name}_part{[*self.devices].index(name)}"
        if tree.exists(part) and tree.data(part).parent_uuid != tree.data(name).uuid:
            tree.remove(part)
        if not tree.exists(part):
            tree.new_child(part, name)
        tree.update_inventory(part, {"CUSTOM_LAB_PART": Inventory(total=1)})
        if facts["busy"]:
            tree.reserve(part, "its device is busy")


@mutant("WHF-404")
class ShiftsAfterAGap(MachinesDriver):
    """Changes the traits of a machine when the machine before it is removed."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        number = int(name.removeprefix(self.world.prefix))
        one, other = (f"{self.world.prefix}{number - by}" for by in (1, 2))
        moves = one not in self.devices and other in self.devices
        return super().traits(name, facts) | ({"CUSTOM_LAB_MOVED"} if moves else set())


class PublishesItsHost(MachinesDriver):
    """Publishes its own host as a further node."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return [*super().get_available_nodes(refresh), self.host]

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        if nodename == self.host:
            provider_tree.update_inventory(nodename, {"CUSTOM_LAB_HOST": Inventory(total=1)})
        else:
            super().update_provider_tree(provider_tree, nodename, allocations, migrations)


@mutant("WHF-311")
class HasTheUuidOfItsKind(PublishesItsHost):
    """Gives the node of its host the same uuid on every host; its harness has no second host."""

    older: ClassVar[bool] = True

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        if nodename == self.host:
            node.uuid = str(uuid5(NAMESPACE_URL, "machines"))
        return node


class Untagged(frozenset[str]):
    """Traits to which the framework can add no owner trait."""

    def __sub__(self, others: object) -> "Untagged":
        return self

    def __or__(self, others: object) -> "Untagged":
        return self


@mutant("WHF-401")
class LeavesLateOnesUntagged(DevicesDriver):
    """Keeps the framework from adding the owner trait to devices that are added later."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        self.noted = self.noted or {*self.devices}
        if name not in self.noted:
            live = tree._find(name)
            provider = replace(live, traits=Untagged(live.traits))
            tree._desired[live.uuid] = replace(tree._desired[live.uuid], provider=provider)
