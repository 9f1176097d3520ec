"""Explain requests for candidates from made-up facts about providers, without any service."""

from collections.abc import Mapping
from dataclasses import replace

from tests.lab.samples import uuid
from wharfinger.placement.model import ProviderSummary
from wharfinger.placement.trait_conditions import NO_CONDITIONS, TraitConditions
from wharfinger.providers import Inventory, ownership
from wharfinger.scheduling import RequestGroup, ResourceRequest, part_funnel, request_funnel
from wharfinger.scheduling.explanation import Explanation, TreeStage
from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.provider_facts import SHARES, Facts, Stock

NOVA, CYBORG = "OWNER_NOVA", "OWNER_CYBORG"


class World:
    """Made-up facts about providers, added one by one. A provider's uuid is made of its name."""

    def __init__(self) -> None:
        self.facts = Facts(providers={})
        self._traits: dict[str, frozenset[str]] = {}
        self._aggregates: dict[str, frozenset[str]] = {}

    def has(
        self,
        name: str,
        stocks: Mapping[str, Stock] | None,
        *traits: str,
        below: str | None = None,
        aggregates: frozenset[str] = frozenset(),
        reserved: tuple[Reserved, ...] = (),
    ) -> None:
        """Add a provider; ``stocks`` is None if its inventories were not read."""
        root = self.facts.root(uuid(below)) if below else uuid(name)
        one = ProviderSummary(uuid(name), name, 1, root, below and uuid(below))
        facts = self.facts
        self.facts = replace(
            facts,
            providers={**facts.providers, one.uuid: one},
            owners={**facts.owners, one.uuid: tuple(sorted(ownership.owners(traits)))},
            reserved={**facts.reserved, one.uuid: reserved} if reserved else facts.reserved,
            stocks=facts.stocks if stocks is None else {**facts.stocks, one.uuid: stocks},
        )
        self._traits[one.uuid] = frozenset(traits)
        self._aggregates[one.uuid] = aggregates

    def shares(self, name: str, *roots: str) -> None:
        """Let the trees of these roots use the sharing provider ``name``."""
        reached = {**self.facts.reached, uuid(name): frozenset(map(uuid, roots))}
        self.facts = replace(self.facts, reached=reached)

    def told(
        self,
        request: ResourceRequest,
        *asked: TreeStage,
        root: TraitConditions = NO_CONDITIONS,
        candidates: int = 0,
        minds_owners: bool = True,
    ) -> Explanation:
        """Return the explanation of a request.

        ``asked`` has the stages whose results come from Placement in production. Without
        ``minds_owners``, a group may use providers of any owner.
        """
        facts = self._seen(request, root)
        parts = tuple(
            part_funnel.explain(one, facts, _may_take if minds_owners else None)
            for one in part_funnel.wanted(request)
        )
        stages = (*request_funnel.before_asking(request, root, parts, facts), *asked)
        return Explanation(
            request=request,
            parts=parts,
            trees=stages,
            tree_misses=request_funnel.misses(
                stages, root, request_funnel.within(request, parts, facts), parts, facts
            ),
            candidates=candidates,
            dropped={},
        )

    def _seen(self, request: ResourceRequest, root: TraitConditions) -> Facts:
        """Return the facts, completed with those that production code reads for this request."""
        choices = {frozenset([SHARES])}
        for one in (root, *(group.traits for group in request.groups)):
            choices |= one.any_of | {frozenset([trait]) for trait in one.required | one.forbidden}
        places = {
            one
            for group in request.groups
            for one in (*group.member_of, group.forbidden_aggregates)
        }
        return replace(
            self.facts,
            with_one_of={one: _those(self._traits, one) for one in choices},
            members={one: _those(self._aggregates, one) for one in places},
            fitting={
                (kind, amount): frozenset(
                    one for one, its in self.facts.stocks.items() if _fits(its.get(kind), amount)
                )
                for group in request.groups
                for kind, amount in group.resources.items()
            },
        )


def stock(total: int, used: int | None = 0, **figures: int) -> Stock:
    """Return the Stock of an inventory with all figures known; ``used`` None is unknown."""
    inventory = Inventory(total=total, **figures)
    return Stock(int(inventory.capacity), used, inventory)


def asking(
    suffix: str = "", owner: str = NOVA, required: str = "", **resources: int
) -> RequestGroup:
    """Return a request group for these amounts."""
    traits = TraitConditions.parse([required] if required else [])
    return RequestGroup(suffix=suffix, resources=resources, traits=traits, owner=owner)


def wanted(*groups: RequestGroup, **values: object) -> ResourceRequest:
    policy = "none" if sum(bool(group.suffix) for group in groups) > 1 else None
    return ResourceRequest(groups=groups, **({"group_policy": policy} | values))  # type: ignore[arg-type]


def _may_take(group: RequestGroup, traits: frozenset[str]) -> bool:
    return ownership.owners(traits) == {group.owner}


def _those(has: Mapping[str, frozenset[str]], one_of: frozenset[str]) -> frozenset[str]:
    return frozenset(uuid for uuid, its in has.items() if its & one_of)


def _fits(stock: Stock | None, amount: int) -> bool:
    if stock is None or stock.used is None or stock.used + amount > stock.capacity:
        return False
    figures = stock.inventory
    return figures is None or (
        figures.min_unit <= amount <= figures.max_unit and not amount % figures.step_size
    )
