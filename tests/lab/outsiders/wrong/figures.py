"""Drivers that publish wrong amounts or traits. Each docstring says what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oslo_config import cfg

from tests.lab.outsiders.host import UNITS, HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.rack_harness import RackHarness
from tests.lab.outsiders.rack_service import Card
from tests.lab.outsiders.wrong import wrong
from wharfinger.conformance.new_package.driver import FleetDriver, Machine
from wharfinger.conformance.new_package.harness import FleetHarness
from wharfinger.providers import ProviderTree


@wrong("figures", "WHF-507")
class TraitGoesWhenBusy(RackDriver):
    """Removes the trait of the model from a busy card."""

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        traits = super().card_traits(uuid, card)
        return {one for one in traits if not self.is_busy(card) or "MODEL" not in one}


@wrong("figures", "WHF-507")
class NodeTraitGoesWhenBusy(RackDriver):
    """Removes a trait from a node while one of the node's cards is busy."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        if not any(self.is_busy(card) for card in self.cards[node]):
            tree.add_traits(node, "CUSTOM_ALL_CARDS_READY")


@wrong("figures", "WHF-314")
class TotalShrinksByUse(RackDriver):
    """Publishes the unused area of a card as its total."""

    def area(self, card: Facts) -> int:
        return super().area(card) - int(card["used"])


@wrong("figures", "WHF-314")
class ReservedGrowsByUse(RackDriver):
    """Adds the area that instances use to the reserved amount."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        super().describe_card(tree, node, {**card, "kept": card["kept"] + card["used"]})


@wrong("figures", "WHF-314")
class FunctionsShrinkByUse(RackDriver):
    """Removes the functions that instances use."""

    def functions(self, card: Facts) -> list[str]:
        return super().functions(card)[card["used"] // 20 :]


@wrong("figures", "WHF-221")
class ConstantTotal(RackDriver):
    """Publishes the same area for every card."""

    def area(self, card: Facts) -> int:
        return 100


@wrong("figures", "WHF-313")
class FirstTotalStays(RackDriver):
    """Publishes the area that it read first for a card, even after a change."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.first: dict[str, int] = {}

    def area(self, card: Facts) -> int:
        return self.first.setdefault(card["name"], super().area(card))


@wrong("figures", "WHF-313")
class FirstTraitsStay(RackDriver):
    """Publishes the model that it read first for a card, even after a change."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.first: dict[str, int] = {}

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        model = self.first.setdefault(card["name"], card["area"])
        return super().card_traits(uuid, {**card, "area": model})


class AlikeHarness(RackHarness):
    """Serves cards that all have the same area until one is changed."""

    def new_card(self, node: str, slot: int) -> Card:
        return Card(node, slot, area=100)


@wrong("figures", "WHF-221", harness=AlikeHarness)
class ConstantTotalOfAlikeCards(ConstantTotal):
    """Publishes the same area for every card, and at first all cards have this area."""


@wrong("figures", "WHF-313", harness=FleetHarness)
class TraitsOnce(FleetDriver):
    """Publishes the traits that it read first for a machine, even after a change."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.first: dict[str, Sequence[str]] = {}

    def _fetch(self) -> list[Machine]:
        return [
            replace(one, traits=self.first.setdefault(one.name, one.traits))
            for one in super()._fetch()
        ]


@wrong("figures", "WHF-221")
class AreaOfFirstCard(RackDriver):
    """Publishes the area of a node's first card for all cards of the node."""

    def area(self, card: Facts) -> int:
        return int(self.cards[card["node"]][0]["area"])


@wrong("figures", "WHF-221")
class TraitOfLastCard(RackDriver):
    """Publishes the model of a node's last card for all cards of the node."""

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        return super().card_traits(uuid, {**card, "area": self.cards[card["node"]][-1]["area"]})


@wrong("figures", "WHF-313")
class AreaInOneByte(RackDriver):
    """Publishes the area of a card modulo 256."""

    def area(self, card: Facts) -> int:
        return super().area(card) % 256


@wrong("figures", "WHF-303")
class NodeShrinksWhenBusy(RackDriver):
    """Publishes one processor fewer on a node for each busy card."""

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        busy = sum(self.is_busy(card) for card in self.cards[facts["name"]])
        return super().node_inventory({**facts, "cpus": facts["cpus"] - busy})


@wrong("figures", "WHF-507")
class OtherFiguresAfterAPoll(RackDriver):
    """Publishes no reserved amount for the cards of a node that a poll has named."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.polled: set[str] = set()

    def refresh(self) -> None:
        super().refresh()
        self.polled.clear()

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        self.polled |= changed
        return changed, mark

    def card_inventory(self, card: Facts) -> Mapping[str, Any]:
        kept = 0 if card["node"] in self.polled else card["kept"]
        return super().card_inventory({**card, "kept": kept})


@wrong("figures")
class OneUnitWhenThereAreMany(RackDriver):
    """Publishes an area of 15 for every card if there are more than 500 cards."""

    def area(self, card: Facts) -> int:
        return super().area(card) if sum(map(len, self.cards.values())) <= 500 else 15


@wrong("figures", "WHF-606")
class UnitsThatAreFree(HostDriver):
    """Publishes the unused units of a device as its total."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        used: int = sum(one.get(address, 0) for one in self.facts["instances"].values())
        units = super().units(address, device)
        return max(1, units - used)


@wrong("figures", "WHF-509")
class UnitsShrinkBesideTheBusy(HostDriver):
    """Publishes half of the units of free devices while two or more devices are busy."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        busy = sum(one["state"] != "ok" for one in self.facts["devices"].values())
        return int(super().units(address, device)) // (
            2 if busy > 1 and device["state"] == "ok" else 1
        )


@wrong("figures", "WHF-507")
class BusyDeviceHasNoTraits(HostDriver):
    """Publishes no traits for a busy device."""

    def device_traits(self, address: str, device: dict[str, Any]) -> Any:
        return device["traits"] if device["state"] == "ok" else []


@wrong("figures", "WHF-313")
class TotalNeverShrinks(RackDriver):
    """Publishes the largest area that a card ever had."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.most: dict[str, int] = {}

    def area(self, card: Facts) -> int:
        self.most[card["name"]] = max(super().area(card), self.most.get(card["name"], 0))
        return self.most[card["name"]]


@wrong("figures", "WHF-313")
class SmallerTotalIsAnError(RackDriver):
    """Keeps the earlier area of a card if the card's area has become smaller."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.seen: dict[str, Facts] = {}

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        known = self.seen.get(card["name"], card)
        if card["area"] >= known["area"]:
            known = card
        self.seen[card["name"]] = known
        super().describe_card(tree, node, {**card, "area": known["area"]})


@wrong("figures", "WHF-507")
class MaxUnitOneWhenBusy(HostDriver):
    """Sets max_unit of a busy device to 1."""

    def device_inventory(self, address: str, device: dict[str, Any]) -> Mapping[str, Any]:
        units = self.units(address, device)
        return {UNITS: {"total": units, "max_unit": units if device["state"] == "ok" else 1}}


@wrong("figures", "WHF-507")
class HostTraitComesWhenBusy(HostDriver):
    """Adds a trait to the host while a device is busy."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        super().describe_host(tree, node)
        if any(one["state"] != "ok" for one in self.facts["devices"].values()):
            tree.add_traits(node, "CUSTOM_DEGRADED")


@wrong("figures", "WHF-606")
class HostHasFreeProcessors(HostDriver):
    """Publishes one processor fewer on the host for each instance."""

    def host_inventory(self) -> Mapping[str, Any]:
        figures = super().host_inventory()
        cpus = self.facts["host"]["cpus"] - len(self.facts["instances"])
        return {**figures, "VCPU": {"total": cpus, "max_unit": cpus, "allocation_ratio": 16.0}}


@wrong("figures", "WHF-403")
class CountsTwiceWhenPutBack(HostDriver):
    """Adds the units of a device that returns to the units that it had before."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.counted: dict[str, int] = {}
        self.here: set[str] = set()

    def refresh(self) -> None:
        super().refresh()
        for address in self.facts["devices"].keys() - self.here:
            units = self.facts["devices"][address]["units"]
            self.counted[address] = self.counted.get(address, 0) + units
        self.here = {*self.facts["devices"]}

    def units(self, address: str, device: dict[str, Any]) -> int:
        return self.counted[address]


@wrong("figures", "WHF-507")
class UnitsOfBusyGoToOthers(HostDriver):
    """Adds the units of busy devices to the first free device."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        devices = self.facts["devices"]
        free = [one for one, its in devices.items() if its["state"] == "ok"]
        lost = sum(its["units"] for its in devices.values() if its["state"] != "ok")
        return super().units(address, device) + (lost if free[:1] == [address] else 0)
