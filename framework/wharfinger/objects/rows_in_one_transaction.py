"""Read the state of a driver instance or of providers, in one transaction."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar

from wharfinger.db.row_statements import Rows
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, WharfingerObject, register
from wharfinger.objects.compute_node import ComputeNode
from wharfinger.objects.database_context import Context
from wharfinger.objects.device_job import DeviceJob
from wharfinger.objects.instance import Instance
from wharfinger.objects.migration import Migration, rows_in_progress
from wharfinger.objects.persistence import RowObject
from wharfinger.objects.provider_record import ProviderRecord
from wharfinger.objects.reservation import Reservation
from wharfinger.objects.service import AGENT_BINARY, Service

_Row = TypeVar("_Row", bound=RowObject)
_Revisions = Mapping[str, int]


@register
class HostState(WharfingerObject):
    """State of one driver instance on one host, at one moment.

    - ``service_disabled``: whether the service of the host is disabled; None if unknown.
    - ``node_revisions``: the revisions of the driver instance's nodes on the host, by uuid.
    - ``nodes``: the nodes that the caller does not have in this revision.
    - ``instance_revisions``: the revisions of all instances on the host, by uuid.
    - ``instances``: the instances that the caller does not have in this revision.
    - ``migrations``: the moves in progress from or to the host.
    - ``record_revisions``: the revisions of the driver instance's provider records on the host, by
      provider uuid.
    - ``records``: the records that the caller does not have in this revision.
    - ``reservations``: the reservations of the driver instance's providers on the host.
    - ``jobs``: the programming jobs of these providers and of the driver instance, if requested.
    """

    HISTORY = (Step("1.0", "first version"), Step("1.1", "Instance 1.2, ProviderRecord 1.4"))
    service_disabled: bool | None
    node_revisions: dict[str, int]
    nodes: list[ComputeNode]
    instance_revisions: dict[str, int]
    instances: list[Instance]
    migrations: list[Migration]
    record_revisions: dict[str, int]
    records: list[ProviderRecord]
    reservations: list[Reservation]
    jobs: list[DeviceJob]
    fields = {
        "service_disabled": field_types.flag(nullable=True),
        "node_revisions": field_types.counts_by_name(),
        "nodes": field_base.ListOfObjectsField("ComputeNode"),
        "instance_revisions": field_types.counts_by_name(),
        "instances": field_base.ListOfObjectsField("Instance"),
        "migrations": field_base.ListOfObjectsField("Migration"),
        "record_revisions": field_types.counts_by_name(),
        "records": field_base.ListOfObjectsField("ProviderRecord"),
        "reservations": field_base.ListOfObjectsField("Reservation"),
        "jobs": field_base.ListOfObjectsField("DeviceJob"),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "nodes": [("1.0", "1.1")],
        "instances": [("1.0", "1.1"), ("1.1", "1.2")],
        "migrations": [("1.0", "1.1")],
        "records": [("1.0", "1.3"), ("1.1", "1.4")],
        "reservations": [("1.0", "1.1")],
        "jobs": [("1.0", "1.0")],
    }

    @classmethod
    @base.remotable
    def get(
        cls,
        context: Context,
        host: str,
        driver_instance: str,
        known: Mapping[str, Mapping[str, int]],
        with_jobs: bool = False,
        *,
        binary: str = AGENT_BINARY,
    ) -> Self:
        """Return the state, without the objects whose revisions are ``known``.

        ``known`` has revisions by key for ``nodes``, ``instances`` and ``records``.
        """
        kinds = [Service, ComputeNode, Instance, Migration, ProviderRecord, Reservation]
        tables = [kind.TABLE for kind in kinds] + ([DeviceJob.TABLE] if with_jobs else [])
        ours = {"host": host, "driver_instance": driver_instance}

        def read(*rows: Rows) -> dict[str, Any]:
            services, nodes, instances, migrations, records, reservations, *jobs = rows
            service = services.select({"host": host, "binary": binary})
            providers = {ProviderRecord.KEY: records.values(ProviderRecord.KEY, ours)}
            found: dict[str, Any] = {
                "service_disabled": _is_disabled(_objects(context, Service, service)),
                "migrations": _objects(context, Migration, rows_in_progress(migrations, host)),
                "reservations": _objects(context, Reservation, reservations.select(providers)),
                "jobs": [job for some in jobs for job in _jobs(context, some, ours, providers)],
            }
            for name, kind, some, where in (
                ("node", ComputeNode, nodes, ours),
                ("instance", Instance, instances, {"host": host}),
                ("record", ProviderRecord, records, ours),
            ):
                found[f"{name}_revisions"], found[f"{name}s"] = _changed(
                    context, kind, some, where, known.get(f"{name}s", {})
                )
            return found

        state = cls(context, **context.db.read(tables, read))
        state.obj_reset_changes()
        return state


@register
class ProviderState(WharfingerObject):
    """Records, reservations and nodes of some providers, at one moment.

    - ``records``: the records of the providers, of all hosts and driver instances.
    - ``reservations``: the reservations of the providers.
    - ``nodes``: the nodes of the requested root providers.
    """

    HISTORY = (Step("1.0", "first version"), Step("1.1", "ProviderRecord 1.4"))
    records: list[ProviderRecord]
    reservations: list[Reservation]
    nodes: list[ComputeNode]
    fields = {
        "records": field_base.ListOfObjectsField("ProviderRecord"),
        "reservations": field_base.ListOfObjectsField("Reservation"),
        "nodes": field_base.ListOfObjectsField("ComputeNode"),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "records": [("1.0", "1.3"), ("1.1", "1.4")],
        "reservations": [("1.0", "1.1")],
        "nodes": [("1.0", "1.1")],
    }

    @classmethod
    @base.remotable
    def get(
        cls, context: Context, provider_uuids: Iterable[str], root_uuids: Iterable[str]
    ) -> Self:
        """Return the records and reservations of providers, and the nodes of root providers."""
        providers = {"provider_uuid": list(provider_uuids)}
        roots = {"uuid": list(root_uuids)}

        def read(records: Rows, reservations: Rows, nodes: Rows) -> dict[str, Any]:
            return {
                "records": _objects(context, ProviderRecord, records.select(providers)),
                "reservations": _objects(context, Reservation, reservations.select(providers)),
                "nodes": _objects(context, ComputeNode, nodes.select(roots)),
            }

        tables = [kind.TABLE for kind in (ProviderRecord, Reservation, ComputeNode)]
        state = cls(context, **context.db.read(tables, read))
        state.obj_reset_changes()
        return state


def _jobs(context: Context, rows: Rows, *conditions: Mapping[str, Any]) -> list[DeviceJob]:
    found = {row["id"]: row for where in conditions for row in rows.select(where)}
    return _objects(context, DeviceJob, found.values())


def _changed(
    context: Context, kind: type[_Row], rows: Rows, where: Mapping[str, Any], known: _Revisions
) -> tuple[dict[str, int], list[_Row]]:
    found = rows.revisions(kind.KEY, where) if rows.has("revision") else None
    if not found:
        return {}, [] if found is not None else _objects(context, kind, rows.select(where))
    changed = {key for key, revision in found.items() if known.get(key) != revision}
    # A condition with many keys takes longer than reading all rows.
    few = 2 * len(changed) <= len(found)
    selected = (
        rows.select({**where, kind.KEY: sorted(changed)} if few else where) if changed else []
    )
    objects = _objects(context, kind, [row for row in selected if row[kind.KEY] in changed])
    damaged = {row[kind.KEY] for row in selected if not _is_revision(row["revision"])}
    return {key: revision for key, revision in found.items() if key not in damaged}, objects


def _is_revision(value: object) -> bool:
    return type(value) is int and 0 <= value <= field_types.MAX_COUNT


def _objects(context: Context, kind: type[_Row], rows: Iterable[Mapping[str, Any]]) -> list[_Row]:
    return [kind._from_row(context, row) for row in rows]


def _is_disabled(services: Iterable[Service]) -> bool | None:
    for service in services:
        return service.disabled if "disabled" in service else None
    return False
