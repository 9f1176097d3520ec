"""The real Placement for tests: one in each test process, emptied between tests.

It can also be served over HTTP, for programs in other processes. It records every request, so that
a test can count them.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import fixtures
import pytest
from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from placement import db_api, microversion
from sqlalchemy import text

from tests.lab.sqlite import StayingOpen
from wharfinger.conformance.direct_adapter import DirectAdapter
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.conformance.quick_databases import quick_placement
from wharfinger.placement.embedded import EmbeddedPlacement

#: The tables with the standard names, which Placement inserts only once per process.
NAMES: Final = ("traits", "resource_classes")


@dataclass
class Requests:
    """Records the requests to Placement, without those for its versions."""

    seen: list[str] = field(default_factory=list)

    def note(self, method: str, path: str) -> None:
        if path.rstrip("/"):
            self.seen.append(f"{method} {path}")

    def clear(self) -> None:
        self.seen.clear()

    @property
    def writes(self) -> list[str]:
        return [request for request in self.seen if not request.startswith("GET ")]

    def __len__(self) -> int:
        return len(self.seen)


class RecordingAdapter:
    """A keystoneauth adapter that records requests, and calls functions before and after each.

    ``before`` is called with method and path before a request is sent, ``after`` when it was
    answered. The client gets the errors that they raise.
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.requests = Requests()
        self.before: Callable[[str, str], None] = lambda method, path: None
        self.after: Callable[[str, str], None] = lambda method, path: None

    def once_before(
        self, is_it: Callable[[str, str], bool], act: Callable[[], object]
    ) -> list[str]:
        """Call ``act`` before the first request that ``is_it`` selects by method and path.

        Return a list that gets the path of this request.
        """
        struck: list[str] = []

        def before(method: str, path: str) -> None:
            if not struck and is_it(method, path):
                struck.append(path)
                act()

        self.before = before
        return struck

    def request(self, path: str, method: str, **kwargs: Any) -> Any:
        if path != "/":
            self.before(method, path)
        self.requests.note(method, path)
        answer = self._adapter.request(path, method, **kwargs)
        if path != "/":
            self.after(method, path)
        return answer


class PlacementFixture(fixtures.Fixture):
    """Empties this process's Placement, and has a client of it that records requests."""

    def __init__(self, service: EmbeddedPlacement) -> None:
        super().__init__()
        self._service = service

    def _setUp(self) -> None:
        empty()
        self.adapter = RecordingAdapter(DirectAdapter(self._service))
        self.client = WritingClient(self.adapter, connections=4)  # type: ignore[arg-type]
        self.requests = self.adapter.requests

    def new_client(self) -> WritingClient:
        """Return another client with empty caches, whose requests are recorded in ``requests``."""
        return WritingClient(self.adapter, connections=4)  # type: ignore[arg-type]

    def without_service_role(self) -> None:
        """Send the requests of all clients from now on with only the role admin."""
        self.adapter._adapter.additional_headers["X-Roles"] = "admin"


@contextmanager
def over_http(service: EmbeddedPlacement) -> Iterator[tuple[str, Requests]]:
    """Serve the emptied Placement on a free port; yield its URL and the requests over HTTP."""
    empty()
    requests = Requests()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        query = f"?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else ""
        requests.note(environ["REQUEST_METHOD"], environ["PATH_INFO"] + query)
        answer: Iterable[bytes] = service.application(environ, start_response)
        return answer

    server = make_server("127.0.0.1", 0, application, _ThreadingServer, _QuietHandler)
    # 0.02 are the seconds between two checks of whether the server has to stop.
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def adapter_to(url: str) -> Adapter:
    """Return a keystoneauth adapter with all roles for a Placement that is served over HTTP."""
    return Adapter(
        Session(),
        auth=token_endpoint.Token(url, "admin"),
        service_type="placement",
        endpoint_override=url,
        additional_headers={"X-Roles": "admin,member,reader,service"},
    )


@contextmanager
def started(directory: Path) -> Iterator[EmbeddedPlacement]:
    """Yield the only embedded Placement of this process, changed so that requests are quicker."""
    with StayingOpen(), _KeepingItsTurn():
        service = EmbeddedPlacement(directory / "placement.sqlite")
    with quick_placement():
        yield service
    db_api.get_placement_engine().dispose()


class _KeepingItsTurn(fixtures.Fixture):
    """Stops oslo.db from yielding to other threads after each transaction.

    A database that is opened meanwhile keeps this for ever.
    """

    def _setUp(self) -> None:
        self.useFixture(
            fixtures.MonkeyPatch("oslo_db.sqlalchemy.engines._thread_yield", lambda *_: None)
        )


def lower(monkeypatch: pytest.MonkeyPatch, newest: str) -> None:
    """Limit Placement to microversions up to ``newest`` during the test."""
    known = microversion.VERSIONS
    monkeypatch.setattr(microversion, "VERSIONS", known[: known.index(newest) + 1])


def empty() -> None:
    """Delete all rows of Placement except the standard traits and resource classes."""
    engine = db_api.get_placement_engine()
    with engine.begin() as connection:
        tables = connection.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'table'")
        ).scalars()
        for table in {*tables} - {*NAMES, "alembic_version"}:
            if not table.startswith("sqlite_"):
                connection.execute(text(f'DELETE FROM "{table}"'))
        for table in NAMES:
            connection.execute(text(f"DELETE FROM {table} WHERE name LIKE 'CUSTOM%'"))


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
