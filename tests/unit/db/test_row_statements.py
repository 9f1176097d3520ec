"""Rows that a change locks, and their order; on SQLite, which locks the whole file."""

import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from wharfinger.db.row_statements import Change, Rows, StaleError

#: More keys than one statement may have, in random order.
KEYS: Final = [str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))) for number in range(1100)]
TABLE: Final = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("revision", sa.Integer),
    sa.Column("name", sa.String(36)),
)


class Locking(Session):
    """A session that records the rows that other databases would lock, in order."""

    locked: list[str]

    def execute(self, statement: Any, *args: Any, **options: Any) -> Any:
        found = super().execute(statement, *args, **options)
        if "FOR UPDATE" not in str(statement):
            return found
        rows = found.freeze()
        self.locked += [row.uuid for row in rows()]
        return rows()


@pytest.fixture
def session() -> Iterator[Locking]:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection, Locking(connection) as session:
        TABLE.create(connection)
        rows = [{"uuid": key, "revision": 1, "name": "old"} for key in KEYS]
        connection.execute(sa.insert(TABLE), rows)
        yield session
    engine.dispose()


def locked(session: Locking, keys: Iterable[str], *, delete: bool = False) -> list[str]:
    """Return the keys of the rows that a change locks, in order."""
    session.locked = []
    rows = Rows(session, TABLE, ())
    with session.begin_nested() as savepoint:
        if delete:
            rows.delete("uuid", dict.fromkeys(keys, 1))
        else:
            rows.update("uuid", [Change(key, 1, {"name": "new"}) for key in keys])
        savepoint.rollback()
    return session.locked


@pytest.mark.parametrize("delete", [False, True], ids=["update", "delete"])
def test_rows_of_two_changes_are_locked_in_the_same_order(session: Locking, delete: bool) -> None:
    """The changes name the rows in different orders, and the second lacks some rows."""
    some = [key for number, key in enumerate(KEYS) if number % 3]

    first = locked(session, KEYS)
    second = locked(session, some[::-1], delete=delete)

    assert sorted(first) == sorted(KEYS)
    assert second == [key for key in first if key in {*some}]


def test_rows_are_locked_before_one_of_them_is_written(session: Locking) -> None:
    stale = [*(Change(key, 1, {"name": "new"}) for key in KEYS), Change("gone", 1, {})]
    session.locked = []

    with pytest.raises(StaleError):
        Rows(session, TABLE, ()).update("uuid", stale)

    assert len(session.locked) == len(KEYS)
    assert {*session.scalars(sa.select(TABLE.c.name))} == {"old"}
