"""A driver instance's records: loaded once, written through."""

from collections.abc import Mapping
from typing import Final

from wharfinger.exceptions import StateError
from wharfinger.objects.provider_records import ProviderRecords
from wharfinger.providers import record as record_codec
from wharfinger.providers.record import Record

_NOTHING: Final = Record()


class InstanceMemory:
    """What one driver instance remembers of each provider.

    Raises StateError where the stored records cannot be read.
    """

    def __init__(self, store: ProviderRecords, instance: str) -> None:
        self._store: Final = store
        self._instance: Final = instance
        self._records: Final = {
            uuid: _decode(instance, uuid, document)
            for uuid, document in store.load(instance).items()
        }

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
        self._store.save(
            self._instance,
            {
                uuid: None if record is None else record_codec.encode(record)
                for uuid, record in changed.items()
            },
        )
        for uuid, record in changed.items():
            if record is None:
                self._records.pop(uuid, None)
            else:
                self._records[uuid] = record


def _decode(instance: str, uuid: str, document: bytes) -> Record:
    try:
        return record_codec.decode(document)
    except ValueError as error:
        raise StateError(
            path=f"the records of driver instance {instance}",
            problem=f"what is remembered of provider {uuid} cannot be read: {error}.",
            remedy="Restore wharfinger.sqlite from a backup, or move that one file away: nothing "
            "in Placement is deleted by that.",
        ) from error
