"""Mutants of what comes and goes (WHF-4..)."""

from collections.abc import Sequence

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import ProviderTree


@mutant("WHF-401")
class EnumeratesOnce(DevicesDriver):
    """It knows the devices that there were when it began."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.noted = self.noted or {*names}
        return super().read_devices([name for name in names if name in self.noted])


@mutant("WHF-401")
class Renumbers(MachinesDriver):
    """A new machine changes the traits of the others."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        left = len(self.devices) - [*self.devices].index(name)
        return super().traits(name, facts) | {f"CUSTOM_LAB_PLACE_{left}"}


@mutant("WHF-402")
class KeepsWhatIsGone(DevicesDriver):
    """It never removes a device from the tree."""

    def remove(self, tree: ProviderTree, name: str) -> None:
        pass


@mutant("WHF-403")
class KnowsThemAgain(DevicesDriver):
    """Of a device that it has known before it does not ask for the traits again."""

    def remove(self, tree: ProviderTree, name: str) -> None:
        super().remove(tree, name)
        self.noted.add(name)

    def traits(self, name: str, facts: Facts) -> set[str]:
        return set() if name in self.noted else super().traits(name, facts)


@mutant("WHF-402")
class BelievesNoEmptyList(MachinesDriver):
    """Where there is nothing there is what there was."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        return super().read_devices(names) or self.devices


@mutant("WHF-402")
class KeepsWhatWasBusy(DevicesDriver):
    """It does not remove a device that was busy when it disappeared."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        (self.noted.add if facts["busy"] else self.noted.discard)(name)

    def remove(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().remove(tree, name)
