"""Inject a fault between a client and the real Placement, into a request that the test chooses.

An HTTP server in front of Placement's application simulates faults of networks, proxies and
servers. The sockets between the client and this server are real.
"""

import http.client
import json
import socket
import struct
import threading
from collections.abc import Callable, Collection, Container
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final

import fixtures
import webob

from wharfinger_harnesses.daemons import ReservedPort

_ROLES: Final = ("admin", "member", "reader", "service")
_EVERY: Final = frozenset({"GET", "PUT", "POST", "DELETE"})
_NO_LINGERING: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Answer:
    """The answer to a request."""

    status: int = 204
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self) -> bytes:
        """Return the bytes of the answer in HTTP/1.1, after which the connection closes."""
        reason = http.client.responses[self.status]
        headers = [*self.headers, ("Connection", "close")]
        if self.status != http.client.NO_CONTENT:
            headers += [
                ("Content-Type", self.content_type),
                ("Content-Length", str(len(self.body))),
            ]
        lines = [f"HTTP/1.1 {self.status} {reason}", *(f"{name}: {it}" for name, it in headers)]
        return "\r\n".join((*lines, "", "")).encode() + self.body


class Ending(Enum):
    """How a connection ends."""

    ANSWERED = auto()
    RESET = auto()
    """The server sends half of the answer, then RST."""
    CUT_OFF = auto()
    """The server sends the head of the answer and half of its body, then FIN."""
    LATE = auto()
    """The server sends nothing as long as the client waits."""
    REFUSED = auto()
    """The port is closed before this request."""


@dataclass(frozen=True)
class Fault:
    """A fault to inject into a request."""

    name: str
    #: A text in lower case that the client's message about the fault must contain.
    told: str
    ending: Ending = Ending.ANSWERED
    #: Returns the answer to the client, from Placement's answer if Placement got the request.
    answer: Callable[[Answer], Answer] = lambda answer: answer
    #: The methods whose requests Placement gets before the fault.
    carried_out: Container[str] = frozenset()
    #: Whether the fault happens again if the client repeats the request.
    persistent: bool = False


def _refusal(status: int, detail: str, code: str = "placement.undefined_code") -> Answer:
    """Return an error answer in Placement's format."""
    error = {
        "status": status,
        "title": http.client.responses[status],
        "detail": f"There was a problem.\n\n {detail}  ",
        "code": code,
        "request_id": "req-0",
    }
    return Answer(status, json.dumps({"errors": [error]}).encode())


def _page(status: int) -> Answer:
    """Return an HTML error page, as a proxy sends it."""
    title = http.client.responses[status]
    page = f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
    return Answer(status, page.encode(), "text/html; charset=utf-8")


def _always(answer: Answer) -> Callable[[Answer], Answer]:
    return lambda _answer: answer


def _half(answer: Answer) -> Answer:
    return replace(answer, status=200, body=(answer.body or b"{}")[: len(answer.body) // 2 + 1])


_CONFLICT: Final = _always(
    _refusal(409, "resource provider generation conflict", "placement.concurrent_update")
)
_NONSENSE: Final = Answer(200, b'{"resource_providers": [nonsense], "traits": nonsense}')
#: JSON that is not in UTF-8, and JSON that is nested deeper than any parser accepts.
LATIN_1: Final = (
    '{"errors": [{"detail": "é"}], "versions": [{"id": "é"}], "resource_providers": '
    '[{"uuid": "é"}], "traits": ["é"], "aggregates": ["é"], "inventories": {"é": {}}}'
).encode("latin-1")
NESTED: Final = b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("refused", "refused", Ending.REFUSED, persistent=True),
        Fault("reset", "reset", Ending.RESET),
        Fault("reset when done", "reset", Ending.RESET, carried_out=_EVERY),
        Fault("cut off when done", "incomplete", Ending.CUT_OFF, carried_out=_EVERY),
        Fault("lost", "timed out", Ending.LATE),
        Fault("late", "timed out", Ending.LATE, carried_out=_EVERY),
        Fault("401", "401", answer=_always(_page(401))),
        Fault("403", "403", answer=_always(_refusal(403, "Policy does not allow this."))),
        # A DELETE reaches Placement first, so the 404 is true, as if another client was faster.
        Fault(
            "404", "404", answer=_always(_refusal(404, "It is not there.")), carried_out={"DELETE"}
        ),
        Fault("404 page", "404", answer=_always(_page(404))),
        Fault("409", "409", answer=_CONFLICT),
        Fault("409 always", "409", answer=_CONFLICT, persistent=True),
        Fault("429", "429", answer=_always(_page(429))),
        Fault("500", "500", answer=_always(_refusal(500, "An error has occurred."))),
        Fault(
            "500 when done",
            "500",
            answer=_always(_refusal(500, "An error has occurred.")),
            carried_out=_EVERY,
        ),
        Fault("503", "503", answer=_always(_page(503))),
        Fault("truncated when done", "not understood", answer=_half, carried_out=_EVERY),
        Fault(
            "nonsense when done", "not understood", answer=_always(_NONSENSE), carried_out=_EVERY
        ),
        Fault("page", "not understood", answer=_always(_page(200))),
        Fault("latin-1", "not understood", answer=_always(Answer(200, LATIN_1))),
        Fault("nested", "not understood", answer=_always(Answer(200, NESTED))),
    )
}

#: Not in FAULTS, since Placement does not answer a correct request in this way.
BAD_REQUEST: Final = Fault("400", "400", answer=_always(_refusal(400, "That cannot be.")))


@dataclass(frozen=True)
class Request:
    """A request of the client to Placement."""

    method: str
    path: str
    body: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


#: Selects a request by index, or all requests for which the function is true.
Where = int | Callable[[Request], bool]


@dataclass
class _Orders:
    """The fault to inject, and the texts of the requests so far and of those that met it."""

    where: Where | None = None
    fault: Fault | None = None
    seen: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def next_is_refused(self) -> bool:
        """Whether the port has to be closed before the next request."""
        refusing = self.fault is not None and self.fault.ending is Ending.REFUSED
        return refusing and len(self.seen) == self.where

    def hit(self, request: Request) -> bool:
        """Return whether the fault happens to this request."""
        if self.fault is None or self.fault.ending is Ending.REFUSED:
            return False
        if callable(self.where):
            return self.where(request) and (self.fault.persistent or not self.struck)
        again = self.fault.persistent and str(request) in self.struck
        return again or len(self.seen) - 1 == self.where


class Interceptor(fixtures.Fixture):
    """Serves Placement's application on a port of 127.0.0.1, and injects faults.

    ``url`` stays the same, also after the port was closed.
    """

    def __init__(self, application: Any) -> None:
        super().__init__()
        self._application = application
        #: The client's roles, as Placement sees them.
        self.roles: Collection[str] = _ROLES

    def _setUp(self) -> None:
        self._lock = threading.Lock()
        self._orders = _Orders()
        self._address = ("127.0.0.1", self.useFixture(ReservedPort()).number)
        self._listener: socket.socket | None = None
        self._serving: list[threading.Thread] = []
        self._listen()
        self.url = f"http://{self._address[0]}:{self._address[1]}"
        self.addCleanup(self._finish)
        self.addCleanup(self._refuse)

    def expect(self, where: Where | None = None, fault: Fault | None = None) -> None:
        """Forget all requests so far, and inject the fault into the request ``where``.

        ``where`` is the index of the request from now on, counted from 0, or a function that
        selects requests. If it selects several, the first one meets the fault, or all of them if
        the fault is persistent. The other requests pass.
        """
        self._finish()
        if self._listener is None:
            self._listen()
        self._orders = _Orders(where, fault)
        if self._orders.next_is_refused:
            self._refuse()

    @property
    def seen(self) -> list[str]:
        """The received requests, as "METHOD path". They include the client's GET /."""
        return self._orders.seen

    @property
    def struck(self) -> int:
        """How often the fault has happened. A closed port counts once."""
        return len(self._orders.struck) + (self._listener is None)

    def _listen(self) -> None:
        self._listener = socket.create_server(self._address)
        self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._acceptor.start()

    def _refuse(self) -> None:
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
            self._acceptor.join()
            listener.close()

    def _finish(self) -> None:
        """End all requests in progress."""
        self._orders.over.set()
        while self._serving:
            self._serving.pop().join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            self._serving.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        orders = self._orders
        with connection, connection.makefile("rb") as reader:
            line = reader.readline().decode()
            if not line:
                return
            method, path, _version = line.split()
            headers = dict(http.client.parse_headers(reader).items())
            body = reader.read(int(headers.get("Content-Length", 0)))
            request = Request(method, path, body.decode())
            with self._lock:
                orders.seen.append(str(request))
                fault = orders.fault if orders.hit(request) else None
                if fault is not None:
                    orders.struck.append(str(request))
            carries_out = fault is None or method in fault.carried_out
            answer = self._ask(method, path, headers, body) if carries_out else None
            if orders.next_is_refused:
                self._refuse()
            with suppress(ConnectionError):  # the client need not wait for it
                if fault is None:
                    connection.sendall((answer or Answer()).encode())
                else:
                    _strike(connection, fault, answer, orders.over)

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Pass a request to Placement's application, and return its answer."""
        request = webob.Request.blank(
            path,
            base_url=self.url,
            method=method,
            headers={**headers, "X-Roles": ",".join(self.roles)},
            body=body,
        )
        response = request.get_response(self._application)
        return Answer(
            response.status_int,
            response.body,
            headers=tuple(
                (name, value)
                for name, value in response.headers.items()
                if name.lower() not in ("content-length", "content-type")
            ),
        )


def _strike(
    connection: socket.socket, fault: Fault, answer: Answer | None, over: threading.Event
) -> None:
    """Answer a request with the fault. ``answer`` is Placement's, None if it got no request."""
    content = fault.answer(answer or Answer()).encode()
    match fault.ending:
        case Ending.LATE:
            over.wait()
        case Ending.RESET:
            if answer is not None:
                connection.sendall(content[: len(content) // 2])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
        case Ending.CUT_OFF if answer is not None:
            connection.sendall(content[: len(content) - len(answer.body) // 2])
        case _:
            connection.sendall(content)
