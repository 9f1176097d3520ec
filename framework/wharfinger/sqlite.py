"""Set-up of SQLite for several concurrent writers.

Threads and processes write to the SQLite files of the embedded Placement and of our own database
at the same time.
"""

import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from oslo_concurrency import lockutils
from sqlalchemy import Connection, Engine, event
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random

from wharfinger import private_files

_SCHEMA_LOCK: Final = "wharfinger-schema"
#: Seconds that a connection waits for another one.
_PATIENCE: Final = 30
#: Writers wait for each other, in milliseconds; readers do not block the writer; committed data
#: survive a power failure.
_PRAGMAS: Final = (
    f"busy_timeout={_PATIENCE * 1000}",
    "journal_mode=WAL",
    "synchronous=FULL",
)


def schema_lock(directory: Path | None) -> AbstractContextManager[Any]:
    """Return the lock for creating or upgrading a schema in a directory, or on a server.

    alembic is not thread-safe, and two processes may find the same empty file. The lock excludes
    the threads of this process and all processes that use the directory. Raises StateError and
    OSError if its file cannot be used.
    """
    if directory is not None:
        private_files.make_file(directory / _SCHEMA_LOCK)  # lockutils would follow a link
    lock: AbstractContextManager[Any] = lockutils.lock(
        _SCHEMA_LOCK,
        external=directory is not None,
        lock_path=None if directory is None else str(directory),
    )
    return lock


def allow_concurrent_writers(engine: Engine) -> None:
    """Let transactions wait for each other instead of failing.

    oslo.db opens transactions with a deferred ``BEGIN``. If two of them read and then write, SQLite
    fails one at once with "database is locked", whatever the busy timeout. ``BEGIN IMMEDIATE``
    takes the write lock first, so the other transaction waits. If the thread of such a transaction
    reads on a second connection, that one keeps ``BEGIN``: it must not wait for its own thread.

    This closes open connections, so call it before the first write.
    """
    event.listen(engine, "connect", _set_pragmas)
    writing = threading.local()

    def begin(
        connection: Connection,
        _cursor: object,
        statement: str,
        parameters: Any,
        _context: object,
        _executemany: bool,
    ) -> tuple[str, Any]:
        # oslo.db sends "BEGIN" from its own `begin` listener, so it can only be changed here.
        if statement == "BEGIN" and getattr(writing, "connection", None) is None:
            writing.connection = connection
            statement = "BEGIN IMMEDIATE"
        return statement, parameters

    def end(connection: Connection) -> None:
        if getattr(writing, "connection", None) is connection:
            writing.connection = None

    event.listen(engine, "before_cursor_execute", begin, retval=True)
    event.listen(engine, "commit", end)
    event.listen(engine, "rollback", end)
    engine.dispose()


def reason(error: BaseException) -> BaseException:
    """Return SQLite's own error from the errors that wrap it."""
    below = getattr(error, "inner_exception", None) or getattr(error, "orig", None)
    return reason(below) if isinstance(below, BaseException) else error


def _is_locked(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


@retry(
    # The first change to WAL ignores busy_timeout: it fails at once if another process writes.
    retry=retry_if_exception(_is_locked),
    stop=stop_after_delay(_PATIENCE),
    wait=wait_random(max=0.1),
    reraise=True,
)
def _set_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
