"""Show provider trees as drawings, as a picture and as JSON data."""

import io
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from wharfinger.console import reservations
from wharfinger.exceptions import printable
from wharfinger.providers.inventory import Inventory
from wharfinger.scheduling.provider_details import Details

#: The width, in columns, of a console that wraps no line.
UNLIMITED: Final = 1_000_000

#: The providers by parent uuid; None has those without a parent here.
_Children = dict[str | None, list[Details]]


def as_drawing(providers: Iterable[Details], now: datetime) -> Iterator[Tree]:
    """Yield a drawing for each root provider."""
    children = _by_parent(providers)
    for root in children.get(None, []):
        tree = Tree(_label(root), guide_style="dim")
        # Not recursive: a tree may be deeper than Python's stack.
        waiting = [(tree, root)]
        while waiting:
            branch, provider = waiting.pop()
            for text in reservations.lines(provider, now):
                branch.add(Text(text, style="yellow"))
            for line in _content_lines(provider):
                branch.add(line)
            waiting += [
                (branch.add(_label(child)), child)
                for child in children.get(provider.summary.uuid, [])
            ]
        yield tree


def as_svg(trees: Iterable[Tree]) -> str:
    """Return an SVG picture of a terminal that shows the drawings."""
    drawings = list(trees)
    console = Console(record=True, file=io.StringIO(), width=UNLIMITED, highlight=False)
    console.width = max((console.measure(tree).maximum for tree in drawings), default=1)
    for tree in drawings:
        console.print(tree)
    return console.export_svg(title="wharfinger provider tree")


def as_data(providers: Iterable[Details]) -> list[dict[str, Any]]:
    """Return the trees as nested JSON data, one item for each root."""
    children = _by_parent(providers)
    top: list[dict[str, Any]] = []
    waiting = [(top, root) for root in reversed(children.get(None, []))]
    while waiting:
        siblings, provider = waiting.pop()
        item = provider_data(provider)
        below: list[dict[str, Any]] = []
        item["children"] = below
        siblings.append(item)
        waiting += [(below, child) for child in reversed(children.get(provider.summary.uuid, []))]
    return top


def provider_data(provider: Details) -> dict[str, Any]:
    """Return one provider as JSON data; details that were not requested are omitted."""
    summary = provider.summary
    data: dict[str, Any] = {
        "name": summary.name,
        "uuid": summary.uuid,
        "parent_uuid": summary.parent_provider_uuid,
        "generation": summary.generation,
        "owners": list(provider.owners),
    }
    if provider.inventories is not None:
        data["inventories"] = {
            name: inventory.to_dict() for name, inventory in sorted(provider.inventories.items())
        }
    if provider.usages is not None:
        data["usages"] = dict(sorted(provider.usages.items()))
    if provider.traits is not None:
        data["traits"] = sorted(provider.traits)
    if provider.reservations is not None:
        data["reservations"] = [reservations.as_data(one) for one in provider.reservations]
    if provider.reserved_by_others is not None:
        data["reserved_by_others"] = sorted(provider.reserved_by_others)
    return data


def _by_parent(providers: Iterable[Details]) -> _Children:
    known = {provider.summary.uuid: provider for provider in providers}
    children: _Children = {}
    for provider in sorted(known.values(), key=lambda provider: provider.summary.name):
        parent = provider.summary.parent_provider_uuid
        children.setdefault(parent if parent in known else None, []).append(provider)
    return children


def _label(provider: Details) -> Text:
    label = Text(printable(provider.summary.name), style="bold")
    if provider.owners:
        return label.append(f"  {' '.join(provider.owners)}", style="not bold cyan")
    return label.append("  no owner", style="not bold yellow")


def _content_lines(provider: Details) -> Iterator[Text]:
    usages = provider.usages
    if provider.inventories is not None:
        for name, inventory in sorted(provider.inventories.items()):
            yield _inventory_line(name, inventory, usages)
    elif usages is not None:
        for name, used in sorted(usages.items()):
            yield Text(f"{name} {used} used")
    if provider.traits is not None and provider.traits:
        yield Text(f"traits: {', '.join(sorted(provider.traits))}", style="dim")


def _inventory_line(name: str, inventory: Inventory, usages: Mapping[str, int] | None) -> Text:
    used = "" if usages is None else f"{usages.get(name, 0)}/"
    line = Text(f"{name} {used}{inventory.total}")
    if inventory.is_fully_reserved:
        return line.append("  fully reserved", style="yellow")
    if inventory.reserved:
        line.append(f"  {inventory.reserved} reserved", style="dim")
    return line
