"""Store published values that other programs undo."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from wharfinger.db.migrations import repeatable_operations

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    text = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
    repeatable_operations.add_column("provider_records", sa.Column("undone", text))
