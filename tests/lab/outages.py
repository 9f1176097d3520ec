"""Simulate outages of a dependency by a gate: a proxy in front of its port or Unix socket."""

import json
import socket
import threading
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final

import fixtures

from tests.lab.stub_service import HTML
from wharfinger_harnesses.daemons import ReservedPort

Address = tuple[str, int] | str
_MOST: Final = 65536


class Outage(Enum):
    """A type of outage."""

    REFUSED = "refused"
    """No process listens on the port."""
    HANGING = "hanging"
    """The gate accepts connections, and does not answer."""
    UNAVAILABLE = "503"
    """The gate answers each request with 503."""
    WRONG = "page"
    """The gate answers each request with an HTML page and 200. A database client gets the page,
    too."""
    HALF = "half"
    """The gate answers each request with JSON that ends in the middle."""
    EMPTY = "empty"
    """The gate answers each request with empty lists."""
    SLOW = "slow"
    """The dependency's answers arrive byte by byte, with a pause after each."""


#: The names of lists in answers of Placement, Ironic and Cyborg.
_LISTS: Final = (
    "resource_providers",
    "resource_classes",
    "nodes",
    "deployables",
    "devices",
    "arqs",
)
_ANSWERS: Final = {
    Outage.EMPTY: (200, "application/json", json.dumps({key: [] for key in _LISTS}).encode()),
    Outage.UNAVAILABLE: (503, "text/html", b"<html><body>Service Unavailable</body></html>"),
    Outage.WRONG: (200, "text/html", HTML),
    Outage.HALF: (200, "application/json", b'{"resource_providers": [{"uuid": "4'),
}


class Gate(fixtures.Fixture):
    """A gate that passes connections on to a dependency at ``target``, or simulates its outage.

    It listens on the Unix socket ``path``, or else on a port of 127.0.0.1 with the URL ``url``.
    ``pause`` is the time after each byte of a slow answer, in seconds.
    """

    url: str

    def __init__(self, target: Address, path: Path | None = None, pause: float = 0.1) -> None:
        super().__init__()
        self._target = target
        self._path = path
        self._pause = pause
        self._lock = threading.Lock()
        self._outage: Outage | None = None
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    def _setUp(self) -> None:
        if self._path is None:
            self._port = self.useFixture(ReservedPort()).number
            self.url = f"http://127.0.0.1:{self._port}"
        self._listen()
        self.addCleanup(self._finish)

    def begin(self, outage: Outage) -> None:
        """Begin an outage, which also affects open connections."""
        with self._lock:
            self._outage = outage
            self._over.clear()
        if outage is Outage.REFUSED:
            self._stop_listening()
        if outage not in (Outage.HANGING, Outage.SLOW):
            self._drop()

    def end(self) -> None:
        """End the outage, and close all connections."""
        with self._lock:
            self._outage = None
            self._over.set()
        self._drop()
        if self._listener is None:
            self._listen()

    def _listen(self) -> None:
        if self._path is None:
            self._listener = socket.create_server(("127.0.0.1", self._port), backlog=64)
        else:
            self._path.unlink(missing_ok=True)
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(self._path))
            self._path.chmod(0o777)
            self._listener.listen(64)
        self._start(self._accept, self._listener)

    def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
            if self._path is not None:
                self._path.unlink()

    def _start(self, work: object, *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _drop(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _finish(self) -> None:
        self._stop_listening()
        with self._lock:
            self._outage = None
            self._over.set()
        self._drop()
        for thread in self._threads:
            thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                self._sockets.append(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            outage = self._outage
            if outage in _ANSWERS:
                self._answer(client, outage)
            elif outage is Outage.HANGING:
                self._over.wait()
            else:
                self._connect(client)

    def _answer(self, client: socket.socket, outage: Outage) -> None:
        """Answer a request in place of the dependency."""
        if self._path is None:
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += (more := client.recv(_MOST))
                if not more:
                    return
        status, kind, body = _ANSWERS[outage]
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)

    def _connect(self, client: socket.socket) -> None:
        family = socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET
        with socket.socket(family) as server:
            server.connect(self._target)
            with self._lock:
                self._sockets.append(server)
            asking = threading.Thread(target=self._pass_on, args=(client, server), daemon=True)
            asking.start()
            self._pass_on(server, client, is_answer=True)
            asking.join()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, *, is_answer: bool = False
    ) -> None:
        with suppress(OSError):
            while content := source.recv(_MOST):
                if self._outage is Outage.HANGING:
                    self._over.wait()
                    break
                if is_answer and self._outage is Outage.SLOW:
                    self._drip(content, target)
                else:
                    target.sendall(content)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _drip(self, content: bytes, target: socket.socket) -> None:
        for byte in content:
            if self._over.wait(self._pause):
                return
            target.sendall(bytes([byte]))
