"""Read and save the provider records of one driver instance."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import FieldUnset, StateError
from wharfinger.objects import (
    ComputeNode,
    Context,
    HostState,
    ProviderRecord,
    RecordBatch,
    Reservation,
)
from wharfinger.providers.provider import (
    NO_RECORD,
    Absence,
    Provider,
    PublishingMode,
    Record,
    decode,
    decode_absence,
    decode_undone,
    encode,
)


@dataclass(slots=True, kw_only=True)
class RowChanges:
    """Records and other rows to write, and rows to check, in one transaction."""

    #: New records by provider uuid; None: delete the record.
    records: Mapping[str, Record | None] = field(default_factory=dict)
    #: Nodes that have to belong to this driver instance.
    our_nodes: Sequence[str] = ()
    #: The only reservations that these providers may have, by provider uuid.
    known_reservations: Mapping[str, Sequence[Reservation]] = field(default_factory=dict)
    new_nodes: Sequence[ComputeNode] = ()
    changed_nodes: Sequence[ComputeNode] = ()
    new_reservations: Sequence[Reservation] = ()
    changed_reservations: Sequence[Reservation] = ()
    #: Reservations to delete.
    ended: Sequence[Reservation] = ()


class RecordStore:
    """Provider records of one driver instance on one host."""

    def __init__(
        self, context: Context, host: str, instance: str, rows: Iterable[ProviderRecord] = ()
    ) -> None:
        self.context: Final = context
        self.host: Final = host
        self.instance: Final = instance
        #: The errors of records that cannot be read, by provider uuid.
        self.damaged: Final[dict[str, StateError]] = {}
        #: The uuids of providers of other programs that this instance tried to create, or that
        #: have the names of its providers.
        self.contested: Final[set[str]] = set()
        self.records: Final[dict[str, Record]] = {}
        self._revisions: dict[str, int | None] = {}
        self._take(rows)

    @property
    def revisions(self) -> dict[str, int]:
        """The revisions of the rows, by provider uuid."""
        return {uuid: one for uuid, one in self._revisions.items() if one is not None}

    def get(self, uuid: str) -> Record:
        """Return the record of a provider, or an empty record."""
        return self.records.get(uuid, NO_RECORD)

    def update(self, rows: HostState) -> frozenset[str]:
        """Update from rows; return the uuids whose damaged records are repaired or gone."""
        before = frozenset(self.damaged)
        self.damaged.clear()
        read = self._take(rows.records)
        for uuid in self.records.keys() - rows.record_revisions.keys() - read:
            self._drop(uuid)
        return before - self.damaged.keys()

    def write(self, changes: Sequence[RowChanges], *, reports_service: bool = False) -> None:
        """Write all changes in one transaction, but no record that is unchanged.

        With ``reports_service``, store also that the service of the host is up. Raises
        ConcurrentSave, ObjectError and StateError.
        """
        changed = {
            uuid: record
            for one in changes
            for uuid, record in one.records.items()
            if self.records.get(uuid) != record
        }
        known = {uuid: its for one in changes for uuid, its in one.known_reservations.items()}
        ended = [held for one in changes for held in one.ended]
        batch = RecordBatch(
            self.context,
            host=self.host,
            driver_instance=self.instance,
            records=[
                self._row(uuid, record) for uuid, record in changed.items() if record is not None
            ],
            forgotten={
                uuid: self._revisions.get(uuid) or 0  # 0 where the database has no revisions yet
                for uuid, record in changed.items()
                if record is None
            },
            our_nodes=sorted(uuid for one in changes for uuid in one.our_nodes),
            new_nodes=[node for one in changes for node in one.new_nodes],
            changed_nodes=[node for one in changes for node in one.changed_nodes],
            reserved_providers=sorted(known),
            known_reservations={held.uuid: held.revision for its in known.values() for held in its},
            reservation_providers={
                held.uuid: held.provider_uuid for its in (*known.values(), ended) for held in its
            },
            new_reservations=[held for one in changes for held in one.new_reservations],
            changed_reservations=[held for one in changes for held in one.changed_reservations],
            ended={held.uuid: held.revision for held in ended},
            reports_service=reports_service,
        )
        batch.save()
        for uuid, record in changed.items():
            if record is None:
                self._drop(uuid)
            else:
                self.records[uuid] = record
        self._revisions.update((one.provider_uuid, one.known("revision")) for one in batch.records)

    def _take(self, rows: Iterable[ProviderRecord]) -> set[str]:
        read = set()
        for number, one in enumerate(rows):
            uuid = one.provider_uuid if "provider_uuid" in one else f"? ({number})"
            try:
                self.records[one.provider_uuid] = to_record(one)
                self._revisions[uuid] = one.known("revision")
            except (FieldUnset, ValueError) as error:
                self._drop(uuid)
                self.damaged[uuid] = _damaged(uuid, self.host, self.instance, error)
            read.add(uuid)
        return read

    def _drop(self, uuid: str) -> None:
        self.records.pop(uuid, None)
        self._revisions.pop(uuid, None)

    def _row(self, uuid: str, record: Record) -> ProviderRecord:
        row = to_object(uuid, record)
        row.host, row.driver_instance = self.host, self.instance
        revision = self._revisions.get(uuid)
        if revision is not None:
            row.revision = revision
        return row


def to_object(uuid: str, record: Record) -> ProviderRecord:
    """Return the database row for a provider's record."""
    return ProviderRecord(
        provider_uuid=uuid,
        mode=str(record.mode),
        applied=record.applied and encode(record.applied),
        intended=record.intended and encode(record.intended),
        live=record.live and encode(record.live),
        own_reserved=dict(record.own_reserved),
        reservations=list(record.reservations),
        reserved_since=dict(record.reserved_since),
        absent_since=record.absence and record.absence.since,
        absence=record.absence and encode(record.absence),
        undone=encode(record.undone) if record.undone else None,
    )


def to_record(row: ProviderRecord) -> Record:
    """Return the record in a row. Raises FieldUnset and ValueError."""
    since = row.known("reserved_since") or {}  # an old release does not delete ended reasons
    return Record(
        applied=_provider(row.applied),
        intended=_provider(row.intended),
        live=_provider(row.live),
        own_reserved=dict(row.own_reserved),
        reservations=tuple(row.reservations),
        reserved_since={one: since[one] for one in row.reservations if one in since},
        mode=PublishingMode(row.mode),
        absence=_absence(row),
        undone=decode_undone(undone) if (undone := row.known("undone")) else {},
    )


def read_record(row: ProviderRecord) -> Record | None:
    """Return the record in a row, None if it is damaged."""
    try:
        return to_record(row)
    except (FieldUnset, ValueError):
        return None


def _provider(document: str | None) -> Provider | None:
    return None if document is None else decode(document)


def _absence(row: ProviderRecord) -> Absence | None:
    if row.absent_since is None:
        return None
    # An old release does not write ``absence``.
    document = row.known("absence")
    counted = None if document is None else decode_absence(document)
    return counted if counted and counted.since == row.absent_since else Absence(row.absent_since)


def _damaged(uuid: str, host: str, instance: str, error: Exception) -> StateError:
    which = f"provider_uuid {uuid}" if is_uuid_like(uuid) else "a provider_uuid that is not a uuid"
    return StateError(
        path=f"the records of driver instance {instance}",
        problem=f"the record of provider {uuid} cannot be read: {error}. "
        "The provider's tree stays as it is, if the tree is known.",
        remedy=f"Restore the row of table provider_records with host {host}, driver_instance "
        f"{instance} and {which} from a backup, or delete the row: this changes nothing in "
        "Placement. "
        "The next full or drift cycle reads the row again; the agent needs no restart.",
    )
