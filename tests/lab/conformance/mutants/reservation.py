"""Mutants that break the rules on reservations (WHF-5xx)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import ClassVar

from oslo_config import cfg

from tests.lab.conformance.honest import NODE, UNITS, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-501")
class SeesNobodyBusy(DevicesDriver):
    """Never reserves a busy device."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        pass


@mutant("WHF-501")
class TakesInventoryAway(DevicesDriver):
    """Deletes the inventory of a busy device."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        tree.update_inventory(name, {})


@mutant("WHF-501")
class LeavesPartsFree(DevicesDriver):
    """Leaves the child of a busy device free."""

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
    """Publishes no reserved amount for a device that has been busy once."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        if facts["busy"]:
            self.noted.add(name)
        reserved = 0 if name in self.noted else facts["reserved"]
        return super().inventory(name, {**facts, "reserved": reserved})


@mutant("WHF-507")
class ReservesAll(DevicesDriver):
    """Reserves all devices if one is busy."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        for one in self.devices:
            if tree.exists(one):
                super().reserve(tree, one)


@mutant("WHF-504")
class ReservesWhatBecomesBusy(DevicesDriver):
    """Reserves a busy device only if it was published before."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if tree.data(name).traits:  # a new provider has no traits
            super().reserve(tree, name)


@mutant("WHF-505")
class ReservesByFigures(MachinesDriver):
    """Sets the reserved amount to the total, without a reason."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        units = self.devices[name]["units"]
        tree.update_inventory(name, {UNITS: Inventory(total=units, max_unit=units, reserved=units)})


@mutant("WHF-506")
class SaysItOnce(DevicesDriver):
    """Reserves a busy device only in its first description after a listing."""

    def read(self) -> None:
        super().read()
        self.noted.clear()

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().reserve(tree, name)
        self.noted.add(name)


@mutant("WHF-506")
class RemembersOne(DevicesDriver):
    """Reserves only the first busy device."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name == next(one for one, facts in self.devices.items() if facts["busy"]):
            super().reserve(tree, name)


@mutant("WHF-507")
class ReservesTheNode(DevicesDriver):
    """Reserves the node, too, if a device is busy."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        super().reserve(tree, name)
        tree.reserve(NODE, "a device is busy")


@mutant("WHF-507")
class ReservesTheNeighbour(DevicesDriver):
    """Reserves the child of the next device, too, if a device is busy."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        names = [*self.devices]
        before = self.devices[names[names.index(name) - 1]]
        engine = f"{name}_engine"
        if not tree.exists(engine):
            tree.new_child(engine, name)
        tree.update_inventory(engine, {UNITS: Inventory(total=1, max_unit=1)})
        if facts["busy"] or before["busy"]:
            tree.reserve(engine, "it is busy")

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        return [one for one in super().gone(tree, node) if not one.endswith("_engine")]


@mutant("WHF-507")
class SaysBusyByATrait(MachinesDriver):
    """Adds a trait to a busy machine."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | ({"CUSTOM_BUSY"} if facts["busy"] else set())


@mutant("WHF-507")
class KnowsNothingOfBusyOnes(DevicesDriver):
    """Publishes only the function trait of a busy device."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, {**facts, "traits": ()} if facts["busy"] else facts)


@mutant("WHF-507")
class GivesBusyOnesByOne(DevicesDriver):
    """Sets max_unit of a busy device to 1."""

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        found = super().inventory(name, facts)
        if facts["busy"]:
            found[UNITS] = replace(found[UNITS], max_unit=1)
        return found


@mutant("WHF-508")
class GivesUpAfterAnHour(MachinesDriver):
    """Stops reserving a machine that has been busy for an hour."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.since: dict[str, float] = {}

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if monotonic() - self.since.setdefault(name, monotonic()) < 3600:
            super().reserve(tree, name)


@mutant("WHF-508")
class GivesUpTheNextMonth(DevicesDriver):
    """Stops reserving a busy device in the next month, also after a restart."""

    since: ClassVar[dict[tuple[str, str], datetime]] = {}

    def reserve(self, tree: ProviderTree, name: str) -> None:
        now = datetime.now(UTC)
        known = self.since.setdefault((str(id(self.world)), name), now)
        if (known.year, known.month) == (now.year, now.month):
            super().reserve(tree, name)


@mutant("WHF-508")
class GivesUpAfterFortySnapshots(DevicesDriver):
    """Stops reserving a device that was busy in forty listings."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.seen: Counter[str] = Counter()

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        self.seen.update(name for name, facts in devices.items() if facts["busy"])
        return devices

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if self.seen[name] < 40:
            super().reserve(tree, name)


@mutant("WHF-509")
class ReservesTheNodeWithAll(DevicesDriver):
    """Reserves the node, too, if all devices are busy."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        super().reserve(tree, name)
        if len(self.devices) > 1 and all(facts["busy"] for facts in self.devices.values()):
            tree.reserve(NODE, "all devices are busy")


@mutant("WHF-509")
class ReservesTwice(MachinesDriver):
    """Does not reserve a machine that is busy for the third time."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.times: Counter[str] = Counter()
        self.were_busy: set[str] = set()

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        busy = {name for name, facts in devices.items() if facts["busy"]}
        self.times.update(busy - self.were_busy)
        self.were_busy = busy
        return devices

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if self.times[name] <= 2:
            super().reserve(tree, name)


@mutant("WHF-509")
class ReservesTenAtMost(MachinesDriver):
    """Reserves only the first ten busy machines."""

    def reserve(self, tree: ProviderTree, name: str) -> None:
        busy = [one for one, facts in self.devices.items() if facts["busy"]]
        if name in busy[:10]:
            super().reserve(tree, name)


@mutant("WHF-510")
class OffersWhatIsNew(DevicesDriver):
    """Does not reserve a busy device in the first listing that has it."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        new = {*names} - self.devices.keys() if self.devices else set()
        devices = super().read_devices(names)
        return {
            name: {**facts, "busy": False} if name in new else facts
            for name, facts in devices.items()
        }


@mutant("WHF-707")
class BelievesTheRestarted(MachinesDriver):
    """Stops reserving busy machines after a restart of the backend."""

    def connect_again(self) -> None:
        super().connect_again()
        self.noted = {*self.devices}

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().reserve(tree, name)
