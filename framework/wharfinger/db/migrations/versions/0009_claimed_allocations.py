"""Store the allocations that an instance has claimed."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from wharfinger.db.migrations import repeatable_operations

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    repeatable_operations.add_column(
        "instances",
        sa.Column(
            "claimed_allocations", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
        ),
    )
