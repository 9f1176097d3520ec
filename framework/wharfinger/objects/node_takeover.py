"""Move nodes, with the rows that depend on them, to another host or driver instance."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar, Final

from wharfinger.db.row_statements import Change, Following, Rows
from wharfinger.db.tables import INSTANCE
from wharfinger.exceptions import ConcurrentSave
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, WharfingerObject, register
from wharfinger.objects.compute_node import ComputeNode, following
from wharfinger.objects.device_job import DeviceJob
from wharfinger.objects.instance import Instance
from wharfinger.objects.migration import Migration
from wharfinger.objects.persistence import stale_keys, write_checked
from wharfinger.objects.provider_record import ProviderRecord
from wharfinger.objects.service import AGENT_BINARY, Service

#: The tables in the order of their locks, which is also that of RecordBatch.
_TABLES: Final = tuple(
    kind.TABLE for kind in (Service, ComputeNode, ProviderRecord, Instance, Migration, DeviceJob)
)


@register
class Takeover(WharfingerObject):
    """Nodes that a driver instance takes over, with their instances, moves and provider records.

    - ``host``, ``driver_instance``: the service host and the driver instance that take over.
    - ``nodes``: the nodes to take over.
    - ``records``: the provider records to take over.
    - ``superseded``: the revisions of older records for ``host`` and ``driver_instance``, which are
      deleted, by provider uuid.
    - ``down_hosts``: hosts whose services must be down.
    - ``down_time``: the seconds without a report after which a service counts as down.
    """

    HISTORY = (Step("1.0", "first version"), Step("1.1", "ProviderRecord 1.4"))
    host: str
    driver_instance: str
    nodes: list[ComputeNode]
    records: list[ProviderRecord]
    superseded: dict[str, int]
    down_hosts: list[str]
    down_time: float
    fields = {
        "host": field_types.name(),
        "driver_instance": field_types.text(INSTANCE),
        "nodes": field_base.ListOfObjectsField("ComputeNode", default=[]),
        "records": field_base.ListOfObjectsField("ProviderRecord", default=[]),
        "superseded": field_types.counts_by_name(default={}),
        "down_hosts": field_types.texts(default=[]),
        "down_time": field_types.ratio(default=0.0),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "nodes": [("1.0", "1.1")],
        "records": [("1.0", "1.3"), ("1.1", "1.4")],
    }

    @base.remotable
    def save(self) -> None:
        """Assign all nodes and records to the new driver instance, or none.

        Raises ConcurrentSave with the uuids of the affected nodes and providers.
        """
        self.obj_set_defaults()
        has_revisions = write_checked(self._context.db, _TABLES, self._write)
        for node in self.nodes:
            node.host, node.driver_instance = self.host, self.driver_instance
            node._saved()
        for record in self.records:
            record.absence = record.absent_since = None
            record.note_written(self.host, self.driver_instance, has_revisions)
        self.obj_reset_changes()

    def _write(self, services: Rows, nodes: Rows, records: Rows, *others: Rows) -> bool:
        stale = {
            *self._nodes_of_hosts_up(services),
            *self._stale_nodes(nodes),
            *self._stale_records(records),
        }
        if stale:
            raise ConcurrentSave(kind="node or provider", keys=sorted(stale))
        nodes.update(ComputeNode.KEY, [self._change(node) for node in self.nodes])
        self._move_records(records)
        tables = dict(zip(_TABLES[-len(others) :], others, strict=True))
        for one in self._following():
            tables[one.table].touch(one.values, {"revision"}, one.where)
        for (host, instance), theirs in sorted(self._records_by_scope().items()):
            where = {**_where((host, instance)), DeviceJob.KEY: [one.key for one in theirs]}
            tables[DeviceJob.TABLE].touch(self._new_scope, ["revision"], where)
        return records.has("revision")

    @property
    def _new_scope(self) -> dict[str, Any]:
        return {"host": self.host, "driver_instance": self.driver_instance}

    def _nodes_of_hosts_up(self, services: Rows) -> Iterator[str]:
        within = timedelta(seconds=self.down_time)
        held = services.hold("host", set(self.down_hosts), {"binary": AGENT_BINARY})
        for host, row in held.items():
            if Service._from_row(self._context, row).may_be_up(within):
                theirs = [node.uuid for node in self.nodes if node.host == host]
                yield from theirs or [one.key for one in (*self.nodes, *self.records)]

    def _stale_nodes(self, nodes: Rows) -> Iterator[str]:
        revisions = {node.uuid: node.revision for node in self.nodes}
        yield from stale_keys(nodes.hold(ComputeNode.KEY, revisions, {}, ["revision"]), revisions)

    def _stale_records(self, records: Rows) -> Iterator[str]:
        if not records.has("revision"):
            return
        by_scope = self._records_by_scope()
        taker = (self.host, self.driver_instance)
        for scope in sorted({*by_scope, taker}):  # the same order in each transaction
            revisions = {
                one.key: None if one.is_new else one.revision for one in by_scope.get(scope, ())
            }
            older = self.superseded if scope == taker else {}
            keys = revisions.keys() | older.keys()
            held = records.hold(ProviderRecord.KEY, keys, _where(scope), ["revision"])
            yield from stale_keys(held, revisions)
            # A superseded record may have been deleted already.
            yield from stale_keys(held, {key: older[key] for key in older.keys() & held.keys()})
        others = [one.key for one in self.records if one.key not in self.superseded]
        yield from records.existing(self._new_scope, ProviderRecord.KEY, others)

    def _change(self, node: ComputeNode) -> Change:
        values = {**node._row(node.obj_what_changed() - {"revision"}), **self._new_scope}
        return Change(node.uuid, node.revision, values)

    def _move_records(self, records: Rows) -> None:
        older = dict.fromkeys(self.superseded)
        there = records.existing(self._new_scope, ProviderRecord.KEY, older)
        records.put(self._new_scope, ProviderRecord.KEY, older, there)
        moved = {**self._new_scope, "absence": None, "absent_since": None}
        for scope, theirs in sorted(self._records_by_scope().items()):
            where = {**_where(scope), ProviderRecord.KEY: [one.key for one in theirs]}
            records.touch(moved, ["revision"], where)

    def _records_by_scope(self) -> dict[tuple[str, str], list[ProviderRecord]]:
        found: dict[tuple[str, str], list[ProviderRecord]] = {}
        for one in self.records:
            found.setdefault((one.host, one.driver_instance), []).append(one)
        return found

    def _following(self) -> list[Following]:
        names: dict[str, list[str]] = {}
        places = [(node.host, node.hypervisor_hostname) for node in self.nodes]
        places += [(one.host, name) for one in self.records for name in _name_of_overlaid_root(one)]
        for host, name in places:
            if host != self.host:
                names.setdefault(host, []).append(name)
        changes = [
            change
            for before in sorted(names)
            for change in following(before, self.host, names[before])
        ]
        return sorted(changes, key=lambda change: _TABLES.index(change.table))


def _where(scope: tuple[str, str]) -> dict[str, Any]:
    return dict(zip(("host", "driver_instance"), scope, strict=True))


def _name_of_overlaid_root(record: ProviderRecord) -> Iterator[str]:
    if record.known("mode") == "overlay" and record.applied is not None:
        root = json.loads(record.applied)
        if root.get("parent_uuid") is None:
            yield root["name"]
