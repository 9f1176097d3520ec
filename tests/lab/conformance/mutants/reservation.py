"""Mutants of what is there, and not to be had (WHF-5..)."""

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import Inventory


@mutant("WHF-501")
class SeesNobodyBusy(DevicesDriver):
    """It does not look whether a device is busy."""

    def is_busy(self, name: str, facts: Facts) -> bool:
        return False


@mutant("WHF-501")
class TakesInventoryAway(DevicesDriver):
    """A busy device has no inventory."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        return {} if facts["busy"] else super().inventory(name, facts)


@mutant("WHF-502")
class ForgetsItsOwnFigure(DevicesDriver):
    """When a device is free again it keeps back nothing for itself."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.were_busy: set[str] = set()

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        if facts["busy"]:
            self.were_busy.add(name)
        reserved = 0 if name in self.were_busy else facts["reserved"]
        return super().inventory(name, {**facts, "reserved": reserved})


@mutant("WHF-503")
class ReservesAll(DevicesDriver):
    """Where one device is busy it reserves all of them."""

    def is_busy(self, name: str, facts: Facts) -> bool:
        return any(one["busy"] for one in self.devices.values())


@mutant("WHF-504")
class ReservesWhatBecomesBusy(DevicesDriver):
    """It reserves devices that it has seen free before."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.were_free: set[str] = set()

    def is_busy(self, name: str, facts: Facts) -> bool:
        if not facts["busy"]:
            self.were_free.add(name)
        return super().is_busy(name, facts) and name in self.were_free


@mutant("WHF-505")
class ReservesByFigures(MachinesDriver):
    """It sets the figure itself, and gives no reason."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        reserved = facts["units"] if facts["busy"] else facts["reserved"]
        return super().inventory(name, {**facts, "reserved": reserved})

    def is_busy(self, name: str, facts: Facts) -> bool:
        return False
