"""Mutants of what comes and goes (WHF-4..)."""

from collections.abc import Sequence

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import ProviderTree


@mutant("WHF-401")
class EnumeratesOnce(DevicesDriver):
    """It knows the devices that there were when it began."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.first: frozenset[str] = frozenset()

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.first = self.first or frozenset(names)
        return super().read_devices([name for name in names if name in self.first])


@mutant("WHF-401")
class Renumbers(MachinesDriver):
    """A machine that comes changes what is said of the others."""

    def traits(self, tree: ProviderTree, name: str, facts: Facts) -> set[str]:
        left = len(self.devices) - [*self.devices].index(name)
        return super().traits(tree, name, facts) | {f"CUSTOM_LAB_PLACE_{left}"}


@mutant("WHF-402")
class KeepsWhatIsGone(DevicesDriver):
    """It never removes a device from the tree."""

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        return []


@mutant("WHF-403")
class KnowsThemAgain(DevicesDriver):
    """Of a device that it has known before it does not ask for the traits again."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.lost: set[str] = set()

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        names = super().gone(tree, node)
        self.lost.update(names)
        return names

    def traits(self, tree: ProviderTree, name: str, facts: Facts) -> set[str]:
        return set() if name in self.lost else super().traits(tree, name, facts)
