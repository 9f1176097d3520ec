"""Drivers that keep every rule, each in a way of its own."""

import hashlib
import http.client
import json
import logging
import random
import threading
import time
from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.host_harness import HOST, HostHarness
from tests.lab.outsiders.rack import FUNCTION, Facts, RackDriver, by_node
from tests.lab.outsiders.rack_harness import RackHarness
from tests.lab.outsiders.rack_service import Card
from tests.lab.outsiders.running import Registry
from wharfinger.conformance.harness import Harness
from wharfinger.driver import Capabilities, Capability, unsupported
from wharfinger.objects import ComputeNode, Service
from wharfinger.providers import Inventory, ProviderTree, PublishingMode

LOG = logging.getLogger(__name__)


def harness_of(driver: type) -> type[Harness]:
    """The harness that fits a driver."""
    return RackHarness if issubclass(driver, RackDriver) else HostHarness


right = Registry(harness_of)
right()(RackDriver)
right()(HostDriver)


# Drivers that publish unusual trees.


@right()
class SharesStorage(RackDriver):
    """All nodes share a storage, which is a root of its own, by an aggregate."""

    AGGREGATE: ClassVar[str] = str(uuid5(NAMESPACE_URL, "storage of the rack"))

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        store = f"{self.rack}-storage"
        if not tree.exists(store):
            tree.new_root(store)
        self.put(
            tree,
            store,
            {"DISK_GB": Inventory(total=5000, max_unit=500)},
            ["MISC_SHARES_VIA_AGGREGATE"],
        )
        for one in (node, store):
            tree.update_aggregates(one, [self.AGGREGATE])


@right()
class NodesShareOneRoot(RackDriver):
    """Every node's tree has the root of the rack's power supply, which shares nothing."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        power = f"{node}-power"
        if not tree.exists(power):
            tree.new_root(power)
        self.put(tree, power, {"CUSTOM_WATT": Inventory(total=900)}, ())


@right()
class WritesMappings(RackDriver):
    """Inventories are mappings of mappings, and no dicts."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        figures = {
            kind: UserDict(
                total=one.total,
                reserved=one.reserved,
                max_unit=one.max_unit,
                step_size=one.step_size,
                allocation_ratio=one.allocation_ratio,
            )
            for kind, one in inventory.items()
        }
        super().put(tree, name, MappingProxyType(figures), traits)


@right()
class WritesTuples(RackDriver):
    """Traits come as a tuple, with a duplicate."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        several = tuple(traits)
        super().put(tree, name, inventory, several + several[:1])


@right()
class WritesGenerators(RackDriver):
    """Traits come from a generator."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        super().put(tree, name, inventory, (one for one in list(traits)))


@right()
class WritesTwice(RackDriver):
    """It writes inventories step by step: first nothing, then all."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        tree.update_inventory(name, {})
        tree.update_traits(name, [])
        for kind, one in inventory.items():
            old = tree.data(name).inventory
            tree.update_inventory(name, {**old, kind: one})
        tree.add_traits(name, *traits)


@right()
class InAvailabilityZones(RackDriver):
    """Nodes and cards are in aggregates."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        super().put(tree, name, inventory, traits)
        tree.update_aggregates(name, [str(uuid5(NAMESPACE_URL, name[-1]))])


@right()
class NodesAreContainers(RackDriver):
    """A node has no inventory; all of it is on the cards."""

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        return {}


@right()
class SaysNothingOfNodes(RackDriver):
    """A node has traits alone, and the node's object has nothing but the names."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        tree.update_traits(node, ["HW_CPU_X86_VMX"])

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)


@right()
class KeepsAFunctionForItself(RackDriver):
    """One function of each card is fully reserved by its own figure."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        super().describe_card(tree, node, card)
        mine = self.functions(card)[0]
        tree.update_inventory(mine, {FUNCTION: Inventory(total=1, max_unit=1, reserved=1)})


@right()
class SharesPartsOfCards(RackDriver):
    """More of a card's area is given out than there is."""

    def card_inventory(self, card: Facts) -> Mapping[str, Any]:
        (kind, one), *_ = super().card_inventory(card).items()
        return {
            kind: Inventory(
                total=one.total, max_unit=one.total, reserved=one.reserved, allocation_ratio=8.0
            )
        }


@right()
class NodesHaveUuids(RackDriver):
    """The service knows the uuids of nodes."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = str(uuid5(NAMESPACE_URL, f"chassis of {nodename}"))
        return node


# How drivers ask.


@right()
class SeenFreeTwice(RackDriver):
    """A card that was cleaned is offered after two listings have shown it free."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        #: How often cards that were busy have to be seen free yet.
        self.waiting: dict[str, int] = {}

    def refresh(self) -> None:
        super().refresh()
        for card in (one for cards in self.cards.values() for one in cards):
            if card["state"] != "free":
                self.waiting[card["name"]] = 2
            elif card["name"] in self.waiting:
                self.waiting[card["name"]] -= 1
                if not self.waiting[card["name"]]:
                    del self.waiting[card["name"]]

    def is_busy(self, card: Facts) -> bool:
        if super().is_busy(card):
            self.waiting[card["name"]] = 2
        return card["name"] in self.waiting

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        state = card["state"]
        super().reserve(tree, {"state": "settling" if state == "free" else state}, names)


@right()
class SeenFreeTwiceWithoutAFeed(SeenFreeTwice):
    """A card that was cleaned is offered after two listings have shown it free; it has no feed."""

    capabilities = Capabilities(
        nested_providers=RackDriver.capabilities.nested_providers,
        reshape=RackDriver.capabilities.reshape,
        change_feed=unsupported("a poll does not show that a card was seen twice"),
        programming=RackDriver.capabilities.programming,
        cleans_after_release=RackDriver.capabilities.cleans_after_release,
    )
    changed_nodes = HostDriver.changed_nodes


@right()
class HostSeenFreeTwice(HostDriver):
    """A device that was reset is offered after two readings have shown it to be well."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.seen: dict[str, int] = {}

    def refresh(self) -> None:
        super().refresh()
        for address, device in self.facts["devices"].items():
            self.seen[address] = self.seen.get(address, 2) + 1 if device["state"] == "ok" else 0
            if device["state"] == "ok" and self.seen[address] < 2:
                device["state"] = "settling"


@right()
class FreeAfterSeconds(HostDriver):
    """A device that was reset is offered when it has been well for some seconds."""

    SECONDS: ClassVar[float] = 3.0

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.last_busy: dict[str, float] = {}

    def refresh(self) -> None:
        super().refresh()
        now = time.monotonic()
        for address, device in self.facts["devices"].items():
            if device["state"] != "ok":
                self.last_busy[address] = now
            elif now - self.last_busy.get(address, -self.SECONDS) < self.SECONDS:
                device["state"] = "settling"


class SlowHarness(RackHarness):
    """A service that takes its time."""

    growth = 16

    def start(self) -> None:
        super().start()
        handler = self.server.handler
        answer = handler.answer  # type: ignore[attr-defined]

        def answer_slowly(self: Any, work: Any) -> None:
            time.sleep(0.2)
            answer(self, work)

        handler.answer = answer_slowly  # type: ignore[attr-defined]


@right(harness=SlowHarness)
class AsksTheSlow(RackDriver):
    """Each request takes 0.2 s."""


class SlowFileHarness(HostHarness):
    """A file on a slow disk."""

    def reader(self, path: Path, deadline: float) -> str:
        text = super().reader(path, deadline)
        time.sleep(0.2)
        return text


@right(harness=SlowFileHarness)
class ReadsTheSlow(HostDriver):
    """Each reading takes 0.2 s."""


class RackError(Exception):
    """The rack does not do what it is asked for."""


@right()
class RaisesItsOwn(RackDriver):
    """Every failure of the service is an exception of the driver's own."""

    def failed(self, operation: str, error: Exception) -> Exception:
        return RackError(f"{operation}: {error}")


@right()
class RaisesWhatItMeets(HostDriver):
    """It raises errors of the file unchanged."""

    def load(self) -> dict[str, Any]:
        return self.parse(self.read_text())


@right()
class RefusesItsOwnWay(RackDriver):
    """A programming that is refused is a PermissionError of the driver's."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        card = self.names.get(provider_uuid)
        if card is None:
            raise PermissionError(f"{provider_uuid} is no card")
        try:
            self.load_image(card, image)
        except LookupError as error:
            raise PermissionError(f"{image} cannot be loaded") from error


@right()
class SendsAgain(RackDriver):
    """A request that failed is sent twice more, each with a longer timeout."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        usual = self.timeout
        try:
            for more in (1, 1.5):
                self.timeout = usual * more
                try:
                    status, text = super().send(method, path, body)
                    if status != 503:
                        return status, text
                except (OSError, http.client.HTTPException):
                    LOG.warning("%s %s failed, and is sent again", method, path)
            return super().send(method, path, body)
        finally:
            self.timeout = usual


@right()
class KeepsAConnection(RackDriver):
    """The connection is made with the first request, and made again where it is lost."""

    connection: http.client.HTTPConnection | None = None

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        if self.connection is None:
            self.connection = http.client.HTTPConnection(self.url.netloc, timeout=self.timeout)
        try:
            return self.exchange(self.connection, method, path, body, {})
        except (OSError, http.client.HTTPException):
            self.cleanup_host()
            raise

    def cleanup_host(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


@right()
class ConnectsInInitHost(RackDriver):
    """It asks the service once before the first cycle, and lets the instance fail without it."""

    def init_host(self, service: Service) -> None:
        self.request("GET", "/events")


@right()
class KnowsTags(RackDriver):
    """An answer whose tag is the same is not sent again."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.known: dict[str, tuple[str, bytes]] = {}

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        if method != "GET":
            return super().send(method, path, body)
        tag, text = self.known.get(path, ("", b""))
        connection = http.client.HTTPConnection(self.url.netloc, timeout=self.timeout)
        try:
            connection.request("GET", path, headers={"If-None-Match": tag} if tag else {})
            answer = connection.getresponse()
            found = answer.read()
            if answer.status == 304:
                return 200, text
            self.read(answer.status, found)
            if answer.status == 200 and "cards" in path:
                self.known = {
                    **dict([*self.known.items()][-50:]),
                    path: (answer.headers["ETag"], found),
                }
            return answer.status, found
        finally:
            connection.close()


@right()
class LogsMuch(RackDriver):
    """Every request and every provider is logged at several levels."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        LOG.info("%s %s", method, path)
        status, text = super().send(method, path, body)
        LOG.debug("status %s: %r", status, text)
        return status, text

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        LOG.warning("%s has %s and %s", name, inventory, traits)
        super().put(tree, name, inventory, traits)


@right()
class Watches(RackDriver):
    """A thread watches the service for as long as the instance is connected."""

    def init_host(self, service: Service) -> None:
        self.over = threading.Event()
        self.watcher = threading.Thread(target=self.watch, name="watcher", daemon=True)
        self.watcher.start()

    def watch(self) -> None:
        while not self.over.wait(0.05):
            LOG.debug("still watching")

    def cleanup_host(self) -> None:
        self.over.set()
        self.watcher.join()


@right()
class AsksPagesOfAnySize(RackDriver):
    """The size of pages is drawn at random each time."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.random = random.Random()

    def pages(self, what: str, **query: str) -> list[Facts]:
        return super().pages(what, **query, limit=str(self.random.randrange(60, 100)))


@right()
class ListsInAnyOrder(RackDriver):
    """Cards and nodes come in another order with each listing."""

    def refresh(self) -> None:
        super().refresh()
        names = [*self.nodes]
        random.Random().shuffle(names)
        self.nodes = {name: self.nodes[name] for name in names}
        for cards in self.cards.values():
            random.Random().shuffle(cards)


@right()
class AsksForEachCard(RackDriver):
    """It lists the names alone, and asks for each card."""

    def list_cards(self) -> list[Facts]:
        return [self.request("GET", f"/cards/{one['name']}") for one in super().list_cards()]


@right()
class ReadsAllOfAChange(RackDriver):
    """Where anything has changed, a poll takes a new snapshot of the whole rack."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return set(), str(self.request("GET", "/events")["last"])
        answer = self.request("GET", f"/events?since={since}")
        if answer["nodes"]:
            self.cards = by_node(self.list_cards(), self.nodes)
        return {*answer["nodes"]} & self.nodes.keys(), str(answer["last"])


@right()
class ListsWhatIsNamed(RackDriver):
    """A poll returns a list, and a mark that is no number."""

    def changed_nodes(self, since: str | None) -> tuple[Any, str]:
        changed, mark = super().changed_nodes(None if since is None else since.partition(":")[2])
        return sorted(changed), f"event:{mark}"


# Unusual backends.


class OverlayHarness(HostHarness):
    """Another program publishes the host, and a third one has a child below it."""

    def reset(self) -> None:
        super().reset()
        client = self.placement.client
        root, child = (str(uuid5(NAMESPACE_URL, name)) for name in (HOST, "child"))
        client.create_provider(root, HOST, None)
        inventories = {"VCPU": Inventory(total=64), "MEMORY_MB": Inventory(total=4096)}
        generation = client.set_inventories(root, 0, inventories)
        client.set_traits(root, generation, {"OWNER_NOVA", "COMPUTE_NODE"})
        client.create_provider(child, f"{HOST}_bandwidth", root)
        client.create_trait("CUSTOM_OWNER_NETWORK")
        client.create_resource_class("CUSTOM_BANDWIDTH")
        generation = client.set_inventories(child, 0, {"CUSTOM_BANDWIDTH": Inventory(total=100)})
        client.set_traits(child, generation, {"CUSTOM_OWNER_NETWORK"})


@right(harness=OverlayHarness)
class OverlaysTheHost(HostDriver):
    """Its devices are below a root that another program publishes, beside those of a third one."""

    capabilities = Capabilities(
        nested_providers=HostDriver.capabilities.nested_providers,
        reshape=unsupported("the units were always the devices'"),
        change_feed=HostDriver.capabilities.change_feed,
        programming=HostDriver.capabilities.programming,
        cleans_after_release=HostDriver.capabilities.cleans_after_release,
    )

    def has_to_move(self, tree: ProviderTree, node: str) -> bool:
        return False

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        tree.set_publishing_mode(node, PublishingMode.OVERLAY)


@right(harness=OverlayHarness)
class OverlaysWhatIsThere(OverlaysTheHost):
    """It publishes the host where no other program does, and removes what it did not report."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        if tree.set_publishing_mode(node, PublishingMode.AUTO) is PublishingMode.OWN:
            super().describe_host(tree, node)
        tree.add_traits(node, "CUSTOM_HAS_DEVICES")

    def forget(self, tree: ProviderTree, node: str) -> None:
        tree.remove_unreported_children(node)


class IdleHarness(RackHarness):
    """Cards are never cleaned."""

    busy: ClassVar[Capability] = unsupported("cards are never cleaned")

    def make_busy(self, thing: str) -> None:
        raise NotImplementedError

    def make_free(self, thing: str) -> None:
        raise NotImplementedError


@right(harness=IdleHarness)
class NeverBusy(RackDriver):
    """Nothing is ever busy, and nothing cleaned."""

    capabilities = Capabilities(
        nested_providers=RackDriver.capabilities.nested_providers,
        reshape=RackDriver.capabilities.reshape,
        change_feed=RackDriver.capabilities.change_feed,
        programming=RackDriver.capabilities.programming,
        cleans_after_release=unsupported("cards are never cleaned"),
    )
    is_clean = HostDriver.is_clean


class IdleHostHarness(HostHarness):
    """Devices are always well."""

    busy: ClassVar[Capability] = unsupported("devices are always well")


@right(harness=IdleHostHarness)
class NeverBusyHost(HostDriver):
    """Nothing is ever busy."""


class GoingNodesHarness(RackHarness):
    """A node is there for as long as it has cards."""

    def remove(self, thing: str) -> None:
        with self.rack.lock:
            super().remove(thing)
            node = self.pulled[thing].node
            if all(card.node != node for card in self.rack.cards.values()):
                del self.rack.nodes[node]

    def put_back(self, thing: str) -> None:
        with self.rack.lock:
            node = self.pulled[thing].node
            self.rack.nodes.setdefault(node, self.new_node(node))
            super().put_back(thing)


@right(harness=GoingNodesHarness)
class NodesGoWithCards(RackDriver):
    """A node goes with its last card, so that the rack can be empty."""


class InspectedHarness(RackHarness):
    """A new node has no figures until the service has inspected it."""

    def new_node(self, node: str) -> dict[str, Any]:
        facts = super().new_node(node)
        number = int(node.partition("-node")[2])
        return {**facts, "cpus": 0, "memory": 0} if number > 1 else facts


@right(harness=InspectedHarness)
class NodesWithoutInventory(RackDriver):
    """A node that was not inspected yet has no inventory, and its cards do."""

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        return super().node_inventory(facts) if facts["cpus"] else {}


class ManyHarness(RackHarness):
    """Ten cards in each rack at the start, of which each one differs."""

    count = 10

    def new_card(self, node: str, slot: int) -> Card:
        return Card(
            node, slot, area=100 + 5 * self.made, functions=1 + self.made % 3, kept=slot * 5
        )


@right(harness=ManyHarness)
class CardsDiffer(RackDriver):
    """No two cards are alike."""


@right()
class KeepsOthersChildren(HostDriver):
    """It removes its own devices by the uuids that it knows, and nothing else."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.known: set[str] = set()

    def forget(self, tree: ProviderTree, node: str) -> None:
        there = {device["uuid"] for device in self.facts["devices"].values()}
        super().forget(tree, node)
        for uuid in self.known - there:
            if tree.exists(uuid):
                tree.remove(uuid)
        self.known |= there


@right()
class RemovesTheUnreported(HostDriver):
    """It leaves it to the tree to know which devices are gone."""

    def forget(self, tree: ProviderTree, node: str) -> None:
        tree.remove_unreported_children(node)


@right()
class TakesTheTreeApart(HostDriver):
    """It removes all devices from the tree and adds them again, as drivers for nova do."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        super().describe_host(tree, node)
        for uuid in tree.get_provider_uuids(node):
            if tree.exists(uuid) and self.is_own(tree.data(uuid).name, node):
                tree.remove(uuid)


class MaintenanceHarness(RackHarness):
    """A card that is no thing is in maintenance all the time."""

    def reset(self) -> None:
        super().reset()
        with self.rack.lock:
            self.rack.cards[self.put("a-node900", 0)].state = "maintenance"

    def things(self) -> Sequence[str]:
        return [name for name in super().things() if "node900" not in name]


@right(harness=MaintenanceHarness)
class BusySinceEver(RackDriver):
    """One card is busy from the start, and never becomes free."""


@right()
class NodeCountsCards(RackDriver):
    """A node has as many slots in use as it has cards."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        if cards := len(self.cards[node]):
            slots = {"CUSTOM_SLOT": Inventory(total=cards, max_unit=cards)}
            tree.update_inventory(node, {**self.node_inventory(facts), **slots})


@right()
class HostWithFeed(HostDriver):
    """The mark of its feed is a digest of the file, which has no order."""

    capabilities = Capabilities(
        nested_providers=HostDriver.capabilities.nested_providers,
        reshape=HostDriver.capabilities.reshape,
        change_feed=RackDriver.capabilities.change_feed,
        programming=HostDriver.capabilities.programming,
        cleans_after_release=HostDriver.capabilities.cleans_after_release,
    )

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        facts = self.load()
        mark = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        if since in (None, mark):
            return set(), mark
        self.facts = facts
        return {self.host}, mark
