"""The database servers of the tests: they store data, listen on no port, and end with the tests."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import fixtures
import pytest
from sqlalchemy import NullPool, create_engine, inspect, text

from tests.lab.mariadb import MariaDB
from tests.lab.postgresql import PostgreSQL
from wharfinger_harnesses import daemons
from wharfinger_harnesses.daemons import TIMEOUT, Daemon, LabError, socket_in

ROOT = Path(__file__).resolve().parents[3]
#: A program that starts a server, prints its process id, and waits.
STARTER = """
import sys
from tests.lab.postgresql import PostgreSQL
with PostgreSQL() as server:
    print(server.process.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["postgresql", "mariadb"])
def test_database_is_empty_and_stores_data(request: pytest.FixtureRequest, name: str) -> None:
    server: PostgreSQL | MariaDB = request.getfixturevalue(name)
    first, second = (create_engine(server.create_database(), poolclass=NullPool) for _ in range(2))
    with first.begin() as connection:
        assert inspect(connection).get_table_names() == []
        connection.execute(text("CREATE TABLE berths (name VARCHAR(20))"))
        connection.execute(text("INSERT INTO berths VALUES ('nördlich ⚓ 🦑')"))
    with first.begin() as connection:
        assert connection.scalar(text("SELECT name FROM berths")) == "nördlich ⚓ 🦑"
    with second.begin() as connection:
        assert inspect(connection).get_table_names() == []


def test_server_ends_with_tests_that_are_killed() -> None:
    with fixtures.TempDir() as place:
        Path(place.path).chmod(0o755)
        with subprocess.Popen(
            [sys.executable, "-c", STARTER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": place.path},
        ) as tests:
            assert tests.stdout is not None
            end = os.pidfd_open(int(tests.stdout.readline()))
            try:
                tests.kill()
                assert select.select([end], [], [], TIMEOUT)[0] == [end]
            finally:
                os.close(end)


class Broken(Daemon):
    """A server that ends before it is ready, or while it is prepared."""

    def __init__(self, how: str) -> None:
        self._how = how

    def _setUp(self) -> None:
        super()._setUp()
        step = self.prepare if self._how == "preparing" else self.start
        step("sh", "-c", "echo no space >&2; exit 3")


@pytest.mark.parametrize("how", ["preparing", "starting"])
def test_server_that_does_not_start_is_an_error_with_its_message(how: str) -> None:
    with pytest.raises(LabError, match="no space"):
        Broken(how).setUp()


def test_server_that_ends_during_a_test_is_an_error() -> None:
    server = PostgreSQL()
    server.setUp()
    server.process.send_signal(signal.SIGQUIT)
    server.process.wait()
    with pytest.raises(LabError, match="during the test"):
        server.cleanUp()
    assert not server.directory.exists()


def test_missing_requirement_of_the_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LabError, match="set TMPDIR"):
        socket_in(Path("/", "a" * 100), "socket")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(daemons, "MORE_DIRECTORIES", ())
    with pytest.raises(LabError, match="install postgresql "):
        PostgreSQL().setUp()
