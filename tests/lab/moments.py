"""Take and restore snapshots of Placement's database and of the framework's database.

A test that tries many things from the same state takes a snapshot once, and restores it in a few
milliseconds. Two snapshots are equal if they differ only in created_at and updated_at.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, Final

from placement import db_api

from tests.lab.placement import NAMES
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.db.database import FILE_NAME

_TIMES: Final = frozenset({"created_at", "updated_at"})


@dataclass(frozen=True)
class _Table:
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def content(self) -> list[tuple[Any, ...]]:
        """Return the rows without created_at and updated_at."""
        kept = [index for index, name in enumerate(self.columns) if name not in _TIMES]
        return [tuple(row[index] for index in kept) for row in self.rows]


_Tables = dict[str, _Table]


@dataclass(frozen=True)
class Moment:
    """Snapshot of the SQLite files of Placement and of the framework."""

    placement: _Tables = field(compare=False)
    records: _Tables = field(compare=False)
    key: str

    @property
    def placement_key(self) -> str:
        """A text that is equal for equal contents of Placement."""
        return _key(self.placement)


class Moments:
    """Takes snapshots of this process's Placement and of the database in a state directory.

    No thread or process may write at the same time.
    """

    def __init__(self, state_path: Path) -> None:
        self._placement = _placement()
        self._records = state_path / FILE_NAME

    def take(self) -> Moment:
        """Take a snapshot of both databases."""
        placement, records = _read(self._placement), _read(self._records)
        return Moment(placement, records, _key(placement) + _key(records))

    def go_back(self, moment: Moment) -> None:
        """Restore both databases from a snapshot."""
        _write(self._placement, moment.placement)
        _write(self._records, moment.records)


def copied(publish: Callable[[WritingClient], None]) -> Callable[[WritingClient], None]:
    """Return ``publish``, but copy the rows of its first call into an empty Placement later.

    A copy takes a tenth of the time. If Placement is not empty, or has traits or resource classes
    that it did not have then, ``publish`` itself is called.
    """
    made: list[_Tables] = []

    @wraps(publish)
    def publish_or_copy(client: WritingClient) -> None:
        now = _read(_placement())
        is_empty = not now["resource_providers"].rows
        if is_empty and made and _names_of(now) <= _names_of(made[-1]):
            _write(_placement(), made[-1])
            return
        publish(client)
        if is_empty:
            made.append(_read(_placement()))

    return publish_or_copy


def _names_of(tables: _Tables) -> set[tuple[Any, ...]]:
    """Return the rows of traits and resource classes, to whose ids other rows refer."""
    return {(kept, *row) for kept in NAMES for row in tables[kept].content()}


def _placement() -> Path:
    """Return the SQLite file of this process's Placement."""
    return Path(str(db_api.get_placement_engine().url.database))


def _key(tables: _Tables) -> str:
    return repr({name: table.content() for name, table in tables.items()})


def _read(path: Path) -> _Tables:
    with closing(sqlite3.connect(path)) as connection:
        return _tables(connection)


def _tables(connection: sqlite3.Connection) -> _Tables:
    names = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if not name.startswith("sqlite_")
    ]
    tables = {}
    for name in sorted(names):
        cursor = connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
        columns = tuple(column[0] for column in cursor.description)
        tables[name] = _Table(columns, cursor.fetchall())
    return tables


def _write(path: Path, tables: _Tables) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # A test need not survive a loss of power.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        now = _tables(connection)
        for name, table in tables.items():
            if now[name] == table:
                continue
            connection.execute(f'DELETE FROM "{name}"')
            places = ", ".join("?" for _ in table.columns)
            connection.executemany(f'INSERT INTO "{name}" VALUES ({places})', table.rows)
        connection.execute("COMMIT")
