"""Steps of an upgrade that can be repeated.

MySQL keeps each step even if a later one fails; the next upgrade continues there. Other databases
undo all steps of a version that was not completed.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op


def has_table(name: str) -> bool:
    """Whether a table is there."""
    return sa.inspect(op.get_bind()).has_table(name)


def has_column(table: str, name: str) -> bool:
    """Whether a table is there, and a column in it."""
    return has_table(table) and name in {
        column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)
    }


def create_table(name: str, *parts: "sa.Column[Any] | sa.Constraint") -> None:
    """Create a table that is not there yet; its indexes are steps of their own."""
    if not has_table(name):
        op.create_table(
            name,
            *parts,
            mysql_charset="utf8mb4",
            mysql_collate="utf8mb4_bin",
            mysql_engine="InnoDB",
        )


def create_index(name: str, table: str, *columns: str) -> None:
    """Create an index that is not there yet."""
    there = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table)}
    if name not in there:
        op.create_index(name, table, list(columns))


def add_column(table: str, column: "sa.Column[Any]") -> None:
    """Add a column that is not there yet: one that is nullable, or has a server default."""
    if not has_column(table, column.name):
        op.add_column(table, column)
