"""A driver instance's records: loaded once, written through."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from wharfinger.exceptions import FieldUnset, StateError
from wharfinger.objects import Context, ProviderRecord, ProviderRecordList
from wharfinger.providers import stored
from wharfinger.providers.record import Record

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
        found = ProviderRecordList.get_by_filters(context, host=host, driver_instance=instance)
        self._records: Final[dict[str, Record]] = {}
        self.damaged: Final[dict[str, StateError]] = {}
        for uuid, record in _read(found, instance):
            if isinstance(record, Record):
                self._records[uuid] = record
            else:
                self.damaged[uuid] = record

    @property
    def records(self) -> Mapping[str, Record]:
        """All records, by provider uuid."""
        return self._records

    def get(self, uuid: str) -> Record:
        """The record of a provider; an empty one where there is none."""
        return self._records.get(uuid, _NOTHING)

    def inherit(self, host: str, roots: Collection[str]) -> None:
        """Remember what the instance of this name on another host remembers of these trees.

        That one forgets it: it would be out of date if they came back.
        """
        before = ProviderRecordList.get_by_filters(
            self._context, host=host, driver_instance=self._instance
        )
        records = {
            uuid: replace(record, absent_since=None)
            for uuid, record in _read(before, self._instance)
            if isinstance(record, Record) and record.root_uuid in roots
        }
        self.save(records)
        ProviderRecordList.replace(
            self._context, host, self._instance, ProviderRecordList(objects=[]), list(records)
        )

    def forget(self, roots: Container[str]) -> None:
        """Remember nothing of these trees."""
        self.save(
            {uuid: None for uuid, record in self._records.items() if record.root_uuid in roots}
        )

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
                objects=[
                    stored.to_object(uuid, record) for uuid, record in changed.items() if record
                ]
            ),
            [uuid for uuid, record in changed.items() if record is None],
        )
        for uuid, record in changed.items():
            if record is None:
                self._records.pop(uuid, None)
            else:
                self._records[uuid] = record


def _read(
    found: Iterable[ProviderRecord], instance: str
) -> Iterator[tuple[str, Record | StateError]]:
    """The records by provider uuid, and errors for those that cannot be read."""
    for number, one in enumerate(found):
        try:
            yield one.provider_uuid, stored.to_record(one)
        except (FieldUnset, ValueError) as error:
            uuid = one.provider_uuid if "provider_uuid" in one else f"? ({number})"
            yield uuid, _damaged(uuid, instance, error)


def _damaged(uuid: str, instance: str, error: Exception) -> StateError:
    return StateError(
        path=f"the records of driver instance {instance}",
        problem=f"what is remembered of provider {uuid} cannot be read: {error}. "
        "Its tree, where it is known, is left as it is.",
        remedy="Restore the database from a backup, or delete that row of provider_records: "
        "nothing in Placement is deleted by that.",
    )
