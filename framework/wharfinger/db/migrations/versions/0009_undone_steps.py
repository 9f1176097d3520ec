"""What another program has undone of a provider, and how often."""

import sqlalchemy as sa

from wharfinger.db.migrations import repeatable_operations

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Take the step."""
    repeatable_operations.add_column("provider_records", sa.Column("undone", sa.Text))
