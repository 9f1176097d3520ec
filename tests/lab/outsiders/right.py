"""Drivers that satisfy every rule. Each docstring says what is unusual about the driver."""

import asyncio
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
    """Return the harness for a driver."""
    return RackHarness if issubclass(driver, RackDriver) else HostHarness


right = Registry(harness_of)
right()(RackDriver)
right()(HostDriver)


# Drivers that publish unusual trees.


@right()
class SharesStorage(RackDriver):
    """Publishes one storage provider, a root, which all nodes share through an aggregate."""

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
    """Publishes a second root for each node, a power supply, which shares nothing."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        power = f"{node}-power"
        if not tree.exists(power):
            tree.new_root(power)
        self.put(tree, power, {"CUSTOM_WATT": Inventory(total=900)}, ())


@right()
class WritesMappings(RackDriver):
    """Passes inventories to the tree as mappings of mappings that are not dicts."""

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
    """Passes traits to the tree as a tuple with a duplicate."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        several = tuple(traits)
        super().put(tree, name, inventory, several + several[:1])


@right()
class WritesGenerators(RackDriver):
    """Passes traits to the tree as a generator."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        super().put(tree, name, inventory, (one for one in list(traits)))


@right()
class WritesTwice(RackDriver):
    """Empties each inventory first, and then adds one resource class after the other."""

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
    """Puts nodes, cards and functions into aggregates."""

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        super().put(tree, name, inventory, traits)
        tree.update_aggregates(name, [str(uuid5(NAMESPACE_URL, name[-1]))])


@right()
class NodesAreContainers(RackDriver):
    """Publishes no inventory on nodes, only on cards and functions."""

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        return {}


@right()
class SaysNothingOfNodes(RackDriver):
    """Publishes only traits on nodes, and sets only the names in the ComputeNode."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        tree.update_traits(node, ["HW_CPU_X86_VMX"])

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)


@right()
class KeepsAFunctionForItself(RackDriver):
    """Publishes one function of each card with reserved equal to total."""

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        super().describe_card(tree, node, card)
        mine = self.functions(card)[0]
        tree.update_inventory(mine, {FUNCTION: Inventory(total=1, max_unit=1, reserved=1)})


@right()
class SharesPartsOfCards(RackDriver):
    """Publishes the area of cards with an allocation ratio of 8."""

    def card_inventory(self, card: Facts) -> Mapping[str, Any]:
        (kind, one), *_ = super().card_inventory(card).items()
        return {
            kind: Inventory(
                total=one.total, max_unit=one.total, reserved=one.reserved, allocation_ratio=8.0
            )
        }


@right()
class NodesHaveUuids(RackDriver):
    """Publishes nodes with uuids of its own."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = str(uuid5(NAMESPACE_URL, f"chassis of {nodename}"))
        return node


# Drivers that read the backend or send requests in an unusual way.


@right()
class SeenFreeTwice(RackDriver):
    """Keeps a cleaned card reserved until two listings have shown it free."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        #: How many more listings must show each card free.
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
    """Keeps a cleaned card reserved until two listings have shown it free. Has no change feed."""

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
    """Keeps a device that was reset reserved until two readings have shown the state ok."""

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
    """Keeps a device that was reset reserved for three seconds more."""

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
    """Delays every answer of the service by 0.2 s."""

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
    """Uses a service whose every answer takes 0.2 s."""


class SlowFileHarness(HostHarness):
    """Delays every reading of the file by 0.2 s."""

    def reader(self, path: Path, deadline: float) -> str:
        text = super().reader(path, deadline)
        time.sleep(0.2)
        return text


@right(harness=SlowFileHarness)
class ReadsTheSlow(HostDriver):
    """Reads a file that takes 0.2 s to read."""


class RackError(Exception):
    """Raised if the service fails."""


@right()
class RaisesItsOwn(RackDriver):
    """Raises an exception class of its own for every failure of the service."""

    def failed(self, operation: str, error: Exception) -> Exception:
        return RackError(f"{operation}: {error}")


@right()
class RaisesWhatItMeets(HostDriver):
    """Raises errors from reading the file unchanged."""

    def load(self) -> dict[str, Any]:
        return self.parse(self.read_text())


@right()
class RefusesItsOwnWay(RackDriver):
    """Raises PermissionError for a refused programming."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        card = self.names.get(provider_uuid)
        if card is None:
            raise PermissionError(f"{provider_uuid} is not a card")
        try:
            self.load_image(card, image)
        except LookupError as error:
            raise PermissionError(f"{image} cannot be loaded") from error


@right()
class SendsAgain(RackDriver):
    """Sends a failed request up to two more times, with a longer timeout."""

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
class WaitsBeforeItSendsAgain(RackDriver):
    """Sends a failed request once more, a second later."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        try:
            return super().send(method, path, body)
        except OSError:
            time.sleep(1)
            return super().send(method, path, body)


@right()
class KeepsAConnection(RackDriver):
    """Connects for the first request, and again after the connection is lost."""

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
class RunsAnEventLoop(RackDriver):
    """Sends each request with asyncio, in an event loop that it runs only for this request."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        return asyncio.run(asyncio.wait_for(self.ask(method, path, body), self.timeout))

    async def ask(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection(self.url.hostname, self.url.port)
        try:
            text = "" if body is None else json.dumps(body)
            head = f"{method} {path} HTTP/1.0\r\nContent-Length: {len(text)}"
            writer.write(f"{head}\r\n\r\n{text}".encode())
            head, _, found = (await reader.read()).decode().partition("\r\n\r\n")
            return int(head.partition(" ")[2][:3]), found.encode()
        finally:
            writer.close()


@right()
class ConnectsInInitHost(RackDriver):
    """Sends a request in init_host, and lets init_host fail if the service does not answer."""

    def init_host(self, service: Service) -> None:
        self.request("GET", "/events")


@right()
class KnowsTags(RackDriver):
    """Sends the tag of an earlier answer, and uses that answer again if nothing has changed."""

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
    """Logs every request and every provider, at several levels."""

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
    """Runs a thread from init_host to cleanup_host."""

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
    """Requests pages of random sizes."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.random = random.Random()

    def pages(self, what: str, **query: str) -> list[Facts]:
        return super().pages(what, **query, limit=str(self.random.randrange(60, 100)))


@right()
class ListsInAnyOrder(RackDriver):
    """Shuffles the nodes and cards after each listing."""

    def refresh(self) -> None:
        super().refresh()
        names = [*self.nodes]
        random.Random().shuffle(names)
        self.nodes = {name: self.nodes[name] for name in names}
        for cards in self.cards.values():
            random.Random().shuffle(cards)


@right()
class AsksForEachCard(RackDriver):
    """Takes only the names from the list of cards, and requests each card by its name."""

    def list_cards(self) -> list[Facts]:
        return [self.request("GET", f"/cards/{one['name']}") for one in super().list_cards()]


@right()
class ReadsAllOfAChange(RackDriver):
    """Reads the cards of the whole rack in a poll that finds any change."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return set(), str(self.request("GET", "/events")["last"])
        answer = self.request("GET", f"/events?since={since}")
        if answer["nodes"]:
            self.cards = by_node(self.list_cards(), self.nodes)
        return {*answer["nodes"]} & self.nodes.keys(), str(answer["last"])


@right()
class ListsWhatIsNamed(RackDriver):
    """Returns a list of nodes from a poll, and a mark that is not a number."""

    def changed_nodes(self, since: str | None) -> tuple[Any, str]:
        changed, mark = super().changed_nodes(None if since is None else since.partition(":")[2])
        return sorted(changed), f"event:{mark}"


# Drivers with unusual backends, and drivers that remove or publish devices in an unusual way.


class OverlayHarness(HostHarness):
    """Lets another program publish the host, and a third program publish a child of it."""

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
    """Publishes its devices below a root that belongs to another program, in overlay mode."""

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
    """Publishes the root only if no other program does, and lets the tree remove children."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        if tree.set_publishing_mode(node, PublishingMode.AUTO) is PublishingMode.OWN:
            super().describe_host(tree, node)
        tree.add_traits(node, "CUSTOM_HAS_DEVICES")

    def forget(self, tree: ProviderTree, node: str) -> None:
        tree.remove_unreported_children(node)


class IdleHarness(RackHarness):
    """Has no busy cards, because cards are never cleaned."""

    busy: ClassVar[Capability] = unsupported("cards are never cleaned")

    def make_busy(self, thing: str) -> None:
        raise NotImplementedError

    def make_free(self, thing: str) -> None:
        raise NotImplementedError


@right(harness=IdleHarness)
class NeverBusy(RackDriver):
    """Never reports a card as busy or as clean."""

    capabilities = Capabilities(
        nested_providers=RackDriver.capabilities.nested_providers,
        reshape=RackDriver.capabilities.reshape,
        change_feed=RackDriver.capabilities.change_feed,
        programming=RackDriver.capabilities.programming,
        cleans_after_release=unsupported("cards are never cleaned"),
    )
    is_clean = HostDriver.is_clean


class IdleHostHarness(HostHarness):
    """Has no busy devices, because devices are always ok."""

    busy: ClassVar[Capability] = unsupported("devices are always well")


@right(harness=IdleHostHarness)
class NeverBusyHost(HostDriver):
    """Never reports a device as busy."""


class GoingNodesHarness(RackHarness):
    """Removes a node with its last card, and puts it back with a card."""

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
    """Removes a node with its last card, so that the rack can become empty."""


class InspectedHarness(RackHarness):
    """Adds new nodes without processors and memory, as if they were not inspected yet."""

    def new_node(self, node: str) -> dict[str, Any]:
        facts = super().new_node(node)
        number = int(node.partition("-node")[2])
        return {**facts, "cpus": 0, "memory": 0} if number > 1 else facts


@right(harness=InspectedHarness)
class NodesWithoutInventory(RackDriver):
    """Publishes no inventory on a node that was not inspected yet, only on its cards."""

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        return super().node_inventory(facts) if facts["cpus"] else {}


class ManyHarness(RackHarness):
    """Has ten cards in the first rack at the start, each different from the others."""

    count = 10

    def new_card(self, node: str, slot: int) -> Card:
        return Card(
            node, slot, area=100 + 5 * self.made, functions=1 + self.made % 3, kept=slot * 5
        )


@right(harness=ManyHarness)
class CardsDiffer(RackDriver):
    """Publishes cards that all differ."""


@right()
class KeepsOthersChildren(HostDriver):
    """Removes its devices by the uuids that it remembers, and no other providers."""

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
    """Lets the tree remove the devices that were not reported."""

    def forget(self, tree: ProviderTree, node: str) -> None:
        tree.remove_unreported_children(node)


@right()
class TakesTheTreeApart(HostDriver):
    """Removes all devices from the tree and adds them again, as drivers for nova do."""

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        super().describe_host(tree, node)
        for uuid in tree.get_provider_uuids(node):
            if tree.exists(uuid) and self.is_own(tree.data(uuid).name, node):
                tree.remove(uuid)


class MaintenanceHarness(RackHarness):
    """Adds a card in maintenance, which is not one of the things."""

    def reset(self) -> None:
        super().reset()
        with self.rack.lock:
            self.rack.cards[self.put("a-node900", 0)].state = "maintenance"

    def things(self) -> Sequence[str]:
        return [name for name in super().things() if "node900" not in name]


@right(harness=MaintenanceHarness)
class BusySinceEver(RackDriver):
    """Publishes a card that is busy from the start and never becomes free."""


@right()
class NodeCountsCards(RackDriver):
    """Publishes on each node as many slots as the node has cards."""

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        super().describe_node(tree, node, facts)
        if cards := len(self.cards[node]):
            slots = {"CUSTOM_SLOT": Inventory(total=cards, max_unit=cards)}
            tree.update_inventory(node, {**self.node_inventory(facts), **slots})


@right()
class HostWithFeed(HostDriver):
    """Returns a digest of the file as the mark of its change feed, so marks have no order."""

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
