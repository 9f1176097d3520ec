"""Operations of a schema upgrade that do nothing if they were done before."""

from typing import Any

import sqlalchemy as sa
from alembic import op


def has_table(name: str) -> bool:
    """Return whether a table exists."""
    return sa.inspect(op.get_bind()).has_table(name)


def has_column(table: str, name: str) -> bool:
    """Return whether a table has a column."""
    return has_table(table) and name in {
        column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)
    }


def create_table(name: str, *parts: "sa.Column[Any] | sa.Constraint") -> None:
    """Create a table if it does not exist."""
    if not has_table(name):
        op.create_table(
            name,
            *parts,
            mysql_charset="utf8mb4",
            mysql_collate="utf8mb4_bin",
            mysql_engine="InnoDB",
        )


def create_index(name: str, table: str, *columns: str) -> None:
    """Create an index if it does not exist."""
    there = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in there:
        op.create_index(name, table, list(columns))


def add_column(table: str, column: "sa.Column[Any]") -> None:
    """Add a column if it does not exist."""
    if not has_column(table, column.name):
        op.add_column(table, column)
