"""Figures and traits that are not those of the backend."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.wrong import wrong
from wharfinger.providers import ProviderTree


@wrong("figures", "WHF-507")
class TraitGoesWhenBusy(RackDriver):
    """A busy card loses the trait of its model."""

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        traits = super().card_traits(uuid, card)
        return {one for one in traits if not self.is_busy(card) or "MODEL" not in one}


@wrong("figures", "WHF-507")
class NodeTraitGoesWhenBusy(RackDriver):
    """A node has a trait only while none of its cards is busy."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        if not any(self.is_busy(card) for card in self.cards[node]):
            tree.add_traits(node, "CUSTOM_ALL_CARDS_READY")


@wrong("figures", "WHF-314")
class TotalShrinksByUse(RackDriver):
    """A card's total is what is not used."""

    def area(self, card: Facts) -> int:
        return super().area(card) - int(card["used"])


@wrong("figures", "WHF-314")
class ReservedGrowsByUse(RackDriver):
    """It reserves the units that instances use."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        super().describe_card(tree, node, {**card, "kept": card["kept"] + card["used"]})


@wrong("figures", "WHF-314")
class FunctionsShrinkByUse(RackDriver):
    """A function that is used is published no longer."""

    def functions(self, card: Facts) -> list[str]:
        return super().functions(card)[card["used"] // 20 :]


@wrong("figures", "WHF-221")
class ConstantTotal(RackDriver):
    """Every card has the area of the first model."""

    def area(self, card: Facts) -> int:
        return 100


@wrong("figures", "WHF-313")
class FirstTotalStays(RackDriver):
    """A card keeps the area with which it was seen first."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.first: dict[str, int] = {}

    def area(self, card: Facts) -> int:
        return self.first.setdefault(card["name"], super().area(card))


@wrong("figures", "WHF-313")
class FirstTraitsStay(RackDriver):
    """A card keeps the model with which it was seen first."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.first: dict[str, int] = {}

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        model = self.first.setdefault(card["name"], card["area"])
        return super().card_traits(uuid, {**card, "area": model})


@wrong("figures", "WHF-221")
class AreaOfFirstCard(RackDriver):
    """Each card has the area of the first one in its node."""

    def area(self, card: Facts) -> int:
        return int(self.cards[card["node"]][0]["area"])


@wrong("figures", "WHF-221")
class TraitOfLastCard(RackDriver):
    """All cards of a node have the model of the last one."""

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        return super().card_traits(uuid, {**card, "area": self.cards[card["node"]][-1]["area"]})


@wrong("figures", "WHF-313")
class AreaInOneByte(RackDriver):
    """An area above 255 is counted from zero again."""

    def area(self, card: Facts) -> int:
        return super().area(card) % 256


@wrong("figures", "WHF-303")
class NodeShrinksWhenBusy(RackDriver):
    """A node has less processors while one of its cards is busy."""

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        busy = sum(self.is_busy(card) for card in self.cards[facts["name"]])
        return super().node_inventory({**facts, "cpus": facts["cpus"] - busy})


@wrong("figures", "WHF-507")
class OtherFiguresAfterAPoll(RackDriver):
    """A node that a poll has named keeps none of its cards for itself."""

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
    """With more than 500 cards each one has a single unit: a workaround that was forgotten."""

    def area(self, card: Facts) -> int:
        return super().area(card) if sum(map(len, self.cards.values())) <= 500 else 15


@wrong("figures", "WHF-606")
class UnitsThatAreFree(HostDriver):
    """A device has the units that no instance uses, as its total."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        used: int = sum(one.get(address, 0) for one in self.facts["instances"].values())
        units = super().units(address, device)
        return max(1, units - used)


@wrong("figures", "WHF-509")
class UnitsShrinkBesideTheBusy(HostDriver):
    """While two devices are busy the others have half of their units."""

    def units(self, address: str, device: dict[str, Any]) -> int:
        busy = sum(one["state"] != "ok" for one in self.facts["devices"].values())
        return int(super().units(address, device)) // (
            2 if busy > 1 and device["state"] == "ok" else 1
        )


@wrong("figures", "WHF-507")
class BusyDeviceHasNoTraits(HostDriver):
    """The traits of a busy device are unknown, and it has none."""

    def device_traits(self, address: str, device: dict[str, Any]) -> Any:
        return device["traits"] if device["state"] == "ok" else []
