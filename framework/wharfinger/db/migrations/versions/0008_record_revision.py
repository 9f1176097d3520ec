"""Give each provider record a revision."""

import sqlalchemy as sa

from wharfinger.db.migrations import repeatable_operations

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    repeatable_operations.add_column(
        "provider_records", sa.Column("revision", sa.Integer, nullable=False, server_default="0")
    )
