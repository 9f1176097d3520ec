"""Batches of the database changes of a reconcile cycle, each saved in one transaction."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final

from wharfinger.db.row_statements import Rows
from wharfinger.db.tables import INSTANCE
from wharfinger.exceptions import ConcurrentSave, ObjectExists
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, WharfingerObject, register
from wharfinger.objects.compute_node import NODE_COLUMNS, ComputeNode
from wharfinger.objects.instance import Instance
from wharfinger.objects.migration import Migration
from wharfinger.objects.persistence import KeptObject, stale_keys, write_checked
from wharfinger.objects.provider_record import ProviderRecord
from wharfinger.objects.reservation import Reservation
from wharfinger.objects.service import AGENT_BINARY, Service

#: Every transaction locks rows in this order of tables, and by key within a table.
_TABLES: Final = tuple(
    kind.TABLE for kind in (Service, ComputeNode, ProviderRecord, Reservation, Instance, Migration)
)


@register
class RecordBatch(WharfingerObject):
    """Changes of provider records, nodes and reservations, all saved in one transaction.

    Each batch is saved only once.

    - ``host``, ``driver_instance``: the service host and the driver instance of the records.
    - ``records``: the provider records to write.
    - ``forgotten``: the revisions of the records to delete, by provider uuid.
    - ``our_nodes``: the uuids of nodes that must still belong to the driver instance.
    - ``new_nodes``, ``changed_nodes``: the nodes to create, and to save.
    - ``reserved_providers``: the uuids of providers that must have no reservations except
      ``known_reservations``.
    - ``known_reservations``: the revisions that reservations must still have, by uuid.
    - ``reservation_providers``: the provider uuids of reservations, by uuid of the reservation.
    - ``new_reservations``, ``changed_reservations``: the reservations to create, and to save.
    - ``ended``: the revisions of the reservations to delete, by uuid.
    - ``reports_service``: whether to store also that the host's service is up.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.1", "ProviderRecord 1.4"),
        Step("1.2", "the new names of nodes in their instances and moves"),
    )
    host: str
    driver_instance: str
    records: list[ProviderRecord]
    forgotten: dict[str, int]
    our_nodes: list[str]
    new_nodes: list[ComputeNode]
    changed_nodes: list[ComputeNode]
    reserved_providers: list[str]
    known_reservations: dict[str, int]
    reservation_providers: dict[str, str]
    new_reservations: list[Reservation]
    changed_reservations: list[Reservation]
    ended: dict[str, int]
    reports_service: bool
    fields = {
        "host": field_types.name(),
        "driver_instance": field_types.text(INSTANCE),
        "records": field_base.ListOfObjectsField("ProviderRecord", default=[]),
        "forgotten": field_types.counts_by_name(default={}),
        "our_nodes": field_types.texts(default=[]),
        "new_nodes": field_base.ListOfObjectsField("ComputeNode", default=[]),
        "changed_nodes": field_base.ListOfObjectsField("ComputeNode", default=[]),
        "reserved_providers": field_types.texts(default=[]),
        "known_reservations": field_types.counts_by_name(default={}),
        "reservation_providers": field_types.texts_by_name(default={}),
        "new_reservations": field_base.ListOfObjectsField("Reservation", default=[]),
        "changed_reservations": field_base.ListOfObjectsField("Reservation", default=[]),
        "ended": field_types.counts_by_name(default={}),
        "reports_service": field_types.flag(default=False),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "records": [("1.0", "1.3"), ("1.1", "1.4")],
        "new_nodes": [("1.0", "1.1")],
        "changed_nodes": [("1.0", "1.1")],
        "new_reservations": [("1.0", "1.1")],
        "changed_reservations": [("1.0", "1.1")],
    }

    @base.remotable
    def save(self) -> None:
        """Write all changes, or none; raises ObjectExists.

        Raises ConcurrentSave with the uuids of stale nodes and providers.
        """
        self.obj_set_defaults()
        self._note_written(write_checked(self._context.db, _TABLES, self._write))

    def _write(
        self, services: Rows, nodes: Rows, records: Rows, reservations: Rows, *followers: Rows
    ) -> bool:
        if self.reports_service:
            Service.report_in(services, self.host, AGENT_BINARY)
        stale = {
            *self._stale_nodes(nodes),
            *(self._stale_records(records) if records.has("revision") else ()),
            *self._stale_reservations(reservations),
        }
        # The rows of these reads are not locked. On MySQL, a read without locks sees the database
        # as it was at the first such read of the transaction: it has to follow the reads that lock
        # rows.
        stale.update(nodes.existing({}, ComputeNode.KEY, [one.key for one in self.new_nodes]))
        if records.has("revision"):
            new = [one.key for one in self.records if one.is_new]
            stale.update(records.existing(self._scope, ProviderRecord.KEY, new))
        stale.update(self._unknown_reservations(reservations))
        if stale:
            raise ConcurrentSave(kind="node or provider", keys=sorted(stale))
        self._refuse_second_reservation(reservations)
        names = self._new_names_by_old(nodes)
        self._write_nodes(nodes)
        self._write_records(records)
        self._write_reservations(reservations)
        if names:
            self._rename_in_instances_and_moves(names, *followers)
        return records.has("revision")

    @property
    def _scope(self) -> dict[str, Any]:
        return {"host": self.host, "driver_instance": self.driver_instance}

    def _stale_nodes(self, nodes: Rows) -> Iterator[str]:
        revisions = {one.key: one.revision for one in self.changed_nodes}
        ours = set(self.our_nodes)
        columns = ["revision", *self._scope]
        held = nodes.hold(ComputeNode.KEY, ours | revisions.keys(), {}, columns)
        yield from stale_keys(held, revisions)
        for uuid in ours:
            if uuid not in held or not self._scope.items() <= held[uuid].items():
                yield uuid

    def _stale_records(self, records: Rows) -> Iterator[str]:
        revisions = {one.key: one.revision for one in self.records if not one.is_new}
        keys = revisions.keys() | self.forgotten.keys()
        held = records.hold(ProviderRecord.KEY, keys, self._scope, ["revision"])
        yield from stale_keys(held, revisions)
        # A record to delete may have been deleted already.
        yield from stale_keys(
            held, {key: self.forgotten[key] for key in self.forgotten if key in held}
        )

    def _stale_reservations(self, reservations: Rows) -> Iterator[str]:
        changed = {one.key: one for one in self.changed_reservations}
        revisions = {
            **self.known_reservations,
            **self.ended,
            **{key: one.revision for key, one in changed.items()},
        }
        held = reservations.hold(Reservation.KEY, revisions, {}, ["revision", "provider_uuid"])
        known = {key: one.provider_uuid for key, one in changed.items()}
        known |= self.reservation_providers
        known |= {key: row["provider_uuid"] for key, row in held.items()}
        for key in stale_keys(held, revisions):
            # If the reservation's provider is unknown, each of the providers may be the changed
            # one.
            yield from [known[key]] if key in known else self.reserved_providers or [key]

    def _unknown_reservations(self, reservations: Rows) -> Iterator[str]:
        for row in reservations.select({"provider_uuid": self.reserved_providers}):
            if row["uuid"] not in self.known_reservations:
                yield row["provider_uuid"]

    def _refuse_second_reservation(self, reservations: Rows) -> None:
        new = {(one.provider_uuid, one.holder) for one in self.new_reservations}
        for row in reservations.select({"provider_uuid": [provider for provider, _ in new]}):
            pair = row["provider_uuid"], row["holder"]
            if pair in new and row["uuid"] not in self.ended:
                raise ObjectExists(
                    kind=Reservation.obj_name(), key=" ".join(pair), unique=Reservation.UNIQUE
                )

    def _write_nodes(self, nodes: Rows) -> None:
        nodes.update(ComputeNode.KEY, [one._change() for one in _changed(self.changed_nodes)])
        nodes.insert(_new_rows(self.new_nodes))

    def _write_records(self, records: Rows) -> None:
        rows = {one.key: one.row() for one in self.records if one.is_new or one.has_changes}
        existing = {one.key for one in self.records if not one.is_new} | self.forgotten.keys()
        if not records.has("revision"):
            existing = records.existing(self._scope, ProviderRecord.KEY, {*rows, *self.forgotten})
        records.put(
            self._scope, ProviderRecord.KEY, {**dict.fromkeys(self.forgotten), **rows}, existing
        )

    def _write_reservations(self, reservations: Rows) -> None:
        changed = [one._change() for one in _changed(self.changed_reservations)]
        reservations.delete(Reservation.KEY, self.ended)
        reservations.update(Reservation.KEY, changed)
        reservations.insert(_new_rows(self.new_reservations))

    def _new_names_by_old(self, nodes: Rows) -> dict[str, str]:
        field = "hypervisor_hostname"
        new = {one.key: one.hypervisor_hostname for one in self.changed_nodes if one.is_renamed}
        held = nodes.hold(ComputeNode.KEY, new, {}, [field])
        return {held[key][field]: name for key, name in new.items() if held[key][field] != name}

    def _rename_in_instances_and_moves(
        self, names: Mapping[str, str], instances: Rows, migrations: Rows
    ) -> None:
        saved = {"updated_at": Instance._wanted("updated_at", field_types.now())}
        tables = {Instance.TABLE: instances, Migration.TABLE: migrations}
        for table, host, node, condition in NODE_COLUMNS:
            rows = tables[table]
            found: dict[str, list[str]] = {}
            wanted = {host: self.host, node: list(names), **condition}
            for row in rows.select(wanted, lock=True):
                found.setdefault(row[node], []).append(row["uuid"])
            for name, uuids in found.items():
                # Nodes may swap names, so the name alone does not identify the rows.
                rows.touch({node: names[name], **saved}, {"revision"}, {"uuid": uuids})

    def _note_written(self, has_revisions: bool) -> None:
        for one in (*self.new_nodes, *self.new_reservations):
            one._context = self._context
            one._created()
        for one in (*_changed(self.changed_nodes), *_changed(self.changed_reservations)):
            one._saved()
        for record in self.records:
            if record.is_new or record.has_changes:
                record.note_written(self.host, self.driver_instance, has_revisions)
        self.obj_reset_changes()


def _changed(objects: Iterable[Any]) -> list[Any]:
    return list({id(one): one for one in objects if one.obj_what_changed()}.values())


def _new_rows(objects: Iterable[KeptObject]) -> list[dict[str, Any]]:
    rows = [one._new_row() for one in objects]
    return sorted(rows, key=lambda row: str(row["uuid"]))  # a fixed order prevents deadlocks
