"""Show the steps of a plan as a diff and as JSON data."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from wharfinger.exceptions import printable
from wharfinger.providers import full_reservation
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    ForeignReservation,
    PendingRemoval,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)

_STYLES = {"+": "green", "-": "red", "~": "yellow", "?": "dim"}


def as_text(
    steps: Iterable[Step],
    pending: Iterable[PendingRemoval] = (),
    foreign: Iterable[ForeignReservation] = (),
) -> Iterator[Text]:
    """Yield the steps of a plan as lines of a diff."""
    for step in steps:
        for line in _step_lines(step):
            yield _styled(line)
    for removal in pending:
        yield _styled(f"? {removal.name} is absent: {removal.reason}")
    for one in foreign:
        verb = "is" if len(one.classes) == 1 else "are"
        classes = ", ".join(sorted(one.classes))
        kept = f"? {one.name}: {classes} {verb} fully reserved by another program: kept"
        if one.is_releasable:
            kept += f". To end this: `{full_reservation.release_command(one.uuid)}`"
        yield _styled(kept)


def as_data(step: Step) -> dict[str, Any]:
    """Return a step as JSON data."""
    data: dict[str, Any] = {"step": step.verb, "uuid": step.uuid, "name": step.name}
    match step:
        case CreateProvider():
            data["parent_uuid"] = step.parent_uuid
        case UpdateProvider():
            data |= {
                side: {"name": provider.name, "parent_uuid": provider.parent_uuid}
                for side, provider in (("before", step.before), ("after", step.after))
            }
        case SetTraits() | SetAggregates():
            data |= {"before": sorted(step.before), "after": sorted(step.after)}
        case SetInventories():
            data |= {"before": _figures(step.before), "after": _figures(step.after)}
        case Reshape():
            data["inventories"] = [as_data(change) for change in step.inventories]
            data["allocations"] = step.allocations
    return data


def _styled(line: str) -> Text:
    return Text(printable(line), style=_STYLES.get(line.lstrip()[:1], ""))


def _step_lines(step: Step) -> Iterator[str]:
    match step:
        case CreateProvider():
            below = f", child of {step.parent_uuid}" if step.parent_uuid else ""
            yield f"+ {step.name} ({step.uuid}{below})"
        case DeleteProvider():
            yield f"- {step.name} ({step.uuid})"
        case UpdateProvider(before=before, after=after):
            yield f"~ {before.name}"
            if before.name != after.name:
                yield f"    ~ name {before.name} -> {after.name}"
            if before.parent_uuid != after.parent_uuid:
                yield f"    ~ parent {before.parent_uuid} -> {after.parent_uuid}"
        case SetTraits():
            yield f"~ {step.name} traits"
            yield from _set_lines(step.before, step.after)
        case SetAggregates():
            yield f"~ {step.name} aggregates"
            yield from _set_lines(step.before, step.after)
        case SetInventories():
            yield f"~ {step.name} inventories"
            yield from _inventory_lines(step.before, step.after)
        case Reshape():
            yield f"~ {step.name} reshaped, with {len(step.allocations)} allocations moved"
            for change in step.inventories:
                yield f"    ~ {change.name} inventories"
                yield from (f"    {line}" for line in _inventory_lines(change.before, change.after))


def _set_lines(before: frozenset[str], after: frozenset[str]) -> Iterator[str]:
    yield from (f"    + {name}" for name in sorted(after - before))
    yield from (f"    - {name}" for name in sorted(before - after))


def _inventory_lines(
    before: Mapping[str, Inventory], after: Mapping[str, Inventory]
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None and new is not None:
            reserved = f", reserved {new.reserved}" if new.reserved else ""
            yield f"    + {name} {new.total}{reserved}"
        elif old is not None and new is None:
            yield f"    - {name} {old.total}"
        elif old is not None and new is not None and old != new:
            figures = new.to_dict()
            changes = (
                f"{figure} {value} -> {figures[figure]}"
                for figure, value in old.to_dict().items()
                if value != figures[figure]
            )
            yield f"    ~ {name} {', '.join(changes)}"


def _figures(inventories: Mapping[str, Inventory]) -> dict[str, dict[str, Any]]:
    return {name: inventory.to_dict() for name, inventory in sorted(inventories.items())}
