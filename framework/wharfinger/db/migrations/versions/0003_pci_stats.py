"""Store counts of a node's PCI devices."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from wharfinger.db.migrations import repeatable_operations

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    repeatable_operations.add_column(
        "compute_nodes",
        sa.Column("pci_stats", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")),
    )
