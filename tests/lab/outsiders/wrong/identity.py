"""Names and uuids that are not a device's own, or do not stay."""

from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.right import GoingNodesHarness
from tests.lab.outsiders.wrong import wrong
from wharfinger.objects import ComputeNode
from wharfinger.providers import ProviderTree


def made_of(text: str) -> str:
    """A uuid that is made of a text."""
    return str(uuid5(NAMESPACE_URL, text))


@wrong("identity", "WHF-311")
class UuidOfAddress(HostDriver):
    """A device's uuid is made of its address: one uuid on all hosts."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return made_of(address)


@wrong("identity", "WHF-311")
class NodeUuidOfNumber(RackDriver):
    """A node's uuid is made of its number, which nodes of other racks have, too."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = made_of(nodename.partition("-")[2])
        return node


@wrong("identity", "WHF-311")
class CardUuidOfNumber(RackDriver):
    """A card's uuid is made of its name without the rack: one uuid on all hosts."""

    def child(self, tree: ProviderTree, name: str, parent: str) -> None:
        if not tree.exists(name):
            tree.new_child(name, parent, uuid=made_of(name.partition("-")[2]))


@wrong("identity", "WHF-806", harness=GoingNodesHarness)
class NodeUuidOfPosition(RackDriver):
    """A node's uuid is made of its position in the listing."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = made_of(f"{self.rack} {[*self.nodes].index(nodename)}")
        return node


@wrong("identity", "WHF-402")
class FunctionsNumberedByNode(RackDriver):
    """The functions of a node are numbered; those behind a card that goes get new names."""

    def functions(self, card: Facts) -> list[str]:
        cards = self.cards[card["node"]]
        before = sum(one["functions"] for one in cards if one["slot"] < card["slot"])
        return [f"{card['name']}_vf{before + number}" for number in range(card["functions"])]


@wrong("identity", "WHF-402")
class FunctionsNamedByNode(RackDriver):
    """The functions of a node have the node's name and a number: those of one card become those
    of the other when it goes."""

    def functions(self, card: Facts) -> list[str]:
        cards = self.cards[card["node"]]
        before = sum(one["functions"] for one in cards if one["slot"] < card["slot"])
        return [f"{card['node']}_vf{before + number}" for number in range(card["functions"])]

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        for uuid in tree.get_provider_uuids(node):
            if tree.exists(uuid) and tree.data(uuid).name.startswith(f"{node}_vf"):
                tree.remove(uuid)


@wrong("identity", "WHF-929")
class FunctionsNamedByImage(RackDriver):
    """The functions of a card have the name of its image, and others when it is programmed."""

    def functions(self, card: Facts) -> list[str]:
        return [f"{card['name']}_{card['image']}{number}" for number in range(card["functions"])]


@wrong("identity", "WHF-404")
class FunctionsCountedAnew(RackDriver):
    """The functions of a card are numbered by a counter that goes on with each new card."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.numbers: dict[str, int] = {}

    def functions(self, card: Facts) -> list[str]:
        first = self.numbers.setdefault(card["name"], 2 * len(self.numbers))
        return [f"{card['name']}_vf{first + number}" for number in range(card["functions"])]


@wrong("identity", "WHF-401")
class LateFunctionsWithoutOwner(RackDriver):
    """The functions of a card that came later are only put into the tree."""

    known: frozenset[str] | None = None

    def refresh(self) -> None:
        super().refresh()
        if self.known is None:
            names = (card["name"] for cards in self.cards.values() for card in cards)
            self.known = frozenset(names)

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        late = card["name"] not in (self.known or ())
        super().describe_card(tree, node, {**card, "functions": 0} if late else card)
        if late:
            parent = tree.data(card["name"]).uuid
            tree.populate_from_iterable(
                {"name": name, "uuid": made_of(name), "parent_provider_uuid": parent}
                for name in self.functions(card)
            )


@wrong("identity", "WHF-303")
class NodeObjectShrinksWhenBusy(RackDriver):
    """A node's object has less processors than the tree while cards are busy."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.vcpus -= sum(self.is_busy(card) for card in self.cards[nodename])
        return node


@wrong("identity", "WHF-401")
class NodeObjectLosesCards(RackDriver):
    """A node's object has two processors for each card that there is; the tree has all."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.vcpus = node.vcpus - 4 + 2 * len(self.cards[nodename])
        return node


@wrong("identity", "WHF-403")
class RandomUuid(HostDriver):
    """A device has a random uuid, and another one when it returns."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return str(uuid4())


@wrong("identity", "WHF-403")
class UuidOfPosition(HostDriver):
    """A device's uuid is made of the host and its position in the file."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return made_of(f"{self.host} {[*self.facts['devices']].index(address)}")


@wrong("identity", "WHF-402")
class NameOfPosition(HostDriver):
    """A device has a part whose name has its position in the file."""

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        super().describe_device(tree, node, address, device)
        name = self.device_name(node, address)
        part = f"{name}_part{[*self.facts['devices']].index(address)}"
        if not tree.exists(part):
            tree.new_child(part, name)
        tree.update_inventory(part, {"CUSTOM_PART": {"total": 1, "max_unit": 1}})
        if device["state"] != "ok":
            tree.reserve(part, "the device is busy")
        tree.remove_unreported_children(name)


@wrong("identity", "WHF-301")
class RenamedAfterTwelveListings(RackDriver):
    """With the twelfth listing the functions of all cards get a suffix."""

    def refresh(self) -> None:
        super().refresh()
        self.listings = getattr(self, "listings", 0) + 1

    def functions(self, card: Facts) -> Sequence[str]:  # type: ignore[override]
        suffix = "" if self.listings < 12 else "_v2"
        return [f"{name}{suffix}" for name in super().functions(card)]
