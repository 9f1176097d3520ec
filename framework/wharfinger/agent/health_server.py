"""HTTP server of the agent for its health, readiness, metrics and status."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from io import BytesIO
from threading import Thread
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec
from oslo_log import log as logging

from wharfinger.agent import health, listening_sockets
from wharfinger.agent.metrics import Metrics
from wharfinger.agent.status import AgentStatus
from wharfinger.conf import AgentSection
from wharfinger.exceptions import printable

LOG: Final = logging.getLogger(__name__)
#: Seconds that a client has to send a request and to read the answer.
DEADLINE: Final = 5.0
#: The largest number of connections. A further connection ends the oldest.
CONNECTIONS: Final = 64
#: The largest number of bytes of a request with its headers.
LONGEST_REQUEST: Final = 16 * 1024
#: Seconds after the answer in which the client may close the connection, so that it is not reset.
_CLOSE_TIMEOUT: Final = 1.0
_JSON: Final = "application/json"
_HEALTH_JSON: Final = "application/health+json"

#: Content type and body of an answer.
_Content = tuple[str, bytes]
#: Returns the answer for a header Accept.
_Route = Callable[[str], tuple[HTTPStatus, _Content]]


class HealthServer:
    """Answers HTTP requests about the agent between ``start`` and ``stop``."""

    def __init__(self, section: AgentSection, status: Callable[[], AgentStatus]) -> None:
        self._section: Final = section
        self._status: Final = status
        self._metrics: Final = Metrics(status)
        self._resources: Final = ExitStack()
        self._servers: Final[list[asyncio.Server]] = []
        #: The connections, oldest first.
        self._connections: Final[dict[asyncio.Task[None], None]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start to answer requests. Raises ConfigurationError."""
        public: dict[str, _Route] = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": self._metrics_page,
        }
        with ExitStack() as stack:
            # Not for TCP: texts of /status may contain names of hosts.
            sockets = {
                stack.enter_context(
                    listening_sockets.unix_socket(self._section.health_socket)
                ): public | {"/status": self._status_page}
            }
            if self._section.health_address is not None:
                address = listening_sockets.tcp_sockets(*self._section.health_address)
                sockets |= dict.fromkeys(stack.enter_context(address), public)
            loop = asyncio.new_event_loop()
            stack.callback(loop.close)
            loop.set_exception_handler(_log_exception)
            loop.run_until_complete(self._listen(sockets))
            stack.callback(lambda: loop.run_until_complete(self._end_connections()))
            thread = Thread(target=loop.run_forever, name="health", daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(loop.call_soon_threadsafe, loop.stop)
            self._resources.push(stack.pop_all())

    def stop(self) -> None:
        """Stop listening, and end all connections."""
        self._resources.close()

    async def _listen(self, sockets: Mapping[socket.socket, Mapping[str, _Route]]) -> None:
        for listener, routes in sockets.items():
            serve = partial(self._serve, routes)
            self._servers.append(
                await asyncio.start_server(serve, sock=listener, limit=LONGEST_REQUEST)
            )

    async def _end_connections(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(
        self,
        routes: Mapping[str, _Route],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS:
            oldest = next(iter(self._connections))
            oldest.cancel()
            del self._connections[oldest]
        self._connections[task] = None
        writer.transport.set_write_buffer_limits(0)  # so that drain waits for all of it
        try:
            async with asyncio.timeout(DEADLINE):
                request = await _read_request(reader)
                if request:
                    writer.write(_answer(request, routes))
                    await writer.drain()
                    writer.write_eof()
                    async with asyncio.timeout(_CLOSE_TIMEOUT):
                        while await reader.read(LONGEST_REQUEST):
                            pass
        except OSError as error:
            LOG.debug(
                "a client of the health server was too slow, or has closed the connection: %r",
                error,
            )
        finally:
            self._connections.pop(task, None)
            # The answer was sent, or the client does not read it.
            writer.transport.abort()

    def _health(self, _accept: str) -> tuple[HTTPStatus, _Content]:
        status = self._status()
        return _as_answer(health.health(status, now := time.monotonic()), now)

    def _ready(self, _accept: str) -> tuple[HTTPStatus, _Content]:
        return _as_answer(health.ready(self._status()), time.monotonic())

    def _metrics_page(self, accept: str) -> tuple[HTTPStatus, _Content]:
        return HTTPStatus.OK, self._metrics.page(accept)

    def _status_page(self, _accept: str) -> tuple[HTTPStatus, _Content]:
        return HTTPStatus.OK, (_JSON, msgspec.json.encode(self._status()))


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    request = b""
    while len(request) <= LONGEST_REQUEST and not _is_whole(request):
        more = await reader.read(LONGEST_REQUEST)
        if not more:
            break
        request += more
    return request


def _is_whole(request: bytes) -> bool:
    request = request.lstrip()
    return b"\r\n\r\n" in request or b"\n\n" in request


def _as_answer(found: health.Health, now: float) -> tuple[HTTPStatus, _Content]:
    is_failure = found.verdict is health.Verdict.FAIL
    body = json.dumps(found.as_json(now, time.time())).encode()
    return (HTTPStatus.SERVICE_UNAVAILABLE if is_failure else HTTPStatus.OK, (_HEALTH_JSON, body))


def _answer(request: bytes, routes: Mapping[str, _Route]) -> bytes:
    return _Exchange(request, routes).wfile.getvalue()


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wfile: BytesIO

    def __init__(self, request: bytes, routes: Mapping[str, _Route]) -> None:
        # This class does not use the address of the client and the server of the library.
        self.rfile = BytesIO(request.lstrip())
        self.wfile = BytesIO()
        self._routes: Final = routes
        self._is_too_long: Final = len(request) > LONGEST_REQUEST
        self._is_whole: Final = _is_whole(request)
        self.handle_one_request()

    def parse_request(self) -> bool:
        if self._is_whole:
            return super().parse_request()
        self.requestline = ""
        if self._is_too_long:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            self.send_error(HTTPStatus.BAD_REQUEST, "The request is incomplete.")
        return False

    def do_GET(self) -> None:
        has_body = self.headers.get("Content-Length", "0") != "0"
        if has_body or "Transfer-Encoding" in self.headers:
            self.send_error(HTTPStatus.BAD_REQUEST, "A request must not have a body.")
            return
        try:
            route = self._routes.get(urlsplit(self.path).path)
        except ValueError:
            route = None
        if route is None:
            known = ", ".join(self._routes)
            self.send_error(HTTPStatus.NOT_FOUND, f"There is no such path. The paths are: {known}.")
            return
        try:
            code, content = route(self.headers.get("Accept", ""))
        except Exception:
            # The error affects only this answer.
            LOG.exception(
                "the agent's health server failed to answer a request for %s, and the agent goes "
                "on. Report this fault of Wharfinger, with the traceback",
                printable(self.path),
            )
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "The agent's log has the error.")
            return
        self._send(code, *content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        allow = {}
        # The library treats a first line that it cannot parse as HTTP/0.9, which has no headers.
        self.request_version = self.protocol_version
        if code == HTTPStatus.NOT_IMPLEMENTED:  # as the library calls a method without a function
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, "The only method is GET."
            allow = {"Allow": "GET"}
        status = HTTPStatus(code)
        error = {"code": status.value, "title": status.phrase, "detail": message or explain or ""}
        self._send(status, _JSON, json.dumps({"error": error}).encode(), allow)

    def _send(
        self, code: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "wharfinger"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        LOG.debug("%s: %s", printable(self.requestline), code)

    def log_message(self, format: str, *arguments: object) -> None:
        LOG.debug("%s", printable(format % arguments))


def _log_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    LOG.warning(
        "the agent's health server failed at a connection, and goes on with the others: %s",
        printable(str(context.get("message"))),
        exc_info=error if isinstance(error, BaseException) else None,
    )
