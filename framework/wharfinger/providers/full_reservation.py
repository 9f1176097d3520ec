"""Full reservations of providers, ours and those of other programs."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import ForeignReservation
from wharfinger.providers.provider import Provider, Record


def reserve_fully(inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
    """Return the inventories with ``reserved == total`` in every class."""
    return {
        name: replace(inventory, reserved=inventory.total)
        for name, inventory in inventories.items()
    }


def foreign(live: Mapping[str, Inventory], record: Record) -> frozenset[str]:
    """Return the classes that another program has fully reserved."""
    full = frozenset(name for name, inventory in live.items() if inventory.is_fully_reserved)
    return full and full.difference(record.own_reserved, record.claimed_full)


def releasable(live: Mapping[str, Inventory], record: Record) -> dict[str, int]:
    """Return the ``reserved`` figures that end another program's full reservation, by class."""
    ours = record.applied.inventories if record.applied else {}
    return {name: ours[name].reserved for name in foreign(live, record) & ours.keys()}


def foreign_reservation(provider: Provider, record: Record) -> ForeignReservation | None:
    """Return the full reservation of a provider by another program, or None."""
    classes = foreign(provider.inventories, record)
    if not classes:
        return None
    is_releasable = bool(releasable(provider.inventories, record))
    return ForeignReservation(
        uuid=provider.uuid, name=provider.name, classes=classes, is_releasable=is_releasable
    )


def release_command(uuid: str) -> str:
    """Return the command that ends another program's full reservation."""
    return f"wharfinger provider release {uuid} --foreign"


def own_reserved(live: Mapping[str, Inventory], record: Record) -> dict[str, int]:
    """Return the ``reserved`` figures that end our full reservation, by class."""
    others, left = foreign(live, record), record.left
    return {
        name: record.own_reserved.get(name, inventory.reserved)
        if inventory.is_fully_reserved or left.get(name) == inventory
        else inventory.reserved
        for name, inventory in live.items()
        if name not in others
    }


def release(live: Mapping[str, Inventory], record: Record) -> dict[str, Inventory]:
    """Return the inventories without our full reservation."""
    figures = own_reserved(live, record)
    return {
        name: replace(inventory, reserved=min(figures[name], inventory.total))
        if name in figures
        else inventory
        for name, inventory in live.items()
    }


def released(record: Record, inventories: Mapping[str, Inventory]) -> Record:
    """Return the record after the end of our full reservation."""
    applied = record.applied
    if applied is not None:
        # With the old figures, a later full reservation by another program would look like ours.
        ours = {
            name: replace(inventory, reserved=min(inventories[name].reserved, inventory.total))
            if name in inventories and inventory.is_fully_reserved
            else inventory
            for name, inventory in applied.inventories.items()
        }
        applied = replace(applied, inventories=ours)
    return replace(record, own_reserved={}, applied=applied)


def disputed(records: Collection[Record]) -> frozenset[str]:
    """Return the classes for which not all records of a provider restore the same figure."""
    return frozenset(
        name
        for record in records
        for name, figure in record.own_reserved.items()
        if any(other.own_reserved.get(name) != figure for other in records)
    )


def without_classes(record: Record, classes: Collection[str]) -> Record:
    """Return the record as if its driver instance never wrote these classes."""

    def without(side: Provider | None) -> Provider | None:
        if side is None:
            return None
        kept = {name: one for name, one in side.inventories.items() if name not in classes}
        return replace(side, inventories=kept)

    figures = {name: one for name, one in record.own_reserved.items() if name not in classes}
    applied, intended = without(record.applied), without(record.intended)
    return replace(record, applied=applied, intended=intended, own_reserved=figures)
