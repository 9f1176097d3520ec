"""Mutants of what is there, and not to be had (WHF-5..)."""

from tests.lab.conformance.honest import UNITS, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-501")
class SeesNobodyBusy(DevicesDriver):
    """It does not look whether a device is busy."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        pass


@mutant("WHF-501")
class TakesInventoryAway(DevicesDriver):
    """A busy device has no inventory."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        tree.update_inventory(name, {})


@mutant("WHF-501")
class LeavesPartsFree(DevicesDriver):
    """A device has a part below it, which it leaves free while the device is busy."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        part = f"{name}_part"
        if not tree.exists(part):
            tree.new_child(part, name)
        tree.update_inventory(part, {UNITS: Inventory(total=1, max_unit=1)})

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        return [one for one in super().gone(tree, node) if not one.endswith("_part")]


@mutant("WHF-502")
class ForgetsItsOwnFigure(DevicesDriver):
    """When a device is free again it keeps back nothing for itself."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        if facts["busy"]:
            self.noted.add(name)
        reserved = 0 if name in self.noted else facts["reserved"]
        return super().inventory(name, {**facts, "reserved": reserved})


@mutant("WHF-503")
class ReservesAll(DevicesDriver):
    """Where one device is busy it reserves all of them."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        for one in self.devices:
            if tree.exists(one):
                super().reserve(tree, one)


@mutant("WHF-504")
class ReservesWhatBecomesBusy(DevicesDriver):
    """It reserves devices that it has seen free before."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if tree.data(name).traits:  # there are none of what is new to the tree
            super().reserve(tree, name)


@mutant("WHF-505")
class ReservesByFigures(MachinesDriver):
    """It sets the figure itself, and gives no reason."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        units = self.devices[name]["units"]
        tree.update_inventory(name, {UNITS: Inventory(total=units, max_unit=units, reserved=units)})


@mutant("WHF-506")
class SaysItOnce(DevicesDriver):
    """It says once of each snapshot what is busy."""

    def read(self) -> None:
        super().read()
        self.noted.clear()

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().reserve(tree, name)
        self.noted.add(name)


@mutant("WHF-506")
class RemembersOne(DevicesDriver):
    """It remembers one busy device, which is the first that it sees."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name == next(one for one, facts in self.devices.items() if facts["busy"]):
            super().reserve(tree, name)


@mutant("WHF-707")
class BelievesTheRestarted(MachinesDriver):
    """After the backend was restarted it takes all to be free, until it hears more."""

    def connect_again(self) -> None:
        super().connect_again()
        self.noted = {*self.devices}

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().reserve(tree, name)
