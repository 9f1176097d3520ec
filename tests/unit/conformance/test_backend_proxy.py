"""The proxy before a backend: calls that it passes on, calls that it breaks, and its reports."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.harness import COMMON_FAULTS, Fault

#: Seconds to wait for an event before a test fails.
TIMEOUT = 10
BODY = b'{"nodes": ["n1", "n2"]}'


class Backend(ThreadingHTTPServer):
    """A backend that gives the same answer to each request and records the requests."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.status, self.reason, self.body = 200, "Fine", BODY
        self.more: list[tuple[str, str]] = []
        self.is_chunked = False
        #: Waits until this number of requests has arrived; then all of them are answered.
        self.together = threading.Barrier(1)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", port), _Asked)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Asked(BaseHTTPRequestHandler):
    server: Backend
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        backend = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = (
            backend.body
        )  # read it now: a test may set the next answer when it sees the request
        backend.asked.append((self.command, self.path, dict(self.headers), body))
        backend.together.wait(TIMEOUT)
        self.send_response_only(backend.status, backend.reason)
        for name, value in backend.more:
            self.send_header(name, value)
        if backend.is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(answer), answer))
            return
        if backend.status == 204:
            self.end_headers()
            return
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    do_GET = do_HEAD = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815


@contextmanager
def serving(backend: Backend) -> Iterator[Backend]:
    thread = threading.Thread(target=backend.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield backend
    finally:
        backend.shutdown()
        backend.server_close()
        thread.join()


@pytest.fixture
def backend() -> Iterator[Backend]:
    with serving(Backend()) as served:
        yield served


@pytest.fixture
def proxy(backend: Backend) -> Iterator[Proxy]:
    started = Proxy(backend.url)
    started.start()
    yield started
    started.stop()


def get(proxy: Proxy, path: str = "/v1/nodes?limit=2") -> requests.Response:
    return requests.get(f"{proxy.url}{path}", timeout=TIMEOUT)


def is_reset(proxy: Proxy) -> bool:
    """Return whether the proxy resets a request before the first byte of an answer."""
    with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0), TIMEOUT) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")
        try:
            return asking.recv(1) == b"never"
        except ConnectionResetError:
            return True


@contextmanager
def hanging(proxy: Proxy) -> Iterator["Future[bool]"]:
    """Start a request that hangs; its future returns whether the connection was reset."""
    proxy.expect(fault=Fault.HANG)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(is_reset, proxy)
        while not proxy.calls:
            assert not waiting.done()
        try:
            yield waiting
        finally:
            proxy.expect()


def test_call_and_its_answer_pass_unchanged(backend: Backend, proxy: Proxy) -> None:
    backend.status, backend.reason, backend.more = 404, "Not Here", [("X-A", "1"), ("X-A", "2")]
    answer = requests.request(
        *("PATCH", f"{proxy.url}/v1/nodes/n%201?fields=uuid%2Cname"),
        data=b"\x00body",
        headers={"X-Openstack-Ironic-Api-Version": "1.72"},
        timeout=TIMEOUT,
    )
    [(method, path, headers, body)] = backend.asked
    assert (method, path) == ("PATCH", "/v1/nodes/n%201?fields=uuid%2Cname")
    assert body == b"\x00body"
    assert headers["X-Openstack-Ironic-Api-Version"] == "1.72"
    assert (answer.status_code, answer.reason, answer.content) == (404, "Not Here", BODY)
    assert answer.raw.headers.getlist("X-A") == ["1", "2"]


def test_links_that_a_backend_makes_of_its_host_lead_to_the_proxy(
    backend: Backend, proxy: Proxy
) -> None:
    get(proxy)
    [(_, _, headers, _)] = backend.asked
    assert f"http://{headers['Host']}" == proxy.url


def test_url_keeps_its_path(backend: Backend) -> None:
    proxy = Proxy(f"{backend.url}/accelerator/v2")
    proxy.start()
    get(proxy, "/devices")
    proxy.stop()
    assert backend.asked[0][1] == "/accelerator/v2/devices"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
@pytest.mark.parametrize("status", [200, 204])
def test_proxy_adds_no_body_to_messages_without_one(
    backend: Backend, proxy: Proxy, method: str, status: int
) -> None:
    backend.status = status
    answer = requests.request(method, proxy.url, timeout=TIMEOUT)
    bare = requests.request(method, backend.url, timeout=TIMEOUT)
    assert (answer.status_code, answer.content) == (status, bare.content)
    assert answer.headers.get("Content-Length") == bare.headers.get("Content-Length")


def test_answer_in_chunks_arrives_completely(backend: Backend, proxy: Proxy) -> None:
    backend.is_chunked = True
    assert get(proxy).content == BODY


def test_body_in_chunks_is_refused(backend: Backend, proxy: Proxy) -> None:
    answer = requests.post(proxy.url, data=iter([b"body"]), timeout=TIMEOUT)
    assert answer.status_code == 411
    assert not backend.asked


def test_calls_are_recorded_since_the_last_expect_with_their_connections(
    proxy: Proxy,
) -> None:
    with requests.Session() as session:
        url = f"{proxy.url}/v1/nodes"
        assert session.get(f"{url}?limit=2", timeout=TIMEOUT).headers["Connection"] == "close"
        assert session.delete(f"{url}/n1", timeout=TIMEOUT).ok
    assert proxy.calls == ("GET /v1/nodes?limit=2", "DELETE /v1/nodes/n1")
    proxy.expect()
    assert not proxy.calls


def test_call_that_is_refused_is_reset_and_does_not_reach_the_backend(
    backend: Backend, proxy: Proxy
) -> None:
    proxy.expect(fault=Fault.RAISE)
    assert is_reset(proxy)
    assert is_reset(proxy)
    assert not backend.asked
    assert len(proxy.calls) == 2


def test_answer_that_breaks_off_is_a_complete_http_message(backend: Backend, proxy: Proxy) -> None:
    backend.more = [("X-A", "1")]
    proxy.expect(fault=Fault.HALF)
    answer = get(proxy)
    assert answer.content == BODY[: len(BODY) // 2]
    assert answer.headers["Content-Length"] == str(len(BODY) // 2)
    assert (answer.status_code, answer.reason, answer.headers["X-A"]) == (200, "Fine", "1")


@pytest.mark.parametrize("status", [200, 204, 304])
def test_truncated_answer_without_a_body_is_a_reset(
    backend: Backend, proxy: Proxy, status: int
) -> None:
    backend.status, backend.body = status, b""
    assert get(proxy).status_code == status
    proxy.expect(fault=Fault.HALF)
    assert is_reset(proxy)
    assert len(backend.asked) == 2


def test_call_that_hangs_is_reset_at_the_next_expect(backend: Backend, proxy: Proxy) -> None:
    with hanging(proxy) as waiting:
        with pytest.raises(requests.ReadTimeout):
            requests.get(proxy.url, timeout=0.2)
        assert not waiting.done()
        proxy.expect()
        assert waiting.result(TIMEOUT)
    assert not backend.asked
    assert get(proxy).ok


def test_call_that_hangs_is_reset_when_the_proxy_stops(proxy: Proxy) -> None:
    with hanging(proxy) as waiting:
        proxy.stop()
        assert waiting.result(TIMEOUT)


@pytest.mark.parametrize(
    ("fault", "status"),
    [(Fault.ERROR, 503), (Fault.DENIED, 401), (Fault.FORBIDDEN, 403), (Fault.MISSING, 404)],
)
def test_error_of_the_proxy_has_a_status_and_does_not_reach_the_backend(
    backend: Backend, proxy: Proxy, fault: Fault, status: int
) -> None:
    proxy.expect(0, fault)
    answer = get(proxy)
    assert (answer.status_code, answer.content) == (status, b"{}")
    assert not backend.asked


def test_proxy_has_an_open_call_until_it_has_answered(proxy: Proxy) -> None:
    assert not proxy.has_open_calls
    with hanging(proxy) as waiting:
        assert proxy.has_open_calls
        proxy.expect()
        assert waiting.result(TIMEOUT)
    while proxy.has_open_calls:
        threading.Event().wait(0.01)


@pytest.mark.parametrize("fault", sorted(COMMON_FAULTS))
def test_only_the_call_with_the_given_index_meets_the_fault(proxy: Proxy, fault: Fault) -> None:
    proxy.expect(1, fault)
    assert get(proxy).content == BODY
    patience = 0.2 if fault is Fault.HANG else TIMEOUT
    try:
        assert requests.get(proxy.url, timeout=patience).content != BODY
    except requests.RequestException as error:
        assert isinstance(error, requests.ReadTimeout) is (fault is Fault.HANG)
    assert get(proxy).content == BODY
    assert len(proxy.calls) == 3


def test_stale_answer_is_the_last_one_to_the_same_request(backend: Backend, proxy: Proxy) -> None:
    assert get(proxy, "/a").content == BODY
    backend.body = b'{"nodes": []}'
    proxy.expect(0, Fault.STALE)
    assert get(proxy, "/a").content == BODY
    assert len(backend.asked) == 1
    assert get(proxy, "/a").content == backend.body


def test_request_without_an_earlier_answer_gets_no_stale_answer(
    backend: Backend, proxy: Proxy
) -> None:
    get(proxy, "/a")
    requests.get(f"{proxy.url}/b", headers={"If-None-Match": "1"}, timeout=TIMEOUT)
    backend.body = b"new"
    proxy.expect(fault=Fault.STALE)
    assert get(proxy, "/b").content == b"new"
    with_another_tag = {"If-None-Match": "2"}
    answer = requests.get(f"{proxy.url}/b", headers=with_another_tag, timeout=TIMEOUT)
    assert answer.content == b"new"
    proxy.forget()
    assert get(proxy, "/a").content == b"new"


def test_request_that_changes_something_has_no_stale_answer(backend: Backend, proxy: Proxy) -> None:
    requests.post(proxy.url, timeout=TIMEOUT)
    proxy.expect(fault=Fault.STALE)
    requests.post(proxy.url, timeout=TIMEOUT)
    assert len(backend.asked) == 2


def test_late_answer_is_read_at_once_and_sent_after_the_next_expect(
    backend: Backend, proxy: Proxy
) -> None:
    proxy.expect(0, Fault.LATE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, proxy)
        while not backend.asked:
            assert not waiting.done()
        backend.body = b"new"
        assert get(proxy).content == b"new"
        assert not waiting.done()
        proxy.expect()
        assert waiting.result(TIMEOUT).content == BODY


def test_late_answer_to_a_client_that_has_given_up_is_dropped(
    backend: Backend, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.expect(0, Fault.LATE)
    with pytest.raises(requests.ReadTimeout):
        requests.get(proxy.url, timeout=0.2)
    proxy.expect()
    assert get(proxy).content == BODY
    assert len(backend.asked) == 2
    assert not capsys.readouterr().err


def test_calls_are_answered_at_the_same_time(backend: Backend, proxy: Proxy) -> None:
    backend.together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(get, [proxy] * 8)]
    assert [answer.content for answer in answers] == [BODY] * 8
    assert len(proxy.calls) == 8


def test_one_of_several_simultaneous_calls_meets_the_fault(proxy: Proxy) -> None:
    proxy.expect(3, Fault.HALF)
    with ThreadPoolExecutor(8) as pool:
        answers = [answer.content for answer in pool.map(get, [proxy] * 8)]
    assert len(answers) - answers.count(BODY) == 1


def test_proxy_without_its_backend_resets_calls() -> None:
    with serving(Backend()) as other:
        port = other.server_port
        proxy = Proxy(other.url)
        proxy.start()
        url = proxy.url
    assert is_reset(proxy)
    with serving(Backend(port)):
        assert get(proxy).ok
    assert proxy.url == url
    proxy.stop()


def test_client_that_has_given_up_is_not_logged(
    backend: Backend, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.body = b"x" * 10_000_000
    with socket.create_connection(("127.0.0.1", urlsplit(proxy.url).port or 0)) as asking:
        asking.sendall(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")
        asking.recv(1)
    assert get(proxy).ok
    assert not capsys.readouterr().err


def test_proxy_that_was_not_started_can_be_stopped() -> None:
    proxy = Proxy("http://127.0.0.1:1")
    proxy.forget()
    proxy.stop()
