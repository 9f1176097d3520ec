"""Add the columns task_state and updated_at to instances."""

import sqlalchemy as sa

from wharfinger.db.migrations import repeatable_operations

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    repeatable_operations.add_column("instances", sa.Column("task_state", sa.String(255)))
    repeatable_operations.add_column("instances", sa.Column("updated_at", sa.DateTime))
