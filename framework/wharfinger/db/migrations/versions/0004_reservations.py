"""Store more details of reservations."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from wharfinger.db.migrations import repeatable_operations

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    text = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
    repeatable_operations.add_column("reservations", sa.Column("own_reserved", text))
    repeatable_operations.add_column("reservations", sa.Column("consumer_uuid", sa.String(36)))
    repeatable_operations.add_column("reservations", sa.Column("phase", sa.String(16)))
    repeatable_operations.add_column("provider_records", sa.Column("reserved_since", text))
