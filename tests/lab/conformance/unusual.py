"""Right drivers that are unusual, each with the rule whose check might take it for wrong."""

import fcntl
import json
import logging
import math
import random
import threading
import time
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from oslo_config import cfg

from tests.lab.conformance.honest import SLOTS, DevicesDriver, Facts, LabDriver, MachinesDriver
from tests.lab.conformance.mutants.identity import PublishesItsHost
from tests.lab.conformance.world import Refused
from wharfinger.driver import SUPPORTED, Allocations, Capabilities
from wharfinger.exceptions import BackendError
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import Inventory, ProviderTree

#: The aggregate of a pool and of the node that uses the pool.
_AGGREGATE = "2c2c5c0e-8d8e-4c62-8a3f-1de5a1d40b3c"


class EndsItsThreadSoon(DevicesDriver):
    """Starts a thread that ends a moment after cleanup_host."""

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
    """Reads the source and the old flavor of the migrations that it gets."""

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
    """Keeps a device reserved until two listings have shown it free."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        #: How many more listings must show each device free.
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
    """Keeps a machine reserved until five seconds after the last listing that showed it busy."""

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


class ForgetsItsFunctionWhileBusy(DevicesDriver):
    """Publishes no function trait for a busy device."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, {**facts, "function": None} if facts["busy"] else facts)


class KnowsNoFunctionOfBusyOnes(ForgetsItsFunctionWhileBusy):
    """Raises in current_function for a busy device, and publishes no function trait."""

    def current_function(self, provider_uuid: str) -> str | None:
        if self.devices[self.names[provider_uuid]]["busy"]:
            raise self.failed("current_function", RuntimeError("it is busy"))
        return super().current_function(provider_uuid)


class BelievesNoNote(DevicesDriver):
    """Raises in current_function for a device after programming, since it cannot ask the device."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        self.noted.add(provider_uuid)
        super().program(provider_uuid, image, function)

    def current_function(self, provider_uuid: str) -> str | None:
        if provider_uuid in self.noted:
            raise KeyError(provider_uuid)  # not one of our exceptions
        function: str | None = self.devices[self.names[provider_uuid]]["function"]
        return function


class RefusesToSayWhatIsClean(DevicesDriver):
    """Raises in is_clean for a device that is not clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        if not super().is_clean(provider_uuid, since):
            raise LookupError(provider_uuid)
        return True


#: Right drivers that the check of any rule might take for wrong.
CONFORMING: Sequence[type[LabDriver]] = [OffersAfterTwoLooks, OffersAfterFiveSeconds]


class CountsOnItsNode(DevicesDriver):
    """Publishes the number of devices as an inventory and as a trait of the node."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        units = sum(facts["units"] for facts in self.devices.values())
        tree.update_inventory(node, {SLOTS: Inventory(total=units)})
        tree.add_traits(node, f"CUSTOM_LAB_OF_{len(self.devices)}")


class SharesAPool(DevicesDriver):
    """Publishes the units of all devices also in a sharing provider."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        pool = f"{node}-pool"
        if not tree.exists(pool):
            tree.new_root(pool)
        units = sum(facts["units"] for facts in self.devices.values())
        tree.update_inventory(pool, {"DISK_GB": Inventory(total=units)})
        tree.update_traits(pool, {"MISC_SHARES_VIA_AGGREGATE"})
        for one in (pool, node):
            tree.update_aggregates(one, {_AGGREGATE})


class HasFunctionsBeside(DevicesDriver):
    """Publishes a function for each device as a further child of the node."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        node = tree.data(name).parent_uuid
        assert node is not None
        beside = name.replace("device", "function")
        if not tree.exists(beside):
            tree.new_child(beside, node)
        tree.update_inventory(beside, {"CUSTOM_LAB_FUNCTION": Inventory(total=1)})

    def remove(self, tree: ProviderTree, name: str) -> None:
        super().remove(tree, name)
        tree.remove(name.replace("device", "function"))


class HasPartsBelowNodes(MachinesDriver):
    """Publishes two levels of children below each machine, with dicts as inventories."""

    capabilities: ClassVar[Capabilities] = replace(
        MachinesDriver.capabilities, nested_providers=SUPPORTED
    )

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        above = name
        for kind in ("CUSTOM_LAB_CELL", "CUSTOM_LAB_CORE"):
            part = f"{above}_part"
            if not tree.exists(part):
                tree.new_child(part, above)
            tree.update_inventory(part, {kind: {"total": facts["units"], "step_size": 2}})
            if facts["busy"]:
                self.reserve(tree, part)
            above = part


class DedicatesCpus(MachinesDriver):
    """Publishes a part of the vcpus of the ComputeNode as PCPU."""

    default_owner: ClassVar[str] = "OWNER_NOVA"

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        cpus = {"VCPU": Inventory(total=6), "PCPU": Inventory(total=2)}
        return super().inventory(name, facts) | cpus


class HasTheUuidOfItsHardware(PublishesItsHost):
    """Gives the node of its host the uuid of the hardware, with any host name."""

    older: ClassVar[bool] = True

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        if nodename == self.host:
            node.uuid = self.world.uuid
        return node


class AsksAgain(DevicesDriver):
    """Sends a request up to three times before it fails."""

    def asked(self, words: str) -> Any:
        for _ in range(2):
            with suppress(BackendError):
                return super().asked(words)
        return super().asked(words)


class FreesAtTheSecondLook(MachinesDriver):
    """Keeps a machine reserved until two successive listings have shown it free."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        before = {name for name, facts in self.devices.items() if facts["was_busy"]}
        devices = super().read_devices(names)
        return {
            name: {**facts, "was_busy": facts["busy"], "busy": facts["busy"] or name in before}
            for name, facts in devices.items()
        }


class AsksInThreads(DevicesDriver):
    """Reads several devices at the same time, so that the order of its calls varies."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        with ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda name: self.ask(f"show {name}"), names)
            return dict(zip(names, found, strict=True))


class KeepsAFileAndALock(MachinesDriver):
    """Keeps a file that is always complete, and a lock that ends with its process."""

    reachable = True

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.directory = Path(conf.state_path)

    def read(self) -> None:
        with (self.directory / "machines.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            super().read()
            new = self.directory / "machines.json.new"
            new.write_text(json.dumps(self.devices))
            new.replace(self.directory / "machines.json")

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        file = self.directory / "machines.json"
        self.devices = json.loads(file.read_text()) if file.exists() else {}


class HasASlowBackend(DevicesDriver):
    """Takes some time for each request."""

    def sent(self, words: str) -> str:
        threading.Event().wait(0.05)
        return super().sent(words)


class LogsAndWarns(DevicesDriver):
    """Configures and uses its own logger, logs by the logger of a library, and warns."""

    def refresh(self) -> None:
        super().refresh()
        logging.getLogger("lab_driver").setLevel(logging.DEBUG)
        logging.getLogger("lab_driver").error("a device is hot")
        logging.getLogger("a_library").warning("the answer was late")
        warnings.warn("the backend is old", stacklevel=2)


class DrawsNumbers(DevicesDriver):
    """Draws random numbers, and seeds only a generator of its own."""

    def refresh(self) -> None:
        super().refresh()
        self.jitter = random.uniform(0, 1) + random.Random(4).random()


class _OfALibrary(Warning):
    """A warning of a library."""


class IgnoresALibrary(LogsAndWarns):
    """Ignores the warnings of one library, and configures its own logger."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        warnings.simplefilter("ignore", _OfALibrary)


class WaitsBetweenAttempts(DevicesDriver):
    """Sleeps after a failure and while it programs, and waits for its own thread."""

    def failed(self, words: str, error: Exception) -> BackendError:
        time.sleep(0.05)
        return super().failed(words, error)

    def refresh(self) -> None:
        read = threading.Event()
        reading = threading.Timer(0.02, read.set)
        reading.start()
        read.wait(30)
        reading.join()
        super().refresh()

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        time.sleep(0.1)


class HasAPool(DevicesDriver):
    """Uses a pool of at most twelve threads, which cleanup_host ends."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.pool = ThreadPoolExecutor(12)

    def refresh(self) -> None:
        super().refresh()
        self.pool.submit(time.sleep, 0.01)

    def cleanup_host(self) -> None:
        self.pool.shutdown()


class RemembersForAWhile(MachinesDriver):
    """Keeps the results of its last hundred listings."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.history: deque[tuple[float, dict[str, object]]] = deque(maxlen=100)

    def refresh(self) -> None:
        super().refresh()
        self.history.append((time.time(), {**self.devices}))


class LooksAtEverySecondPoll(MachinesDriver):
    """Requests events only in every second poll; the others return no node and the old mark."""

    polls = 0

    def news(self, since: str) -> tuple[set[str], str]:
        self.polls += 1
        return super().news(since) if self.polls % 2 else (set(), since)


class RepeatsItsNews(MachinesDriver):
    """Names each changed node in the next poll again, as a feed with inexact times may."""

    before: frozenset[str] = frozenset()

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        again, self.before = self.before, frozenset(changed)
        return self.changed(changed | again), mark


class RefusesMarksOfOthers(MachinesDriver):
    """Raises for a mark of an earlier instance."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        life, _, place = (since or "").partition(":")
        if since is not None and life != str(id(self)):
            raise self.failed("events", ValueError("the mark is of another process"))
        changed, mark = super().changed_nodes(place or None)
        return changed, f"{id(self)}:{mark}"


class AsksTwice(MachinesDriver):
    """Sends a request again if the answer is an error."""

    def refused(self, words: str, answer: Facts) -> Any:
        if words in self.noted:
            return super().refused(words, answer)
        self.noted.add(words)
        try:
            return self.asked(words)
        finally:
            self.noted.remove(words)


class LeavesOutWhatIsGone(MachinesDriver):
    """Leaves out a listed machine if the backend answers that the machine does not exist."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        found: dict[str, Facts] = {}
        for name in names:
            with suppress(Refused):
                found |= super().read_devices([name])
        return found


class SortsItsMachines(MachinesDriver):
    """Sorts its list of machines, so that the cost grows like n log n."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return sorted(super().get_available_nodes(refresh))


class HasManyMachines(MachinesDriver):
    """Publishes the two thousand machines that its harness has after each reset."""

    has_many: ClassVar[bool] = True


UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-202", DedicatesCpus),
    ("WHF-211", LooksWhoLeaves),
    ("WHF-311", HasTheUuidOfItsHardware),
    ("WHF-311", SharesAPool),
    ("WHF-313", CountsOnItsNode),
    ("WHF-313", HasPartsBelowNodes),
    ("WHF-313", SharesAPool),
    ("WHF-314", HasPartsBelowNodes),
    ("WHF-401", CountsOnItsNode),
    ("WHF-401", HasFunctionsBeside),
    ("WHF-401", HasManyMachines),
    ("WHF-401", SharesAPool),
    ("WHF-402", HasPartsBelowNodes),
    ("WHF-404", CountsOnItsNode),
    ("WHF-404", HasFunctionsBeside),
    ("WHF-404", HasPartsBelowNodes),
    ("WHF-404", SharesAPool),
    ("WHF-451", AsksTwice),
    ("WHF-507", KnowsNoFunctionOfBusyOnes),
    ("WHF-509", KnowsNoFunctionOfBusyOnes),
    ("WHF-507", HasPartsBelowNodes),
    ("WHF-701", LeavesOutWhatIsGone),
    ("WHF-708", LeavesOutWhatIsGone),
    ("WHF-721", AsksAgain),
    ("WHF-721", AsksInThreads),
    ("WHF-721", FreesAtTheSecondLook),
    ("WHF-721", HasASlowBackend),
    ("WHF-722", AsksAgain),
    ("WHF-722", AsksInThreads),
    ("WHF-722", FreesAtTheSecondLook),
    ("WHF-723", KeepsAFileAndALock),
    ("WHF-802", SortsItsMachines),
    ("WHF-804", EndsItsThreadSoon),
    ("WHF-804", HasAPool),
    ("WHF-806", HasManyMachines),
    ("WHF-811", DrawsNumbers),
    ("WHF-812", IgnoresALibrary),
    ("WHF-814", LogsAndWarns),
    ("WHF-815", WaitsBetweenAttempts),
    ("WHF-816", RemembersForAWhile),
    ("WHF-914", AsksTwice),
    ("WHF-914", LooksAtEverySecondPoll),
    ("WHF-915", LooksAtEverySecondPoll),
    ("WHF-915", RepeatsItsNews),
    ("WHF-916", RepeatsItsNews),
    ("WHF-917", LooksAtEverySecondPoll),
    ("WHF-918", LooksAtEverySecondPoll),
    ("WHF-918", RefusesMarksOfOthers),
    ("WHF-919", RepeatsItsNews),
    ("WHF-921", BelievesNoNote),
    ("WHF-925", BelievesNoNote),
    ("WHF-926", BelievesNoNote),
    ("WHF-927", BelievesNoNote),
    ("WHF-928", BelievesNoNote),
    ("WHF-931", RefusesToSayWhatIsClean),
    ("WHF-932", RefusesToSayWhatIsClean),
]
