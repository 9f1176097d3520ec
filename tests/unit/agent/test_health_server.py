"""Server of health and metrics: its answers, its sockets, and clients that misbehave."""

import fcntl
import gc
import json
import logging
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, strategies
from tenacity import stop_after_attempt

from tests.lab.agent_status import INTERVALS
from tests.lab.agent_status import agent as status_at_now
from tests.lab.unix_sockets import bind
from wharfinger.agent import health_server, listening_sockets
from wharfinger.agent.health_server import CONNECTIONS, LONGEST_REQUEST, HealthServer
from wharfinger.agent.status import AgentStatus, InstanceStatus, State
from wharfinger.conf import AgentSection
from wharfinger.exceptions import ConfigurationError

#: Seconds to wait for an event before a test fails.
TIMEOUT = 30.0


def section(path: Path, address: tuple[str, int] | None = None) -> AgentSection:
    return AgentSection(2, 60, 300, path, address)


def instance(state: State = State.STARTING) -> InstanceStatus:
    now = time.monotonic()
    return InstanceStatus(name="metal", state=state, since=now, started_at=now)


def agent(*instances: InstanceStatus) -> AgentStatus:
    now = time.monotonic()
    return AgentStatus(
        started_at=now, looked_at=now, intervals=INTERVALS, instances=instances or (instance(),)
    )


class Client(HTTPConnection):
    """A client of the Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = listening_sockets.connect(self._path, TIMEOUT)


def get(path: Path, target: str, method: str = "GET") -> tuple[HTTPResponse, bytes]:
    client = Client(path)
    try:
        client.request(method, target)
        response = client.getresponse()
        return response, response.read()
    finally:
        client.close()


def raw(path: Path, request: bytes) -> bytes:
    """Send these bytes as a request; return all bytes of the answer."""
    with listening_sockets.connect(path, TIMEOUT) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "agent.sock"


@pytest.fixture
def server(path: Path) -> Iterator[HealthServer]:
    with HealthServer(section(path), agent) as server:
        yield server


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give clients a deadline that no test reaches."""
    monkeypatch.setattr(health_server, "DEADLINE", 600.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_server, "DEADLINE", 0.2)


# Answers.


@pytest.mark.usefixtures("server")
def test_health_is_answered_as_health_json(path: Path) -> None:
    response, body = get(path, "/health")

    assert response.status == 200
    assert response.headers["Content-Type"] == "application/health+json"
    assert response.headers["Cache-Control"] == "no-store"
    assert json.loads(body)["status"] == "pass"


@pytest.mark.parametrize("target", ["/health", "/ready"])
def test_failure_is_answered_with_503(path: Path, target: str) -> None:
    with HealthServer(section(path), lambda: agent(instance(State.CRASH_LOOP))):
        response, body = get(path, target)

    assert response.status == 503
    assert response.headers["Content-Type"] == "application/health+json"
    assert json.loads(body)["status"] == "fail"


def test_warning_is_answered_with_200(path: Path) -> None:
    with HealthServer(section(path), lambda: agent(instance(State.ENDED))):
        response, body = get(path, "/health")

    assert (response.status, json.loads(body)["status"]) == (200, "warn")


@pytest.mark.usefixtures("server")
def test_ready_of_starting_agent_is_answered_with_503(path: Path) -> None:
    assert get(path, "/ready")[0].status == 503


def test_each_answer_has_the_status_at_its_time(path: Path) -> None:
    statuses = iter([agent(), agent(instance(State.WEDGED)), agent()])
    with HealthServer(section(path), lambda: next(statuses)):
        assert [get(path, "/health")[0].status for _ in range(3)] == [200, 503, 200]


@pytest.mark.usefixtures("server")
def test_metrics_are_answered_in_the_format_of_prometheus(path: Path) -> None:
    response, body = get(path, "/metrics")

    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b'wharfinger_instance_state{driver_instance="metal",state="starting"} 1.0' in body


def test_status_is_answered_as_it_is(path: Path) -> None:
    status = replace(status_at_now(), service_error="no answer from rack-7")
    with HealthServer(section(path), lambda: status):
        response, body = get(path, "/status")

    assert response.headers["Content-Type"] == "application/json"
    assert msgspec.json.decode(body, type=AgentStatus) == status


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("target", ["/health?verbose=1", "http://localhost/health"])
def test_query_and_host_of_a_target_are_ignored(path: Path, target: str) -> None:
    assert get(path, target)[0].status == 200


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("target", ["/", "/healthz", "/health/", "//[", "/../health"])
def test_unknown_path_is_answered_with_404(path: Path, target: str) -> None:
    response, body = get(path, target)

    assert response.status == 404
    assert response.headers["Content-Type"] == "application/json"
    assert "/health, /ready, /metrics, /status" in json.loads(body)["error"]["detail"]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "get", "BREW"])
def test_other_method_is_answered_with_405(path: Path, method: str) -> None:
    answer = raw(path, f"{method} /health HTTP/1.1\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET" in head
    assert json.loads(body)["error"]["code"] == 405


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("header", ["Content-Length: 3", "Transfer-Encoding: chunked"])
def test_request_with_body_is_answered_with_400(path: Path, header: str) -> None:
    answer = raw(path, f"GET /health HTTP/1.1\r\n{header}\r\n\r\nabc".encode())

    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "request_bytes",
    [b"GET /health HTTP/1.0\r\n\r\n", b"\r\n\n\nGET /health HTTP/1.1\n\n", b"GET /health\r\n\r\n"],
)
def test_request_without_headers_is_answered(path: Path, request_bytes: bytes) -> None:
    assert b'"status": "pass"' in raw(path, request_bytes)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"GET /health HTTP/9.9\r\n\r\n", b"505"),
        (b"GET /health HTTP/x\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nHost: x", b"400"),
        (b"GET /" + b"a" * (LONGEST_REQUEST + 1), b"431"),
        (b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 150 + b"\r\n", b"431"),
        (b"GET /health HTTP/1.1\r\nA: " + b"b" * (1 << 20), b"431"),
    ],
)
def test_broken_request_is_answered_with_error(
    path: Path, request_bytes: bytes, code: bytes
) -> None:
    assert raw(path, request_bytes).split()[1] == code
    assert get(path, "/health")[0].status == 200


_parts = strategies.sampled_from(
    b"GET|POST| |/health|/ready|//[|?| HTTP/1.1| HTTP/0.9|:|a|\r\n|\n|Host|Content-Length: 0|"
    b"Expect: 100-continue|\x00|\xff|%".split(b"|")
)


@given(request=strategies.lists(_parts, max_size=12).map(b"".join) | strategies.binary(max_size=40))
def test_any_request_is_answered(request: bytes) -> None:
    route = (HTTPStatus.OK, ("text/plain", b"content"))
    exchange = health_server._Exchange(request, {"/health": lambda _accept: route})
    answer = exchange.wfile.getvalue()

    # The answer to a GET without a version has no headers; blank lines get no answer.
    assert answer.startswith(b"HTTP/1.1 ") or answer == b"content" or not request.strip()
    assert b"Traceback" not in answer


@pytest.mark.usefixtures("server")
def test_answer_names_no_version(path: Path) -> None:
    for target in ("/health", "/ready", "/metrics", "/none"):
        response, body = get(path, target)
        text = f"{response.headers}{body.decode()}".lower()
        assert response.headers["Server"] == "wharfinger"
        for word in ("python", socket.gethostname().lower(), os.uname().release.lower()):
            assert word not in text


def test_status_that_cannot_be_read_is_answered_with_500(path: Path) -> None:
    def fail() -> AgentStatus:
        raise ValueError("a secret of ours")

    with HealthServer(section(path), fail):
        for target in ("/health", "/ready", "/metrics", "/status"):
            response, body = get(path, target)
            assert (response.status, b"secret" in body) == (500, False)


# Clients that misbehave.


@pytest.mark.usefixtures("server", "patient")
def test_clients_that_send_nothing_do_not_block_others(path: Path) -> None:
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            stack.enter_context(listening_sockets.connect(path, TIMEOUT))
            assert get(path, "/health")[0].status == 200


@pytest.mark.usefixtures("server", "patient")
def test_further_client_ends_the_oldest_connection(path: Path) -> None:
    with ExitStack() as stack:
        silent = [
            stack.enter_context(listening_sockets.connect(path, TIMEOUT))
            for _ in range(CONNECTIONS)
        ]
        assert get(path, "/health")[0].status == 200
        assert silent[0].recv(1) == b""
        silent[-1].sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert silent[-1].recv(12) == b"HTTP/1.1 200"


@pytest.mark.usefixtures("server", "impatient")
@pytest.mark.parametrize("start", [b"", b"GET /health HT"])
def test_client_that_sends_no_whole_request_is_disconnected(path: Path, start: bytes) -> None:
    with listening_sockets.connect(path, TIMEOUT) as connection:
        connection.sendall(start)
        assert connection.recv(1) == b""


@pytest.mark.usefixtures("server", "impatient")
def test_client_that_sends_byte_for_byte_is_disconnected(path: Path) -> None:
    with listening_sockets.connect(path, TIMEOUT) as connection, pytest.raises(ConnectionError):
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            connection.sendall(b"a")
            time.sleep(0.01)


@pytest.mark.usefixtures("impatient")
def test_client_that_reads_nothing_is_disconnected(path: Path) -> None:
    status = replace(agent(), refused_reload="x" * 4_000_000)
    with HealthServer(section(path), lambda: status):
        with listening_sockets.connect(path, TIMEOUT) as connection:
            connection.sendall(b"GET /status HTTP/1.1\r\n\r\n")
            with listening_sockets.connect(path, TIMEOUT) as other:
                other.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                assert other.recv(12) == b"HTTP/1.1 200"
                assert b"".join(iter(lambda: other.recv(65536), b"")).endswith(b"}")
            poll = select.poll()
            poll.register(connection, 0)
            assert poll.poll(TIMEOUT * 1000) == [(connection.fileno(), select.POLLHUP)]
            received = b"".join(iter(lambda: connection.recv(65536), b""))
        assert 0 < len(received) < 4_000_000


@pytest.mark.usefixtures("server")
def test_long_answer_reaches_a_client_completely(path: Path) -> None:
    status = replace(agent(), refused_reload="x" * 4_000_000)
    with HealthServer(section(path.with_name("other.sock")), lambda: status):
        _response, body = get(path.with_name("other.sock"), "/status")
    assert len(body) > 4_000_000


@pytest.mark.parametrize("request_bytes", [b"GET /metrics HTTP/1.1\r\n\r\n", b"GET /", b""])
def test_client_that_goes_without_reading_is_not_logged(
    path: Path, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    address = ("127.0.0.1", free_port("127.0.0.1"))
    with HealthServer(section(path, address), agent):
        for _ in range(20):
            with socket.create_connection(address, TIMEOUT) as connection:
                connection.sendall(request_bytes)
        assert get(path, "/health")[0].status == 200
    gc.collect()  # asyncio logs the error of a task when the task is deleted
    assert [one for one in caplog.records if one.levelno > logging.DEBUG] == []


def test_server_leaves_no_descriptor_and_no_thread(path: Path) -> None:
    before = descriptors(), threading.active_count()
    for _ in range(3):
        with HealthServer(section(path), agent), ExitStack() as stack:
            open_files = descriptors()
            for _ in range(5):
                stack.enter_context(listening_sockets.connect(path, TIMEOUT))
                get(path, "/health")
                raw(path, b"garbage\r\n\r\n")
            assert threading.active_count() == before[1] + 1
            stack.close()
            wait_until(lambda number=open_files: descriptors() == number)  # type: ignore[misc]
    assert (descriptors(), threading.active_count()) == before


# Addresses of the server.


@pytest.mark.usefixtures("server")
def test_socket_is_for_its_user_and_group_whatever_the_umask(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    umask = os.umask(0o077)
    try:
        other = path.with_name("other.sock")
        with HealthServer(section(other), agent):
            assert stat.S_IMODE(other.stat().st_mode) == 0o660
    finally:
        os.umask(umask)


def test_socket_is_deleted_at_the_end(path: Path) -> None:
    with HealthServer(section(path), agent):
        assert path.is_socket()
    assert not path.exists()


def test_socket_that_another_process_put_in_its_place_is_kept_at_the_end(path: Path) -> None:
    with HealthServer(section(path), agent):
        path.rename(path.with_name("ours.sock"))
        with socket.socket(socket.AF_UNIX) as other:
            listening_sockets.connect(path.with_name("ours.sock"), TIMEOUT).close()
            bind(other, path)
    assert path.is_socket()


def test_stale_socket_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as dead:
        bind(dead, path)
        dead.listen()

    with HealthServer(section(path), agent):
        assert get(path, "/health")[0].status == 200


@pytest.mark.usefixtures("server")
def test_socket_of_a_living_agent_is_refused(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="another process already listens on the socket"):
        HealthServer(section(path), agent).start()
    assert get(path, "/health")[0].status == 200


def test_locked_directory_names_the_other_agent(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening_sockets._lock.retry, "stop", stop_after_attempt(1))
    path.parent.mkdir()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        with pytest.raises(
            ConfigurationError, match=r"kept the directory locked .* Stop the other"
        ):
            HealthServer(section(path), agent).start()
    finally:
        os.close(directory)


def test_socket_of_a_process_that_accepts_nothing_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as busy, ExitStack() as stack:
        bind(busy, path)
        busy.listen(0)
        for _ in range(2):
            try:
                stack.enter_context(listening_sockets.connect(path, timeout=0.01))
            except OSError:
                break
        with pytest.raises(
            ConfigurationError, match="another process already listens on the socket"
        ):
            HealthServer(section(path), agent).start()
    assert path.is_socket()


def make_link(path: Path) -> None:
    path.symlink_to(path.with_name("target"))


@pytest.mark.parametrize(
    ("make", "told"),
    [(make_link, "symbolic link"), (Path.touch, "not a socket"), (Path.mkdir, "not a socket")],
)
def test_other_file_in_place_of_the_socket_is_refused_and_kept(
    path: Path, make: Callable[[Path], object], told: str
) -> None:
    path.parent.mkdir()
    make(path)
    before = path.lstat()
    with pytest.raises(ConfigurationError, match=told) as caught:
        HealthServer(section(path), agent).start()
    assert (caught.value.section, caught.value.key) == ("agent", "health_socket")
    assert path.lstat() == before


def test_directory_that_is_a_file_is_refused(path: Path) -> None:
    path.parent.touch()
    with pytest.raises(ConfigurationError, match="health_socket"):
        HealthServer(section(path), agent).start()


def test_path_longer_than_a_socket_address_is_served(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 100) / ("b" * 100) / "agent.sock"
    with HealthServer(section(path), agent):
        assert get(path, "/health")[0].status == 200
    assert not path.exists()


def test_name_longer_than_a_socket_address_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 120)
    with pytest.raises(ConfigurationError, match="too long"):
        HealthServer(section(path), agent).start()


def free_port(host: str) -> int:
    with socket.create_server(
        (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
    ) as one:
        port: int = one.getsockname()[1]
        return port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_address_answers_every_path_except_the_status(path: Path, host: str) -> None:
    try:
        port = free_port(host)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with HealthServer(section(path, (host, port)), agent):
        codes = {}
        for target in ("/health", "/ready", "/metrics", "/status"):
            client = HTTPConnection(host, port, timeout=TIMEOUT)
            client.request("GET", target)
            codes[target] = client.getresponse().status
            client.close()
        assert get(path, "/status")[0].status == 200
    assert codes == {"/health": 200, "/ready": 503, "/metrics": 200, "/status": 404}


def test_address_in_use_is_refused_and_leaves_no_socket(path: Path) -> None:
    before = descriptors()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        address = ("127.0.0.1", busy.getsockname()[1])
        with pytest.raises(ConfigurationError, match="already in use") as caught:
            HealthServer(section(path, address), agent).start()
    assert caught.value.key == "health_address"
    assert not path.exists()
    assert descriptors() == before


@pytest.mark.parametrize("host", ["192.0.2.1", "a" * 70])
def test_address_of_another_machine_is_refused(path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="health_address"):
        HealthServer(section(path, (host, 9479)), agent).start()
