"""Create the table of provider records."""

import sqlalchemy as sa

from wharfinger.db.migrations import repeatable_operations

revision = "0001"
down_revision = None


def upgrade() -> None:
    repeatable_operations.create_table(
        "provider_records",
        sa.Column("instance", sa.String(64), primary_key=True),
        sa.Column("uuid", sa.String(36), primary_key=True),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
