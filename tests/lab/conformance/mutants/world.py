"""Mutants that handle added and removed things wrongly (WHF-4xx)."""

from collections.abc import Sequence

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import ProviderTree


@mutant("WHF-401")
class EnumeratesOnce(DevicesDriver):
    """Describes only the devices of its first listing."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.noted = self.noted or {*names}
        return super().read_devices([name for name in names if name in self.noted])


@mutant("WHF-401")
class Renumbers(MachinesDriver):
    """Changes the traits of all machines when one is added."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        left = len(self.devices) - [*self.devices].index(name)
        return super().traits(name, facts) | {f"CUSTOM_LAB_PLACE_{left}"}


@mutant("WHF-402")
class KeepsWhatIsGone(DevicesDriver):
    """Does not remove the provider of a removed device."""

    def remove(self, tree: ProviderTree, name: str) -> None:
        pass


@mutant("WHF-403")
class KnowsThemAgain(DevicesDriver):
    """Publishes no traits for a device that was removed and put back."""

    def remove(self, tree: ProviderTree, name: str) -> None:
        super().remove(tree, name)
        self.noted.add(name)

    def traits(self, name: str, facts: Facts) -> set[str]:
        return set() if name in self.noted else super().traits(name, facts)


@mutant("WHF-402")
class BelievesNoEmptyList(MachinesDriver):
    """Keeps the machines of the last listing if the list is empty."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        return super().read_devices(names) or self.devices


@mutant("WHF-402")
class KeepsWhatWasBusy(DevicesDriver):
    """Does not remove the provider of a device that was busy when it was removed."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        (self.noted.add if facts["busy"] else self.noted.discard)(name)

    def remove(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().remove(tree, name)
