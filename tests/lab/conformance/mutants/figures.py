"""Mutants of totals and traits that are not those of the thing (WHF-22., WHF-31., WHF-54.)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tests.lab.conformance.honest import UNITS, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, ProviderTree

#: Rules that a mutant also breaks if a new or removed device changes another device's figures.
_MOVED = ("WHF-401", "WHF-402", "WHF-403", "WHF-404", "WHF-991")


@mutant("WHF-221")
class HasOneSize(DevicesDriver):
    """Every device has the units of the first model."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, {**facts, "units": 4})


@mutant("WHF-221")
class LeavesTraitsOut(MachinesDriver):
    """It knows one trait of a machine, and passes over the others."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return {*facts["traits"][:1]}


@mutant("WHF-221")
class SwapsDevices(DevicesDriver):
    """It takes the figures of the last device for those of the first, and so on."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        names = [*self.devices]
        other = names[-1 - names.index(name)]
        return super().inventory(name, self.devices[other])


@mutant("WHF-221")
class PublishesWhatIsLeft(MachinesDriver):
    """The total of a machine lacks what it keeps for itself."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        units = facts["units"] - facts["reserved"]
        return {UNITS: Inventory(total=units, max_unit=units)}


class ReadsOnce(DevicesDriver):
    """It remembers the figures of a device, and asks whether it is busy."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.known: dict[str, Facts] = {}

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, self.known.setdefault(name, facts))


@mutant("WHF-313")
class ReadsTotalsOnce(ReadsOnce):
    """It has the figures of a device that it had when it saw it first."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, {**self.known[name], "function": facts["function"]})


@mutant("WHF-313")
class ReadsTheSizeOnce(ReadsOnce):
    """It follows the traits of a device, and not its units."""


@mutant("WHF-313")
class HasOneSizeForAll(MachinesDriver):
    """Where one machine has more than the usual, all get a trait of that."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        is_unusual = any(
            "V2_2" in trait for one in self.devices.values() for trait in one["traits"]
        )
        return super().traits(name, facts) | ({"CUSTOM_LAB_MIXED"} if is_unusual else set())


@mutant("WHF-301")
class CountsDown(MachinesDriver):
    """The ComputeNode object has less memory each time; the provider tree does not change."""

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
    """It publishes as total what is free."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, {**facts, "units": facts["units"] - facts["used"]})


@mutant("WHF-314")
class HidesWhatIsUsed(MachinesDriver):
    """A machine that is used is no longer advertised with all traits."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return set() if facts["used"] else super().traits(name, facts)


@mutant("WHF-314")
class ReservesWhatIsUsed(MachinesDriver):
    """It counts as reserved what instances use, which they have allocated already."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, {**facts, "reserved": facts["reserved"] + facts["used"]})


@mutant("WHF-314")
class SubtractsAllocations(DevicesDriver):
    """It asks Placement what is allocated of a device, and publishes the rest."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        held = self.world.allocations(tree.data(name).uuid).values()
        used = sum(one["resources"].get(UNITS, 0) for one in held)
        super().describe(tree, name, {**facts, "units": facts["units"] - used})


@mutant("WHF-507")
class LosesTraitsWhileBusy(DevicesDriver):
    """A device that is busy has no traits: instances are not to ask for it."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return set() if facts["busy"] else super().traits(name, facts)


@mutant("WHF-507")
class MarksWhatIsBusy(MachinesDriver):
    """It says by a trait that a machine is busy."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | ({"CUSTOM_LAB_BUSY"} if facts["busy"] else set())


@mutant("WHF-508")
class GivesAllAtOnceWhileBusy(DevicesDriver):
    """A device that stays busy is given out whole."""

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
    """After some looks it takes the traits that it knows for outdated."""

    looks = 0

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.looks += 1
        return super().read_devices(names)

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) if self.looks < 7 else set()


@mutant("WHF-202")
class SaysItHasMore(MachinesDriver):
    """The object of a node has other CPUs than its provider."""

    default_owner: ClassVar[str] = "OWNER_NOVA"

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return super().inventory(name, facts) | {"VCPU": Inventory(total=16)}


@mutant("WHF-314")
class SubtractsAllocationsAnyway(SubtractsAllocations):
    """It does that with a harness that cannot have an instance use anything."""

    older: ClassVar[bool] = True


@mutant("WHF-313")
class DescribesTheNodeOnce(MachinesDriver):
    """The object of a node is made when it is listed first, and its tree each time."""

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
