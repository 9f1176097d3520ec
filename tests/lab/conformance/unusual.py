"""Drivers that do what few do, and that is right, with the rule that could take it for wrong."""

import math
import threading
from collections.abc import Sequence
from datetime import datetime
from time import monotonic

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, LabDriver, MachinesDriver
from wharfinger.driver import Allocations
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree


class EndsItsThreadSoon(DevicesDriver):
    """It has a thread that comes to its end a moment after it has been told to."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.over = threading.Event()
        threading.Thread(target=self.watch, name="watching", daemon=True).start()

    def watch(self) -> None:
        self.over.wait()
        threading.Event().wait(0.2)

    def cleanup_host(self) -> None:
        self.over.set()


class LooksWhoLeaves(MachinesDriver):
    """It looks which of the moves leave a node, and what they take."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        ends = [(one.source_compute, one.source_node) for one in migrations or ()]
        assert all(end == (self.host, nodename) for end in ends)
        self.leaving = sum(one.old_flavor.vcpus for one in migrations or ())
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)


class OffersAfterTwoLooks(DevicesDriver):
    """It offers a device that was busy when it has seen it free in two snapshots."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        #: How many snapshots are missing, by device.
        self.missing: dict[str, int] = {}

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        missing = {name: self.missing.get(name, 0) - 1 for name in devices}
        missing |= {name: 2 for name, facts in devices.items() if facts["busy"]}
        self.missing = {name: left for name, left in missing.items() if left > 0}
        return {name: {**facts, "busy": name in self.missing} for name, facts in devices.items()}

    def news(self, since: str) -> tuple[set[str], str]:
        waiting = {*self.missing}
        changed, mark = super().news(since)
        if waiting:
            self.read()
        return (self.changed(waiting) | changed if waiting else changed), mark


class OffersAfterFiveSeconds(MachinesDriver):
    """It offers a machine that was busy five seconds after it has seen that for the last time."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.busy_at: dict[str, float] = {}

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        now = monotonic()
        self.busy_at |= {name: now for name, facts in devices.items() if facts["busy"]}
        return devices

    def is_waiting(self, name: str) -> bool:
        return monotonic() - self.busy_at.get(name, -math.inf) < 5

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, {**facts, "busy": facts["busy"] or self.is_waiting(name)})

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        return changed | self.changed({*self.busy_at}), mark


class KnowsNoFunctionOfBusyOnes(DevicesDriver):
    """A device that is busy may be being programmed: its function is not known then."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, {**facts, "function": None} if facts["busy"] else facts)

    def current_function(self, provider_uuid: str) -> str | None:
        if self.devices[self.names[provider_uuid]]["busy"]:
            raise self.failed("current_function", RuntimeError("it is busy"))
        return super().current_function(provider_uuid)


class BelievesNoNote(DevicesDriver):
    """It cannot ask a device: after a job it does not know the function any more."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        self.noted.add(provider_uuid)
        super().program(provider_uuid, image, function)

    def current_function(self, provider_uuid: str) -> str | None:
        if provider_uuid in self.noted:
            raise KeyError(provider_uuid)  # not one of our exceptions
        function: str | None = self.devices[self.names[provider_uuid]]["function"]
        return function


class RefusesToSayWhatIsClean(DevicesDriver):
    """It raises where it cannot say whether a device is clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        if not super().is_clean(provider_uuid, since):
            raise LookupError(provider_uuid)
        return True


#: Drivers that every rule could take for wrong.
CONFORMING: Sequence[type[LabDriver]] = [OffersAfterTwoLooks, OffersAfterFiveSeconds]

UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-211", LooksWhoLeaves),
    ("WHF-507", KnowsNoFunctionOfBusyOnes),
    ("WHF-509", KnowsNoFunctionOfBusyOnes),
    ("WHF-804", EndsItsThreadSoon),
    ("WHF-921", BelievesNoNote),
    ("WHF-925", BelievesNoNote),
    ("WHF-926", BelievesNoNote),
    ("WHF-927", BelievesNoNote),
    ("WHF-928", BelievesNoNote),
    ("WHF-931", RefusesToSayWhatIsClean),
    ("WHF-932", RefusesToSayWhatIsClean),
]
