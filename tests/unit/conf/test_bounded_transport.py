"""One deadline limits a whole request, with all its parts; a socket stands in for the service."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import UnknownConnectionError

from wharfinger import conf
from wharfinger.conf import keystone
from wharfinger.conf.bounded_transport import RequestTimedOut

#: The deadline of a request, and the pause between two bytes, in seconds.
TIMEOUT, PAUSE = 0.6, 0.05
#: The deadline in seconds of requests that should succeed.
LONG = 3.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
Act = Callable[[socket.socket, threading.Event], None]


def drip(content: bytes) -> Act:
    """Return an act that sends the bytes one by one, with a short pause between them."""

    def act(connection: socket.socket, over: threading.Event) -> None:
        for byte in content:
            if over.wait(PAUSE):
                return
            connection.sendall(bytes([byte]))

    return act


def hang(_connection: socket.socket, over: threading.Event) -> None:
    over.wait()


class Service:
    """A service that accepts connections, reads a request if ``reads``, and performs ``act``."""

    def __init__(self, act: Act, *, reads: bool = True) -> None:
        self._act = act
        self._reads = reads
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.asked = 0
        self._start(self._accept)

    def close(self) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self._reads:
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += (more := connection.recv(65536))
                    if not more:
                        return
            self.asked += 1
            self._act(connection, self._over)


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def start(act: Act, *, reads: bool = True) -> Service:
        services.append(Service(act, reads=reads))
        return services[-1]

    yield start
    for service in services:
        service.close()


def adapter_to(
    directory: Path,
    service: Service,
    *more: str,
    auth: str = "none",
    timeout: float = TIMEOUT,
    scheme: str = "http",
) -> Adapter:
    """Return an adapter to the service, made as those to Placement, Ironic and Cyborg."""
    url = f"{scheme}://127.0.0.1:{service.port}"
    lines = [f"auth_type = {auth}", f"timeout = {timeout}", f"endpoint_override = {url}", *more]
    if auth == "none":
        lines.append(f"endpoint = {url}")
    path = directory / "test.conf"
    path.write_text("\n".join(("[placement]\nembedded = false", *lines)))
    return keystone.load_adapter(conf.parse([str(path)]), "placement")


def request(
    directory: Path,
    service: Service,
    *more: str,
    auth: str = "none",
    timeout: float = TIMEOUT,
    body: bytes = b"",
) -> bytes:
    """Send a request; return the content of the answer."""
    adapter = adapter_to(directory, service, *more, auth=auth, timeout=timeout)
    answer: bytes = adapter.put("/x", raise_exc=False, data=body).content
    return answer


def redirect(connection: socket.socket, over: threading.Event) -> None:
    """Redirect to the same URL after a third of the deadline."""
    over.wait(TIMEOUT / 3)
    port = connection.getsockname()[1]
    head = f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/x\r\nContent-Length: 0\r\n"
    connection.sendall(f"{head}Connection: close\r\n\r\n".encode())


@pytest.mark.parametrize(
    "act",
    [
        hang,
        drip(b"HTTP/1.1 200 OK\r\n" + b"X-Padding: x\r\n" * 1000),
        drip(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
        lambda connection, over: (
            connection.sendall(HEAD % 1000),
            drip(b"x" * 1000)(connection, over),
        ),
        lambda connection, over: (
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            drip(b"1\r\nx\r\n" * 200)(connection, over),
        ),
        redirect,
    ],
    ids=["hangs", "headers", "continues", "body", "chunks", "redirects"],
)
def test_request_that_takes_too_long_as_a_whole_is_an_error(
    tmp_path: Path, serve: Callable[..., Service], act: Act
) -> None:
    service = serve(act)

    with pytest.raises(UnknownConnectionError) as caught:
        request(tmp_path, service)

    assert isinstance(caught.value.original, RequestTimedOut)
    assert "timed out: no complete answer within [placement] timeout" in str(caught.value)
    # keystoneauth would follow 30 redirects; each of them alone takes less than the deadline.
    assert service.asked <= 5


def test_request_that_is_not_read_is_an_error(
    tmp_path: Path, serve: Callable[..., Service]
) -> None:
    with pytest.raises(UnknownConnectionError) as caught:
        request(tmp_path, serve(hang, reads=False), body=b"x" * 2**25)

    assert isinstance(caught.value.original, RequestTimedOut)


@pytest.mark.parametrize("act", [hang, drip(b"\x16\x03\x03\x40\x00" + b"x" * 1000)])
def test_deadline_of_a_request_includes_the_tls_handshake(
    tmp_path: Path, serve: Callable[..., Service], act: Act
) -> None:
    adapter = adapter_to(tmp_path, serve(act, reads=False), "insecure = true", scheme="https")

    with pytest.raises(UnknownConnectionError) as caught:
        adapter.get("/x")

    assert isinstance(caught.value.original, RequestTimedOut)


def test_deadline_of_a_request_includes_its_token(
    tmp_path: Path, serve: Callable[..., Service]
) -> None:
    """Keystone redirects each request for a token after a third of the deadline."""
    keystone_service = serve(redirect)

    with pytest.raises(UnknownConnectionError) as caught:
        request(
            tmp_path,
            serve(hang),
            f"auth_url = http://127.0.0.1:{keystone_service.port}/v3",
            "username = u\npassword = p\nproject_name = p\nuser_domain_name = d",
            "project_domain_name = d",
            auth="password",
        )

    assert isinstance(caught.value.original, RequestTimedOut)
    assert keystone_service.asked <= 5


def test_deadline_of_a_request_includes_retries_of_keystoneauth(
    tmp_path: Path, serve: Callable[..., Service]
) -> None:
    service = serve(hang)

    with pytest.raises(UnknownConnectionError):
        request(tmp_path, service, "connect_retries = 5\nconnect_retry_delay = 0.01")

    assert service.asked == 1


def test_answer_that_is_slow_and_in_time_is_read(
    tmp_path: Path, serve: Callable[..., Service]
) -> None:
    def act(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(HEAD % 4)
        drip(b"read")(connection, over)

    assert request(tmp_path, serve(act), timeout=LONG) == b"read"


def test_each_request_of_a_connection_has_its_own_deadline(
    tmp_path: Path, serve: Callable[..., Service]
) -> None:
    """Three requests together take longer than one deadline."""

    def act(connection: socket.socket, over: threading.Event) -> None:
        for _ in range(3):
            over.wait(LONG * 0.4)
            connection.sendall(HEAD % 2 + b"ok")
            connection.recv(65536)

    service = serve(act)
    adapter = adapter_to(tmp_path, service, timeout=LONG)

    assert [adapter.get("/x").content for _ in range(3)] == [b"ok"] * 3
    assert service.asked == 1
