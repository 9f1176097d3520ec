"""Select from the contents of Placement, and compare them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import os_traits

from wharfinger.providers import Inventory, Provider

#: All providers in Placement by name, without generations and allocations.
Contents = Mapping[str, Provider]

#: The most providers that a text names.
_NAMED: Final = 6
#: Default figures of an inventory, which a text leaves out.
_USUAL: Final = {"reserved": 0, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}


def difference(before: Contents, after: Contents) -> str:
    """Return one line on how two contents differ."""
    parts = [*_parts(before, after)]
    if len(parts) > _NAMED:
        parts[_NAMED:] = [f"and {len(parts) - _NAMED} more"]
    return "; ".join(parts) or "no difference"


def trees(contents: Contents) -> dict[str, Contents]:
    """Return the providers of each tree, by root uuid."""
    found: dict[str, dict[str, Provider]] = {}
    for name, provider in contents.items():
        found.setdefault(provider.root_uuid, {})[name] = provider
    return {**found}


def at_and_below(contents: Contents, name: str) -> list[str]:
    """Return the names of a provider and its descendants."""
    found = [name] if name in contents else []
    for above in found:  # grows meanwhile
        uuid = contents[above].uuid
        found += [one for one, its in contents.items() if its.parent_uuid == uuid]
    return found


def concerned(before: Contents, after: Contents, *things: str) -> set[str]:
    """Return the names of providers that changes of these nodes or devices may affect."""
    found = {
        name
        for contents in (before, after)
        for name, one in contents.items()
        if os_traits.MISC_SHARES_VIA_AGGREGATE in one.traits
    }
    for contents in (before, after):
        names = {one.uuid: name for name, one in contents.items()}
        for thing in things:
            found |= {*at_and_below(contents, thing)}
            parent = contents[thing].parent_uuid if thing in contents else None
            while parent in names:
                found.add(names[parent])
                parent = contents[names[parent]].parent_uuid
    return found


def without(contents: Contents, names: Collection[str]) -> Contents:
    """Return the contents without these providers."""
    return {name: one for name, one in contents.items() if name not in names}


def is_reserved(provider: Provider) -> bool:
    """Return whether a provider has inventory and all of it is reserved."""
    figures = provider.inventories.values()
    return bool(figures) and all(one.is_fully_reserved for one in figures)


def _parts(before: Contents, after: Contents) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None:
            yield f"- {name}"
        elif old is None:
            yield f"+ {name} ({', '.join(_inventories(new)) or 'no inventory'})"
        elif old != new:
            yield f"{name}: {', '.join(_changes(old, new))}"


def _changes(old: Provider, new: Provider) -> Iterator[str]:
    for field in ("uuid", "parent_uuid", "root_uuid"):
        one, other = getattr(old, field), getattr(new, field)
        if one != other:
            yield f"{field} {one} -> {other}"
    yield from _signed(_inventories(old), _inventories(new))
    yield from _signed(sorted(old.traits), sorted(new.traits))
    yield from _signed(sorted(old.aggregates), sorted(new.aggregates))


def _signed(old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    old, new = [*old], [*new]
    yield from (f"- {one}" for one in old if one not in new)
    yield from (f"+ {one}" for one in new if one not in old)


def _inventories(provider: Provider) -> list[str]:
    return [f"{kind} {_figures(one)}" for kind, one in sorted(provider.inventories.items())]


def _figures(inventory: Inventory) -> str:
    figures: dict[str, Any] = inventory.to_dict()
    total = figures.pop("total")
    if figures["max_unit"] >= total:
        del figures["max_unit"]
    texts = [f"{key} {value}" for key, value in figures.items() if value != _USUAL.get(key)]
    return " ".join([f"{total}", *(f"({one})" for one in texts)])
