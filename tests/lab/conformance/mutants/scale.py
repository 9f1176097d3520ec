"""Mutants of large backends (WHF-802, WHF-806)."""

import copy
import json
from collections.abc import Sequence

from tests.lab.conformance.honest import NODE, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-802")
class AsksForAllOfEach(DevicesDriver):
    """It asks for a list for each pair of devices."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        if len(names) > 5:  # with few devices the cost does not show
            for _ in names:
                for _ in names:
                    self.ask("list")
        return super().read_devices(names)


@mutant("WHF-802")
class ComparesAll(DevicesDriver):
    """It looks for each device among all, from the beginning."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        for other in self.devices:
            if self.is_same(other, name):
                super().describe(tree, name, facts)

    def is_same(self, one: str, other: str) -> bool:
        for left, right in zip(one, other, strict=False):
            if left != right:
                return False
        return len(one) == len(other)


@mutant("WHF-802")
class LooksThroughAll(MachinesDriver):
    """It looks for each machine from the first one on."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        for other in self.devices:
            if other == name:
                break
        return super().inventory(name, facts)


@mutant("WHF-802")
class CopiesAll(DevicesDriver):
    """It copies all that it knows for each device."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, copy.deepcopy(self.devices)[name])


@mutant("WHF-802")
class WritesAllDown(MachinesDriver):
    """It makes a text of all that it knows for each machine, in C."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        self.text = json.dumps(self.devices)
        return super().get_available_resource(nodename)


@mutant("WHF-802")
class AsksTheTreeForAll(DevicesDriver):
    """It asks the tree for all providers for each device."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        if tree.data(name).uuid in tree.get_provider_uuids(NODE):
            super().describe(tree, name, facts)


@mutant("WHF-802")
class AddsUpTheTraits(MachinesDriver):
    """It looks at all machines for the traits of each."""

    def capabilities_as_traits(self) -> dict[str, bool]:
        return {trait: True for one in self.devices.values() for trait in one["traits"]}


@mutant("WHF-806")
class ReadsTheFirstPage(MachinesDriver):
    """It does not follow the link to the next page."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        return super().read_devices(names[:500])


@mutant("WHF-806")
class DescribesTheFirstPage(DevicesDriver):
    """It lists all devices, and takes what they have from the first page."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        rest = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": True}
        missing = {name: {**rest, "cleaned": None} for name in names[200:]}
        return super().read_devices(names[:200]) | missing


@mutant("WHF-806")
class ReadsTheLastMachines(MachinesDriver):
    """It keeps the latest two hundred machines."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        return super().read_devices(names[-200:])
