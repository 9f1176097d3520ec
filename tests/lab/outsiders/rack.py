"""A driver for racks. Nodes are roots, their cards are children, and cards have functions."""

import http.client
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError, ProgrammingRefused
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import Inventory, ProviderTree

OPTIONS = [
    cfg.URIOpt("url", required=True, help="The URL of the rack service."),
    cfg.StrOpt("rack", default="a", help="The rack whose nodes this instance publishes."),
    cfg.FloatOpt("timeout", default=5.0, help="The timeout of a request, in seconds."),
]
AREA = "CUSTOM_CARD_AREA"
FUNCTION = "CUSTOM_CARD_FUNCTION"

Facts = dict[str, Any]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options, for generated sample configurations."""
    return [("rack", OPTIONS)]


class RackDriver(ComputeDriver):
    """Publishes nodes with their cards, and the functions of each card."""

    default_owner: ClassVar[str] = "OWNER_NOVA"
    object_versions: ClassVar[Mapping[str, str]] = {"ComputeNode": "1.0"}
    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=SUPPORTED,
        reshape=unsupported("the area was always on the cards"),
        change_feed=SUPPORTED,
        programming=SUPPORTED,
        cleans_after_release=SUPPORTED,
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts(OPTIONS, name)
        self.url = urlsplit(conf[name].url)
        self.rack: str = conf[name].rack
        self.timeout: float = conf[name].timeout
        self.nodes: dict[str, Facts] = {}
        #: The cards of each node, by node.
        self.cards: dict[str, list[Facts]] = {}
        #: The names of cards, by the uuids of their providers.
        self.names: dict[str, str] = {}

    def init_host(self, service: Service) -> None:
        """Do nothing: each request opens a connection."""

    # Requests to the service.

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Return the content of the service's answer.

        Raise LookupError for status 404, and BackendError for every other failure.
        """
        try:
            status, text = self.send(method, path, body)
            return self.read(status, text)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.failed(f"{method} {path}", error) from error

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send a request. Return the status and the body of the answer."""
        connection = http.client.HTTPConnection(self.url.netloc, timeout=self.timeout)
        try:
            return self.exchange(connection, method, path, body, {})
        finally:
            connection.close()

    def exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()

    def read(self, status: int, text: bytes) -> Any:
        """Return the content of an answer.

        Raise LookupError for status 404, and ValueError for another error or for invalid JSON.
        """
        if status == 404:
            raise LookupError(json.loads(text)["error"])
        if status != 200:
            raise ValueError(f"status {status}")
        return json.loads(text)

    def failed(self, operation: str, error: Exception) -> Exception:
        return BackendError(driver=self.name, operation=operation, reason=str(error))

    def pages(self, what: str, **query: str) -> list[Facts]:
        """Return all entries of a list, page by page."""
        entries: list[Facts] = []
        marker = ""
        while True:
            asked = urlencode({"rack": self.rack, "marker": marker, **query})
            page = self.request("GET", f"/{what}?{asked}")
            entries += page[what]
            if page["next"] is None:
                return entries
            marker = page["next"]

    # Snapshots.

    def refresh(self) -> None:
        """Take a new snapshot of nodes and cards. Keep the old snapshot if a request fails."""
        nodes = self.list_nodes()
        self.nodes, self.cards = nodes, by_node(self.list_cards(), nodes)

    def list_nodes(self) -> dict[str, Facts]:
        return {one["name"]: one for one in self.pages("nodes")}

    def list_cards(self) -> list[Facts]:
        return self.pages("cards")

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            self.refresh()
        return [*self.nodes]

    def get_available_resource(self, nodename: str) -> ComputeNode:
        facts = self.nodes[nodename]
        return ComputeNode(
            host=self.host,
            hypervisor_hostname=nodename,
            vcpus=facts["cpus"],
            memory_mb=facts["memory"],
        )

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return set(), str(self.request("GET", "/events")["last"])
        answer = self.request("GET", f"/events?since={since}")
        changed = {*answer["nodes"]} & self.nodes.keys()
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        return changed, str(answer["last"])

    # The tree.

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self.describe_node(provider_tree, nodename, self.nodes[nodename])
        for card in self.cards[nodename]:
            self.describe_card(provider_tree, nodename, card)
            self.names[provider_tree.data(card["name"]).uuid] = card["name"]
        provider_tree.remove_unreported_children(nodename)

    def describe_node(self, tree: ProviderTree, node: str, facts: Facts) -> None:
        self.put(tree, node, self.node_inventory(facts), ["HW_CPU_X86_VMX"])

    def node_inventory(self, facts: Facts) -> Mapping[str, Any]:
        cpus, memory = facts["cpus"], facts["memory"]
        return {
            "VCPU": Inventory(total=cpus, max_unit=cpus, allocation_ratio=4.0),
            "MEMORY_MB": Inventory(total=memory, max_unit=memory, reserved=512),
        }

    def describe_card(self, tree: ProviderTree, node: str, card: Facts) -> None:
        name = card["name"]
        self.child(tree, name, node)
        uuid = tree.data(name).uuid
        self.put(tree, name, self.card_inventory(card), self.card_traits(uuid, card))
        functions = self.functions(card)
        for function in functions:
            self.child(tree, function, name)
            self.put(tree, function, {FUNCTION: Inventory(total=1, max_unit=1)}, [])
        tree.remove_unreported_children(name)
        if self.is_busy(card):
            self.reserve(tree, card, [name, *functions])

    def put(
        self, tree: ProviderTree, name: str, inventory: Mapping[str, Any], traits: Iterable[str]
    ) -> None:
        """Set the inventory and the traits of a provider."""
        tree.update_inventory(name, inventory)
        tree.update_traits(name, traits)

    def child(self, tree: ProviderTree, name: str, parent: str) -> None:
        if not tree.exists(name):
            tree.new_child(name, parent)

    def functions(self, card: Facts) -> list[str]:
        """Return the names of a card's functions."""
        return [f"{card['name']}_vf{number}" for number in range(card["functions"])]

    def card_inventory(self, card: Facts) -> Mapping[str, Any]:
        area = self.area(card)
        return {AREA: Inventory(total=area, max_unit=area, reserved=card["kept"], step_size=5)}

    def area(self, card: Facts) -> int:
        area: int = card["area"]
        return area

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        model = f"CUSTOM_CARD_MODEL_{card['area']}"
        return {model, self.function_trait(uuid, self.image_of(card))}

    def image_of(self, card: Facts) -> str:
        image: str = card["image"]
        return image

    def is_busy(self, card: Facts) -> bool:
        return bool(card["state"] != "free")

    def reserve(self, tree: ProviderTree, card: Facts, names: Sequence[str]) -> None:
        for name in names:
            tree.reserve(name, card["state"])

    # Programming and cleaning.

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        card = self.names.get(provider_uuid)
        if card is None:
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason="the provider is not a card here"
            )
        try:
            self.load_image(card, image)
        except LookupError as error:
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason=str(error)
            ) from error

    def load_image(self, card: str, image: str) -> None:
        self.request("POST", f"/cards/{card}/image", {"image": image})

    def current_function(self, provider_uuid: str) -> str | None:
        try:
            return self.image_of(self.request("GET", f"/cards/{self.names[provider_uuid]}"))
        except LookupError as error:
            raise self.failed(f"asking for {provider_uuid}", error) from error

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        return (provider_uuid,)

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        name = self.names.get(provider_uuid)
        cards = [card for cards in self.cards.values() for card in cards if card["name"] == name]
        return any(self.was_cleaned(card, since) for card in cards)

    def was_cleaned(self, card: Facts, since: datetime) -> bool:
        cleaned = card["cleaned"]
        return (
            card["state"] == "free"
            and cleaned is not None
            and datetime.fromisoformat(cleaned).astimezone() > since
        )


def by_node(cards: Iterable[Facts], nodes: Iterable[str]) -> dict[str, list[Facts]]:
    """Return the cards by node. Leave out the cards of nodes that are not in ``nodes``."""
    found: dict[str, list[Facts]] = {node: [] for node in nodes}
    for card in cards:
        if card["node"] in found:
            found[card["node"]].append(card)
    return found
