"""Detect that another program repeatedly undoes the writes of a driver instance."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import os_traits

from wharfinger.providers.inventory import Inventory
from wharfinger.providers.ownership import NOVA, is_instance_trait
from wharfinger.providers.provider import Provider, PublishingMode, Record, Undone

#: A value that was undone in this many cycles is fought over.
CYCLES: Final = 3
_TRAIT: Final = "trait "


def note_undone(
    record: Record, live: Provider, after: Provider, *, is_full_cycle: bool
) -> Mapping[str, Undone]:
    """Return the values of ours that another program has undone, with counts."""
    left = record.live
    if left is None or (left is live and not record.undone):
        return record.undone
    had, has = _values(left), _values(live)
    found: dict[str, Undone] = {}
    for name, ours in _values(after).items():
        theirs, known = has.get(name), record.undone.get(name)
        if theirs != ours and had.get(name) == ours:
            found[name] = Undone(
                count=known.count + 1 if known else 1,
                ours=_text(ours, theirs),
                theirs=_text(theirs, ours),
                since_full=not is_full_cycle,
            )
        elif known and (theirs != ours or known.since_full or not is_full_cycle):
            found[name] = replace(known, since_full=known.since_full and not is_full_cycle)
    return found


def fights(record: Record) -> dict[str, Undone]:
    """Return the values that were undone in ``CYCLES`` cycles or more, by name."""
    return {name: one for name, one in record.undone.items() if one.count >= CYCLES}


def has_to_wait(planned: Record, live: Provider, after: Provider) -> bool:
    """Return whether a fight delays a write until the next full cycle."""
    reserves = any(
        one.is_fully_reserved and not live.inventories[name].is_fully_reserved
        for name, one in after.inventories.items()
        if name in live.inventories
    )
    disables = os_traits.COMPUTE_STATUS_DISABLED in after.traits - live.traits
    return bool(fights(planned)) and not reserves and not disables


def has_begun(before: Record, after: Record) -> bool:
    """Return whether one more value is undone repeatedly."""
    return not fights(after).keys() <= fights(before).keys()


def description(uuid: str, record: Record, instance: str) -> str:
    """Return a message for operators about the fights over a provider."""
    provider = record.live or record.applied
    writer, remedy = writer_and_remedy(record)
    values = "; ".join(
        f"{name}: {one.ours} (ours), {one.theirs} (theirs)"
        for name, one in sorted(fights(record).items())
    )
    return (
        f"{provider.name if provider else 'provider'} ({uuid}): driver instance {instance} and "
        f"{writer} fight over this provider. The writes of the instance were undone in {CYCLES} "
        f"cycles in a row: {values}. While this lasts, the instance writes the provider only in "
        "full cycles, except to reserve or disable it, and `wharfinger status` shows the fight. "
        f"{remedy}"
    )


def writer_and_remedy(record: Record) -> tuple[str, str]:
    """Return the program that probably undoes our writes, and a remedy."""
    provider = record.live or record.applied
    is_overlay = record.mode is PublishingMode.OVERLAY
    if provider and provider.parent_uuid is None and NOVA in provider.traits:
        if "VCPU" in provider.inventories:
            return f"nova-compute on {provider.name}", (
                f"Release its reservations (`wharfinger provider release {provider.name}`), and "
                "disable nova's compute service instead: this also keeps instances away."
                if is_overlay
                else "Let the driver overlay this root (of the libvirt driver: publish_root = "
                "overlay), or stop nova-compute there."
            )
        if any(is_instance_trait(name.removeprefix(_TRAIT)) for name in fights(record)):
            return "nova's IronicDriver", (
                "Let only one of the two publish the node: stop the nova-compute of that driver "
                "and delete its compute service, or remove the node from the driver instance."
            )
    if is_overlay:
        return (
            "the service that publishes it",
            "Configure that service to keep what other programs add.",
        )
    return "another program", "Stop that program, or let the driver overlay the provider."


def _values(provider: Provider) -> dict[str, Any]:
    return {
        "name": provider.name,
        **{f"inventory of {name}": one for name, one in provider.inventories.items()},
        **dict.fromkeys((f"{_TRAIT}{name}" for name in provider.traits), True),
        **dict.fromkeys((f"aggregate {uuid}" for uuid in provider.aggregates), True),
    }


def _text(value: Any, other: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, Inventory):
        return "set" if value else "not there"
    others = asdict(other) if isinstance(other, Inventory) else {}
    figures = {name: one for name, one in asdict(value).items() if others.get(name) != one}
    return ", ".join(f"{name} {one}" for name, one in figures.items())
