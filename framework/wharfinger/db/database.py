"""The database: opening it, its transactions, and what goes wrong."""

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
from wharfinger.db.row_statements import Change, Following, Rows, Sole, Values
from wharfinger.db.tables import METADATA
from wharfinger.db.transaction_deadline import TransactionDeadline
from wharfinger.exceptions import DatabaseUnavailable, StateError
from wharfinger.sqlite import allow_concurrent_writers, reason

LOG: Final = logging.getLogger(__name__)
FILE_NAME: Final = "wharfinger.sqlite"
#: Seconds that a transaction on a server may take.
TIMEOUT: Final = 30.0
#: How often a transaction is tried that the server ended for another's sake.
_ATTEMPTS: Final = 5

_SEE_CHECK: Final = "See what `wharfinger db check` says."

_CHECK_SERVER: Final = (
    "Check [database] connection, that the server can be reached, and that its user may do this; "
    "and see what `wharfinger db check` says."
)
#: Errors of SQLAlchemy for a database that may do the same later.
_OUTAGES: Final = (sa.exc.InterfaceError, sa.exc.OperationalError, sa.exc.TimeoutError)

_T = TypeVar("_T")


class TakenError(Exception):
    """A row was refused: another row has a value that must be unique.

    ``unique`` describes that value; None where only the database knows it.
    """

    unique: str | None = None


@enginefacade.transaction_context_provider
class _Context:
    """What oslo.db keeps a thread's session on."""


class Database:
    """A database, of which only the columns are touched that it has.

    Safe for several threads and processes. Every method raises StateError where the database
    cannot be used.

    ``url`` is SQLAlchemy's, ``options`` are oslo.db's. A transaction on a server takes ``timeout``
    seconds at most. ``directory`` is where lock files go. A database that is ``managed``, as our
    own file is, is created and upgraded when it is opened; others only by `wharfinger db upgrade`.
    ``host`` is the one whose records the first version's are. A
    database that is opened to ``look_only`` at its schema is left as it is, there or not.
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
        # One manager each: oslo.db's own is global to the process.
        self._manager: Final = enginefacade.transaction_context()
        self._missing: Mapping[str, frozenset[str]] = {}
        with self._errors():
            if managed and self._engine_name() == "sqlite":
                private_files.make_directory(directory)
            if not look_only and self._file is not None:
                private_files.make_database(self._file)
            if look_only and not self._is_there():
                url = "sqlite://"  # SQLite would make the file: an empty one in memory, then
            elif self._engine_name() in ("mysql", "mariadb"):
                url = _with_all_characters(self._url)
            # No thread here is a green one, which oslo.db has give way after each transaction.
            fixed = {"max_retries": 0, "thread_checkin": False}
            self._manager.configure(connection=url, **fixed, **(options or {}))
            self._engine: Final[sa.Engine] = self._manager.writer.get_engine()
            self._deadline: Final = TransactionDeadline(self._engine, timeout)
            if not look_only:
                try:
                    # An upgrade takes its time.
                    with nullcontext() if managed else self._deadline.running():
                        self._open(managed=managed)
                except (AttributeError, TypeError, ValueError) as error:
                    # What a driver makes of an option of the URL that it does not know.
                    self.close()
                    raise self._error(f"{error}.", "Correct [database] connection.") from error
                except BaseException:
                    self.close()
                    raise

    @property
    def name(self) -> str:
        """Which database, for people: a file, or a URL without its password and its options."""
        if self._engine_name() == "sqlite" and self._url.database:
            return self._url.database
        # An option may be a password too.
        return self._url.set(query={}).render_as_string(hide_password=True)

    def schema(self) -> Schema:
        """The version that it has."""
        with self._transaction():
            return migration.schema(self._engine)

    def missing(self) -> Mapping[str, frozenset[str]]:
        """The columns that it has not, by table."""
        with self._transaction():
            return migration.missing(self._engine)

    def select(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """The rows, oldest first, whose columns have these values, or one of several."""
        with self._transaction(), self._rows(self._manager.reader, table) as rows:
            return rows.select(where)

    def revisions(self, table: str, key: str, **where: Any) -> dict[str, int]:
        """The revisions, by key, of the rows that ``select`` gives."""
        with self._transaction(), self._rows(self._manager.reader, table) as rows:
            return rows.revisions(key, where)

    def insert(self, table: str, rows: Sequence[Values], sole: Sole | None = None) -> None:
        """Add rows, all or none; raises TakenError, also where ``sole`` finds another row."""

        def add(target: Rows, *locked: Rows) -> None:
            if sole is not None:
                locked[0].lock(sole.lock)
                if target.select(sole.taken):
                    taken = TakenError(f"{table}: there is a row with {sole.taken}")
                    taken.unique = sole.unique
                    raise taken
            target.insert(rows)

        self.write([table, *([] if sole is None else [sole.table])], add)

    def update(
        self, table: str, key: str, changes: Sequence[Change], following: Sequence[Following] = ()
    ) -> None:
        """Write into rows that have these revisions, all or none; the revisions rise by one.

        The rows of ``following`` are written in the same transaction, whatever their revisions.
        Raises StaleError, TakenError.
        """

        def change(target: Rows, *others: Rows) -> None:
            target.update(key, changes)
            for one, rows in zip(following, others, strict=True):
                rows.touch(one.values, {"revision"}, one.where)

        self.write([table, *(one.table for one in following)], change)

    def delete(self, table: str, key: str, revisions: Mapping[str, int]) -> None:
        """Delete rows that nobody has written since, all or none; raises StaleError.

        Where rows are kept, they only count as deleted.
        """
        self.write([table], lambda target: target.delete(key, revisions))

    def replace(
        self, table: str, scope: Values, key: str, rows: Mapping[str, Values | None]
    ) -> None:
        """Write the rows of a scope by key, all or none; None deletes.

        For one writer at a time: there is no revision to compare.
        """
        self.write([table], lambda target: target.replace(scope, key, rows))

    def touch(
        self, table: str, values: Values, *, count: Collection[str] = (), **where: Any
    ) -> int:
        """Write columns, and add one to those that ``count``, whatever the revision.

        ``where`` is as in ``select``; returns how many rows there were.
        """
        touched: int = self.write([table], lambda target: target.touch(values, count, where))
        return touched

    def read(self, tables: Sequence[str], work: Callable[..., _T]) -> _T:
        """Call ``work`` with the Rows of each table, in one transaction; return its result.

        All statements see the database as it was at one moment.
        """
        with (
            self._transaction(),
            self._tables(self._manager.reader, *tables, snapshot=True) as rows,
        ):
            return work(*rows)

    def write(self, tables: Sequence[str], work: Callable[..., _T]) -> _T:
        """Call ``work`` with the Rows of each table, in one transaction; return its result.

        An exception of ``work`` undoes all that it wrote. After a deadlock with another
        transaction, ``work`` is called again. Raises TakenError.
        """

        def attempt() -> _T:
            with self._tables(self._manager.writer, *tables) as rows:
                return work(*rows)

        again = db_api.wrap_db_retry(max_retries=_ATTEMPTS, retry_on_deadlock=True)
        with self._transaction():
            result: _T = again(attempt)()
            return result

    def close(self) -> None:
        """Close all connections."""
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
        """The rows of a table in a transaction."""
        with self._tables(manager, table) as [rows]:
            yield rows

    @contextmanager
    def _tables(self, manager: Any, *tables: str, snapshot: bool = False) -> Iterator[list[Rows]]:
        """The rows of each of these tables in one transaction.

        With ``snapshot``, all statements see the same moment.

        First it looks again for tables and columns that were missing: a schema may be upgraded
        at any time. It looks before the transaction: on MySQL, an upgrade that waits for a
        transaction blocks all other readers of the table.
        """
        if self._missing:
            self._look_for_missing(migration.schema(self._engine))
        missing = self._missing
        for table in tables:
            if missing.get(table, frozenset()).issuperset(METADATA.tables[table].columns.keys()):
                raise self._error(f"it has no table {table} yet.", "Run `wharfinger db upgrade`.")
        with manager.using(_Context()) as session:
            if snapshot and self._engine_name() == "postgresql":
                # SQLite does so anyway, and MySQL unless its server is told otherwise.
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
                lacking = "" if is_whole else f"column {', '.join(sorted(columns))} in "
                LOG.warning(
                    "%s has no %stable %s, and nothing is kept there: run `wharfinger db upgrade`.",
                    self.name,
                    lacking,
                    table,
                )
            self._missing = missing

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Raise our errors, and DatabaseUnavailable at the end of the time."""
        with self._deadline.running() as running:
            try:
                with self._errors():
                    yield
            except StateError as error:
                if running is None or not running.is_over:
                    raise
                raise DatabaseUnavailable(
                    path=self.name,
                    problem="the transaction was not complete within [database] timeout.",
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
        said = str(cause)
        if said.startswith("no such ") or "has no column" in said:
            return _SEE_CHECK
        if type(cause) is sqlite3.DatabaseError:
            return (
                "Restore it from a backup, or move that one file away: nothing in Placement is "
                "deleted by that."
            )
        return "Check that its directory can be written and has space left."

    def _engine_name(self) -> str:
        return self._url.get_backend_name()

    def _is_there(self) -> bool:
        """Whether there is a file, where it is one."""
        return self._file.exists() if self._file else self._engine_name() != "sqlite"

    @property
    def _file(self) -> Path | None:
        """The file of a SQLite database; None for a database without a file."""
        name = (self._url.database or "").removeprefix("file:")
        is_file = self._engine_name() == "sqlite" and name not in ("", ":memory:")
        return Path(name) if is_file else None

    def _newer(self) -> StateError:
        return self._error(
            "it was written by a newer version, or by another program: it lacks what is needed.",
            "Run that version.",
        )

    def _error(self, problem: str, remedy: str) -> StateError:
        return StateError(path=self.name, problem=problem, remedy=remedy)


def _with_all_characters(url: sa.URL) -> str:
    """The URL of a MySQL, which of itself takes no characters beyond three bytes."""
    query = {"charset": "utf8mb4", **url.query}
    return url.set(query=query).render_as_string(hide_password=False)


def _is_outage(error: Exception) -> bool:
    """Return whether the same may succeed later, with nothing to repair in the database itself."""
    if isinstance(error, db_exception.DBConnectionError | OSError):
        return True
    cause = error.inner_exception if isinstance(error, db_exception.DBError) else error
    said = str(reason(error))
    has_no = said.startswith("no such ") or "has no column" in said
    return isinstance(cause, _OUTAGES) and not has_no


def _first_line(error: Exception) -> str:
    """What the database says, as a sentence; what follows is the driver's advice."""
    line = str(reason(error)).partition("\n")[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."
