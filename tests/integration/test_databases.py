"""The databases of the lab: what the tests that use them may rely on."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import fixtures
import pytest
from sqlalchemy import Connection, NullPool, create_engine, inspect, text

from tests.lab.mariadb import MariaDB
from tests.lab.postgresql import PostgreSQL
from wharfinger_harnesses import daemons
from wharfinger_harnesses.daemons import TIMEOUT, Daemon, LabError, socket_in

Server = PostgreSQL | MariaDB
KINDS = [PostgreSQL, MariaDB]
ROOT = Path(__file__).resolve().parents[2]
LISTENING = "0A"
#: Starts what it is told to, says which process that is, and waits.
STARTER = """
import importlib, sys
with getattr(importlib.import_module(sys.argv[1]), sys.argv[2])() as server:
    print(server.process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as server:
        yield server


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with create_engine(url, poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def watched(pid: int) -> Iterator[int]:
    """What can be read once a process has ended, whatever takes its number then."""
    end = os.pidfd_open(pid)
    try:
        yield end
    finally:
        os.close(end)


def has_ended(end: int, timeout: float = 0) -> bool:
    return select.select([end], [], [], timeout)[0] == [end]


def sockets_of(pid: int) -> set[str]:
    names = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it may be closed by now
            names.add(str(file.readlink()))
    return {name for name in names if name.startswith("socket:")}


def tcp_sockets() -> set[str]:
    """All that listen here, by the same names."""
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        if (path := Path("/proc/net", table)).exists()
        for line in path.read_text().splitlines()[1:]
    ]
    return {f"socket:[{line[9]}]" for line in lines if line[3] == LISTENING}


def test_a_database_is_empty_and_keeps_what_is_put_in(server: Server) -> None:
    url = server.create_database()
    with connected(url) as connection:
        assert inspect(connection).get_table_names() == []
        connection.execute(text("CREATE TABLE berths (name VARCHAR(20))"))
        connection.execute(text("INSERT INTO berths VALUES ('nördlich ⚓ 🦑')"))
    with connected(url) as connection:
        assert connection.scalar(text("SELECT name FROM berths")) == "nördlich ⚓ 🦑"


def test_two_databases_are_apart(server: Server) -> None:
    first, second = server.create_database(), server.create_database()
    with connected(first) as connection:
        connection.execute(text("CREATE TABLE berths (name VARCHAR(20))"))
    with connected(second) as connection:
        assert inspect(connection).get_table_names() == []


def test_a_server_listens_on_no_port(server: Server) -> None:
    sockets = sockets_of(server.process.pid)
    assert sockets
    assert not sockets & tcp_sockets()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_ends_with_its_fixture(kind: type[Server]) -> None:
    with ExitStack() as after:
        with kind() as server:
            end = after.enter_context(watched(server.process.pid))
            assert not has_ended(end)
        assert has_ended(end)
    assert not server.directory.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_ends_with_tests_that_are_killed(kind: type[Server]) -> None:
    with fixtures.TempDir() as place:
        Path(place.path).chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-c", STARTER, kind.__module__, kind.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": place.path},
        ) as tests:
            assert tests.stdout is not None
            with watched(int(tests.stdout.readline())) as end:
                tests.kill()
                assert has_ended(end, TIMEOUT)


@pytest.mark.parametrize(
    ("kind", "package"), [(PostgreSQL, "postgresql"), (MariaDB, "mariadb-server-core")]
)
def test_where_there_is_no_program_its_package_is_told(
    kind: type[Server], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(daemons, "MORE_DIRECTORIES", ())
    with pytest.raises(LabError, match=f"install {package} "):
        kind().setUp()


class Broken(Daemon):
    """A server that ends before it is ready, or before it can be started."""

    def __init__(self, *, preparing: bool) -> None:
        self._preparing = preparing

    def _setUp(self) -> None:
        super()._setUp()
        step = self.prepare if self._preparing else self.start
        step("sh", "-c", "echo no space >&2; exit 3")


@pytest.mark.parametrize("preparing", [True, False])
def test_what_a_server_says_that_does_not_start_is_told(preparing: bool) -> None:
    with pytest.raises(LabError, match="no space"):
        Broken(preparing=preparing).setUp()


def test_a_server_that_ends_during_a_test_is_told() -> None:
    server = MariaDB()
    server.setUp()
    server.process.kill()
    server.process.wait()
    with pytest.raises(LabError, match="meanwhile"):
        server.cleanUp()
    assert not server.directory.exists()


def test_a_path_too_long_for_a_socket_is_told() -> None:
    with pytest.raises(LabError, match="set TMPDIR"):
        socket_in(Path("/", "a" * 100), "socket")
