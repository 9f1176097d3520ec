"""Full reservation: an inventory stays published and nothing can be had from it.

Pure functions; why a provider is reserved is the driver's to say.
"""

from collections.abc import Mapping
from dataclasses import replace

from wharfinger.providers.inventory import Inventory


def reserve_fully(inventories: Mapping[str, Inventory]) -> dict[str, Inventory]:
    """The same inventories with ``reserved == total`` in every class.

    Placement takes it from microversion 1.26, over existing allocations too.
    """
    return {
        name: inventory
        if inventory.reserved == inventory.total
        else replace(inventory, reserved=inventory.total)
        for name, inventory in inventories.items()
    }


def own_reserved(live: Mapping[str, Inventory], remembered: Mapping[str, int]) -> dict[str, int]:
    """The ``reserved`` figures of someone else's inventories, under our reservation.

    ``remembered`` are the figures from before we reserved. A live figure that is not
    the full one was written by its owner since, and is the owner's new own figure; a
    full one that we have no record of is the owner's as well.
    """
    return {
        name: remembered.get(name, inventory.reserved)
        if inventory.is_fully_reserved
        else inventory.reserved
        for name, inventory in live.items()
    }


def release(live: Mapping[str, Inventory], remembered: Mapping[str, int]) -> dict[str, Inventory]:
    """Someone else's inventories with their own ``reserved`` figures again.

    A figure that no longer fits, since the total has shrunk, becomes the total.
    """
    figures = own_reserved(live, remembered)
    return {
        name: replace(inventory, reserved=min(figures[name], inventory.total))
        for name, inventory in live.items()
    }
