"""Statements on the rows of one table."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

#: The most keys in one statement, since databases limit the number of parameters.
_BATCH: Final = 500

Values = Mapping[str, Any]


class StaleError(Exception):
    """Rows have changed or gone since they were read."""

    def __init__(self, changed: Collection[str], gone: Collection[str]) -> None:
        super().__init__(f"changed: {sorted(changed)}, gone: {sorted(gone)}")
        self.changed: Final = frozenset(changed)
        self.gone: Final = frozenset(gone)


@dataclass(frozen=True, slots=True)
class Change:
    """New values for the row with this key and revision."""

    key: str
    revision: int
    values: Values


@dataclass(frozen=True, slots=True)
class Following:
    """New values for rows of another table, in the transaction of a change."""

    table: str
    where: Values
    values: Values


@dataclass(frozen=True, slots=True)
class NotIn:
    """Condition of a column: none of these values, and not NULL."""

    values: Collection[str]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Condition of a column: any value that a subquery returns."""

    query: sa.Select[Any]


class Rows:
    """Statements on the rows of a table that are not marked as deleted."""

    def __init__(self, session: Session, table: sa.Table, missing: Collection[str]) -> None:
        self._session: Final = session
        self._table: Final = table
        self._present: Final = [name for name in table.columns.keys() if name not in missing]  # noqa: SIM118

    def has(self, column: str) -> bool:
        """Return whether the database has this column."""
        return column in self._present

    def values(self, column: str, where: Values) -> AnyOf:
        """Return a condition that accepts a column's values in the matching rows."""
        return AnyOf(sa.select(self._table.c[column]).where(*self._conditions(where)))

    def select(self, where: Values, *, lock: bool = False) -> list[dict[str, Any]]:
        """Return the matching rows, oldest first.

        A condition in ``where`` is a value, a collection of values, a NotIn or an AnyOf.
        """
        query = sa.select(*(self._table.c[name] for name in self._present))
        query = query.with_for_update() if lock else query
        found = [
            dict(row)
            for some in _in_batches(where)
            for row in self._session.execute(query.where(*self._conditions(some))).mappings()
            # MySQL ignores spaces at the end of a value.
            if all(_is_exactly(row[name], wanted) for name, wanted in some.items())
        ]
        return sorted(found, key=itemgetter("id"))

    def revisions(self, key: str, where: Values) -> dict[str, int]:
        """Return the revisions of the matching rows, by key."""
        found: dict[str, int] = {}
        for some in _in_batches(where):
            rows = self._session.execute(
                sa.select(self._table.c[key], self._table.c.revision).where(*self._conditions(some))
            )
            found.update((row[0], row[1]) for row in rows)
        return found

    def insert(self, rows: Iterable[Values]) -> None:
        """Add rows to the table."""
        for some in _grouped_by_columns(rows, self._present):
            self._session.execute(sa.insert(self._table), some)

    def update(self, key: str, changes: Sequence[Change]) -> None:
        """Apply the changes, or none if a revision has changed. Raises StaleError."""
        by_key: dict[str, Change] = {}
        for change in changes:
            if by_key.setdefault(change.key, change) != change:
                raise StaleError([change.key], ())  # the second change is outdated
        self._hold(key, {one.key: one.revision for one in by_key.values()})
        self._write(
            {key},
            [{**one.values, "revision": one.revision + 1, key: one.key} for one in by_key.values()],
        )

    def delete(self, key: str, revisions: Mapping[str, int]) -> None:
        """Delete rows, or none if one lacks its given revision. Raises StaleError."""
        self._hold(key, revisions)
        for some in _batches(revisions):
            where = self._conditions({key: some})
            if "deleted" in self._table.c:
                now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
                values = {"deleted": self._table.c.id, "deleted_at": now}
                self._session.execute(sa.update(self._table).where(*where).values(values))
            else:
                self._session.execute(sa.delete(self._table).where(*where))

    def replace(self, scope: Values, key: str, rows: Mapping[str, Values | None]) -> None:
        """Add, update or (None) delete rows with these keys and the values in ``scope``."""
        self.put(scope, key, rows, self.existing(scope, key, rows))

    def existing(self, scope: Values, key: str, keys: Iterable[str]) -> set[str]:
        """Return the given keys that have a row in scope."""
        found: set[str] = set()
        for some in _batches(keys):
            where = self._conditions({**scope, key: some})
            found.update(self._session.scalars(sa.select(self._table.c[key]).where(*where)))
        return found

    def put(
        self, scope: Values, key: str, rows: Mapping[str, Values | None], existing: Collection[str]
    ) -> None:
        """Update the ``existing`` rows, and add the others; None deletes a row."""
        for some in _batches(one for one, row in rows.items() if row is None and one in existing):
            where = self._conditions({**scope, key: some})
            self._session.execute(sa.delete(self._table).where(*where))
        # Two processes that add rows in different orders could deadlock.
        written = {
            one: {**row, **scope, key: one} for one, row in sorted(rows.items()) if row is not None
        }
        self._write(
            {*scope, key}, [row for one, row in written.items() if one in existing], ["revision"]
        )
        self.insert({**row, "revision": 1} for one, row in written.items() if one not in existing)

    def touch(self, values: Values, count: Collection[str], where: Values) -> int:
        """Update the matching rows, and return their number."""
        known = {name: value for name, value in values.items() if name in self._present}
        counted = self._counted(count)
        met = 0
        for some in _in_batches(where):
            result: Any = self._session.execute(
                sa.update(self._table).where(*self._conditions(some)).values(known | counted)
            )
            met += result.rowcount
        return met

    def _write(
        self, keys: Collection[str], rows: Iterable[Values], count: Collection[str] = ()
    ) -> None:
        where = [self._table.c[key] == sa.bindparam(f"where_{key}") for key in keys]
        for some in _grouped_by_columns(rows, self._present):
            written = some[0].keys() - set(keys)
            self._session.connection().execute(
                sa.update(self._table)
                .where(*where, *self._conditions({}))
                .values({name: sa.bindparam(name) for name in written} | self._counted(count)),
                [
                    {
                        f"where_{name}" if name in keys else name: value
                        for name, value in row.items()
                    }
                    for row in some
                ],
            )

    def hold(
        self, key: str, keys: Iterable[str], where: Values, columns: Collection[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Lock the rows with these keys until the transaction ends; return them by key."""
        names = self._present if columns is None else [key, *filter(self.has, columns)]
        found: dict[str, dict[str, Any]] = {}
        # Two processes that lock rows in different orders could deadlock, even within one
        # statement.
        for some in _batches(sorted(keys)):
            rows = self._session.execute(
                sa.select(*(self._table.c[name] for name in names))
                .where(*self._conditions({**where, key: some}))
                .order_by(self._table.c[key])
                .with_for_update()
            )
            found.update((row[key], dict(row)) for row in rows.mappings())
        return found

    def _hold(self, key: str, revisions: Mapping[str, int]) -> None:
        held = self.hold(key, revisions, {}, ["revision"])
        gone = revisions.keys() - held.keys()
        changed = {one for one, row in held.items() if row["revision"] != revisions.get(one)}
        if gone or changed:
            raise StaleError(changed, gone)

    def _counted(self, count: Collection[str]) -> dict[str, sa.ColumnElement[Any]]:
        return {name: self._table.c[name] + 1 for name in count if self.has(name)}

    def _conditions(self, values: Values) -> list[sa.ColumnElement[bool]]:
        conditions = [_condition(self._table.c[name], value) for name, value in values.items()]
        if "deleted" in self._table.c:
            conditions.append(self._table.c.deleted == 0)
        return conditions


def _grouped_by_columns(
    rows: Iterable[Values], present: Collection[str]
) -> Collection[list[Values]]:
    # A statement ignores columns that its first row lacks.
    alike: dict[frozenset[str], list[Values]] = {}
    for row in rows:
        taken = {name: value for name, value in row.items() if name in present}
        alike.setdefault(frozenset(taken), []).append(taken)
    return alike.values()


def _condition(column: sa.Column[Any], value: Any) -> sa.ColumnElement[bool]:
    if isinstance(value, AnyOf):
        return column.in_(value.query)
    if isinstance(value, NotIn):
        return column.not_in(list(value.values))
    values = list(value) if is_several(value) else [value]
    known = column.in_([one for one in values if one is not None])
    return sa.or_(known, column.is_(None)) if None in values else known


def _is_exactly(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) and isinstance(wanted, str | Collection):
        return found == wanted if isinstance(wanted, str) else found in wanted
    return True


def is_several(value: object) -> bool:
    """Return whether a condition is a collection of values."""
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def _in_batches(where: Values) -> Iterator[Values]:
    several = [name for name, value in where.items() if is_several(value)]
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
