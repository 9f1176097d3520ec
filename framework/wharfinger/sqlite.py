"""SQLite, made safe for several writers.

The embedded Placement and our own database both live on SQLite files that threads
and processes write at once. Nothing else belongs here.
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
#: Readers do not stop the writer; writers wait for each other, in milliseconds; what is
#: committed survives a loss of power.
_PRAGMAS: Final = (
    f"busy_timeout={_PATIENCE * 1000}",
    "journal_mode=WAL",
    "synchronous=FULL",
)


def schema_lock(directory: Path | None) -> AbstractContextManager[Any]:
    """Held while a schema in that directory, or on a server, is created or upgraded.

    alembic is not safe for threads, and two processes may find the same empty file. The
    lock is one for all threads of this process and for all processes of the directory. Raises
    StateError, OSError where its file cannot be used.
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

    oslo.db opens transactions with a deferred ``BEGIN``. Two of them that read and
    then write cannot both go on: SQLite fails one at once with "database is locked",
    whatever the busy timeout. ``BEGIN IMMEDIATE`` takes the write lock first, and the
    other waits. What the thread of such a transaction reads beside it, on another connection,
    must not wait for it, and is left as it is.

    Connections that are open already are closed, so call this before the first write.
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
        # oslo.db sends "BEGIN" from its own `begin` listener: only here can it be changed.
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
    """What SQLite itself says, below the layers that wrapped it."""
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
