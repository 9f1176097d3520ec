"""Find allocation candidates by brute force from the contents of Placement's API.

This module is the reference for tests of Wharfinger and Placement, so it imports neither. It reads
plain JSON. It is slow, but so short that a reader can check it.

Placement's API reference and its documents on "modeling with provider trees" and "granular resource
requests" define the candidates. Where they leave something open, this module follows Placement 16;
a comment marks each place.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

#: The suffix of the group whose resources may come from several providers.
UNNUMBERED = ""
_SHARES = "MISC_SHARES_VIA_AGGREGATE"

Names = frozenset[str]
#: Provider uuid, resource class, amount.
Takes = frozenset[tuple[str, str, int]]
#: Arguments: the provider, and the owner of the group (or None).
Rule = Callable[["Provider", str | None], bool]


@dataclass(frozen=True)
class Group:
    """A request group. Of each set in ``any_of`` and ``member_of``, one member is enough."""

    resources: Mapping[str, int]
    required: Names = frozenset()
    any_of: tuple[Names, ...] = ()
    forbidden: Names = frozenset()
    member_of: tuple[Names, ...] = ()
    forbidden_aggregates: Names = frozenset()
    in_tree: str | None = None
    owner: str | None = None


@dataclass(frozen=True)
class Request:
    """A request for candidates: its groups by suffix, and conditions on the whole candidate."""

    groups: Mapping[str, Group]
    group_policy: str | None = None
    same_subtree: tuple[Names, ...] = ()
    root_required: Names = frozenset()
    root_forbidden: Names = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A candidate: its allocations, and the providers of each group by suffix."""

    allocations: Takes
    mappings: frozenset[tuple[str, Names]]


@dataclass(frozen=True, eq=False)
class Provider:
    """A provider with its traits, aggregates, inventories and usages in Placement."""

    uuid: str
    parent: str | None
    root: str
    traits: Names
    aggregates: Names
    inventories: Mapping[str, Mapping[str, Any]]
    used: Mapping[str, int]

    @property
    def shares(self) -> bool:
        return _SHARES in self.traits

    @property
    def owners(self) -> Names:
        return frozenset(
            trait for trait in self.traits if trait.startswith(("OWNER_", "CUSTOM_OWNER_"))
        )

    def gives(self, kind: str, amount: int) -> bool:
        """Return whether Placement would accept an allocation of this amount of a class."""
        stock = self.inventories.get(kind)
        return (
            stock is not None
            and stock["min_unit"] <= amount
            and amount % stock["step_size"] == 0
            and self.has_room(kind, amount)
        )

    def has_room(self, kind: str, amount: int) -> bool:
        stock = self.inventories[kind]
        capacity = int((stock["total"] - stock["reserved"]) * stock["allocation_ratio"])
        return self.used[kind] + amount <= capacity and amount <= stock["max_unit"]


@dataclass(frozen=True)
class Providers:
    """All providers of a Placement. ``reach`` has the usable providers for each root."""

    by_uuid: Mapping[str, Provider]
    reach: Mapping[str, tuple[Provider, ...]] = field(init=False)

    def __post_init__(self) -> None:
        roots = [uuid for uuid, one in self.by_uuid.items() if one.parent is None]
        object.__setattr__(self, "reach", {root: tuple(self._within(root)) for root in roots})

    @classmethod
    def read(cls, get: Callable[[str], Any]) -> "Providers":
        """Read all providers; ``get`` returns the JSON of a path of the API."""
        found = {}
        for one in get("/resource_providers")["resource_providers"]:
            uuid = one["uuid"]
            path = f"/resource_providers/{uuid}"
            found[uuid] = Provider(
                uuid,
                one["parent_provider_uuid"],
                one["root_provider_uuid"],
                frozenset(get(f"{path}/traits")["traits"]),
                frozenset(get(f"{path}/aggregates")["aggregates"]),
                get(f"{path}/inventories")["inventories"],
                get(f"{path}/usages")["usages"],
            )
        return cls(found)

    def _within(self, root: str) -> Iterator[Provider]:
        """Yield the providers of a root's tree, and the sharing providers that the tree can use.

        A sharing provider has an aggregate in common with a provider of the tree.
        """
        tree = [one for one in self.by_uuid.values() if one.root == root]
        aggregates = frozenset[str]().union(*(one.aggregates for one in tree))
        yield from tree
        for one in self.by_uuid.values():
            if one.root != root and one.shares and one.aggregates & aggregates:
                yield one


def candidates(
    providers: Providers, request: Request, rule: Rule = lambda provider, owner: True
) -> set[Candidate]:
    """Return the candidates in which ``rule`` allows each provider for the owner of its group."""
    return {
        candidate
        for candidate in _candidates(providers, request)
        if all(
            rule(providers.by_uuid[uuid], group.owner)
            for suffix, group in request.groups.items()
            if group.resources
            for uuid in dict(candidate.mappings)[suffix]
        )
    }


def owner_rule(
    *, untagged_allowed: bool = False, gate_of: Callable[[str], bool] = lambda owner: True
) -> Rule:
    """Return the rule that a group with an owner uses only providers of this owner.

    ``gate_of`` returns whether all providers of an owner have an owner trait; if not, untagged
    providers are allowed, too. A group without an owner uses only untagged providers.
    """

    def may_take(provider: Provider, owner: str | None) -> bool:
        if owner is None:
            return not provider.owners
        if provider.owners:
            return provider.owners == {owner}
        return provider.shares or untagged_allowed or not gate_of(owner)

    return may_take


def _candidates(providers: Providers, request: Request) -> Iterator[Candidate]:
    for uuid, within in providers.reach.items():
        root = providers.by_uuid[uuid]
        if not request.root_required <= root.traits or request.root_forbidden & root.traits:
            continue
        ways = [
            [(suffix, takes) for takes in _ways(providers, suffix, group, root, within)]
            for suffix, group in request.groups.items()
        ]
        for choice in product(*ways):
            yield from _together(providers, request, dict(choice))


#: One way to satisfy a group: amounts by provider uuid and class.
_Way = dict[str, dict[str, int]]


def _ways(
    providers: Providers, suffix: str, group: Group, root: Provider, within: tuple[Provider, ...]
) -> Iterator[_Way]:
    """Yield the ways to satisfy a group from the tree of a root and its sharing providers."""
    tree = providers.by_uuid[group.in_tree].root if group.in_tree else None
    if suffix != UNNUMBERED:
        for one in within:
            if (
                all(one.gives(kind, amount) for kind, amount in group.resources.items())
                and _suit([one], group)
                and _is_member(one, group)
                and not one.aggregates & group.forbidden_aggregates
                # Placement ignores in_tree of a group without resources.
                and (tree is None or one.root == tree or not group.resources)
            ):
                yield {one.uuid: dict(group.resources)}
        return
    # For this group, an aggregate of the root is one of the whole tree.
    there = [
        one
        for one in within
        if (_is_member(one, group) or (one.root == root.uuid and _is_member(root, group)))
        and not (one.aggregates | root.aggregates) & group.forbidden_aggregates
        and (tree is None or one.root == root.uuid == tree)
    ]
    givers = [
        [(kind, amount, one) for one in there if one.gives(kind, amount)]
        for kind, amount in group.resources.items()
    ]
    for choice in product(*givers):
        if _suit([one for _kind, _amount, one in choice], group):
            way: _Way = {}
            for kind, amount, one in choice:
                way.setdefault(one.uuid, {})[kind] = amount
            yield way


def _suit(givers: list[Provider], group: Group) -> bool:
    """Return whether providers have all required traits together, and no forbidden trait."""
    traits = frozenset[str]().union(*(one.traits for one in givers))
    return (
        group.required <= traits
        and all(choice & traits for choice in group.any_of)
        and not group.forbidden & traits
    )


def _is_member(one: Provider, group: Group) -> bool:
    return all(choice & one.aggregates for choice in group.member_of)


def _together(
    providers: Providers, request: Request, ways: Mapping[str, _Way]
) -> Iterator[Candidate]:
    """Yield the candidate that combines one way for each group, unless they do not fit together."""
    amounts: Counter[tuple[str, str]] = Counter()
    for way in ways.values():
        for uuid, resources in way.items():
            for kind, amount in resources.items():
                amounts[uuid, kind] += amount
    if not all(
        providers.by_uuid[uuid].has_room(kind, amount) for (uuid, kind), amount in amounts.items()
    ):
        return
    alone = [uuid for suffix, way in ways.items() if suffix != UNNUMBERED for uuid in way]
    # Groups without resources are isolated as well.
    if request.group_policy == "isolate" and len(set(alone)) < len(alone):
        return
    for suffixes in request.same_subtree:
        uuids = {uuid for suffix in suffixes for uuid in ways[suffix]}
        if not any(all(_is_below(providers, one, top) for one in uuids) for top in uuids):
            return
    yield Candidate(
        frozenset((uuid, kind, amount) for (uuid, kind), amount in amounts.items()),
        frozenset((suffix, frozenset(way)) for suffix, way in ways.items()),
    )


def _is_below(providers: Providers, uuid: str | None, top: str) -> bool:
    """Return whether a provider is the provider ``top`` or a descendant of it."""
    while uuid is not None and uuid != top:
        uuid = providers.by_uuid[uuid].parent
    return uuid == top
