"""Drivers with names or uuids that are not unique or that change."""

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
    """Return a uuid that depends only on a text."""
    return str(uuid5(NAMESPACE_URL, text))


@wrong("identity", "WHF-311")
class UuidOfAddress(HostDriver):
    """Makes the uuid of a device from its address, so that devices of two hosts share a uuid."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return made_of(address)


@wrong("identity", "WHF-311")
class NodeUuidOfNumber(RackDriver):
    """Makes the uuid of a node from its number, which a node of another rack also has."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = made_of(nodename.partition("-")[2])
        return node


@wrong("identity", "WHF-311")
class CardUuidOfNumber(RackDriver):
    """Makes the uuids of cards and functions from their names without the rack."""

    def child(self, tree: ProviderTree, name: str, parent: str) -> None:
        if not tree.exists(name):
            tree.new_child(name, parent, uuid=made_of(name.partition("-")[2]))


@wrong("identity", "WHF-806", harness=GoingNodesHarness)
class NodeUuidOfPosition(RackDriver):
    """Makes the uuid of a node from its position in the listing."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = made_of(f"{self.rack} {[*self.nodes].index(nodename)}")
        return node


@wrong("identity", "WHF-402")
class FunctionsNumberedByNode(RackDriver):
    """Numbers the functions of a node, and renames functions after a card is removed."""

    def functions(self, card: Facts) -> list[str]:
        cards = self.cards[card["node"]]
        before = sum(one["functions"] for one in cards if one["slot"] < card["slot"])
        return [f"{card['name']}_vf{before + number}" for number in range(card["functions"])]


@wrong("identity", "WHF-402")
class FunctionsNamedByNode(RackDriver):
    """Names functions after the node and a number, so that a card takes over names of another."""

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
    """Names the functions of a card after its image, and renames them after a programming."""

    def functions(self, card: Facts) -> list[str]:
        return [f"{card['name']}_{card['image']}{number}" for number in range(card["functions"])]


@wrong("identity", "WHF-404")
class FunctionsCountedAnew(RackDriver):
    """Numbers functions with a counter in memory, which depends on the order of cards."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.numbers: dict[str, int] = {}

    def functions(self, card: Facts) -> list[str]:
        first = self.numbers.setdefault(card["name"], 2 * len(self.numbers))
        return [f"{card['name']}_vf{first + number}" for number in range(card["functions"])]


@wrong("identity", "WHF-401")
class LateFunctionsWithoutOwner(RackDriver):
    """Adds the functions of later cards to the tree without an inventory or an owner."""

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
    """Reports fewer processors in the ComputeNode than in the tree while cards are busy."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.vcpus -= sum(self.is_busy(card) for card in self.cards[nodename])
        return node


@wrong("identity", "WHF-401")
class NodeObjectLosesCards(RackDriver):
    """Reports two processors fewer in the ComputeNode for each removed card."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.vcpus = node.vcpus - 4 + 2 * len(self.cards[nodename])
        return node


@wrong("identity", "WHF-403")
class RandomUuid(HostDriver):
    """Gives a device a random uuid, and another one when the device returns."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return str(uuid4())


@wrong("identity", "WHF-403")
class UuidOfPosition(HostDriver):
    """Makes the uuid of a device from the host and the position in the file."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return made_of(f"{self.host} {[*self.facts['devices']].index(address)}")


@wrong("identity", "WHF-402")
class NameOfPosition(HostDriver):
    """Names a part of a device after the position of the device in the file."""

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
    """Renames the functions of all cards after the twelfth listing."""

    def refresh(self) -> None:
        super().refresh()
        self.listings = getattr(self, "listings", 0) + 1

    def functions(self, card: Facts) -> Sequence[str]:  # type: ignore[override]
        suffix = "" if self.listings < 12 else "_v2"
        return [f"{name}{suffix}" for name in super().functions(card)]


@wrong("identity", "WHF-311")
class UuidOfShortHost(HostDriver):
    """Makes the uuid of a device from its address and only eight characters of the host's name."""

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        return made_of(f"{self.host[:8]} {address}")


@wrong("identity", "WHF-401")
class ContainerForMany(HostDriver):
    """Moves all devices below a container if there are more than four."""

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        parent = node
        if len(self.facts["devices"]) > 4:
            parent = f"{node}_rack"
            if not tree.exists(parent):
                tree.new_child(parent, node)
        name = self.device_name(node, address)
        if tree.exists(name) and tree.data(name).parent_uuid != tree.data(parent).uuid:
            tree.remove(name)
        if not tree.exists(name):
            tree.new_child(name, parent, uuid=device["uuid"])
        super().describe_device(tree, node, address, device)


@wrong("identity", "WHF-401")
class NodeUuidOfDevices(HostDriver):
    """Makes the uuid of the host from its name and the number of its devices."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        uuid = made_of(f"{nodename} {len(self.facts['devices'])}")
        return ComputeNode(host=self.host, hypervisor_hostname=nodename, uuid=uuid)


@wrong("identity", "WHF-401")
class NodeObjectOfTheStart(HostDriver):
    """Keeps a figure in the ComputeNode that depends on the first number of devices."""

    first: int | None = None

    def get_available_resource(self, nodename: str) -> ComputeNode:
        if self.first is None:
            self.first = len(self.facts["devices"])
        node = super().get_available_resource(nodename)
        node.local_gb = 100 * self.first
        return node
