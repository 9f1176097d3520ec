"""Check Placement after an interrupted cycle: each value is that of before or that of after it."""

from typing import Any

#: Contents of Placement by provider name, as ``cycles.contents`` returns them; if they include
#: allocations, these must not change.
Contents = dict[str, dict[str, Any]]


def faults(old: Contents, new: Contents, now: Contents, marks: frozenset[str]) -> list[str]:
    """Return a text for each provider, or value of it, in ``now`` that is wrong or lost.

    Right are the values of ``old`` and ``new``. Each provider with inventory must have the traits
    ``marks``. Allocations must not change.
    """
    olds, news = ({one["uuid"]: (name, one) for name, one in each.items()} for each in (old, new))
    there = {one["uuid"] for one in now.values()}
    found = [f"{news[uuid][0]} is lost" for uuid in olds.keys() & news.keys() - there]
    for name, one in now.items():
        sides = [each[one["uuid"]] for each in (olds, news) if one["uuid"] in each]
        if not sides:
            found.append(f"{name} ({one['uuid']}) was never wanted")
            continue
        if one["inventories"] and not one["traits"] >= marks:
            found.append(f"{name} offers {one['inventories']} with {one['traits']}")
        held = one.get("allocations")
        if one["uuid"] in olds and held != olds[one["uuid"]][1].get("allocations"):
            found.append(f"{name}: the allocations are {held}")
        identity = (name, one["parent"])
        if identity not in {(known, side["parent"]) for known, side in sides}:
            found.append(f"{identity} is neither old nor new")
        for part in ("inventories", "traits", "aggregates"):
            values = [set(_items(side[part])) for _, side in sides]
            if strange := set(_items(one[part])) - set().union(*values):
                found.append(f"{name}: {strange} is neither old nor new")
            keys = [set(side[part]) for _, side in sides]
            if len(sides) == 2 and (lost := set.intersection(*keys) - set(one[part])):
                found.append(f"{name}: {lost} is lost")
    return found


def _items(part: Any) -> Any:
    return part.items() if isinstance(part, dict) else part
