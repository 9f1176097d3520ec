"""Create the tables of objects; move provider records into columns."""

import json
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
import sqlalchemy as sa
from alembic import context, op
from oslo_log import log as logging
from sqlalchemy.dialects import mysql

from wharfinger.db.migrations import repeatable_operations

revision = "0002"
down_revision = "0001"

LOG: Final = logging.getLogger(__name__)
_Integer = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_COLUMNS: Final = (
    "driver_instance",
    "provider_uuid",
    "mode",
    "applied",
    "intended",
    "live",
    "own_reserved",
    "reservations",
    "absent_since",
)


class _Inventory(msgspec.Struct):
    total: _Positive
    reserved: _Integer = 0
    min_unit: _Positive = 1
    max_unit: _Positive = 2**31 - 1
    step_size: _Positive = 1
    allocation_ratio: Annotated[float, msgspec.Meta(ge=-3.40282e38, le=3.40282e38)] = 1.0


class _Provider(msgspec.Struct):
    uuid: str
    name: str
    root_uuid: str
    parent_uuid: str | None = None
    generation: int | None = None
    inventories: dict[str, _Inventory] = {}
    traits: list[str] = []
    aggregates: list[str] = []


class _Document(msgspec.Struct):
    applied: _Provider | None = None
    intended: _Provider | None = None
    live: _Provider | None = None
    own_reserved: dict[str, _Integer] = {}
    reservations: list[str] = []
    mode: Literal["own", "overlay"] = "own"
    absent_since: _Seconds | None = None


def upgrade() -> None:
    _create_services()
    _create_compute_nodes()
    _create_flavors()
    _create_instances()
    _create_migrations()
    _create_reservations()
    _move_provider_records()


def _long_text() -> sa.Text:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def _create_services() -> None:
    repeatable_operations.create_table(
        "services",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("binary", sa.String(255), nullable=False),
        sa.Column("topic", sa.String(255), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("disabled_reason", sa.String(255)),
        sa.Column("forced_down", sa.Boolean, nullable=False),
        sa.Column("report_count", sa.Integer, nullable=False),
        sa.Column("last_seen_up", sa.DateTime),
        sa.Column("owners", _long_text(), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False, server_default="0"),
        sa.Column("deleted_at", sa.DateTime),
        sa.UniqueConstraint("uuid", "deleted", name="uniq_services_uuid"),
        sa.UniqueConstraint("host", "binary", "deleted", name="uniq_services_host_binary"),
    )


def _create_compute_nodes() -> None:
    repeatable_operations.create_table(
        "compute_nodes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("hypervisor_hostname", sa.String(255), nullable=False),
        sa.Column("driver_instance", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("vcpus_used", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("memory_mb_used", sa.Integer, nullable=False),
        sa.Column("local_gb", sa.Integer, nullable=False),
        sa.Column("local_gb_used", sa.Integer, nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Double, nullable=False),
        sa.Column("ram_allocation_ratio", sa.Double, nullable=False),
        sa.Column("disk_allocation_ratio", sa.Double, nullable=False),
        sa.Column("capabilities", _long_text(), nullable=False),
        sa.Column("last_seen", sa.DateTime),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("deleted", sa.Integer, nullable=False, server_default="0"),
        sa.Column("deleted_at", sa.DateTime),
        sa.UniqueConstraint("uuid", "deleted", name="uniq_compute_nodes_uuid"),
    )
    repeatable_operations.create_index(
        "idx_compute_nodes_host_driver_instance", "compute_nodes", "host", "driver_instance"
    )


def _create_flavors() -> None:
    repeatable_operations.create_table(
        "flavors",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("flavorid", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("vcpus", sa.Integer, nullable=False),
        sa.Column("memory_mb", sa.Integer, nullable=False),
        sa.Column("root_gb", sa.Integer, nullable=False),
        sa.Column("ephemeral_gb", sa.Integer, nullable=False),
        sa.Column("swap", sa.Integer, nullable=False),
        sa.Column("rxtx_factor", sa.Double, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("is_public", sa.Boolean, nullable=False),
        sa.Column("description", _long_text()),
        sa.Column("extra_specs", _long_text(), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.UniqueConstraint("flavorid", name="uniq_flavors_flavorid"),
        sa.UniqueConstraint("name", name="uniq_flavors_name"),
    )


def _create_instances() -> None:
    repeatable_operations.create_table(
        "instances",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("host", sa.String(255)),
        sa.Column("node", sa.String(255)),
        sa.Column("flavor", _long_text(), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.UniqueConstraint("uuid", name="uniq_instances_uuid"),
    )
    repeatable_operations.create_index("idx_instances_host_node", "instances", "host", "node")


def _create_migrations() -> None:
    repeatable_operations.create_table(
        "migrations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("migration_type", sa.String(255), nullable=False),
        sa.Column("status", sa.String(255), nullable=False),
        sa.Column("source_compute", sa.String(255), nullable=False),
        sa.Column("source_node", sa.String(255), nullable=False),
        sa.Column("dest_compute", sa.String(255)),
        sa.Column("dest_node", sa.String(255)),
        sa.Column("old_flavor", _long_text(), nullable=False),
        sa.Column("new_flavor", _long_text(), nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.Column("updated_at", sa.DateTime),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.UniqueConstraint("uuid", name="uniq_migrations_uuid"),
    )
    repeatable_operations.create_index(
        "idx_migrations_instance_uuid", "migrations", "instance_uuid"
    )
    repeatable_operations.create_index("idx_migrations_status", "migrations", "status")


def _create_reservations() -> None:
    repeatable_operations.create_table(
        "reservations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("provider_uuid", sa.String(36), nullable=False),
        sa.Column("reason", sa.String(255), nullable=False),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.Column("expected_end", sa.DateTime),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.UniqueConstraint("uuid", name="uniq_reservations_uuid"),
        sa.UniqueConstraint("provider_uuid", "holder", name="uniq_reservations_provider_holder"),
    )


def _move_provider_records() -> None:
    if repeatable_operations.has_column("provider_records", "document"):
        op.rename_table("provider_records", "provider_documents")
    repeatable_operations.create_table(
        "provider_records",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("driver_instance", sa.String(64), nullable=False),
        sa.Column("provider_uuid", sa.String(36), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("applied", _long_text()),
        sa.Column("intended", _long_text()),
        sa.Column("live", _long_text()),
        sa.Column("own_reserved", _long_text(), nullable=False),
        sa.Column("reservations", _long_text(), nullable=False),
        sa.Column("absent_since", sa.Double),
        sa.UniqueConstraint(
            "host", "driver_instance", "provider_uuid", name="uniq_provider_records_key"
        ),
    )
    if repeatable_operations.has_table("provider_documents") and _move_documents():
        op.drop_table("provider_documents")


def _move_documents() -> bool:
    names = ("instance", "uuid", "document")
    documents = sa.table("provider_documents", *map(sa.column, names))
    records = sa.table("provider_records", *map(sa.column, ("host", *_COLUMNS)))
    host = context.config.attributes["host"]
    connection = op.get_bind()
    rows = connection.execute(sa.select(documents)).all()
    moved = []
    for row in rows:
        try:
            moved.append({"host": host, **_record(*row)})
        except (ValueError, TypeError, RecursionError) as error:
            LOG.error(
                "The database upgrade cannot read the record that driver instance %s has of "
                "provider %s: %s. The record stays in the table provider_documents. The next "
                "cycle finds the provider by its traits in Placement. If the driver no longer "
                "lists the provider, the cycle reports the provider instead of deleting it.",
                row.instance,
                row.uuid,
                error,
            )
    if moved:
        connection.execute(sa.insert(records), moved)
        connection.execute(
            sa.delete(documents).where(
                documents.c.instance == sa.bindparam("driver_instance"),
                documents.c.uuid == sa.bindparam("provider_uuid"),
            ),
            moved,
        )
    return len(moved) == len(rows)


def _record(instance: str, uuid: str, document: bytes) -> dict[str, Any]:
    UUID(uuid)
    parts = msgspec.json.decode(document, type=_Document)
    return {
        "driver_instance": instance,
        "provider_uuid": uuid,
        "mode": parts.mode,
        "applied": _text(parts.applied),
        "intended": _text(parts.intended),
        "live": _text(parts.live),
        "own_reserved": json.dumps(parts.own_reserved),
        "reservations": json.dumps(parts.reservations),
        "absent_since": parts.absent_since,
    }


def _text(provider: _Provider | None) -> str | None:
    return None if provider is None else msgspec.json.encode(provider).decode()
