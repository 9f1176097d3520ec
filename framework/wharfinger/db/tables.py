"""Tables of the database; the versioned objects describe the columns.

Older releases use the tables, too: a new column is nullable or has a server default.
"""

from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

METADATA: Final = sa.MetaData()

#: The largest number of characters of a name, as in nova.
NAME: Final = 255
#: The largest number of characters of a driver instance's name.
INSTANCE: Final = 64


def long_text() -> sa.Text:
    """Return the column type for texts that may exceed 64 KiB."""
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


class _Time(sa.TypeDecorator[Any]):
    impl = sa.DateTime
    cache_ok = True

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any] | None:
        # DateTime's function would fail the whole query for a damaged value.
        process = super().result_processor(dialect, coltype)
        if process is None:
            return None

        def read(value: Any) -> Any:
            try:
                return process(value)
            except (TypeError, ValueError):
                return value

        return read


def _table(name: str, *parts: "sa.Column[Any] | sa.Constraint | sa.Index") -> sa.Table:
    return sa.Table(
        name,
        METADATA,
        sa.Column("id", sa.Integer, primary_key=True),
        *parts,
        # Names are case-sensitive.
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mysql_engine="InnoDB",
    )


def _uuid(name: str = "uuid") -> sa.Column[str]:
    return sa.Column(name, sa.String(36), nullable=False)


def _revision() -> sa.Column[int]:
    return sa.Column("revision", sa.Integer, nullable=False)


def _soft_deletion() -> tuple[sa.Column[Any], sa.Column[Any]]:
    return (
        sa.Column("deleted", sa.Integer, nullable=False, server_default="0"),
        sa.Column("deleted_at", _Time),
    )


SERVICES: Final = _table(
    "services",
    _uuid(),
    sa.Column("host", sa.String(NAME), nullable=False),
    sa.Column("binary", sa.String(NAME), nullable=False),
    sa.Column("topic", sa.String(NAME), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("disabled_reason", sa.String(NAME)),
    sa.Column("forced_down", sa.Boolean, nullable=False),
    sa.Column("report_count", sa.Integer, nullable=False),
    sa.Column("last_seen_up", _Time),
    sa.Column("owners", long_text(), nullable=False),
    _revision(),
    *_soft_deletion(),
    sa.UniqueConstraint("uuid", "deleted", name="uniq_services_uuid"),
    sa.UniqueConstraint("host", "binary", "deleted", name="uniq_services_host_binary"),
)

COMPUTE_NODES: Final = _table(
    "compute_nodes",
    _uuid(),
    sa.Column("host", sa.String(NAME), nullable=False),
    sa.Column("hypervisor_hostname", sa.String(NAME), nullable=False),
    sa.Column("driver_instance", sa.String(INSTANCE), nullable=False),
    sa.Column("owner", sa.String(NAME), nullable=False),
    *(
        sa.Column(name, sa.Integer, nullable=False)
        for kind in ("vcpus", "memory_mb", "local_gb")
        for name in (kind, f"{kind}_used")
    ),
    *(
        sa.Column(f"{kind}_allocation_ratio", sa.Double, nullable=False)
        for kind in ("cpu", "ram", "disk")
    ),
    sa.Column("capabilities", long_text(), nullable=False),
    sa.Column("last_seen", _Time),
    sa.Column("pci_stats", long_text()),
    _revision(),
    *_soft_deletion(),
    sa.UniqueConstraint("uuid", "deleted", name="uniq_compute_nodes_uuid"),
    sa.Index("idx_compute_nodes_host_driver_instance", "host", "driver_instance"),
)

FLAVORS: Final = _table(
    "flavors",
    sa.Column("flavorid", sa.String(NAME), nullable=False),
    sa.Column("name", sa.String(NAME), nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("root_gb", sa.Integer, nullable=False),
    sa.Column("ephemeral_gb", sa.Integer, nullable=False),
    sa.Column("swap", sa.Integer, nullable=False),
    sa.Column("rxtx_factor", sa.Double, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("is_public", sa.Boolean, nullable=False),
    sa.Column("description", long_text()),
    sa.Column("extra_specs", long_text(), nullable=False),
    _revision(),
    sa.UniqueConstraint("flavorid", name="uniq_flavors_flavorid"),
    sa.UniqueConstraint("name", name="uniq_flavors_name"),
)

INSTANCES: Final = _table(
    "instances",
    _uuid(),
    sa.Column("project_id", sa.String(NAME), nullable=False),
    sa.Column("user_id", sa.String(NAME), nullable=False),
    sa.Column("host", sa.String(NAME)),
    sa.Column("node", sa.String(NAME)),
    sa.Column("flavor", long_text(), nullable=False),
    sa.Column("task_state", sa.String(NAME)),
    sa.Column("updated_at", _Time),
    sa.Column("claimed_allocations", long_text()),
    _revision(),
    sa.UniqueConstraint("uuid", name="uniq_instances_uuid"),
    sa.Index("idx_instances_host_node", "host", "node"),
)

MIGRATIONS: Final = _table(
    "migrations",
    _uuid(),
    _uuid("instance_uuid"),
    sa.Column("migration_type", sa.String(NAME), nullable=False),
    sa.Column("status", sa.String(NAME), nullable=False),
    sa.Column("source_compute", sa.String(NAME), nullable=False),
    sa.Column("source_node", sa.String(NAME), nullable=False),
    sa.Column("dest_compute", sa.String(NAME)),
    sa.Column("dest_node", sa.String(NAME)),
    sa.Column("old_flavor", long_text(), nullable=False),
    sa.Column("new_flavor", long_text(), nullable=False),
    sa.Column("created_at", _Time, nullable=False),
    sa.Column("updated_at", _Time),
    _revision(),
    sa.UniqueConstraint("uuid", name="uniq_migrations_uuid"),
    sa.Index("idx_migrations_instance_uuid", "instance_uuid"),
    sa.Index("idx_migrations_status", "status"),
)

RESERVATIONS: Final = _table(
    "reservations",
    _uuid(),
    _uuid("provider_uuid"),
    sa.Column("reason", sa.String(NAME), nullable=False),
    sa.Column("holder", sa.String(NAME), nullable=False),
    sa.Column("since", _Time, nullable=False),
    sa.Column("expected_end", _Time),
    sa.Column("own_reserved", long_text()),
    sa.Column("consumer_uuid", sa.String(36)),
    sa.Column("phase", sa.String(16)),
    _revision(),
    sa.UniqueConstraint("uuid", name="uniq_reservations_uuid"),
    sa.UniqueConstraint("provider_uuid", "holder", name="uniq_reservations_provider_holder"),
)

DEVICE_JOBS: Final = _table(
    "device_jobs",
    _uuid("provider_uuid"),
    sa.Column("provider_name", sa.String(NAME), nullable=False),
    sa.Column("siblings", long_text(), nullable=False),
    sa.Column("driver_instance", sa.String(INSTANCE), nullable=False),
    sa.Column("host", sa.String(NAME), nullable=False),
    sa.Column("process_id", sa.Integer, nullable=False),
    sa.Column("image", sa.String(36), nullable=False),
    sa.Column("function", sa.String(NAME)),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("trait", sa.String(NAME)),
    sa.Column("held_since", _Time),
    sa.Column("held_trait", sa.String(NAME)),
    sa.Column("stale_traits", long_text(), nullable=False),
    sa.Column("former_traits", long_text(), nullable=False),
    sa.Column("problem", long_text()),
    sa.Column("started_at", _Time, nullable=False),
    sa.Column("seen_at", _Time, nullable=False),
    _revision(),
    sa.UniqueConstraint("provider_uuid", name="uniq_device_jobs_provider_uuid"),
)

PROVIDER_RECORDS: Final = _table(
    "provider_records",
    sa.Column("host", sa.String(NAME), nullable=False),
    sa.Column("driver_instance", sa.String(INSTANCE), nullable=False),
    _uuid("provider_uuid"),
    sa.Column("mode", sa.String(16), nullable=False),
    sa.Column("applied", long_text()),
    sa.Column("intended", long_text()),
    sa.Column("live", long_text()),
    sa.Column("own_reserved", long_text(), nullable=False),
    sa.Column("reservations", long_text(), nullable=False),
    sa.Column("reserved_since", long_text()),
    sa.Column("absent_since", sa.Double),
    sa.Column("absence", sa.String(NAME)),
    sa.Column("undone", long_text()),
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
    sa.UniqueConstraint(
        "host", "driver_instance", "provider_uuid", name="uniq_provider_records_key"
    ),
)
