"""The HTTP server of a Proxy."""

import http.client
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from wharfinger.conformance.fault import Fault

#: Headers that a proxy does not forward (RFC 9110, section 7.6.1). It computes the lengths anew.
_OF_CONNECTION: Final = frozenset(
    {
        *("connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"),
        *("content-length", "transfer-encoding"),
    }
)
#: Statuses of answers that never have a body.
_WITHOUT_BODY: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
#: Methods that do not change the backend. STALE repeats only their answers.
_SAFE_METHODS: Final = ("GET", "HEAD")
#: Prefixes of the headers on which an answer depends.
_CONDITIONS: Final = ("if-", "range", "accept")
#: Value of SO_LINGER (socket(7)) with which closing a socket resets its connection.
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class CallFault:
    """The fault that a call meets, if any, and the event that releases the call."""

    fault: Fault | None
    over: threading.Event


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    reason: str
    headers: Sequence[tuple[str, str]]
    body: bytes


#: Answers that the proxy gives in place of the backend, like a load balancer.
_OWN_ANSWERS: Final = {
    fault: _Answer(status, status.phrase, (("Content-Type", "application/json"),), b"{}")
    for fault, status in (
        (Fault.ERROR, HTTPStatus.SERVICE_UNAVAILABLE),
        (Fault.DENIED, HTTPStatus.UNAUTHORIZED),
        (Fault.FORBIDDEN, HTTPStatus.FORBIDDEN),
        (Fault.MISSING, HTTPStatus.NOT_FOUND),
    )
}


class Relay(ThreadingHTTPServer):
    """Passes calls on to a backend ("host:port"), or injects faults."""

    request_queue_size = 128

    def __init__(self, backend: str, fault_of: Callable[[str], CallFault]) -> None:
        self.backend = backend
        self.fault_of = fault_of
        #: The last answer to each request, for STALE.
        self.answers: dict[object, _Answer] = {}
        #: The connections of clients that wait for an answer.
        self._open: Final[set[Any]] = set()
        super().__init__(("127.0.0.1", 0), _Call)

    def forget(self) -> None:
        """Forget the answers so far, so that STALE repeats none of them."""
        self.answers.clear()

    @property
    def has_open_calls(self) -> bool:
        """Whether a call has not been answered yet."""
        return bool(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a call in a new thread."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection."""
        self._open.discard(request)
        # The base class calls socket.shutdown, which would hide a reset.
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error, unless the connection broke."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Call(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Any:
        # The proxy treats all methods alike; http.server looks for do_GET, do_POST and so on.
        if name.startswith("do_"):
            return self._pass
        raise AttributeError(name)

    def _pass(self) -> None:
        met = self.server.fault_of(f"{self.command} {self.path}")
        if "Transfer-Encoding" in self.headers:
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
            return
        length = self.headers["Content-Length"]
        body = None if length is None else self.rfile.read(int(length))
        if met.fault is Fault.HANG:
            met.over.wait()
        answer = self._answer(met.fault, body)
        if met.fault is Fault.LATE:
            met.over.wait()
        if answer is None or (met.fault is Fault.HALF and not answer.body):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close_connection = True
            return
        kept = len(answer.body) // 2 if met.fault is Fault.HALF else None
        self._tell(answer, answer.body[:kept])

    def _answer(self, fault: Fault | None, body: bytes | None) -> _Answer | None:
        match fault:
            case Fault.HANG | Fault.RAISE:
                return None
            case _ if fault in _OWN_ANSWERS:
                return _OWN_ANSWERS[fault]
        key = self._answer_key()
        if fault is Fault.STALE and key in self.server.answers:
            return self.server.answers[key]
        answer = self._ask_backend(body)
        if answer is not None and self.command in _SAFE_METHODS:
            self.server.answers[key] = answer
        return answer

    def _answer_key(self) -> object:
        conditions = frozenset(
            (name.lower(), value)
            for name, value in self.headers.items()
            if name.lower().startswith(_CONDITIONS)
        )
        return self.command, self.path, conditions

    def _ask_backend(self, body: bytes | None) -> _Answer | None:
        connection = http.client.HTTPConnection(self.server.backend)
        try:
            # The Host header stays that of the driver, so links in the answer lead to the proxy.
            connection.putrequest(self.command, self.path, True, True)
            for name, value in self.headers.items():
                if name.lower() not in _OF_CONNECTION:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.putheader("Connection", "close")
            connection.endheaders(body)
            response = connection.getresponse()
            return _Answer(response.status, response.reason, response.getheaders(), response.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _tell(self, answer: _Answer, body: bytes) -> None:
        self.send_response_only(answer.status, answer.reason)
        # The answer to HEAD has a Content-Length but no body.
        dropped = _OF_CONNECTION - ({"content-length"} if self.command == "HEAD" else set())
        for name, value in answer.headers:
            if name.lower() not in dropped:
                self.send_header(name, value)
        if self.command != "HEAD" and answer.status not in _WITHOUT_BODY:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
