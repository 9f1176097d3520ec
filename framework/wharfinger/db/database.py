"""Open the database, run transactions in it, and translate its errors."""

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from oslo_db import api as db_api
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
from oslo_log import log as logging
from sqlalchemy.exc import SQLAlchemyError

from wharfinger import private_files
from wharfinger.db import migration
from wharfinger.db.migration import BrokenSchemaError, Schema
from wharfinger.db.row_statements import Change, Following, Rows, Values
from wharfinger.db.tables import METADATA
from wharfinger.db.transaction_deadline import TransactionDeadline
from wharfinger.exceptions import DatabaseUnavailable, StateError
from wharfinger.sqlite import allow_concurrent_writers, reason

LOG: Final = logging.getLogger(__name__)
FILE_NAME: Final = "wharfinger.sqlite"
#: Seconds that a transaction on a server may take.
TIMEOUT: Final = 30.0
#: The largest number of retries of a transaction after deadlocks.
_RETRIES: Final = 5

_SEE_CHECK: Final = "Run `wharfinger db check`."

_CHECK_SERVER: Final = (
    "Check [database] connection, that the server answers, and that its user has the needed "
    "privileges; then run `wharfinger db check`."
)
#: Errors of SQLAlchemy after which the same statement may succeed later.
_OUTAGES: Final = (sa.exc.InterfaceError, sa.exc.OperationalError, sa.exc.TimeoutError)

_T = TypeVar("_T")


class TakenError(Exception):
    """Another row already has a value that must be unique."""


@enginefacade.transaction_context_provider
class _Context:
    """The object on which oslo.db stores a session."""


class Database:
    """Reads and writes a database in transactions. Raises StateError.

    A ``managed`` database is created and upgraded when it is opened.
    """

    def __init__(
        self,
        url: str,
        *,
        directory: Path,
        host: str,
        managed: bool,
        options: Values | None = None,
        timeout: float = TIMEOUT,
        look_only: bool = False,
    ) -> None:
        self._url: Final = sa.make_url(url)
        self._directory: Final = directory
        self._host: Final = host
        # Each database has its own transaction manager: oslo.db's default is global to the process.
        self._manager: Final = enginefacade.transaction_context()
        self._missing: Mapping[str, frozenset[str]] = {}
        with self._errors():
            if managed and self._engine_name() == "sqlite":
                private_files.make_directory(directory)
            if not look_only and self._file is not None:
                private_files.make_database(self._file)
            if look_only and not self._exists():
                url = "sqlite://"  # an empty database in memory, since SQLite would create the file
            elif self._engine_name() in ("mysql", "mariadb"):
                url = _with_utf8mb4(self._url)
            # thread_checkin is only for green threads, which we do not use.
            fixed = {"max_retries": 0, "thread_checkin": False}
            self._manager.configure(connection=url, **fixed, **(options or {}))
            self._engine: Final[sa.Engine] = self._manager.writer.get_engine()
            self._deadline: Final = TransactionDeadline(self._engine, timeout)
            if not look_only:
                try:
                    # An upgrade may take longer than the deadline.
                    with nullcontext() if managed else self._deadline.running():
                        self._open(managed=managed)
                except (AttributeError, TypeError, ValueError) as error:
                    # Database drivers raise these errors for an unknown option in the URL.
                    self.close()
                    raise self._error(f"{error}.", "Correct [database] connection.") from error
                except BaseException:
                    self.close()
                    raise

    @property
    def name(self) -> str:
        """Return the file or URL of the database, without secrets."""
        if self._engine_name() == "sqlite" and self._url.database:
            return self._url.database
        # An option may contain a password, too.
        return self._url.set(query={}).render_as_string(hide_password=True)

    def schema(self) -> Schema:
        """Return the schema version of the database."""
        with self._transaction():
            return migration.schema(self._engine)

    def missing(self) -> Mapping[str, frozenset[str]]:
        """Return the columns that the database lacks, by table."""
        with self._transaction():
            return migration.missing(self._engine)

    def select(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """Return the rows that match ``where``, oldest first."""
        with self._transaction(), self._rows(self._manager.reader, table) as rows:
            return rows.select(where)

    def revisions(self, table: str, key: str, **where: Any) -> dict[str, int]:
        """Return the revisions of the matching rows, by key."""
        with self._transaction(), self._rows(self._manager.reader, table) as rows:
            return rows.revisions(key, where)

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        """Add all rows or none. Raises TakenError."""
        self.write([table], lambda target: target.insert(rows))

    def update(
        self, table: str, key: str, changes: Sequence[Change], following: Sequence[Following] = ()
    ) -> None:
        """Apply all changes, or none if a revision has changed.

        Raises StaleError and TakenError.
        """

        def change(target: Rows, *others: Rows) -> None:
            target.update(key, changes)
            for one, rows in zip(following, others, strict=True):
                rows.touch(one.values, {"revision"}, one.where)

        self.write([table, *(one.table for one in following)], change)

    def delete(self, table: str, key: str, revisions: Mapping[str, int]) -> None:
        """Delete rows, or none if one lacks its given revision. Raises StaleError."""
        self.write([table], lambda target: target.delete(key, revisions))

    def replace(
        self, table: str, scope: Values, key: str, rows: Mapping[str, Values | None]
    ) -> None:
        """Add, update or (for None) delete the rows of these keys; ignore revisions."""
        self.write([table], lambda target: target.replace(scope, key, rows))

    def touch(
        self, table: str, values: Values, *, count: Collection[str] = (), **where: Any
    ) -> int:
        """Update the matching rows without a check of revisions; return their number."""
        touched: int = self.write([table], lambda target: target.touch(values, count, where))
        return touched

    def read(self, tables: Sequence[str], work: Callable[..., _T]) -> _T:
        """Run ``work`` in one transaction. Its queries see one state of the database."""
        with (
            self._transaction(),
            self._tables(self._manager.reader, *tables, snapshot=True) as rows,
        ):
            return work(*rows)

    def write(self, tables: Sequence[str], work: Callable[..., _T]) -> _T:
        """Run ``work`` in one transaction, again after a deadlock. Raises TakenError."""

        def attempt() -> _T:
            with self._tables(self._manager.writer, *tables) as rows:
                return work(*rows)

        again = db_api.wrap_db_retry(max_retries=_RETRIES, retry_on_deadlock=True)
        with self._transaction():
            result: _T = again(attempt)()
            return result

    def close(self) -> None:
        """Close the connection pool."""
        self._engine.dispose()

    def _open(self, *, managed: bool) -> None:
        if self._engine_name() == "sqlite":
            allow_concurrent_writers(self._engine)
        schema = migration.schema(self._engine)
        if managed and schema.is_known and not schema.is_head:
            migration.upgrade(self._engine, self._host, directory=self._directory)
            schema = migration.schema(self._engine)
        if not schema.is_head:
            self._look_for_missing(schema)

    @contextmanager
    def _rows(self, manager: Any, table: str) -> Iterator[Rows]:
        with self._tables(manager, table) as [rows]:
            yield rows

    @contextmanager
    def _tables(self, manager: Any, *tables: str, snapshot: bool = False) -> Iterator[list[Rows]]:
        # An upgrade may have added what was missing. Look for it before the transaction: on MySQL,
        # an upgrade that waits for a transaction blocks all other readers of the table.
        if self._missing:
            self._look_for_missing(migration.schema(self._engine))
        missing = self._missing
        for table in tables:
            if missing.get(table, frozenset()).issuperset(METADATA.tables[table].columns.keys()):
                raise self._error(f"it has no table {table} yet.", "Run `wharfinger db upgrade`.")
        with manager.using(_Context()) as session:
            if snapshot and self._engine_name() == "postgresql":
                # SQLite does this by default, and MySQL unless its server is configured otherwise.
                session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            yield [
                Rows(session, METADATA.tables[table], missing.get(table, frozenset()))
                for table in tables
            ]

    def _look_for_missing(self, schema: Schema) -> None:
        if schema.current is None:
            raise self._error("it has no tables yet.", "Run `wharfinger db upgrade`.")
        missing = {} if schema.is_head else migration.missing(self._engine)
        if missing and not schema.is_known:
            raise self._newer()
        if missing != self._missing:
            for table, columns in missing.items():
                is_whole = columns.issuperset(METADATA.tables[table].columns.keys())
                names = ", ".join(sorted(columns))
                LOG.warning(
                    "Database %s has an older schema than this release needs, so the values of %s "
                    "are not stored. Run `wharfinger db upgrade`.",
                    self.name,
                    f"table {table}" if is_whole else f"columns {names} of table {table}",
                )
            self._missing = missing

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._deadline.running() as running:
            try:
                with self._errors():
                    yield
            except StateError as error:
                if running is None or not running.is_over:
                    raise
                raise DatabaseUnavailable(
                    path=self.name,
                    problem="the server has not completed a transaction within [database] timeout.",
                    remedy=_CHECK_SERVER,
                ) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except db_exception.DBDuplicateEntry as error:
            raise TakenError(str(reason(error))) from error
        except db_exception.DBNonExistentTable as error:
            raise self._error(_first_line(error), _SEE_CHECK) from error
        except TimeoutError as error:  # of another upgrade
            raise DatabaseUnavailable(
                path=self.name,
                problem=_first_line(error),
                remedy="Wait until the other upgrade ends; then repeat the command.",
            ) from error
        except (db_exception.DBError, SQLAlchemyError, BrokenSchemaError, OSError) as error:
            kind = DatabaseUnavailable if _is_outage(error) else StateError
            raise kind(
                path=self.name, problem=_first_line(error), remedy=self._remedy(error)
            ) from error

    def _remedy(self, error: Exception) -> str:
        if isinstance(error, BrokenSchemaError):
            return "Restore it from a backup."
        if self._engine_name() != "sqlite":
            return _CHECK_SERVER
        cause = reason(error)
        text = str(cause)
        if text.startswith("no such ") or "has no column" in text:
            return _SEE_CHECK
        if type(cause) is sqlite3.DatabaseError:
            return (
                "Restore it from a backup, or move this one file away; that deletes nothing in "
                "Placement."
            )
        if text == "database is locked":
            return (
                "Find the process that keeps it locked, such as with lsof, or wait and try again."
            )
        return "Check that this user may write to the file and its directory, and the free space."

    def _engine_name(self) -> str:
        return self._url.get_backend_name()

    def _exists(self) -> bool:
        return self._file.exists() if self._file else self._engine_name() != "sqlite"

    @property
    def _file(self) -> Path | None:
        name = (self._url.database or "").removeprefix("file:")
        is_file = self._engine_name() == "sqlite" and name not in ("", ":memory:")
        return Path(name) if is_file else None

    def _newer(self) -> StateError:
        return self._error(
            "it lacks tables or columns that this release needs, since a newer release or another "
            "program has created it.",
            "Run that release, or configure another database.",
        )

    def _error(self, problem: str, remedy: str) -> StateError:
        return StateError(path=self.name, problem=problem, remedy=remedy)


def _with_utf8mb4(url: sa.URL) -> str:
    query = {"charset": "utf8mb4", **url.query}
    return url.set(query=query).render_as_string(hide_password=False)


def _is_outage(error: Exception) -> bool:
    if isinstance(error, db_exception.DBConnectionError | OSError):
        return True
    cause = error.inner_exception if isinstance(error, db_exception.DBError) else error
    text = str(reason(error))
    has_no = text.startswith("no such ") or "has no column" in text
    return isinstance(cause, _OUTAGES) and not has_no


def _first_line(error: Exception) -> str:
    line = str(reason(error)).partition("\n")[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."
