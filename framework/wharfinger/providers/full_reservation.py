"""Full reservations: their ``reserved`` figures, and which of them other programs have set.

An inventory with ``reserved == total`` has no free units.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider_record import Record

_Value = TypeVar("_Value")


def reserve_fully(inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
    """Return the inventories with ``reserved == total`` in every class.

    Placement accepts this from microversion 1.26.
    """
    return {
        name: replace(inventory, reserved=inventory.total)
        for name, inventory in inventories.items()
    }


def foreign(live: Mapping[str, Inventory], record: Record) -> frozenset[str]:
    """Return the classes that are fully reserved, but not by us according to our record."""
    full = [name for name, inventory in live.items() if inventory.is_fully_reserved]
    return frozenset(
        name for name in full if name not in record.own_reserved and name not in record.claimed_full
    )


def releasable(live: Mapping[str, Inventory], record: Record) -> dict[str, int]:
    """Return the ``reserved`` figures that end another program's full reservation, by class.

    These are the figures that the driver reported last.
    """
    ours = record.applied.inventories if record.applied else {}
    return {name: ours[name].reserved for name in foreign(live, record) & ours.keys()}


def release_command(uuid: str) -> str:
    """Return the command that ends another program's full reservation of a provider of ours."""
    return f"wharfinger provider release {uuid} --foreign"


def own_reserved(live: Mapping[str, Inventory], record: Record) -> dict[str, int]:
    """Return the ``reserved`` figures that end our full reservation, by class.

    The figure of a fully reserved class is that in the record. Without one, and for other classes,
    it is the present figure. Classes that another program has fully reserved are left out.
    """
    others, left = foreign(live, record), record.left
    return {
        name: record.own_reserved.get(name, inventory.reserved)
        if inventory.is_fully_reserved or left.get(name) == inventory
        else inventory.reserved
        for name, inventory in live.items()
        if name not in others
    }


def release(live: Mapping[str, Inventory], record: Record) -> dict[str, Inventory]:
    """Return the inventories with the restored ``reserved`` figures.

    Classes that another program has fully reserved stay as they are.
    """
    figures = own_reserved(live, record)
    return {
        name: replace(inventory, reserved=min(figures[name], inventory.total))
        if name in figures
        else inventory
        for name, inventory in live.items()
    }


def released(record: Record, inventories: Mapping[str, Inventory]) -> Record:
    """Return the record after the end of our full reservation, which left these inventories.

    Without the released figures in ``applied``, a later full reservation by another program would
    look like ours.
    """
    applied = record.applied
    if applied is not None:
        ours = {
            name: replace(inventory, reserved=min(inventories[name].reserved, inventory.total))
            if name in inventories and inventory.is_fully_reserved
            else inventory
            for name, inventory in applied.inventories.items()
        }
        applied = replace(applied, inventories=ours)
    return replace(record, own_reserved={}, applied=applied)


def disputed(records: Collection[Record]) -> frozenset[str]:
    """Return the classes whose figure to restore is not the same in all records of a provider.

    Each record is that of another driver instance or host.
    """
    return frozenset(
        name
        for record in records
        for name, figure in record.own_reserved.items()
        if any(other.own_reserved.get(name) != figure for other in records)
    )


def without_classes(record: Record, classes: Collection[str]) -> Record:
    """Return the record as if this instance had never written these classes."""

    def kept(values: Mapping[str, _Value]) -> dict[str, _Value]:
        return {name: value for name, value in values.items() if name not in classes}

    applied, intended = record.applied, record.intended
    return replace(
        record,
        applied=applied and replace(applied, inventories=kept(applied.inventories)),
        intended=intended and replace(intended, inventories=kept(intended.inventories)),
        own_reserved=kept(record.own_reserved),
    )
