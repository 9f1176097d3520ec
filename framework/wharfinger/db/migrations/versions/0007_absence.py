"""Store the start of an absence also in uptime of the host."""

import sqlalchemy as sa

from wharfinger.db.migrations import repeatable_operations

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    repeatable_operations.add_column("provider_records", sa.Column("absence", sa.String(255)))
