"""A service that manages nodes with accelerator cards, over HTTP."""

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs, urlsplit

#: The maximum number of entries in one answer.
PAGE: Final = 100


@dataclass
class Card:
    """A card in a slot of a node. Each card has functions."""

    node: str
    slot: int
    area: int
    kept: int = 10
    functions: int = 2
    state: str = "free"
    used: int = 0
    image: str = "base"
    cleaned: str | None = None

    @property
    def name(self) -> str:
        """The service's name for the card."""
        return f"{self.node}_card{self.slot}"


@dataclass
class Rack:
    """The nodes and cards of all racks, and the events about them."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    cards: dict[str, Card] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    images: dict[str, str] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def changed(self, card: Card) -> None:
        """Record an event for the node of a card."""
        self.events.append(card.node)

    def page(
        self, entries: Mapping[str, Any], rack: str, marker: str, limit: int
    ) -> tuple[list[Any], str | None]:
        """Return the entries of a rack after a marker, and the marker for the next page."""
        names = sorted(name for name in entries if name.startswith(f"{rack}-") and name > marker)
        page = names[: min(limit, PAGE)]
        return [entries[name] for name in page], page[-1] if len(names) > len(page) else None

    def get(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        """Return the status and the answer to a GET."""
        asked = (query.get("rack", ""), query.get("marker", ""), int(query.get("limit", PAGE)))
        match path.strip("/").split("/"):
            case ["nodes"]:
                nodes, after = self.page(self.nodes, *asked)
                return 200, {"nodes": nodes, "next": after}
            case ["cards"]:
                node = query.get("node")
                found = {n: c for n, c in self.cards.items() if node in (None, c.node)}
                cards, after = self.page(found, *asked)
                return 200, {"cards": [*map(as_json, cards)], "next": after}
            case ["cards", name] if name in self.cards:
                return 200, as_json(self.cards[name])
            case ["events"]:
                since = int(query["since"]) if "since" in query else len(self.events)
                return 200, {"nodes": self.events[since:], "last": len(self.events)}
        return 404, {"error": f"there is no {path}"}

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the answer to a POST."""
        match path.strip("/").split("/"):
            case ["cards", name, "image"] if name in self.cards and body["image"] in self.images:
                card = self.cards[name]
                card.image = self.images[body["image"]]
                self.changed(card)
                return 200, as_json(card)
        return 404, {"error": f"there is no {path}, or no such image"}

    def free(self, card: Card) -> None:
        """Finish the cleaning of a card."""
        card.state, card.cleaned = "free", datetime.now(UTC).isoformat()
        self.changed(card)


def as_json(card: Card) -> dict[str, Any]:
    """Return the service's description of a card."""
    return {"name": card.name, **vars(card)}


class Handler(BaseHTTPRequestHandler):
    """Answers requests. Answers 304 to a GET with the tag of an unchanged answer."""

    rack: ClassVar[Rack]
    timeout = 10

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self.answer(lambda: self.rack.get(url.path, query))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(lambda: self.rack.post(self.path, body))

    def answer(self, work: Callable[[], tuple[int, Any]]) -> None:
        with self.rack.lock:
            status, answer = work()
            text = json.dumps(answer).encode()
        tag = hashlib.sha256(text).hexdigest()
        is_known = status == 200 and self.headers.get("If-None-Match") == tag
        self.send_response(304 if is_known else status)
        self.send_header("ETag", tag)
        if not is_known:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if not is_known:
            self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server:
    """Serves a rack on a port of 127.0.0.1, and uses the same port after a restart."""

    def __init__(self, rack: Rack) -> None:
        self.handler = type("RackHandler", (Handler,), {"rack": rack})
        self.port = 0
        self.server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        """Start to serve."""
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), self.handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
