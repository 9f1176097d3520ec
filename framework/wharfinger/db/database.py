"""The database: rows of our tables, by statements that each kind of database takes."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from alembic.util import CommandError
from oslo_db import api as db_api
from oslo_db import exception as db_exception
from oslo_db.sqlalchemy import enginefacade
from oslo_log import log as logging
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from wharfinger.db import migration
from wharfinger.db.migration import Schema
from wharfinger.db.tables import METADATA
from wharfinger.exceptions import StateError
from wharfinger.sqlite import allow_concurrent_writers, reason

LOG: Final = logging.getLogger(__name__)
FILE_NAME: Final = "wharfinger.sqlite"
#: A statement takes a bounded number of parameters.
_BATCH: Final = 500
#: How often a transaction is tried that the server ended for another's sake.
_ATTEMPTS: Final = 5

_T = TypeVar("_T")
Values = Mapping[str, Any]


class TakenError(Exception):
    """A row with a value that another row has, and only one may have."""


class StaleError(Exception):
    """Rows that are not as they were read: others have written or deleted them since."""

    def __init__(self, changed: Collection[str], gone: Collection[str]) -> None:
        super().__init__(f"changed: {sorted(changed)}, gone: {sorted(gone)}")
        self.changed: Final = frozenset(changed)
        self.gone: Final = frozenset(gone)


@dataclass(frozen=True, slots=True)
class Change:
    """What to write into the row of a key, if it still has that revision."""

    key: str
    revision: int
    values: Values


@enginefacade.transaction_context_provider
class _Context:
    """What oslo.db keeps a thread's session on."""


class Database:
    """A database, of which only the columns are touched that it has.

    Safe for several threads and processes. Every method raises StateError where the database
    cannot be used.

    ``url`` is SQLAlchemy's, ``options`` are oslo.db's. ``directory`` is where lock files go. One
    that is ``managed``, as our own file is, is created and upgraded when it is opened. Others are
    upgraded by ``upgrade`` alone; ``host`` is the one whose records the first version's are. One
    that is opened to ``look_only`` at its schema is left as it is, there or not.
    """

    def __init__(
        self,
        url: str,
        *,
        directory: Path,
        host: str,
        managed: bool,
        options: Values | None = None,
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
                directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            if look_only and not self._is_there():
                url = "sqlite://"  # SQLite would make the file: an empty one in memory, then
            self._manager.configure(connection=url, max_retries=0, **(options or {}))
            self._engine: Final[sa.Engine] = self._manager.writer.get_engine()
            if not look_only:
                try:
                    self._open(managed=managed)
                except BaseException:
                    self.close()
                    raise

    @property
    def name(self) -> str:
        """Which database, for people: a file, or a URL without its password and its options."""
        if self._url.get_backend_name() == "sqlite" and self._url.database:
            return self._url.database
        # An option may be a password too.
        return self._url.set(query={}).render_as_string(hide_password=True)

    @property
    def directory(self) -> Path:
        """Where lock files go."""
        return self._directory

    def schema(self) -> Schema:
        """The version that it has."""
        with self._errors():
            return migration.schema(self._engine)

    def missing(self) -> Mapping[str, frozenset[str]]:
        """The columns that it has not, by table."""
        with self._errors():
            return migration.missing(self._engine)

    def upgrade(self) -> None:
        """Bring it to the newest version; an error for one that is newer."""
        with self._errors():
            if not migration.schema(self._engine).is_known:
                raise self._newer()
            migration.upgrade(self._engine, self._host, directory=self._directory)
            self._missing = {}

    def select(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """The rows, oldest first, whose columns have these values, or one of several."""
        with self._errors(), self._session(self._manager.reader) as session:
            rows = [row for some in _bounded(where) for row in self._select(session, table, some)]
        return sorted(rows, key=itemgetter("id"))

    def insert(self, table: str, rows: Sequence[Values]) -> None:
        """Add rows, all or none; raises TakenError."""
        self._write(lambda session: self._insert(session, table, rows))

    def update(self, table: str, key: str, changes: Iterable[Change]) -> None:
        """Write into rows that nobody has written since, all or none; their revisions rise by one.

        Raises StaleError, TakenError.
        """

        def work(session: Session) -> None:
            self._hold(session, table, key, {one.key: one.revision for one in wanted})
            self._update(
                session,
                table,
                {key},
                [
                    {**one.values, "revision": one.revision + 1, f"where_{key}": one.key}
                    for one in wanted
                ],
            )

        wanted = list(changes)
        self._write(work)

    def delete(self, table: str, key: str, revisions: Mapping[str, int]) -> None:
        """Delete rows that nobody has written since, all or none; raises StaleError.

        Where rows are kept, they only count as deleted.
        """
        target = METADATA.tables[table]

        def work(session: Session) -> None:
            self._hold(session, table, key, revisions)
            for some in _batches(revisions):
                where = self._where(table, {key: some})
                if "deleted" in target.c:
                    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
                    values = {"deleted": target.c.id, "deleted_at": now}
                    session.execute(sa.update(target).where(*where).values(values))
                else:
                    session.execute(sa.delete(target).where(*where))

        self._write(work)

    def replace(
        self, table: str, scope: Values, key: str, rows: Mapping[str, Values | None]
    ) -> None:
        """Write the rows of a scope by key, all or none; None deletes.

        For one writer at a time: there is no revision to compare.
        """
        target = METADATA.tables[table]

        def work(session: Session) -> None:
            there: set[str] = set()
            for some in _batches(rows):
                where = self._where(table, {**scope, key: some})
                there.update(session.scalars(sa.select(target.c[key]).where(*where)))
                gone = [one for one in some if rows[one] is None and one in there]
                if gone:
                    where = self._where(table, {**scope, key: gone})
                    session.execute(sa.delete(target).where(*where))
            written = {one: values for one, values in rows.items() if values is not None}
            self._update(
                session,
                table,
                {*scope, key},
                [
                    {**values, **scope, f"where_{key}": one}
                    | {f"where_{name}": value for name, value in scope.items()}
                    for one, values in written.items()
                    if one in there
                ],
            )
            self._insert(
                session,
                table,
                [
                    {**values, **scope, key: one}
                    for one, values in written.items()
                    if one not in there
                ],
            )

        self._write(work)

    def touch(
        self, table: str, values: Values, *, count: Collection[str] = (), **where: Any
    ) -> int:
        """Write columns, and add one to those that ``count``, whatever the revision.

        ``where`` is as in ``select``; returns how many rows it met.
        """
        target = METADATA.tables[table]

        def work(session: Session) -> int:
            there = self._present(table)
            known = {name: value for name, value in values.items() if name in there}
            counted = {name: target.c[name] + 1 for name in count}
            met = 0
            for some in _bounded(where):
                conditions = self._where(table, some)
                result: Any = session.execute(
                    sa.update(target).where(*conditions).values(known | counted)
                )
                met += result.rowcount
            return met

        return self._write(work)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _open(self, *, managed: bool) -> None:
        if self._engine_name() == "sqlite":
            allow_concurrent_writers(self._engine)
        schema = migration.schema(self._engine)
        if managed and schema.is_known and not schema.is_head:
            migration.upgrade(self._engine, self._host, directory=self._directory)
        elif not schema.is_head:
            self._look_for_missing(schema)

    def _select(self, session: Session, table: str, where: Values) -> list[dict[str, Any]]:
        target = METADATA.tables[table]
        columns = [target.c[name] for name in self._present(table)]
        statement = sa.select(*columns).where(*self._where(table, where)).order_by(target.c.id)
        return [dict(row) for row in session.execute(statement).mappings()]

    def _insert(self, session: Session, table: str, rows: Sequence[Values]) -> None:
        present = self._present(table)
        alike: dict[frozenset[str], list[Values]] = {}
        for row in rows:
            taken = {name: row[name] for name in row if name in present}
            alike.setdefault(frozenset(taken), []).append(taken)
        # One statement takes rows of the same columns: it would leave out what the first has not.
        for some in alike.values():
            session.execute(sa.insert(METADATA.tables[table]), some)

    def _update(
        self, session: Session, table: str, keys: Collection[str], rows: Iterable[Values]
    ) -> None:
        """Write rows that are found by ``where_<key>``; one statement for equal columns."""
        target = METADATA.tables[table]
        present = self._present(table)
        wheres = {f"where_{key}" for key in keys}
        alike: dict[frozenset[str], list[Values]] = {}
        for row in rows:
            taken = {name: row[name] for name in row if name in present or name in wheres}
            alike.setdefault(frozenset(taken), []).append(taken)
        for names, some in alike.items():
            where = [target.c[key] == sa.bindparam(f"where_{key}") for key in keys]
            session.connection().execute(
                sa.update(target)
                .where(*where, *self._where(table, {}))
                .values({name: sa.bindparam(name) for name in names - wheres}),
                some,
            )

    def _hold(self, session: Session, table: str, key: str, revisions: Mapping[str, int]) -> None:
        """Keep rows from being written by others until the transaction ends.

        Raises StaleError where one has not the revision that it is believed to have.
        """
        target = METADATA.tables[table]
        now: dict[str, int] = {}
        for some in _batches(sorted(revisions)):  # in one order, or two could wait for each other
            rows = session.execute(
                sa.select(target.c[key], target.c.revision)
                .where(*self._where(table, {key: some}))
                .order_by(target.c.id)
                .with_for_update()
            )
            now.update((row[0], row[1]) for row in rows)
        gone = revisions.keys() - now.keys()
        changed = {one for one, revision in now.items() if revision != revisions[one]}
        if gone or changed:
            raise StaleError(changed, gone)

    def _where(self, table: str, values: Values) -> list[sa.ColumnElement[bool]]:
        target = METADATA.tables[table]
        conditions = [
            target.c[name].in_(list(value)) if _is_several(value) else target.c[name] == value
            for name, value in values.items()
        ]
        if "deleted" in target.c:
            conditions.append(target.c.deleted == 0)
        return conditions

    def _present(self, table: str) -> list[str]:
        """The columns of a table that are there."""
        names: list[str] = METADATA.tables[table].columns.keys()
        lacking = self._missing.get(table, frozenset())
        if lacking.issuperset(names):
            raise self._error(f"it has no table {table} yet.", "Run `wharfinger db upgrade`.")
        return [name for name in names if name not in lacking]

    @contextmanager
    def _session(self, manager: Any) -> Iterator[Session]:
        """A transaction. What was missing is looked for: a schema may be upgraded at any time.

        Before it, not in it: on MySQL an upgrade that waits for a transaction stops whoever
        looks at the table.
        """
        if self._missing:
            self._look_for_missing(migration.schema(self._engine))
        with manager.using(_Context()) as session:
            yield session

    def _look_for_missing(self, schema: Schema) -> None:
        if schema.current is None:
            raise self._error("it has no tables yet.", "Run `wharfinger db upgrade`.")
        missing = {} if schema.is_head else migration.missing(self._engine)
        if missing and not schema.is_known:
            raise self._newer()
        if missing != self._missing:
            for table, columns in missing.items():
                LOG.warning(
                    "%s has no column %s in table %s, and nothing is kept there: run "
                    "`wharfinger db upgrade`.",
                    self.name,
                    ", ".join(sorted(columns)),
                    table,
                )
            self._missing = missing

    def _write(self, work: Callable[[Session], _T]) -> _T:
        def attempt() -> _T:
            with self._session(self._manager.writer) as session:
                return work(session)

        again = db_api.wrap_db_retry(max_retries=_ATTEMPTS, retry_on_deadlock=True)
        with self._errors():
            result: _T = again(attempt)()
            return result

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except db_exception.DBDuplicateEntry as error:
            raise TakenError(str(reason(error))) from error
        except db_exception.DBNonExistentTable as error:
            raise self._error(f"{reason(error)}.", "Run `wharfinger db upgrade`.") from error
        except (db_exception.DBError, SQLAlchemyError, CommandError, OSError) as error:
            raise self._error(f"{reason(error)}.", self._remedy(error)) from error

    def _remedy(self, error: Exception) -> str:
        if self._engine_name() != "sqlite":
            return "Check [database] connection, and that the server can be reached."
        cause = reason(error)
        if isinstance(cause, sqlite3.OperationalError) and str(cause).startswith("no such "):
            return "See what `wharfinger db check` says."
        if type(cause) is sqlite3.DatabaseError:
            return (
                "Restore it from a backup, or move that one file away: nothing in Placement is "
                "deleted by that."
            )
        return "Check that state_path can be written and has space left."

    def _engine_name(self) -> str:
        return self._url.get_backend_name()

    def _is_there(self) -> bool:
        """Whether there is a file, where it is one."""
        file = self._url.database or ":memory:"
        return self._engine_name() != "sqlite" or Path(file.removeprefix("file:")).exists()

    def _newer(self) -> StateError:
        return self._error(
            "it was written by a newer version, which does without what this one needs.",
            "Run that version.",
        )

    def _error(self, problem: str, remedy: str) -> StateError:
        return StateError(path=self.name, problem=problem, remedy=remedy)


def _is_several(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def _bounded(where: Values) -> Iterator[Values]:
    """The same conditions, with no more values in one than a statement takes."""
    several = [name for name, value in where.items() if _is_several(value)]
    longest = max(several, key=lambda name: len(where[name]), default=None)
    if longest is None:
        yield where
    else:
        for some in _batches(dict.fromkeys(where[longest])):
            yield {**where, longest: some}


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    every = list(keys)
    for start in range(0, len(every), _BATCH):
        yield every[start : start + _BATCH]
