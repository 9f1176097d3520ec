"""Mutants whose defect shows only after several events (WHF-991 and others)."""

from collections.abc import Sequence

from tests.lab.conformance.honest import DevicesDriver, Facts
from tests.lab.conformance.mutants import mutant
from tests.lab.conformance.unusual import HasPartsBelowNodes
from wharfinger.exceptions import BackendError
from wharfinger.providers import ProviderTree


@mutant("WHF-506")
class ForgetsWhenOneComes(DevicesDriver):
    """Stops reserving busy devices when a device is added or removed."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        if self.devices and self.devices.keys() != devices.keys():
            self.noted = {name for name in self.devices if self.devices[name]["busy"]}
        return devices

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().reserve(tree, name)


@mutant("WHF-702")
class SeesNobodyBusyAfterAnError(DevicesDriver):
    """Stops reserving busy devices after the first error."""

    def failed(self, words: str, error: Exception) -> BackendError:
        self.noted.add("an error")
        return super().failed(words, error)

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if not self.noted:
            super().reserve(tree, name)


@mutant("WHF-991")
class SeesNobodyBusyAfterTwoRemovals(DevicesDriver):
    """Stops reserving busy devices when two devices were removed."""

    def remove(self, tree: ProviderTree, name: str) -> None:
        super().remove(tree, name)
        self.noted.add(name)

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if len(self.noted) < 2:
            super().reserve(tree, name)


@mutant("WHF-991")
class SeesNoPartBusyAfterTwoRemovals(HasPartsBelowNodes):
    """Stops reserving the parts of busy machines when two machines were removed."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.noted |= self.devices.keys() - {*names}
        return super().read_devices(names)

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if len(self.noted) < 2 or name in self.devices:
            super().reserve(tree, name)
