"""Where objects are kept: a file, a database of a server, or another process.

What keeps them is all that differs; and each can be reached from behind, as somebody else would
who writes into the same database.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import fixtures
import sqlalchemy as sa

from wharfinger.db import migration
from wharfinger.db.database import FILE_NAME, Database
from wharfinger.db.tables import METADATA
from wharfinger.objects import Context, WharfingerObject
from wharfinger.objects.context import local
from wharfinger.objects.remote import ObjectServer, RemoteObjects

HOST = "test-host"
#: Seconds; an answer takes milliseconds.
TIMEOUT = 60.0

#: Not statements of ours, but what a connection is told around them.
_AROUND = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")
_ROOT = Path(__file__).resolve().parents[2]


class Kept(fixtures.Fixture):
    """A database that keeps objects, and the context that leads to it."""

    context: Context
    engine: sa.Engine

    def _reach(self, url: str | sa.URL) -> None:
        """Open a way into the database that no object knows of."""
        self.engine = sa.create_engine(url)
        self.addCleanup(self.engine.dispose)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Empty it, and have the objects of this process kept there."""
        with self.engine.begin() as connection:
            for table in METADATA.sorted_tables:
                connection.execute(sa.delete(table))
        yield

    def rows(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """What is in a table, deleted rows too, in the order in which they were added."""
        target = METADATA.tables[table]
        statement = sa.select(target).filter_by(**where).order_by(target.c.id)
        with self.engine.begin() as connection:
            return [dict(row) for row in connection.execute(statement).mappings()]

    def row(self, table: str, **where: Any) -> dict[str, Any]:
        """The only one there is."""
        [row] = self.rows(table, **where)
        return row

    def write(self, table: str, values: Mapping[str, Any], **where: Any) -> None:
        """Write columns, as somebody would who knows nothing of objects and revisions."""
        statement = sa.update(METADATA.tables[table]).filter_by(**where).values(**values)
        with self.engine.begin() as connection:
            assert connection.execute(statement).rowcount


class KeptInFile(Kept):
    """In the SQLite file of a state directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    def _setUp(self) -> None:
        self.context = local(self.directory, HOST)
        self.addCleanup(self.context.close)
        self._reach(f"sqlite:///{self.directory / FILE_NAME}")


class KeptByServer(Kept):
    """In a database that is empty so far."""

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
    """In a file that another process has open; this one has no database.

    Modules are imported there, and not here.
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


class Served(fixtures.Fixture):
    """A process that keeps objects and answers to HTTP; it ends with this one at the latest.

    ``questions`` are those that it was asked.
    """

    process: "subprocess.Popen[bytes]"
    port: int

    def __init__(self, directory: Path, *modules: str) -> None:
        super().__init__()
        self._directory = directory
        self._modules = modules

    def _setUp(self) -> None:
        self.questions: list[bytes] = []
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
        self.port = int(line)

    def send(self, question: bytes) -> bytes:
        """Ask it: what RemoteObjects takes."""
        self.questions.append(question)
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)) as connection:
            try:
                connection.request("POST", "/", question)
                answer: bytes = connection.getresponse().read()
            except HTTPException as error:
                raise OSError(str(error)) from error
        return answer

    def end(self) -> None:
        """Kill it, as a loss of power would."""
        self.process.kill()
        self.process.communicate()


@contextmanager
def remotely(send: Callable[[bytes], bytes]) -> Iterator[None]:
    """Have the remotable methods of this process carried out by whoever answers."""
    before = WharfingerObject.indirection_api
    WharfingerObject.indirection_api = RemoteObjects(send)
    try:
        yield
    finally:
        WharfingerObject.indirection_api = before


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is said to databases from now on; what is said once for many rows is one."""
    said: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(_AROUND):
            said.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def serve() -> None:
    """What the other process does: imports modules, and keeps the objects of a state directory.

    It says on which port, and ends with whoever holds its standard input.
    """
    directory, *modules = sys.argv[1:]
    for module in modules:
        import_module(module)
    objects = ObjectServer(local(Path(directory), HOST))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = self.rfile.read(int(self.headers["Content-Length"]))
            answer = objects.answer(question)
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.buffer.read()
        os._exit(0)


def decoded(message: bytes) -> Any:
    """What a message on the wire says; it has to be JSON as everybody reads it."""
    return json.loads(message, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
