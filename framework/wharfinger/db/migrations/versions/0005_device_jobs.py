"""Create the table of the jobs that program devices."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from wharfinger.db.migrations import repeatable_operations

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    long_text = sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
    repeatable_operations.create_table(
        "device_jobs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("provider_uuid", sa.String(36), nullable=False),
        sa.Column("provider_name", sa.String(255), nullable=False),
        sa.Column("siblings", long_text, nullable=False),
        sa.Column("driver_instance", sa.String(64), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process_id", sa.Integer, nullable=False),
        sa.Column("image", sa.String(36), nullable=False),
        sa.Column("function", sa.String(255)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("trait", sa.String(255)),
        sa.Column("held_since", sa.DateTime),
        sa.Column("held_trait", sa.String(255)),
        sa.Column("stale_traits", long_text, nullable=False),
        sa.Column("former_traits", long_text, nullable=False),
        sa.Column("problem", long_text),
        sa.Column("started_at", sa.DateTime, nullable=False),
        sa.Column("seen_at", sa.DateTime, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.UniqueConstraint("provider_uuid", name="uniq_device_jobs_provider_uuid"),
    )
