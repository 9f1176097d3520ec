"""Mutants that go wrong late: only a history finds them (WHF-99.)."""

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import Inventory


@mutant("WHF-991")
class SeesOnceThatOneIsBusy(DevicesDriver):
    """A device that has been busy before is not seen to be so again."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.is_over: set[str] = set()
        self.were_busy: set[str] = set()

    def is_busy(self, name: str, facts: Facts) -> bool:
        if facts["busy"]:
            self.were_busy.add(name)
        elif name in self.were_busy:
            self.is_over.add(name)
        return super().is_busy(name, facts) and name not in self.is_over


@mutant("WHF-991")
class CountsBelowABusyOne(MachinesDriver):
    """A machine that comes while another is busy is taken to be smaller than it is."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.sizes: dict[str, int] = {}

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        is_any_busy = any(one["busy"] for one in self.devices.values())
        units = self.sizes.setdefault(name, 1 if self.sizes and is_any_busy else facts["units"])
        return super().inventory(name, {**facts, "units": units, "reserved": 0})
