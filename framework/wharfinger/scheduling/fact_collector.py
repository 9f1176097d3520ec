"""Collect the facts that explain the candidates of a request."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from wharfinger.exceptions import NotFound
from wharfinger.objects import Context
from wharfinger.placement import owner_trait_reader
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import provider_details
from wharfinger.scheduling.part_funnel import Wanted
from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.provider_facts import SHARES, Facts, Stock
from wharfinger.scheduling.provider_inventories import Stocks
from wharfinger.scheduling.request import ResourceRequest

#: The largest number of sharing providers whose aggregates are read.
_SHARING: Final = 50


def gather(
    client: PlacementClient,
    objects: Context | None,
    parts: Iterable[Wanted],
    request: ResourceRequest,
    root: TraitConditions,
    *,
    reads_owners: bool,
) -> Facts:
    """Return the facts that explain the candidates of a request.

    Raises PlacementError, ObjectError and StateError.
    """
    parts = list(parts)
    facts = Facts(providers={one.uuid: one for one in client.list_providers()})
    facts = replace(
        facts,
        with_one_of=_with_one_of(client, request, root),
        members=_members(client, request),
        owners=owner_trait_reader.by_provider(client) if reads_owners else {},
        reserved=_reserved(objects),
    )
    facts = Stocks(client, objects, facts, parts).gather()
    return facts if objects is None else _with_unexplained(objects, parts, facts)


def with_figures(client: PlacementClient, facts: Facts, uuids: Iterable[str]) -> Facts:
    """Return the facts with the inventories and usages of these providers."""
    stocks, providers = dict(facts.stocks), dict(facts.providers)
    for uuid in uuids:
        known = {kind: its.used for kind, its in stocks.get(uuid, {}).items()}
        try:
            inventories = client.get_inventories(uuid).inventories
            used = client.get_usages(uuid) if None in known.values() else known
        except NotFound:
            providers.pop(uuid)
        else:
            stocks[uuid] = {
                kind: Stock(int(one.capacity), used.get(kind) or 0, one)
                for kind, one in inventories.items()
            }
    return replace(facts, stocks=stocks, providers=providers)


def with_reach(client: PlacementClient, facts: Facts, uuids: Iterable[str]) -> Facts:
    """Return the facts with the trees that up to 50 of these providers share with."""
    reached: dict[str, frozenset[str]] = {}
    lists: dict[frozenset[str], frozenset[str]] = {}
    sharing = sorted(facts.sharing & frozenset(uuids) & facts.providers.keys())
    for uuid in sharing[:_SHARING]:
        try:
            aggregates = client.get_aggregates(uuid).aggregates
        except NotFound:
            continue
        if aggregates and aggregates not in lists:
            lists[aggregates] = _uuids_in(client, aggregates)
        reached[uuid] = frozenset(
            facts.root(one) for one in lists.get(aggregates, ()) if one in facts.providers
        )
    return replace(facts, reached=reached, not_reached=len(sharing[_SHARING:]))


def _with_one_of(
    client: PlacementClient, request: ResourceRequest, root: TraitConditions
) -> dict[frozenset[str], frozenset[str]]:
    conditions = [root, *(group.traits for group in request.groups)]
    choices = {frozenset([SHARES])}
    for one in conditions:
        choices |= one.any_of | {frozenset([trait]) for trait in one.required | one.forbidden}
    return {
        one: frozenset(
            found.uuid
            for found in client.list_providers(
                required=TraitConditions(any_of=frozenset([one])).values()
            )
        )
        for one in sorted(choices, key=sorted)
    }


def _members(
    client: PlacementClient, request: ResourceRequest
) -> dict[frozenset[str], frozenset[str]]:
    sets = {frozenset[str]()}.union(
        *({*group.member_of, group.forbidden_aggregates} for group in request.groups)
    )
    return {one: _uuids_in(client, one) for one in sorted(sets - {frozenset()}, key=sorted)}


def _uuids_in(client: PlacementClient, aggregates: frozenset[str]) -> frozenset[str]:
    condition = f"in:{','.join(sorted(aggregates))}"
    return frozenset(one.uuid for one in client.list_providers(member_of=(condition,)))


def _reserved(objects: Context | None) -> dict[str, tuple[Reserved, ...]]:
    found: dict[str, tuple[Reserved, ...]] = {}
    for one in provider_details.reserved(objects) if objects else ():
        found[one.provider_uuid] = (*found.get(one.provider_uuid, ()), one)
    return found


def _with_unexplained(objects: Context, parts: Iterable[Wanted], facts: Facts) -> Facts:
    classes = {kind for one in parts for kind in one.resources}
    full = {
        uuid: frozenset(kind for kind in classes if kind in its and its[kind].capacity < 1)
        for uuid, its in facts.stocks.items()
        if uuid not in facts.reserved
    }
    full = {uuid: kinds for uuid, kinds in full.items() if kinds}
    found = provider_details.unexplained(objects, full)
    return replace(facts, reserved={**facts.reserved, **{u: (one,) for u, one in found.items()}})
