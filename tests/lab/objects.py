"""Stores of the framework's versioned objects: a SQLite file, a database server, another process.

The same tests run with all stores. A test can also read and write the tables of a store directly,
as another program with the same database.

The other process has its own state directory, and opens any directory that a request names.
``opened`` returns the context of a state directory in the process that stores objects now.
"""

import json
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import fixtures
import sqlalchemy as sa

from tests.lab.sqlite import StayingOpen, WithoutSync
from wharfinger.db import migration
from wharfinger.db.database import FILE_NAME, Database
from wharfinger.db.tables import METADATA
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import Context, WharfingerObject
from wharfinger.objects.base import IndirectionAPI
from wharfinger.objects.database_context import local
from wharfinger.objects.remote_objects import ObjectServer, RemoteObjects

HOST = "test-host"
#: Seconds to wait for an answer, which usually takes milliseconds.
TIMEOUT = 60.0

#: The beginnings of statements about connections and transactions, which are not counted.
_AROUND = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
_ROOT = Path(__file__).resolve().parents[2]
#: The path of a request about the serving process's own state directory.
_OWN = "/"


class Kept(fixtures.Fixture):
    """A database that stores objects: ``context`` for objects, ``engine`` for its tables."""

    context: Context
    engine: sa.Engine

    def _reach(self, url: str | sa.URL) -> None:
        """Open an engine for direct access to the tables of the database."""
        self.engine = sa.create_engine(url)
        self.addCleanup(self.engine.dispose)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Empty the database, and let this process store its objects there during the block."""
        with self.engine.begin() as connection:
            for table in METADATA.sorted_tables:
                connection.execute(sa.delete(table))
        yield

    def rows(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """Return the rows of a table, also the deleted ones, in the order of creation."""
        target = METADATA.tables[table]
        statement = sa.select(target).filter_by(**where).order_by(target.c.id)
        with self.engine.begin() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def row(self, table: str, **where: Any) -> dict[str, Any]:
        """Return the only row of a table that matches."""
        [row] = self.rows(table, **where)
        return row

    def write(self, table: str, values: Mapping[str, Any], **where: Any) -> None:
        """Write columns of rows directly, without the objects' revisions."""
        statement = sa.update(METADATA.tables[table]).filter_by(**where).values(**values)
        with self.engine.begin() as connection:
            assert connection.execute(statement).rowcount


class KeptInFile(Kept):
    """Stores objects in the SQLite file of a state directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def _setUp(self) -> None:
        self.context = local(self.directory, HOST)
        self.addCleanup(self.context.close)
        self._reach(f"sqlite:///{self.directory / FILE_NAME}")


class KeptByServer(Kept):
    """Stores objects in an empty database of a server, by its URL."""

    def __init__(self, url: str, directory: Path) -> None:
        super().__init__()
        self._url = url
        self._directory = directory

    def _setUp(self) -> None:
        self._reach(self._url)
        migration.upgrade(self.engine, HOST, directory=self._directory)
        self.context = Context(
            Database(self._url, directory=self._directory, host=HOST, managed=False)
        )
        self.addCleanup(self.context.close)


class KeptElsewhere(Kept):
    """Stores objects in a SQLite file of another process; this process has no database.

    The other process also imports ``modules``.
    """

    def __init__(self, directory: Path, *modules: str) -> None:
        super().__init__()
        self.directory = directory
        self._modules = modules

    def _setUp(self) -> None:
        self.server = self.useFixture(Served(self.directory, *self._modules))
        self.context = Context()
        self._reach(f"sqlite:///{self.directory / FILE_NAME}")

    @contextmanager
    def in_use(self) -> Iterator[None]:
        with super().in_use(), remotely(self.server.send):
            yield


class Asking:
    """The connections of all threads of this process to the process that stores objects.

    ``questions`` has the requests that were sent.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.questions: list[bytes] = []
        self._idle: list[HTTPConnection] = []

    def send(self, question: bytes, directory: Path | None = None) -> bytes:
        """Send a request of RemoteObjects about a state directory; return the answer.

        None means the state directory of the other process.
        """
        self.questions.append(question)
        return self._request("POST", directory, question)

    def statements(self, directory: Path) -> list[str]:
        """Return the SQL statements on a state directory's database since the last call."""
        said: list[str] = json.loads(self._request("GET", directory))
        return said

    def close(self, directory: Path) -> None:
        """Let the other process close a state directory. The next request opens it again."""
        self._request("DELETE", directory)

    def settle(self) -> None:
        """Wait until the other process has finished all requests of processes that have ended."""
        self.hang_up()
        self._request("SETTLE", None)

    def hang_up(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _request(self, method: str, directory: Path | None, body: bytes = b"") -> bytes:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request(method, quote(str(directory or _OWN)), body)
            response = connection.getresponse()
            answer: bytes = response.read()
        except (HTTPException, OSError) as error:
            connection.close()
            raise OSError(str(error)) from error
        self._idle.append(connection)
        if response.status != HTTPStatus.OK:
            raise OSError(answer.decode())
        return answer


class Served(fixtures.Fixture, Asking):
    """A process that stores objects and serves them over HTTP. It ends when this one does."""

    process: "subprocess.Popen[bytes]"

    def __init__(self, directory: Path, *modules: str) -> None:
        fixtures.Fixture.__init__(self)
        Asking.__init__(self, 0)
        self._directory = directory
        self._modules = modules

    def _setUp(self) -> None:
        self._directory.mkdir(exist_ok=True)
        self.log = self._directory / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", f"import {__name__} as lab; lab.serve()"),
                    *(str(self._directory), *self._modules),
                ],
                cwd=_ROOT,
                stdin=subprocess.PIPE,  # closed when this process ends
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.addCleanup(self.end)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        Asking.__init__(self, int(line))

    def end(self) -> None:
        """Kill the process with SIGKILL."""
        self.hang_up()
        self.process.kill()
        self.process.communicate()


class Elsewhere:
    """Sends the remotable methods of objects to the process that has their state directory open."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking

    def context(self, directory: Path) -> Context:
        """Return the context of a state directory in the other process."""

        def send(question: bytes) -> bytes:
            return self.asking.send(question, directory)

        return _Elsewhere(objects=RemoteObjects(send), closes=lambda: self.asking.close(directory))

    def object_action(self, context: Any, *args: Any, **kwargs: Any) -> Any:
        return _remote(context).object_action(context, *args, **kwargs)

    def object_class_action_versions(self, context: Any, *args: Any, **kwargs: Any) -> Any:
        return _remote(context).object_class_action_versions(context, *args, **kwargs)

    def object_backport_versions(self, context: Any, *args: Any, **kwargs: Any) -> Any:
        return _remote(context).object_backport_versions(context, *args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elsewhere(Context):
    """The context of a state directory in another process."""

    objects: RemoteObjects
    closes: Callable[[], None]

    def close(self) -> None:
        self.closes()


def _remote(context: Any) -> RemoteObjects:
    # Otherwise a remotable method would run in this process, or in the wrong one.
    assert isinstance(context, _Elsewhere), "the context was opened in this process"
    return context.objects


def opened(directory: Path, host: str = HOST) -> Context:
    """Return the context of a state directory, in the process that stores objects now."""
    api = WharfingerObject.indirection_api
    return api.context(directory) if isinstance(api, Elsewhere) else local(directory, host)


def asking() -> Asking | None:
    """Return the connections to the process that stores objects now, None if it is this one."""
    api = WharfingerObject.indirection_api
    return api.asking if isinstance(api, Elsewhere) else None


def elsewhere(asking: Asking) -> AbstractContextManager[None]:
    """During the block, let another process store the objects of all opened state directories."""
    return _by_way_of(Elsewhere(asking))


def remotely(send: Callable[[bytes], bytes]) -> AbstractContextManager[None]:
    """During the block, send the remotable methods of this process through ``send``."""
    return _by_way_of(RemoteObjects(send))


@contextmanager
def _by_way_of(api: IndirectionAPI) -> Iterator[None]:
    before = WharfingerObject.indirection_api
    WharfingerObject.indirection_api = api
    try:
        yield
    finally:
        WharfingerObject.indirection_api = before


@contextmanager
def questions() -> Iterator[list[Any]]:
    """Yield a list; after the block it has the decoded requests to the other process.

    If this process stores the objects, the list stays empty.
    """
    way, asked = asking(), list[Any]()
    before = 0 if way is None else len(way.questions)
    yield asked
    asked += [] if way is None else map(decoded, way.questions[before:])


@contextmanager
def statements(directory: Path | None = None) -> Iterator[list[str]]:
    """Yield a list that gets the SQL statements of the block.

    With a directory, these are the statements on its database, in the process that has it open.
    Without one, they are the statements of this process on any database. A statement for many rows
    counts once.
    """
    way, said = asking(), list[str]()
    if directory is not None and way is not None:
        way.statements(directory)
        yield said
        said += way.statements(directory)
        return

    def note(found: Path, statement: str) -> None:
        if directory in (None, found):
            said.append(statement)

    with _noted(note):
        yield said


@contextmanager
def transactions() -> Iterator[list[sa.Engine]]:
    """Yield a list, to which the engine of each transaction that this process begins is added."""
    begun: list[sa.Engine] = []

    def note(connection: sa.Connection) -> None:
        begun.append(connection.engine)

    sa.event.listen(sa.Engine, "begin", note)
    try:
        yield begun
    finally:
        sa.event.remove(sa.Engine, "begin", note)


@contextmanager
def _noted(note: Callable[[Path, str], None]) -> Iterator[None]:
    """Call ``note`` for each statement of this process, with the directory of its database."""

    def listen(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(_AROUND):
            note(Path(connection.engine.url.database or "").parent, statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", listen)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", listen)


def serve() -> None:
    """Be the other process: import modules, and serve the objects of state directories.

    Print the port, and end at the end of the standard input.
    """
    directory, *modules = sys.argv[1:]
    for module in modules:
        import_module(module)
    with (
        WithoutSync(),
        StayingOpen(),
        _Server(Path(directory)) as server,
        _noted(server.note),
    ):
        print(server.server_port, flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.buffer.read()
        os._exit(0)


class _Server(ThreadingHTTPServer):
    """Serves the objects of state directories over HTTP; the first request opens a directory."""

    def __init__(self, own: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._own = own
        self._opened: dict[Path, tuple[Context, ObjectServer]] = {}
        self._said: dict[Path, list[str]] = defaultdict(list)
        self._lock = threading.Lock()
        self._connections = 0
        self._changed = threading.Condition()
        self.objects(own)

    def directory(self, path: str) -> Path:
        """Return the state directory that the path of a request names."""
        return self._own if path == _OWN else Path(unquote(path))

    def objects(self, directory: Path) -> ObjectServer:
        """Return the ObjectServer of a state directory; raise StateError if it cannot open it."""
        with self._lock:
            if directory not in self._opened:
                context = local(directory, HOST)
                self._opened[directory] = context, ObjectServer(context)
            return self._opened[directory][1]

    def close(self, directory: Path) -> None:
        """Close the database of a state directory, if it is open."""
        with self._lock:
            if directory in self._opened:
                self._opened.pop(directory)[0].close()
            self._said.pop(directory, None)

    def note(self, directory: Path, statement: str) -> None:
        """Record an SQL statement on the database of a state directory."""
        self._said[directory].append(statement)

    def statements(self, directory: Path) -> list[str]:
        """Return the recorded statements of a state directory since the last call."""
        return self._said.pop(directory, [])

    def is_settled(self) -> bool:
        """Wait until only the connection of this request is open; return False if it takes long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._connections == 1, TIMEOUT)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._connections += 1
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._connections -= 1
            self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one packet

    def do_POST(self) -> None:
        question = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            objects = self.server.objects(self.server.directory(self.path))
        except WharfingerError as error:
            self._answer(str(error).encode(), HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            self._answer(objects.answer(question))

    def do_GET(self) -> None:
        said = self.server.statements(self.server.directory(self.path))
        self._answer(json.dumps(said).encode())

    def do_DELETE(self) -> None:
        self.server.close(self.server.directory(self.path))
        self._answer(b"")

    def do_SETTLE(self) -> None:
        settled = self.server.is_settled()
        self._answer(b"", HTTPStatus.OK if settled else HTTPStatus.SERVICE_UNAVAILABLE)

    def _answer(self, body: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def decoded(message: bytes) -> Any:
    """Decode a message; raise ValueError for NaN and other constants that are not JSON."""
    return json.loads(message, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
