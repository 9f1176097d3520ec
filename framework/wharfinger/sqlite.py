"""Set up SQLite for concurrent writers."""

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
#: Seconds that a connection waits for a lock of another connection.
_PATIENCE: Final = 30
#: Writers wait for each other (in milliseconds); readers do not block the writer; committed data
#: survives a power failure.
_PRAGMAS: Final = (f"busy_timeout={_PATIENCE * 1000}", "journal_mode=WAL", "synchronous=FULL")


def schema_lock(directory: Path | None) -> AbstractContextManager[Any]:
    """Return a lock for changes of a database's schema; raises StateError, OSError.

    Without a directory, the lock excludes only threads of this process.
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
    """Let transactions of an engine wait for each other; call this before the first write."""
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
        # oslo.db sends "BEGIN" from a listener of its own, so only this place can change it.
        if statement == "BEGIN" and getattr(writing, "connection", None) is None:
            writing.connection = connection
            # BEGIN IMMEDIATE takes the write lock first, so that a second transaction waits.
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
    """Return the innermost cause of an error of oslo.db or SQLAlchemy."""
    below = getattr(error, "inner_exception", None) or getattr(error, "orig", None)
    return reason(below) if isinstance(below, BaseException) else error


def _is_locked(error: BaseException) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


@retry(
    # The first change to WAL ignores busy_timeout: it fails immediately if another process writes.
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
