"""Mutants that publish wrong totals, traits or ComputeNodes (WHF-22x, WHF-31x and others)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tests.lab.conformance.honest import UNITS, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree

#: The rules that a mutant also breaks if adding or removing a device changes another device.
_MOVED = ("WHF-401", "WHF-402", "WHF-403", "WHF-404", "WHF-991")


@mutant("WHF-221")
class HasOneSize(DevicesDriver):
    """Publishes the units of the first model for every device."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, {**facts, "units": 4})


@mutant("WHF-221")
class LeavesTraitsOut(MachinesDriver):
    """Publishes only the first trait of a machine."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return {*facts["traits"][:1]}


@mutant("WHF-221")
class SwapsDevices(DevicesDriver):
    """Publishes the figures of the last device for the first one, and so on."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        names = [*self.devices]
        other = names[-1 - names.index(name)]
        return super().inventory(name, self.devices[other])


@mutant("WHF-221")
class PublishesWhatIsLeft(MachinesDriver):
    """Subtracts the reserved amount from the total of a machine."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        units = facts["units"] - facts["reserved"]
        return {UNITS: Inventory(total=units, max_unit=units)}


class ReadsOnce(DevicesDriver):
    """Keeps the units that a device had when it was first listed."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.known: dict[str, Facts] = {}

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, self.known.setdefault(name, facts))


@mutant("WHF-313")
class ReadsTotalsOnce(ReadsOnce):
    """Keeps the units and traits that a device had when it was first listed."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, {**self.known[name], "function": facts["function"]})


@mutant("WHF-313")
class ReadsTheSizeOnce(ReadsOnce):
    """Follows changes of a device's traits, but not of its units."""


@mutant("WHF-313")
class HasOneSizeForAll(MachinesDriver):
    """Adds a trait to all machines if one of them has a certain trait."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        is_unusual = any(
            "V2_2" in trait for one in self.devices.values() for trait in one["traits"]
        )
        return super().traits(name, facts) | ({"CUSTOM_LAB_MIXED"} if is_unusual else set())


@mutant("WHF-301")
class CountsDown(MachinesDriver):
    """Changes memory_mb of the ComputeNode with each listing, but not the tree."""

    looks = 0

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.looks += 1
        return super().read_devices(names)

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.memory_mb = 4096 - self.looks
        return node


@mutant("WHF-314")
class SubtractsWhatIsUsed(DevicesDriver):
    """Publishes the free units as the total."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, {**facts, "units": facts["units"] - facts["used"]})


@mutant("WHF-314")
class HidesWhatIsUsed(MachinesDriver):
    """Publishes no traits for a machine that instances use."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return set() if facts["used"] else super().traits(name, facts)


@mutant("WHF-314")
class ReservesWhatIsUsed(MachinesDriver):
    """Adds the units that instances use to the reserved amount."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, {**facts, "reserved": facts["reserved"] + facts["used"]})


@mutant("WHF-314")
class SubtractsAllocations(DevicesDriver):
    """Reads the allocations of a device in Placement, and publishes the rest as the total."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        held = self.world.allocations(tree.data(name).uuid).values()
        used = sum(one["resources"].get(UNITS, 0) for one in held)
        super().describe(tree, name, {**facts, "units": facts["units"] - used})


@mutant("WHF-507")
class LosesTraitsWhileBusy(DevicesDriver):
    """Publishes no traits for a busy device."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return set() if facts["busy"] else super().traits(name, facts)


@mutant("WHF-507")
class MarksWhatIsBusy(MachinesDriver):
    """Adds a trait to a busy machine."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | ({"CUSTOM_LAB_BUSY"} if facts["busy"] else set())


@mutant("WHF-508")
class GivesAllAtOnceWhileBusy(DevicesDriver):
    """Sets min_unit of a device to all units when it has been busy for some listings."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.looks: dict[str, int] = {}

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        found = super().inventory(name, facts)
        is_whole = facts["busy"] and self.looks.get(name, 0) > 2
        self.looks[name] = self.looks.get(name, 0) + 1 if facts["busy"] else 0
        return {UNITS: replace(found[UNITS], min_unit=facts["units"])} if is_whole else found


@mutant("WHF-301")
class ForgetsTraitsInTime(MachinesDriver):
    """Publishes no traits any more after seven listings."""

    looks = 0

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.looks += 1
        return super().read_devices(names)

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) if self.looks < 7 else set()


@mutant("WHF-202")
class SaysItHasMore(MachinesDriver):
    """Publishes another number of VCPUs in the tree than in the ComputeNode."""

    default_owner: ClassVar[str] = "OWNER_NOVA"

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, facts) | {"VCPU": Inventory(total=16)}


@mutant("WHF-314")
class SubtractsAllocationsAnyway(SubtractsAllocations):
    """Subtracts allocations from the total; its harness has no method ``use``."""

    older: ClassVar[bool] = True


@mutant("WHF-313")
class DescribesTheNodeOnce(MachinesDriver):
    """Creates the ComputeNode only once, so that it differs from the tree after a change."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.objects: dict[str, ComputeNode] = {}

    def get_available_resource(self, nodename: str) -> ComputeNode:
        if nodename not in self.objects:
            node = super().get_available_resource(nodename)
            node.local_gb = self.devices[nodename]["units"]
            self.objects[nodename] = node
        return self.objects[nodename]

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, facts) | {"DISK_GB": Inventory(total=facts["units"])}


@mutant("WHF-313")
class NeverHasLess(DevicesDriver):
    """Keeps the larger number of units if a device has fewer units than before."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.most: dict[str, int] = {}

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        self.most[name] = max(facts["units"], self.most.get(name, 0))
        return super().inventory(name, {**facts, "units": self.most[name]})
