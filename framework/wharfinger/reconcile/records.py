"""A driver instance's records: loaded once, written through."""

from collections.abc import Container, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Final, Self

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import FieldUnset, StateError
from wharfinger.objects import Context, ProviderRecord, ProviderRecordList
from wharfinger.providers.record import Record
from wharfinger.reconcile import record_objects

_NOTHING: Final = Record()


class InstanceMemory:
    """Records of one driver instance, on one host, by provider.

    ``damaged`` are, by provider uuid, errors for the records that cannot be read. ``contested`` are
    the uuids of providers that this process could not create, or would not, since another program
    uses their uuid or name. Raises StateError where no record can be read.
    """

    def __init__(self, context: Context, host: str, instance: str) -> None:
        self._context: Final = context
        self._host: Final = host
        self._instance: Final = instance
        self._records: dict[str, Record] = {}
        self.damaged: Final[dict[str, StateError]] = {}
        self.contested: Final[set[str]] = set()
        self._load()

    @property
    def records(self) -> Mapping[str, Record]:
        """All records, by provider uuid."""
        return self._records

    def get(self, uuid: str) -> Record:
        """The record of a provider; an empty one where there is none."""
        return self._records.get(uuid, _NOTHING)

    def read_damaged_again(self) -> frozenset[str]:
        """Read the damaged records again: an operator may have restored or deleted their rows.

        Return the provider uuids of the records that are repaired. Without damaged records, nothing
        is read. Raises ObjectError, StateError.
        """
        before = frozenset(self.damaged)
        if before:
            # A row without a readable provider uuid can only be found by reading all rows.
            self._load(None if not all(map(is_uuid_like, before)) else sorted(before))
        return before - self.damaged.keys()

    def _load(self, uuids: list[str] | None = None) -> None:
        """Read the records of these providers, or all; keep those that are known already."""
        which = {} if uuids is None else {"provider_uuid": uuids}
        found = ProviderRecordList.get_by_filters(
            self._context, host=self._host, driver_instance=self._instance, **which
        )
        self.damaged.clear()
        for uuid, record in _read(found, self._host, self._instance):
            if isinstance(record, Record):
                self._records.setdefault(uuid, record)
            else:
                self.damaged[uuid] = record

    def known_on(self, host: str, roots: Container[str]) -> dict[str, Record]:
        """Return the records that the instance of this name on another host has of these trees.

        They are records of this host's instance, by provider uuid. Nothing is written.
        """
        found = ProviderRecordList.get_by_filters(
            self._context, host=host, driver_instance=self._instance
        )
        return {
            uuid: replace(record, absence=None)
            for uuid, record in _read(found, host, self._instance)
            if isinstance(record, Record) and record.root_uuid in roots
        }

    def imagine(self, records: Mapping[str, Record]) -> Self:
        """Return a copy with these records added, for a dry run; nothing is written."""
        imagined = copy(self)
        imagined._records = {**self._records, **records}
        return imagined

    def inherit(self, host: str, roots: Container[str]) -> None:
        """Take over the records that the instance of this name on another host has of these trees.

        The other host's records are deleted: they would be out of date if the trees came back.
        """
        records = self.known_on(host, roots)
        self.save(records)
        ProviderRecordList.replace(
            self._context, host, self._instance, ProviderRecordList(objects=[]), list(records)
        )

    def forget(self, roots: Container[str]) -> None:
        """Remember nothing of these trees."""
        self.save(
            {uuid: None for uuid, record in self._records.items() if record.root_uuid in roots}
        )

    def withdraw(self, uuid: str) -> None:
        """Forget the intent to create a provider: another program has its uuid or name."""
        self.save({uuid: None})
        self.contested.add(uuid)

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
                    record_objects.to_object(uuid, record)
                    for uuid, record in changed.items()
                    if record
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
    found: Iterable[ProviderRecord], host: str, instance: str
) -> Iterator[tuple[str, Record | StateError]]:
    """The records by provider uuid, and errors for those that cannot be read."""
    for number, one in enumerate(found):
        try:
            yield one.provider_uuid, record_objects.to_record(one)
        except (FieldUnset, ValueError) as error:
            uuid = one.provider_uuid if "provider_uuid" in one else f"? ({number})"
            yield uuid, _damaged(uuid, host, instance, error)


def _damaged(uuid: str, host: str, instance: str, error: Exception) -> StateError:
    which = f"provider_uuid {uuid}" if is_uuid_like(uuid) else "a provider_uuid that is no uuid"
    return StateError(
        path=f"the records of driver instance {instance}",
        problem=f"what is remembered of provider {uuid} cannot be read: {error}. "
        "Its tree, where it is known, is left as it is.",
        remedy=f"Restore the row of table provider_records with host {host}, driver_instance "
        f"{instance} and {which} from a backup, or delete it: this deletes nothing in Placement. "
        "The next full or drift cycle reads the row again; the agent needs no restart.",
    )
