"""The harness of the rack drivers: a rack service in this process, behind the kit's proxy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import NAMESPACE_URL, uuid5

from tests.lab.outsiders.rack import AREA
from tests.lab.outsiders.rack_service import Card, Rack, Server
from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import Expected, Fault, Harness, Placement

#: The number of slots in a node.
_SLOTS: Final = 2


class RackHarness(Harness):
    """Serves two racks. Each card of the first rack is a thing, and a node has two slots."""

    patience: ClassVar[float] = 20.0
    count: ClassVar[int] = 4

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.rack: Final = Rack()
        self.server: Final = Server(self.rack)
        self.pulled: Final[dict[str, Card]] = {}
        self.made = 0
        self.proxy: Proxy | None = None

    def start(self) -> None:
        """Start the rack service and the proxy."""
        self.server.start()
        self.proxy = Proxy(f"http://127.0.0.1:{self.server.port}")
        self.proxy.start()

    def stop(self) -> None:
        """Stop the proxy and the rack service."""
        if self.proxy is not None:
            self.proxy.stop()
        self.server.stop()

    def restart(self) -> None:
        """Stop and start the service. It keeps its nodes, cards and events."""
        self.server.stop()
        self.server.start()

    def reset(self) -> None:
        """Replace all nodes and cards by new ones in two racks."""
        with self.rack.lock:
            for one in (self.rack.nodes, self.rack.cards, self.rack.images, self.pulled):
                one.clear()
            self.rack.events.clear()
            self.made = 0
            for slot in range(_SLOTS):
                self.put("b-node0", slot)
        self.grow(self.count)

    def configuration(self, instance: str) -> str:
        """Return a configuration with the URL of the proxy and the first rack."""
        assert self.proxy is not None
        return f"[{instance}]\nurl = {self.proxy.url}\nrack = a\n"

    def second_host(self, instance: str) -> str:
        """Return the configuration of another host with the second rack."""
        assert self.proxy is not None
        return f"[DEFAULT]\nhost = other\n[{instance}]\nurl = {self.proxy.url}\nrack = b\n"

    def things(self) -> Sequence[str]:
        """Return the names of the cards in the first rack."""
        with self.rack.lock:
            return [name for name in self.rack.cards if name.startswith("a-")]

    def add(self) -> str:
        """Add a card in the next slot, which no card has used. Return its name."""
        number, slot = divmod(self.made, _SLOTS)
        self.made += 1
        return self.put(f"a-node{number}", slot)

    def put(self, node: str, slot: int) -> str:
        with self.rack.lock:
            if node not in self.rack.nodes:
                self.rack.nodes[node] = self.new_node(node)
            card = self.new_card(node, slot)
            self.rack.cards[card.name] = card
            self.rack.changed(card)
            return card.name

    def new_node(self, node: str) -> dict[str, Any]:
        return {"name": node, "cpus": 16, "memory": 65536}

    def new_card(self, node: str, slot: int) -> Card:
        """Return a new card, with an area that depends on the slot."""
        return Card(node, slot, area=100 + 50 * slot)

    def remove(self, thing: str) -> None:
        """Remove a card from its slot."""
        with self.rack.lock:
            card = self.pulled[thing] = self.rack.cards.pop(thing)
            self.rack.changed(card)

    def put_back(self, thing: str) -> None:
        """Put a removed card back into its slot."""
        with self.rack.lock:
            card = self.rack.cards[thing] = self.pulled.pop(thing)
            self.rack.changed(card)

    def make_busy(self, thing: str) -> None:
        """Start to clean a card."""
        with self.rack.lock:
            card = self.rack.cards[thing]
            card.state = "cleaning"
            self.rack.changed(card)

    def make_free(self, thing: str) -> None:
        """Finish the cleaning of a card."""
        with self.rack.lock:
            self.rack.free(self.rack.cards[thing])

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Let the proxy break a call. See Harness.expect."""
        if self.proxy is not None:
            self.proxy.expect(at, fault)

    @property
    def calls(self) -> Sequence[str]:
        """The requests of the driver since the last expect."""
        assert self.proxy is not None
        return self.proxy.calls

    def expected(self) -> Mapping[str, Expected]:
        """Return the area and the model trait of each free card in the first rack."""
        with self.rack.lock:
            return {
                name: Expected({AREA: card.area}, frozenset({f"CUSTOM_CARD_MODEL_{card.area}"}))
                for name, card in self.rack.cards.items()
                if name.startswith("a-") and card.state == "free"
            }

    def change(self, thing: str) -> None:
        """Give a card more area, and thereby another model."""
        with self.rack.lock:
            card = self.rack.cards[thing]
            card.area += 300
            self.rack.changed(card)

    def use(self, thing: str) -> None:
        """Let an instance use 20 units of a card's area."""
        with self.rack.lock:
            card = self.rack.cards[thing]
            card.used += 20
            self.rack.changed(card)

    def image(self, thing: str) -> tuple[str, str]:
        """Return the uuid and the function of an image that can be loaded into every card."""
        uuid = str(uuid5(NAMESPACE_URL, "rack image"))
        self.rack.images[uuid] = "sha512"
        return uuid, "sha512"
