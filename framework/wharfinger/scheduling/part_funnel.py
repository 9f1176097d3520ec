"""Find the providers that each condition of a request excludes. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.providers.inventory import Inventory
from wharfinger.scheduling.explanation import (
    Belonging,
    Held,
    Holding,
    Misfit,
    Miss,
    Outside,
    Part,
    Reason,
    Short,
    Small,
    Stage,
    Step,
    Traited,
    Untraited,
    gap,
)
from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.provider_facts import SHARES, Facts, Stock
from wharfinger.scheduling.request import UNNUMBERED, RequestGroup, ResourceRequest

#: Returns whether a group may take from a provider with these owner and sharing traits.
MayTake = Callable[[RequestGroup, frozenset[str]], bool]
Reasons = tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part of a request: resources that a single provider has to give."""

    group: RequestGroup
    resources: Mapping[str, int]

    @property
    def traits(self) -> TraitConditions:
        """Return the trait conditions on each provider of the resources."""
        # The providers of the group without a suffix may have the required traits together.
        if self.group.suffix == UNNUMBERED and len(self.group.resources) > 1:
            return TraitConditions(forbidden=self.group.traits.forbidden)
        return self.group.traits


def wanted(request: ResourceRequest) -> list[Wanted]:
    """Return the groups; split the one without a suffix by resource class."""
    found = []
    for group in request.groups:
        if group.suffix == UNNUMBERED:
            found += [Wanted(group, {kind: it}) for kind, it in sorted(group.resources.items())]
        else:
            found.append(Wanted(group, group.resources))
    return found


def explain(part: Wanted, facts: Facts, may_take: MayTake | None) -> Part:
    """Return the providers that can and cannot serve one group (or class)."""
    looks = dict(_looks(part, facts, may_take))
    there = frozenset(facts.providers)
    having = frozenset(uuid for uuid in there if _has_classes(facts, part.resources, uuid))
    misses = []
    for uuid in having:
        reasons = {step: found for step, look in looks.items() if (found := look(uuid))}
        if reasons := reasons | _amounts(facts, part.resources, uuid):
            misses.append(Miss(uuid, facts.providers[uuid].name, next(iter(reasons)), reasons))
    misses.sort(key=_distance)
    stages = [Stage(Step.ALL, there)]
    if part.resources:
        stages.append(Stage(Step.CLASS, having))
    return Part(
        suffix=part.group.suffix,
        resources=part.resources,
        stages=(*stages, *_stages([*looks, *(AMOUNTS if part.resources else ())], misses, having)),
        misses=tuple(misses),
        holdings=tuple(_holdings(one for one in misses if one.step is Step.NOT_RESERVED)),
        unowned=sum(one.reasons[one.step] == (Belonging(()),) for one in misses),
        not_looked_at=len(there - having - facts.stocks.keys()),
        last_seen=sum(one.uuid in facts.last_seen and one.step in AMOUNTS for one in misses),
    )


#: The steps that check amounts.
AMOUNTS: Final = (Step.NOT_RESERVED, Step.NOT_USED_UP, Step.ENOUGH, Step.FITTING)
_ORDER: Final = {step: number for number, step in enumerate(Step)}


def _stages(
    steps: Collection[Step], misses: Collection[Miss], left: frozenset[str]
) -> Iterator[Stage]:
    for step in steps:
        gone = [one for one in misses if one.step is step]
        left -= {one.uuid for one in gone}
        yield Stage(step, left, sum(len(one.reasons) == 1 for one in gone))


def _distance(one: Miss) -> tuple[int, bool, int, float, str, str]:
    is_reserved = one.step is Step.NOT_RESERVED  # a reservation may end by itself
    missing = sum(map(gap, one.all_reasons))
    return len(one.reasons), not is_reserved, -_ORDER[one.step], missing, one.name, one.uuid


def _holdings(misses: Iterable[Miss]) -> Iterator[Holding]:
    counts: Counter[str] = Counter()
    first: dict[str, Reserved] = {}
    for one in misses:
        held = [reason for reason in one.reasons[Step.NOT_RESERVED] if isinstance(reason, Held)]
        by = {known for reason in held for known in reason.by}
        counts.update({known.reason for known in by} or {""})
        for known in by:
            first[known.reason] = min(first.get(known.reason, known), known, key=_since)
    for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        yield Holding(reason, count, first.get(reason))


def _since(one: Reserved) -> tuple[bool, float]:
    is_known = isinstance(one.since, datetime)
    return not is_known, one.since.timestamp() if isinstance(one.since, datetime) else 0.0


def _looks(
    part: Wanted, facts: Facts, may_take: MayTake | None
) -> Iterator[tuple[Step, Callable[[str], Reasons]]]:
    group, resources = part.group, part.resources
    if resources and group.in_tree is not None:  # without resources, Placement ignores in_tree
        yield Step.TREE, partial(_tree, facts, group.in_tree)
    if group.member_of or group.forbidden_aggregates:
        yield Step.AGGREGATES, partial(_aggregates, facts, group)
    if resources and may_take is not None:
        yield Step.OWNER, partial(_owner, facts, group, may_take)
    if part.traits:
        yield Step.TRAITS, partial(traits, facts, part.traits)


def _has_classes(facts: Facts, resources: Mapping[str, int], uuid: str) -> bool:
    stocks = facts.stocks.get(uuid)
    if stocks is None:
        return all(uuid in facts.fitting[item] for item in resources.items())
    return resources.keys() <= stocks.keys()


def _tree(facts: Facts, of: str, uuid: str) -> Reasons:
    there = facts.providers.get(of)
    inside = there is not None and facts.root(uuid) == there.root_provider_uuid
    return () if inside else (Outside(Step.TREE),)


def _aggregates(facts: Facts, group: RequestGroup, uuid: str) -> Reasons:
    # For the group without a suffix, the aggregates of a root count for its whole tree.
    places = {uuid, facts.root(uuid)} if group.suffix == UNNUMBERED else {uuid}
    is_member = any(
        all(one in facts.members[aggregates] for aggregates in group.member_of) for one in places
    )
    forbidden = group.forbidden_aggregates
    is_out = bool(forbidden) and bool(places & facts.members[forbidden])
    return () if is_member and not is_out else (Outside(Step.AGGREGATES),)


def _owner(facts: Facts, group: RequestGroup, may_take: MayTake, uuid: str) -> Reasons:
    owners = facts.owners.get(uuid, ())
    shares = {SHARES} if uuid in facts.sharing else set()
    return () if may_take(group, frozenset(owners) | shares) else (Belonging(owners),)


def traits(facts: Facts, conditions: TraitConditions, uuid: str) -> Reasons:
    """Return a reason for each trait condition that the provider does not satisfy."""
    choices = sorted(
        [*conditions.any_of, *(frozenset([one]) for one in conditions.required)], key=sorted
    )
    return (
        *(Untraited(tuple(sorted(one))) for one in choices if uuid not in facts.with_one_of[one]),
        *(
            Traited(one)
            for one in sorted(conditions.forbidden)
            if uuid in facts.with_one_of[frozenset([one])]
        ),
    )


def _amounts(facts: Facts, resources: Mapping[str, int], uuid: str) -> dict[Step, Reasons]:
    found: dict[Step, Reasons] = {}
    for kind, amount in resources.items():
        stock = facts.stocks.get(uuid, {}).get(kind)
        if stock is not None and uuid not in facts.fitting[kind, amount]:
            for step, reason in _failed_steps(kind, amount, stock, facts.reserved.get(uuid, ())):
                found[step] = (*found.get(step, ()), reason)
    return {step: found[step] for step in sorted(found, key=_ORDER.__getitem__)}


def _failed_steps(
    kind: str, amount: int, stock: Stock, held: tuple[Reserved, ...]
) -> Iterator[tuple[Step, Reason]]:
    inventory, short = stock.inventory, Short(kind, amount, stock.capacity, stock.used)
    misfit = _misfit(kind, amount, inventory)
    if stock.capacity < 1 or (stock.used is None and held):
        yield Step.NOT_RESERVED, Held(kind, held)
        most = None if inventory is None else inventory.total * inventory.allocation_ratio
        if most is not None and amount > most:
            yield Step.ENOUGH, Small(kind, amount, int(most))
    elif stock.used is None or stock.used >= stock.capacity:
        yield Step.NOT_USED_UP, short
        if amount > stock.capacity:
            yield Step.ENOUGH, Small(kind, amount, stock.capacity)
    elif amount > stock.capacity:
        yield Step.ENOUGH, Small(kind, amount, stock.capacity)
    elif stock.used + amount > stock.capacity:
        yield Step.ENOUGH, short
    else:
        yield Step.FITTING, misfit or Misfit(kind, amount)
        if inventory is not None and stock.used + inventory.least > stock.capacity:
            yield Step.FITTING, replace(short, asked=inventory.least)
        return
    if misfit is not None:
        yield Step.FITTING, misfit


def _misfit(kind: str, amount: int, inventory: Inventory | None) -> Misfit | None:
    if inventory is not None:
        # A max_unit above the total allows no amount that the total does not allow.
        most = min(amount, inventory.total * inventory.allocation_ratio)
        for figure, value, is_wrong in (
            ("max_unit", inventory.max_unit, most > inventory.max_unit),
            ("min_unit", inventory.min_unit, amount < inventory.min_unit),
            ("step_size", inventory.step_size, amount % inventory.step_size),
        ):
            if is_wrong:
                return Misfit(kind, amount, figure, value)
    return None
