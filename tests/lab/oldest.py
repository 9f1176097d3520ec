"""Run code in a process that reads and writes versioned objects as the oldest release does."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from weakref import WeakSet

from wharfinger.objects import (
    ComputeNodeList,
    Context,
    HostState,
    InstanceList,
    MigrationList,
    ProviderRecord,
    ProviderRecordList,
    RecordBatch,
    Reservation,
    ReservationList,
    Takeover,
    WharfingerObject,
)
from wharfinger.objects.base import REGISTERED
from wharfinger.reconcile.record_store import RecordStore, to_object, to_record

#: Starts processes that share only the code with this one.
PROCESSES = multiprocessing.get_context("forkserver")
#: Modules that most of them use and that take long to import.
PRELOADED = (
    *("__main__", "wharfinger.objects", "wharfinger.objects.remote_objects"),
    *("alembic.autogenerate", "oslo_db.sqlalchemy.engines", "psycopg", "pymysql"),
)
PROCESSES.set_forkserver_preload(list(PRELOADED))


def become_oldest() -> None:
    """Change all kinds of objects in this process to their first versions.

    Call this before the first object is created.
    """
    for kind in REGISTERED.values():
        _take_back(kind)
    ComputeNodeList.move_to = _move_to  # type: ignore[assignment, method-assign]
    RecordBatch.save = _save_batch  # type: ignore[assignment, method-assign]
    Takeover.save = _save_takeover  # type: ignore[assignment, method-assign]
    RecordStore.update = _update_once  # type: ignore[assignment, method-assign]


@contextmanager
def oldest() -> Iterator[ProcessPoolExecutor]:
    """Yield an executor whose only process has the oldest objects."""
    with ProcessPoolExecutor(1, PROCESSES, become_oldest) as process:
        yield process


@contextmanager
def newest() -> Iterator[ProcessPoolExecutor]:
    """Yield an executor whose only process has the newest objects."""
    with ProcessPoolExecutor(1, PROCESSES) as process:
        yield process


def _take_back(kind: type[WharfingerObject]) -> None:
    first, *later = kind.HISTORY
    kind.HISTORY = (first,)
    kind.VERSION = first.version
    gone = {name for step in later for name in step.fields}
    kind.fields = {name: field for name, field in kind.fields.items() if name not in gone}
    for name in gone:
        delattr(kind, name)


def _move_to(nodes: ComputeNodeList, host: str, driver_instance: str) -> None:
    """Move nodes to another host in several transactions, as before ComputeNodeList 1.3."""
    before: dict[str, list[str]] = {}
    for node in nodes:
        before.setdefault(node.host, []).append(node.hypervisor_hostname)
        node.host, node.driver_instance = host, driver_instance
    nodes.save()
    for former, names in before.items():
        _follow_host(nodes._context, former, host, names)


def _follow_host(context: Context, before: str, after: str, names: list[str]) -> None:
    """Set the new host in the instances and migrations on these nodes."""
    instances = InstanceList.get_by_filters(context, host=before, node=names)
    for instance in instances:
        instance.host = after
    instances.save()
    migrations = MigrationList.get_in_progress_by_host(context, before)
    for migration in migrations:
        for end in ("source", "dest"):
            compute, node = f"{end}_compute", f"{end}_node"
            if getattr(migration, compute) == before and getattr(migration, node) in names:
                setattr(migration, compute, after)
    migrations.save()


def _save_batch(batch: RecordBatch) -> None:
    """Write nodes, reservations and records in one call each, as before RecordBatch existed.

    The revisions of the records are not checked.
    """
    batch.obj_set_defaults()
    context = batch._context
    if batch.new_nodes:
        ComputeNodeList(context, objects=list(batch.new_nodes)).create()
    if batch.changed_nodes:
        ComputeNodeList(context, objects=list(batch.changed_nodes)).save()
    for new in batch.new_reservations:
        new._context = context
        new.create()
    for changed in batch.changed_reservations:
        changed._context = context
        changed.save()
    if batch.records or batch.forgotten:
        records = ProviderRecordList(objects=list(batch.records))
        ProviderRecordList.replace(
            context, batch.host, batch.driver_instance, records, list(batch.forgotten)
        )
    for ended in ReservationList.get_by_filters(context, uuid=list(batch.ended)):
        assert isinstance(ended, Reservation)
        ended.destroy()


def _save_takeover(takeover: Takeover) -> None:
    """Move the nodes and copy their records in one call each, as before Takeover existed."""
    takeover.obj_set_defaults()
    context = takeover._context
    nodes = ComputeNodeList(context, objects=list(takeover.nodes))
    nodes.move_to(takeover.host, takeover.driver_instance)
    copies = [
        to_object(one.provider_uuid, replace(to_record(one), absence=None))
        for one in takeover.records
    ]
    _copied.extend(copies)
    records = ProviderRecordList(objects=copies)
    ProviderRecordList.replace(context, takeover.host, takeover.driver_instance, records, [])


_update = RecordStore.update
#: The stores that have read all records.
_read: WeakSet[RecordStore] = WeakSet()
#: Records that a takeover has copied, until they are read.
_copied: list[ProviderRecord] = []


def _update_once(store: RecordStore, rows: HostState) -> frozenset[str]:
    """Read the records only when the process starts and after a takeover, as the oldest release."""
    if store in _read and not _copied:
        return frozenset()
    _copied.clear()
    _read.add(store)
    return _update(store, rows)
