"""Time limit of transactions on a database server."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from typing import Any, Final

from oslo_log import log as logging
from sqlalchemy import Engine, event

LOG: Final = logging.getLogger(__name__)


class TransactionDeadline:
    """Limits the time of transactions inside ``running``; does nothing for SQLite."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        self._seconds: Final = seconds
        self._is_server: Final = engine.dialect.name != "sqlite"
        self._running: Final = threading.local()
        if self._is_server:
            event.listen(engine, "do_connect", self._connect)
            event.listen(engine, "checkout", self._check_out)
            # SQLAlchemy's pool pings a connection before that event.
            self._ping: Final = engine.dialect.do_ping
            engine.dialect.do_ping = self._pinged  # type: ignore[assignment, method-assign]

    @contextmanager
    def running(self) -> Iterator["Running | None"]:
        """Limit the time of a transaction in this thread.

        Yields None for SQLite, and inside another transaction.
        """
        if not self._is_server or getattr(self._running, "it", None) is not None:
            yield None
            return
        running = self._running.it = Running(self._seconds)
        try:
            yield running
        finally:
            self._running.it = None
            running.end()

    def _connect(self, dialect: Any, _record: Any, args: Any, options: dict[str, Any]) -> Any:
        running: Running | None = getattr(self._running, "it", None)
        if running is None:
            return None  # SQLAlchemy connects
        if running.is_over:  # the pool replaces a connection that was shut down
            raise dialect.loaded_dbapi.OperationalError("timed out")
        seconds = max(1, ceil(self._seconds))
        options.setdefault("connect_timeout", seconds)
        if dialect.driver != "pymysql":
            return None  # psycopg's timeout includes the login
        # PyMySQL's timeout for connecting does not include the login.
        options.setdefault("read_timeout", seconds)
        connection = dialect.loaded_dbapi.connect(*args, **options, defer_connect=True)
        running.use(connection)
        connection.connect()
        return connection

    def _check_out(self, connection: Any, _record: Any, _proxy: Any) -> None:
        self._use(connection)

    def _pinged(self, connection: Any) -> bool:
        self._use(connection)
        return self._ping(connection)

    def _use(self, connection: Any) -> None:
        running: Running | None = getattr(self._running, "it", None)
        if running is not None:
            running.use(connection)


class Running:
    """A transaction in progress."""

    def __init__(self, seconds: float) -> None:
        self._deadline: Final = time.monotonic() + seconds
        self._lock: Final = threading.Lock()
        self._has_ended = False
        self._connections: Final[list[Any]] = []
        self._timer: Final = threading.Timer(seconds, self._time_is_over)
        self._timer.daemon = True
        self._timer.start()

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._deadline

    def use(self, connection: Any) -> None:
        """Shut down this connection at the deadline."""
        with self._lock:
            if connection not in self._connections:
                self._connections.append(connection)
            if self.is_over:
                _shut_down(connection)

    def end(self) -> None:
        """Stop the timer."""
        self._timer.cancel()
        with self._lock:
            self._has_ended = True

    def _time_is_over(self) -> None:
        with self._lock:
            if self._has_ended:
                return
            for connection in self._connections:
                _shut_down(connection)


def _shut_down(connection: Any) -> None:
    # A read from the connection then raises an error. PyMySQL has no method for this; the
    # attribute is None while it is not connected.
    pymysql_socket = getattr(connection, "_sock", None)
    try:
        number = (pymysql_socket or connection).fileno()
        with socket.socket(fileno=os.dup(number)) as duplicate:
            duplicate.shutdown(socket.SHUT_RDWR)
    except Exception:  # the database driver's own error, if it is no longer connected
        LOG.debug(
            "A database connection could not be shut down after [database] timeout", exc_info=True
        )
