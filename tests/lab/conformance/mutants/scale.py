"""Mutants that are too slow for a large backend, or leave things out (WHF-802, WHF-806)."""

import copy
import json
from collections.abc import Sequence

from tests.lab.conformance.honest import NODE, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-802")
class AsksForAllOfEach(DevicesDriver):
    """Sends a request for each pair of devices."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        if len(names) > 5:  # with few devices the cost does not show
            for _ in names:
                for _ in names:
                    self.ask("list")
        return super().read_devices(names)


@mutant("WHF-802")
class ComparesAll(DevicesDriver):
    """Compares each device with all devices, in Python."""

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
    """Goes through the list of all machines for each machine, in Python code."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        for other in self.devices:
            if other == name:
                break
        return super().inventory(name, facts)


@mutant("WHF-802")
class CopiesAll(DevicesDriver):
    """Copies the facts of all devices for each device."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, copy.deepcopy(self.devices)[name])


@mutant("WHF-802")
class WritesAllDown(MachinesDriver):
    """Encodes the facts of all machines as JSON for each machine, in C."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        self.text = json.dumps(self.devices)
        return super().get_available_resource(nodename)


@mutant("WHF-802")
class AsksTheTreeForAll(DevicesDriver):
    """Lists all providers of the tree for each device, in code of the framework."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        if tree.data(name).uuid in tree.get_provider_uuids(NODE):
            super().describe(tree, name, facts)


@mutant("WHF-802")
class AddsUpTheTraits(MachinesDriver):
    """Looks at all machines in each call of capabilities_as_traits."""

    def capabilities_as_traits(self) -> dict[str, bool]:
        return {trait: True for one in self.devices.values() for trait in one["traits"]}


@mutant("WHF-806")
class ReadsTheFirstPage(MachinesDriver):
    """Reads only the first five hundred machines."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        return super().read_devices(names[:500])


@mutant("WHF-806")
class DescribesTheFirstPage(DevicesDriver):
    """Reads only the first two hundred devices, and describes the others by defaults."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        rest = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": True}
        missing = {name: {**rest, "cleaned": None} for name in names[200:]}
        return super().read_devices(names[:200]) | missing


@mutant("WHF-806")
class ReadsTheLastMachines(MachinesDriver):
    """Reads only the last two hundred machines."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        return super().read_devices(names[-200:])
