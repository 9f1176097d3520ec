"""A driver instance's records: loaded once, written through."""

from collections.abc import Mapping
from typing import Final

from wharfinger.exceptions import FieldUnset, StateError
from wharfinger.objects import Context, ProviderRecord, ProviderRecordList
from wharfinger.providers.provider import Provider, PublishingMode
from wharfinger.providers.record import Record, decode, encode

_NOTHING: Final = Record()


class InstanceMemory:
    """What one driver instance, on one host, remembers of each provider.

    ``damaged`` are, by provider uuid, errors for the records that cannot be read. Raises StateError
    where none can.
    """

    def __init__(self, context: Context, host: str, instance: str) -> None:
        self._context: Final = context
        self._host: Final = host
        self._instance: Final = instance
        stored = ProviderRecordList.get_by_filters(context, host=host, driver_instance=instance)
        self._records: Final[dict[str, Record]] = {}
        self.damaged: Final[dict[str, StateError]] = {}
        for number, one in enumerate(stored):
            try:
                self._records[one.provider_uuid] = _record(one)
            except (FieldUnset, ValueError) as error:
                uuid = one.provider_uuid if "provider_uuid" in one else f"? ({number})"
                self.damaged[uuid] = _damaged(uuid, instance, error)

    @property
    def records(self) -> Mapping[str, Record]:
        """All records, by provider uuid."""
        return self._records

    def get(self, uuid: str) -> Record:
        """The record of a provider; an empty one where there is none."""
        return self._records.get(uuid, _NOTHING)

    def save(self, records: Mapping[str, Record | None]) -> None:
        """Write records; None forgets. What is as it was is not written again."""
        changed = {
            uuid: record for uuid, record in records.items() if self._records.get(uuid) != record
        }
        if not changed:
            return
        ProviderRecordList.replace(
            self._context,
            self._host,
            self._instance,
            ProviderRecordList(
                objects=[_object(uuid, record) for uuid, record in changed.items() if record]
            ),
            [uuid for uuid, record in changed.items() if record is None],
        )
        for uuid, record in changed.items():
            if record is None:
                self._records.pop(uuid, None)
            else:
                self._records[uuid] = record


def _object(uuid: str, record: Record) -> ProviderRecord:
    return ProviderRecord(
        provider_uuid=uuid,
        mode=str(record.mode),
        applied=_document(record.applied),
        intended=_document(record.intended),
        live=_document(record.live),
        own_reserved=dict(record.own_reserved),
        reservations=list(record.reservations),
        absent_since=record.absent_since,
    )


def _document(provider: Provider | None) -> str | None:
    return None if provider is None else encode(provider)


def _record(stored: ProviderRecord) -> Record:
    return Record(
        applied=_provider(stored.applied),
        intended=_provider(stored.intended),
        live=_provider(stored.live),
        own_reserved=dict(stored.own_reserved),
        reservations=tuple(stored.reservations),
        mode=PublishingMode(stored.mode),
        absent_since=stored.absent_since,
    )


def _damaged(uuid: str, instance: str, error: Exception) -> StateError:
    return StateError(
        path=f"the records of driver instance {instance}",
        problem=f"what is remembered of provider {uuid} cannot be read: {error}. "
        "Its tree, where it is known, is left as it is.",
        remedy="Restore the database from a backup, or delete that row of provider_records: "
        "nothing in Placement is deleted by that.",
    )


def _provider(document: str | None) -> Provider | None:
    return None if document is None else decode(document)
