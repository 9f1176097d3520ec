"""A real MariaDB server as a fixture, from Debian's mariadb-server-core."""

from pathlib import Path
from uuid import uuid4

from sqlalchemy import URL, NullPool, create_engine, text

from wharfinger_harnesses.daemons import Daemon, socket_in

_USER = "root"
_SETTINGS = (
    "--skip-networking",
    # As Debian configures it.
    "--character-set-server=utf8mb4",
    "--collation-server=utf8mb4_general_ci",
    # The data need not survive the server.
    "--debug-no-sync",
    "--skip-sync-frm",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-innodb-doublewrite",
    "--innodb-log-file-size=16M",
    "--innodb-buffer-pool-size=32M",
    # Needs no support of the kernel for asynchronous I/O.
    "--skip-innodb-use-native-aio",
)


class MariaDB(Daemon):
    """A MariaDB server on which tests create empty databases."""

    programs = {
        "mariadb-install-db": "mariadb-server-core",
        "mariadbd": "mariadb-server-core",
        "my_print_defaults": "mariadb-client-core",
    }
    _socket: Path

    def _setUp(self) -> None:
        super()._setUp()
        self._socket = socket_in(self.directory, "socket")
        settings = ("--no-defaults", f"--datadir={self.directory / 'data'}", *_SETTINGS)
        self.prepare(
            *("mariadb-install-db", *settings, "--auth-root-authentication-method=normal"),
            *("--skip-test-db", "--cross-bootstrap"),  # independent of this host's name
        )
        self.start(
            *("mariadbd", *settings, f"--socket={self._socket}"),
            f"--pid-file={self.directory / 'pid'}",
        )
        self._engine = create_engine(self._url(""), poolclass=NullPool)

    def create_database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"tests_{uuid4().hex}"
        with self._engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        return str(self._url(name))

    def _url(self, database: str) -> URL:
        return URL.create(
            "mysql+pymysql",
            username=_USER,
            host="localhost",
            database=database,
            # Without the second part, each connection reads all certificates, for 20 ms.
            query={"unix_socket": str(self._socket), "ssl_disabled": "true"},
        )
