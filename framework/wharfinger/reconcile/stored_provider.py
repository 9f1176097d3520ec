"""Read the records and reservations of one provider."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from wharfinger.objects import Context, ProviderRecord, ProviderState, Reservation
from wharfinger.placement.model import Inventories, ProviderSummary, Traits
from wharfinger.placement.tree_reader import without_contents
from wharfinger.providers import full_reservation, ownership
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import SetInventories, step_target
from wharfinger.providers.provider import NO_RECORD, Provider, Record
from wharfinger.reconcile.record_store import RecordStore
from wharfinger.reconcile.reservation_phases import stored_figures

#: Placeholders for the host and driver instance of a provider without records.
_NO_PUBLISHER: Final = ("none", "none")


@dataclass(frozen=True, slots=True)
class StoredProvider:
    """A provider in Placement, with its records and reservations in the database."""

    #: The traits as just read, possibly of an older generation than ``live``. Unlike ``live``, they
    #: never come from a record, so they show whether the provider was created again.
    traits: frozenset[str]
    #: The provider as just read, completed from ``own_record`` if that has the same generation.
    live: Provider
    #: A store with the record of the driver instance that publishes the provider.
    store: RecordStore
    #: One record of the provider, merged from all its records and ``reservations``.
    record: Record
    reservations: tuple[Reservation, ...]
    #: A message if own figures remain unknown, else empty.
    disagreement: tuple[str, ...]

    @classmethod
    def read(
        cls,
        context: Context,
        provider: ProviderSummary,
        traits: Traits,
        inventories: Inventories | None = None,
    ) -> Self:
        """Read the database rows of a provider that was read from Placement.

        Raises ObjectError and StateError.
        """
        generation = (inventories or traits).resource_provider_generation
        rows = ProviderState.get(context, [provider.uuid], [provider.root_provider_uuid])
        stores = stores_of(context, rows.records)
        current = _current(
            {key: store.get(provider.uuid) for key, store in stores.items()},
            {(row.known("host"), row.known("driver_instance")) for row in rows.nodes},
        )
        ours = {key: record for key, record in current.items() if record.is_ours}
        key = next(iter(ours or current), _NO_PUBLISHER)
        disputed = full_reservation.disputed(list(ours.values()))
        record = full_reservation.without_classes(current.get(key, NO_RECORD), disputed)
        spare = stored_figures(rows.reservations)
        reasons = dict.fromkeys(reason for one in current.values() for reason in one.reservations)
        unclear = sorted(disputed - spare.keys())
        disagreement = (
            f"{len(ours)} records of the provider disagree on the reserved amounts to restore for "
            f"{', '.join(unclear)} (the next cycle of its driver instance decides)"
        )
        store = stores.get(key) or RecordStore(context, *key)
        live = store.get(provider.uuid).live
        if live is None or live.generation != generation:
            live = replace(without_contents(provider), generation=generation, traits=traits.traits)
        if inventories:
            live = replace(live, inventories=inventories.inventories)
        return cls(
            traits.traits,
            live,
            store,
            replace(
                record, own_reserved={**spare, **record.own_reserved}, reservations=tuple(reasons)
            ),
            tuple(rows.reservations),
            (disagreement,) if unclear else (),
        )

    @property
    def is_published(self) -> bool:
        """Whether a driver instance publishes the provider."""
        return ownership.is_published(self.traits, self.record)

    @property
    def own_record(self) -> Record:
        """The provider's record in ``store``, or an empty one."""
        return self.store.get(self.live.uuid)

    @property
    def is_partly_known(self) -> bool:
        """Whether a part of ``live`` is unknown."""
        known = self.own_record.live
        return known is None or known.generation != self.live.generation

    @property
    def own_figures(self) -> dict[str, int]:
        """The ``reserved`` figures to restore after our reservations, by resource class."""
        return full_reservation.own_reserved(self.live.inventories, self.record)

    def record_with(self, figures: Mapping[str, int]) -> Record:
        """Return ``own_record`` plus these ``reserved`` figures to restore."""
        own = self.own_record
        return replace(own, own_reserved={**own.own_reserved, **figures})

    def set_inventories(self, after: Mapping[str, Inventory]) -> SetInventories:
        """Return the step that replaces the inventories."""
        return SetInventories(**step_target(self.live), before=self.live.inventories, after=after)

    def reasons(self, *, without: str = "") -> tuple[str, ...]:
        """Return the reasons of the driver and of reservations, as texts."""
        others = (one for one in self.reservations if one.uuid != without)
        held = (f"{one.reason} (held by {one.holder})" for one in others)
        return (*self.record.reservations, *held)


def stores_of(
    context: Context, rows: Iterable[ProviderRecord]
) -> dict[tuple[str, str], RecordStore]:
    """Return stores of these records, by host and driver instance. Raises StateError."""
    found: dict[tuple[str, str], list[ProviderRecord]] = {}
    for one in rows:
        found.setdefault((one.host, one.driver_instance), []).append(one)
    stores = {key: RecordStore(context, *key, theirs) for key, theirs in found.items()}
    for error in (error for store in stores.values() for error in store.damaged.values()):
        raise error
    return stores


def _current(
    records: Mapping[tuple[str, str], Record], in_node_rows: set[tuple[str, str]]
) -> Mapping[tuple[str, str], Record]:
    ours = {key for key, record in records.items() if record.is_ours}
    hosts = {host for host, _instance in in_node_rows}
    # Another instance on the host may publish a child of the root, or overlay it.
    current = ours & in_node_rows or {key for key in ours if key[0] in hosts} or ours
    return {key: records[key] for key in records if key not in ours or key in current}
