"""Drivers that reserve free providers, or do not reserve busy ones."""

import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from oslo_config import cfg

from tests.lab.outsiders.host import UNITS, HostDriver
from tests.lab.outsiders.host_harness import HOST, HostHarness
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.wrong import wrong
from wharfinger.exceptions import BackendError
from wharfinger.providers import ProviderTree


@wrong("reservation", "WHF-507")
class ReservesNodeToo(RackDriver):
    """Reserves the node of a busy card, too."""

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        super().reserve(tree, card, [card["node"], *names])


@wrong("reservation", "WHF-509")
class ReservesHostOfTwo(HostDriver):
    """Reserves the host while two or more devices are busy."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        super().describe_host(tree, node)
        if sum(one["state"] != "ok" for one in self.facts["devices"].values()) > 1:
            tree.reserve(node, "devices are reset")


@wrong("reservation", "WHF-507")
class ReservesOtherFunctions(RackDriver):
    """Reserves the functions of all cards of a node while one card is busy."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        super().describe_card(tree, node, card)
        if not self.is_busy(card) and any(self.is_busy(one) for one in self.cards[node]):
            for function in self.functions(card):
                tree.reserve(function, "a card of the node is busy")


class NumbersHarness(HostHarness):
    """Has twelve devices, whose addresses are numbers."""

    count = 12

    def add(self) -> str:
        thing = super().add()
        address = self.address(thing).partition(":")[0]
        self.devices[address] = self.devices.pop(self.address(thing))
        self.write()
        return f"{HOST}_pci_{address}"


@wrong("reservation", "WHF-509", harness=NumbersHarness)
class ReservesByPrefix(HostDriver):
    """Reserves a device if its address begins with the address of a busy device."""

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        busy = [one for one, its in self.facts["devices"].items() if its["state"] != "ok"]
        is_busy = any(address.startswith(one) for one in busy)
        state = "resetting" if is_busy else "ok"
        super().describe_device(tree, node, address, {**device, "state": state})


@wrong("reservation", "WHF-508")
class FreeByTheClock(RackDriver):
    """Publishes a busy card as free 2 s after it was first seen busy."""

    SECONDS: ClassVar[float] = 2.0

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.since: dict[str, float] = {}

    def is_busy(self, card: Facts) -> bool:
        if not super().is_busy(card):
            self.since.pop(card["name"], None)
            return False
        since = self.since.setdefault(card["name"], time.monotonic())
        return time.monotonic() - since < self.SECONDS


@wrong("reservation", "WHF-508")
class FreeAfterADay(RackDriver):
    """Publishes a busy card as free a day after it was first seen busy (CLOCK_BOOTTIME)."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.until: dict[str, float] = {}

    def is_busy(self, card: Facts) -> bool:
        if not super().is_busy(card):
            self.until.pop(card["name"], None)
            return False
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        return now < self.until.setdefault(card["name"], now + 86400)


@wrong("reservation", "WHF-508")
class FreeAfterTenReadings(HostDriver):
    """Publishes a device as free from the eleventh reading in a row that shows it busy."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.seen: dict[str, int] = {}

    def refresh(self) -> None:
        super().refresh()
        for address, device in self.facts["devices"].items():
            self.seen[address] = self.seen.get(address, 0) + 1 if device["state"] != "ok" else 0
            if self.seen[address] > 10:
                device["state"] = "ok"


@wrong("reservation", "WHF-509")
class FreeWhileOneIsGone(RackDriver):
    """Publishes all cards of a node as free while a card of the node is removed."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.most: dict[str, int] = {}

    def refresh(self) -> None:
        super().refresh()
        for node, cards in self.cards.items():
            self.most[node] = max(len(cards), self.most.get(node, 0))
            if len(cards) < self.most[node]:
                for card in cards:
                    card["state"] = "free"


@wrong("reservation", "WHF-509")
class FunctionsAreFreeWhileOneIsGone(RackDriver):
    """Does not reserve the functions of a busy card while a card of the node is removed."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.most: dict[str, int] = {}

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        node, count = card["node"], len(self.cards[card["node"]])
        self.most[node] = max(count, self.most.get(node, 0))
        super().reserve(tree, card, names if count == self.most[node] else names[:1])


@wrong("reservation", "WHF-509")
class FunctionsOfTenBusyCards(RackDriver):
    """Reserves the functions of only the first ten busy cards."""

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        every = [one for cards in self.cards.values() for one in cards]
        busy = [one["name"] for one in every if one["state"] != "free"]
        super().reserve(tree, card, names if card["name"] in busy[:10] else names[:1])


@wrong("reservation", "WHF-991")
class ReservesFreeFunctionsAfterTwoRemovals(RackDriver):
    """Reserves the functions of free cards when two cards were removed."""

    removed = 0

    def refresh(self) -> None:
        before = {card["name"] for cards in self.cards.values() for card in cards}
        super().refresh()
        after = {card["name"] for cards in self.cards.values() for card in cards}
        self.removed += len(before - after)

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        super().describe_card(tree, node, card)
        for function in self.functions(card) if self.removed > 1 else ():
            tree.reserve(function, "two cards were removed")


@wrong("reservation")
class NotBusyIsClean(RackDriver):
    """Reports every card that is not busy as clean."""

    def was_cleaned(self, card: Facts, since: datetime) -> bool:
        return not self.is_busy(card)


@wrong("reservation")
class CleanedOnceIsClean(RackDriver):
    """Reports a card as clean that was cleaned only before the given time."""

    def was_cleaned(self, card: Facts, since: datetime) -> bool:
        return card["cleaned"] is not None and not self.is_busy(card)


@wrong("reservation", "WHF-501")
class LeavesFunctionsFree(RackDriver):
    """Reserves a busy card, but not its functions."""

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        super().reserve(tree, card, names[:1])


@wrong("reservation", "WHF-510")
class LeavesTheLastFree(RackDriver):
    """Never reserves the last card of a listing."""

    def is_busy(self, card: Facts) -> bool:
        last = [*self.cards.values()][-1][-1:]
        return super().is_busy(card) and [card["name"]] != [one["name"] for one in last]


@wrong("reservation", "WHF-509")
class OneBusyNode(RackDriver):
    """Reserves cards of only one node, the first node with a busy card."""

    def is_busy(self, card: Facts) -> bool:
        every = [one for cards in self.cards.values() for one in cards]
        busy = [one["node"] for one in every if one["state"] != "free"]
        return super().is_busy(card) and card["node"] == busy[0]


@wrong("reservation", "WHF-506")
class OneBusyDevice(HostDriver):
    """Reserves only the last of the busy devices in the file."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        busy = [one for one, its in self.facts["devices"].items() if its["state"] != "ok"]
        if address == busy[-1]:
            super().reserve(tree, node, address, device)


@wrong("reservation", "WHF-914")
class PollFreesOtherNodes(RackDriver):
    """Publishes the cards of the nodes that a poll has not named as free."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if changed:
            for node in self.cards.keys() - changed:
                self.cards[node] = [{**card, "state": "free"} for card in self.cards[node]]
        return changed, mark


@wrong("reservation", "WHF-509")
class BusyStaysUntilRestart(RackDriver):
    """Keeps a card reserved until a restart after two polls have shown it busy."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.polled: dict[str, int] = {}

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        for card in (one for node in changed for one in self.cards[node]):
            if card["state"] != "free":
                self.polled[card["name"]] = self.polled.get(card["name"], 0) + 1
        return changed, mark

    def is_busy(self, card: Facts) -> bool:
        return super().is_busy(card) or self.polled.get(card["name"], 0) > 1

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        super().reserve(tree, {**card, "state": "cleaning"}, names)


@wrong("reservation")
class NewCardsAreFree(RackDriver):
    """Never reserves a card that was added after the first listing."""

    known: frozenset[str] | None = None

    def refresh(self) -> None:
        super().refresh()
        if self.known is None:
            names = (card["name"] for cards in self.cards.values() for card in cards)
            self.known = frozenset(names)

    def is_busy(self, card: Facts) -> bool:
        return super().is_busy(card) and card["name"] in (self.known or ())


@wrong("reservation", "WHF-501")
class ReservesAsManyAsAreBusy(HostDriver):
    """Reserves as many devices as are busy, but always the last ones in the file."""

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        devices = [*self.facts["devices"]]
        busy = sum(one["state"] != "ok" for one in self.facts["devices"].values())
        state = "resetting" if address in devices[len(devices) - busy :] else "ok"
        super().describe_device(tree, node, address, {**device, "state": state})


@wrong("reservation", "WHF-509")
class AllBusyIsAnError(HostDriver):
    """Reserves no device if all devices are busy."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        if any(one["state"] == "ok" for one in self.facts["devices"].values()):
            super().reserve(tree, node, address, device)


@wrong("reservation", "WHF-504")
class BusyBeforeTheStart(HostDriver):
    """Reserves a busy device only if a listing has shown it ok before."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.was_ok: set[str] = set()

    def refresh(self) -> None:
        super().refresh()
        devices = self.facts["devices"].items()
        self.was_ok |= {address for address, its in devices if its["state"] == "ok"}

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        if address in self.was_ok:
            super().reserve(tree, node, address, device)


@wrong("reservation", "WHF-501")
class LeavesOneUnit(HostDriver):
    """Reserves all units of a busy device but one."""

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        units = self.units(address, device)
        inventory = {UNITS: {"total": units, "max_unit": units, "reserved": units - 1}}
        tree.update_inventory(self.device_name(node, address), inventory)


@wrong("reservation", "WHF-508")
class FreeByTheAgeOfTheFile(HostDriver):
    """Publishes busy devices as free if the file is older than a minute."""

    def refresh(self) -> None:
        super().refresh()
        if time.time() - self.path.stat().st_mtime > 60:
            for device in self.facts["devices"].values():
                device["state"] = "ok"


@wrong("reservation", "WHF-508")
class FreeByATimer(HostDriver):
    """Stops reserving a device ten seconds after it was first seen busy."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.timers: dict[str, threading.Timer] = {}
        self.over: set[str] = set()

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        if address not in self.timers:
            self.timers[address] = threading.Timer(10, self.over.add, (address,))
            self.timers[address].daemon = True
            self.timers[address].start()
        if address not in self.over:
            super().reserve(tree, node, address, device)

    def cleanup_host(self) -> None:
        for timer in self.timers.values():
            timer.cancel()


@wrong("reservation", "WHF-507")
class ReservesTheStorageToo(HostDriver):
    """Publishes a storage root, and reserves it while the first device is busy."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        super().describe_host(tree, node)
        store = f"{node}-storage"
        if not tree.exists(store):
            tree.new_root(store)
        tree.update_inventory(store, {"DISK_GB": {"total": 100, "max_unit": 100}})
        first = next(iter(self.facts["devices"].values()), {"state": "ok"})
        if first["state"] != "ok":
            tree.reserve(store, "the first device is busy")


@wrong("reservation", "WHF-501")
class ReservesUntilTheNextListing(HostDriver):
    """Reserves busy devices only after every other listing."""

    turn = 0

    def refresh(self) -> None:
        super().refresh()
        self.turn += 1
        if self.turn % 2 == 0:
            for device in self.facts["devices"].values():
                device["state"] = "ok"


@wrong("reservation", "WHF-702")
class FailureForgetsTheBusy(HostDriver):
    """It keeps what is busy in a list of its own, which a failed reading empties for a while."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.readings_to_trust = 0

    def refresh(self) -> None:
        try:
            super().refresh()
        except BackendError:
            self.readings_to_trust = 2
            raise
        if self.readings_to_trust:
            self.readings_to_trust -= 1
            for device in self.facts["devices"].values():
                device["state"] = "ok"
