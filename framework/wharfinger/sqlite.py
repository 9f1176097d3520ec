"""SQLite, made safe for several writers.

The embedded Placement and our own database both live on SQLite files that threads
and processes write at once. Nothing else belongs here.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from oslo_concurrency import lockutils
from sqlalchemy import Engine, event

#: Readers do not stop the writer; writers wait for each other, in milliseconds; what is
#: committed survives a loss of power.
_PRAGMAS: Final = ("journal_mode=WAL", "busy_timeout=30000", "synchronous=FULL")


def schema_lock(directory: Path) -> AbstractContextManager[Any]:
    """Held while a schema in that directory is created or upgraded.

    alembic is not safe for threads, and two processes may find the same empty file. The
    lock is one for all threads of this process and for all processes of the directory.
    """
    lock: AbstractContextManager[Any] = lockutils.lock(
        "wharfinger-schema", external=True, lock_path=str(directory)
    )
    return lock


def allow_concurrent_writers(engine: Engine) -> None:
    """Let transactions wait for each other instead of failing.

    oslo.db opens transactions with a deferred ``BEGIN``. Two of them that read and
    then write cannot both go on: SQLite fails one at once with "database is locked",
    whatever the busy timeout. ``BEGIN IMMEDIATE`` takes the write lock first, and the
    other waits.

    Connections that are open already are closed, so call this before the first write.
    """
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "before_cursor_execute", _begin_immediate, retval=True)
    engine.dispose()


def _set_pragmas(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(
    _conn: object,
    _cursor: object,
    statement: str,
    parameters: Any,
    _context: object,
    _executemany: bool,
) -> tuple[str, Any]:
    # oslo.db sends "BEGIN" from its own `begin` listener: only here can it be changed.
    return ("BEGIN IMMEDIATE" if statement == "BEGIN" else statement), parameters
