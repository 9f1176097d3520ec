"""A real PostgreSQL server as a fixture, from Debian's postgresql."""

import signal
from uuid import uuid4

from sqlalchemy import URL, NullPool, create_engine, text

from wharfinger_harnesses.daemons import Daemon, socket_in

_PORT = 5432
_USER = "tests"
_SETTINGS = {
    "listen_addresses": "",
    # The data need not survive the server.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "jit": "off",
}


class PostgreSQL(Daemon):
    """A PostgreSQL server on which tests create empty databases."""

    programs = {
        "initdb": "postgresql",
        "postgres": "postgresql",
    }
    # At this signal, PostgreSQL removes its shared memory, which it cannot do at SIGKILL.
    ended_by = signal.SIGQUIT

    def _setUp(self) -> None:
        super()._setUp()
        socket_in(self.directory, f".s.PGSQL.{_PORT}")
        data = str(self.directory / "data")
        self.prepare(
            *("initdb", "--pgdata", data, "--no-sync", "--no-instructions"),
            *("--auth", "trust", "--username", _USER),
            *("--encoding", "UTF8", "--locale", "C.UTF-8"),
        )
        settings = {**_SETTINGS, "port": _PORT, "unix_socket_directories": self.directory}
        self.start(
            *("postgres", "-D", data),
            *(f"--{name}={value}" for name, value in settings.items()),
        )
        self._engine = create_engine(
            self._url("postgres"), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )

    def create_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"tests_{uuid4().hex}"
        with self._engine.connect() as connection:
            connection.execute(
                text(f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY file_copy")
            )
        return str(self._url(name))

    def _url(self, database: str) -> URL:
        return URL.create(
            "postgresql+psycopg",
            username=_USER,
            port=_PORT,
            database=database,
            query={"host": str(self.directory)},
        )
