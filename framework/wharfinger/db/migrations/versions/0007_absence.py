"""Start of the absence of a provider, in uptime."""

import sqlalchemy as sa

from wharfinger.db.migrations import steps

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Take the step."""
    steps.add_column("provider_records", sa.Column("absence", sa.String(255)))
