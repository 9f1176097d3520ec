"""Draw random forests of providers and random requests, and put a forest into Placement.

A forest is a tuple of provider trees and sharing providers. Forests are small, so that most
requests have candidates, and so that code that ignores owners finds wrong ones. Requests avoid the
known errors of Placement 16, for which no right answer is defined; a comment marks each place.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from hypothesis import strategies as st
from placement import db_api
from placement.db.sqlalchemy import models
from sqlalchemy import Connection, Table, delete, insert, select

from tests.lab import placement as lab
from tests.lab.brute_force import UNNUMBERED, Group, Request

SHARES = "MISC_SHARES_VIA_AGGREGATE"
#: An owner trait that Placement does not have before a forest is published.
NEWBORN = "CUSTOM_OWNER_NEWBORN"
OWNERS = ("OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME", NEWBORN)
_WORDS = ("CUSTOM_FAST", "CUSTOM_GOLD", "HW_GPU_API_VULKAN")
TRAITS = (*OWNERS, *_WORDS, SHARES)

#: The class of root providers. No sharing provider has it.
_CPU = "VCPU"
_SHARED = ("DISK_GB", "VGPU")
_NESTED = ("VGPU", "VGPU", "VGPU", "SRIOV_NET_VF", "DISK_GB")
CLASSES = (_CPU, "VGPU", "SRIOV_NET_VF", "DISK_GB")

AGGREGATES = tuple(str(uuid5(NAMESPACE_OID, f"aggregate {number}")) for number in range(3))


@dataclass(frozen=True)
class Stock:
    """An inventory and its used amount."""

    total: int
    reserved: int = 0
    used: int = 0
    max_unit: int = 8
    step_size: int = 1


@dataclass(frozen=True)
class Provider:
    """A provider; ``parent`` is the number of an earlier one in the forest."""

    number: int
    parent: int | None
    traits: frozenset[str]
    inventories: Mapping[str, Stock]
    aggregates: frozenset[str] = frozenset()
    uuid: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "uuid", str(uuid5(NAMESPACE_OID, f"provider {self.number}")))


Forest = tuple[Provider, ...]

_TRAITS: Table = models.Trait.__table__


def _seldom(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Draw one of ``others`` in one of seven cases, otherwise the usual value."""
    return st.sampled_from((usual,) * (6 * len(others)) + others)


def _some_of(items: Sequence[str], most: int) -> st.SearchStrategy[frozenset[str]]:
    """Draw the empty set in half of the cases, otherwise up to ``most`` items."""
    return st.one_of(
        st.just(frozenset[str]()),
        st.frozensets(st.sampled_from(items), min_size=1, max_size=most),
    )


_STOCKS = st.builds(
    lambda total, rest: Stock(total, **rest),
    st.integers(2, 4),
    _seldom({}, {"used": 1}, {"used": 2}, {"reserved": 2}, {"max_unit": 1}, {"step_size": 2}),
)

#: A quarter of all providers has no owner. One in eleven has two owners: no request may use it.
_OWNERS_OF_ONE = st.sampled_from(
    [frozenset[str]()] * 6
    + [
        frozenset({owner})
        for owner in (*["OWNER_NOVA"] * 6, *["OWNER_CYBORG"] * 3, *OWNERS, NEWBORN)
    ]
    + [frozenset({"OWNER_NOVA", other}) for other in ("OWNER_CYBORG", NEWBORN)]
)


@st.composite
def _providers(draw: st.DrawFn, number: int, parent: int | None, kinds: Sequence[str]) -> Provider:
    traits = draw(_OWNERS_OF_ONE) | draw(_some_of(_WORDS, 2))
    stocks = {kind: draw(_STOCKS) for kind in dict.fromkeys(kinds)}
    return Provider(number, parent, traits, stocks, draw(_some_of(AGGREGATES, 2)))


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Draw one to three trees of up to three levels, and up to two sharing providers."""
    found: list[Provider] = []
    for _tree in range(draw(st.integers(1, 3))):
        more = draw(st.lists(st.sampled_from(CLASSES), max_size=1))
        root = draw(_providers(len(found), None, (_CPU, *more)))
        found.append(root)
        parents = [root.number]
        for _child in range(draw(st.integers(0, 3))):
            parent = draw(st.sampled_from(parents))
            kinds = draw(st.lists(st.sampled_from(_NESTED), min_size=1, max_size=2))
            found.append(draw(_providers(len(found), parent, kinds)))
            if parent == root.number:
                parents.append(found[-1].number)
    for _sharing in range(draw(st.integers(0, 2))):
        # Sharing providers are roots, as in production. Placement 16 answers 500 if a tree uses a
        # sharing provider below a root without inventory.
        one = draw(_providers(len(found), None, draw(_seldom(_SHARED[:1], _SHARED))))
        aggregates = one.aggregates or {draw(st.sampled_from(AGGREGATES))}
        found.append(replace(one, traits=one.traits | {SHARES}, aggregates=frozenset(aggregates)))
    return tuple(found)


@st.composite
def requests(draw: st.DrawFn, forest: Forest) -> Request:
    """Draw a request that the forest can probably answer."""
    groups = draw(_all_groups(forest))
    together = sorted(groups.keys() - {UNNUMBERED})
    same_subtree: tuple[frozenset[str], ...] = ()
    if together and draw(_seldom(False, True)):
        if len(together) == 1 or draw(st.booleans()):
            groups["_TOP"] = draw(_TOPS)
            together.append("_TOP")
        same_subtree = (frozenset(together),)
    root = draw(_seldom("", "required", "forbidden"))
    traits = frozenset({draw(st.sampled_from((*OWNERS[:2], *_WORDS)))}) if root else frozenset()
    return Request(
        groups,
        _group_policy(groups, draw(st.sampled_from(("none", "isolate")))),
        same_subtree,
        root_required=traits if root == "required" else frozenset(),
        root_forbidden=traits if root == "forbidden" else frozenset(),
    )


@st.composite
def _all_groups(draw: st.DrawFn, forest: Forest) -> dict[str, Group]:
    root = draw(st.sampled_from([one for one in forest if one.parent is None]))
    tree = [root]
    tree += [one for one in forest if one.parent in {above.number for above in tree}]
    tree += [one for one in forest if one.parent in {above.number for above in tree[1:]}]
    aggregates = frozenset[str]().union(*(one.aggregates for one in tree))
    tree += [one for one in forest if SHARES in one.traits and one.aggregates & aggregates]
    near = st.sampled_from(tree)
    granular = draw(st.sampled_from((0, 1, 1, 2, 2, 3)))
    groups = {}
    if granular == 0 or draw(st.booleans()):
        group = draw(_groups(draw(st.lists(near, min_size=1, max_size=2)), forest))
        shared = {kind for one in forest if SHARES in one.traits for kind in one.inventories}
        if granular and group.resources.keys() <= shared:
            # If sharing providers satisfy a whole group, Placement 16 combines only one host with
            # the other groups, at random.
            group = replace(group, resources={**group.resources, _CPU: 1})
        groups[UNNUMBERED] = group
    for number in range(granular):
        groups[f"_{number}"] = draw(_groups([draw(near)], forest))
    return groups


@st.composite
def _groups(draw: st.DrawFn, meant: Sequence[Provider], forest: Forest) -> Group:
    """Draw a group that the providers ``meant`` satisfy, if its random conditions allow it."""
    first = meant[0]
    kinds = sorted({kind for one in meant for kind in one.inventories})
    owner = draw(st.sampled_from([None, *OWNERS, *_likely_owners(first) * 20]))
    words = draw(_seldom("", "required", "any of", "forbidden"))
    traits = draw(_near(_WORDS, first.traits)) if words else frozenset()
    place = draw(_seldom("", "in tree", "member of", "not member of"))
    aggregates = draw(_near(AGGREGATES, first.aggregates)) if place else frozenset()
    # A request can name its owner also as a required trait.
    named = frozenset({owner}) if owner and draw(_seldom(False, True)) else frozenset()
    return Group(
        {
            kind: draw(_seldom(1, 2))
            for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3, unique=True))
        },
        required=named | (traits if words == "required" else frozenset()),
        any_of=(traits | draw(_some_of(_WORDS, 1)),) if words == "any of" else (),
        forbidden=(frozenset(_WORDS) - traits if words == "forbidden" else frozenset())
        | draw(_seldom(frozenset(), frozenset({SHARES}))),
        member_of=(aggregates,) if place == "member of" else (),
        forbidden_aggregates=frozenset(AGGREGATES[:2]) - aggregates
        if place == "not member of"
        else frozenset(),
        in_tree=draw(st.sampled_from((*[first] * 3, *forest))).uuid if place == "in tree" else None,
        owner=owner,
    )


def _near(items: Sequence[str], there: frozenset[str]) -> st.SearchStrategy[frozenset[str]]:
    """Draw a set with one item; in most cases one that is in ``there``."""
    choice = [*sorted(there & {*items}) * 5, *items]
    return st.sampled_from(choice).map(lambda item: frozenset({item}))


def _likely_owners(one: Provider) -> list[str | None]:
    return [*sorted(one.traits & {*OWNERS})] or [None, "OWNER_NOVA"]


#: Groups without resources. Placement 16 finds no provider for one without a required trait, and
#: ignores its in_tree.
_TOPS = st.one_of(
    st.builds(
        Group,
        st.just({}),
        required=st.sampled_from(_WORDS).map(lambda trait: frozenset({trait})),
        forbidden=_some_of(("OWNER_CYBORG",), 1),
        owner=st.sampled_from((None, *OWNERS)),
    ),
    st.just(Group({}, required=frozenset({"OWNER_NOVA"}), owner="OWNER_NOVA")),
)


def _group_policy(groups: Mapping[str, Group], drawn: str) -> str | None:
    """Return a group policy with which Placement 16 counts the amounts of this request correctly.

    Unless the policy is "none", Placement counts wrongly if two groups take the same class from one
    provider. With "isolate" that happens only if one of them is the group without a suffix, which
    is never isolated.
    """
    kinds = Counter(kind for group in groups.values() for kind in group.resources)
    if any(kinds[kind] > 1 for kind in groups.get(UNNUMBERED, Group({})).resources):
        return "none"
    return drawn if len(groups.keys() - {UNNUMBERED}) > 1 else None


def empty() -> None:
    """Delete all providers and all custom owner traits in Placement, also those of other tests."""
    lab.empty()
    custom = _TRAITS.c.name.startswith("CUSTOM_OWNER_", autoescape=True)
    with db_api.get_placement_engine().begin() as connection:
        connection.execute(delete(_TRAITS).where(custom))


def publish(forest: Forest) -> None:
    """Put a forest into an empty Placement.

    Insert rows into its database, since requests would take most of the time of a test.
    """
    with db_api.get_placement_engine().begin() as connection:
        missing = set(TRAITS) - _ids(connection, _TRAITS).keys()
        connection.execute(insert(_TRAITS), [{"name": name} for name in sorted(missing)])
        traits = _ids(connection, _TRAITS)
        classes = _ids(connection, models.ResourceClass.__table__)
        for table, rows in _rows(forest, traits, classes):
            if rows:
                connection.execute(insert(table), rows)


def _ids(connection: Connection, table: Table) -> dict[str, int]:
    return {row.name: row.id for row in connection.execute(select(table.c.name, table.c.id))}


def _rows(
    forest: Forest, traits: dict[str, int], classes: dict[str, int]
) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    roots: dict[int, int] = {}
    for one in forest:
        roots[one.number] = one.number if one.parent is None else roots[one.parent]
    yield (
        models.ResourceProvider.__table__,
        [
            {
                "id": one.number + 1,
                "uuid": one.uuid,
                "name": f"provider {one.number}",
                "generation": 1,
                "root_provider_id": roots[one.number] + 1,
                "parent_provider_id": None if one.parent is None else one.parent + 1,
            }
            for one in forest
        ],
    )
    yield (
        models.ResourceProviderTrait.__table__,
        [
            {"resource_provider_id": one.number + 1, "trait_id": traits[trait]}
            for one in forest
            for trait in one.traits
        ],
    )
    yield (
        models.PlacementAggregate.__table__,
        [{"id": number + 1, "uuid": uuid} for number, uuid in enumerate(AGGREGATES)],
    )
    yield (
        models.ResourceProviderAggregate.__table__,
        [
            {"resource_provider_id": one.number + 1, "aggregate_id": AGGREGATES.index(uuid) + 1}
            for one in forest
            for uuid in one.aggregates
        ],
    )
    stocks = [
        (
            {"resource_provider_id": one.number + 1, "resource_class_id": classes[kind]},
            stock,
            one,
        )
        for one in forest
        for kind, stock in one.inventories.items()
    ]
    yield (
        models.Inventory.__table__,
        [
            {
                **key,
                "total": stock.total,
                "reserved": stock.reserved,
                "min_unit": 1,
                "max_unit": stock.max_unit,
                "step_size": stock.step_size,
                "allocation_ratio": 1.0,
            }
            for key, stock, _one in stocks
        ],
    )
    yield (
        models.Allocation.__table__,
        [
            {**key, "consumer_id": str(uuid5(NAMESPACE_OID, one.uuid)), "used": stock.used}
            for key, stock, one in stocks
            if stock.used
        ],
    )
