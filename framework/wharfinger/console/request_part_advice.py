"""One sentence of advice for a part of a request that no provider satisfies."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

from wharfinger.console import reservations
from wharfinger.console.plurals import are, have, many, were
from wharfinger.scheduling import part_funnel
from wharfinger.scheduling.explanation import (
    Belonging,
    Holding,
    Misfit,
    Miss,
    Part,
    Reason,
    Short,
    Stage,
    Step,
    Traited,
    Untraited,
)
from wharfinger.scheduling.request import UNNUMBERED

#: Names of the conditions, by the step that checks them.
NARROWING: Final = {
    Step.TREE: "the requested tree",
    Step.AGGREGATES: "the aggregates",
    Step.OWNER: "the owner",
    Step.TRAITS: "the traits",
    Step.NOT_RESERVED: "reservations",
    Step.NOT_USED_UP: "usage",
    Step.ENOUGH: "the amount",
    Step.FITTING: "the units",
}
#: Steps that may pass later, or with other amounts; the first wins if several exclude as many.
_NEAR: Final = (Step.NOT_RESERVED, Step.TRAITS, Step.FITTING, Step.ENOUGH, Step.NOT_USED_UP)
#: Steps at which other consumers hold the resources.
_OF_OTHERS: Final = (Step.ENOUGH, Step.NOT_USED_UP)
#: Steps at which the request itself selects other providers.
_FAR: Final = (Step.OWNER, Step.AGGREGATES, Step.TREE)


def named(part: Part) -> str:
    """Return the group and resources of a part as the request has them."""
    asked = " ".join(f"{kind}={amount}" for kind, amount in part.resources.items())
    if part.suffix == UNNUMBERED:
        return asked
    return f"group {part.suffix}: {asked}" if asked else f"group {part.suffix}"


def of_part(part: Part, now: datetime) -> str:
    """Return advice for a part without providers; control characters are not escaped yet."""
    alone = {stage.step: stage.alone for stage in part.stages}
    for steps in (_NEAR, _FAR):
        best = max(steps, key=lambda step: len(alone.get(step, ())))
        if misses := alone.get(best, ()):
            own = _alone(part, best, misses, now)
            held = alone.get(Step.NOT_RESERVED, ()) if best in _OF_OTHERS else ()
            # Reservations end by themselves; the operator has to free the rest.
            advice = f"{_reserved(held, now)} {own}" if held else own
            unseen = part.not_looked_at
            return f"{advice} {unseen} more {were(unseen)} not examined." if unseen else advice
    before, after = next(pair for pair in pairwise(part.stages) if not pair[1].count)
    return _ended(part, before, after)


def _ended(part: Part, before: Stage, after: Stage) -> str:
    """Return the advice if several reasons exclude each provider."""
    classes = " and ".join(part.resources)
    if not before.count:
        return "There are no providers in Placement."
    if after.step is not Step.CLASS:
        narrowing = NARROWING[after.step]
        return (
            f"{many(before.count, 'provider')} cannot serve {named(part)} for several reasons, "
            f"first for {narrowing}: see the nearest misses of {named(part)}."
        )
    if unseen := part.not_looked_at:
        return (
            f"No examined provider has {classes}; {unseen} {were(unseen)} not examined, and "
            f"{have(unseen)} no free capacity."
        )
    return f"No provider has {classes}."


def _alone(part: Part, step: Step, misses: Sequence[Miss], now: datetime) -> str:
    """Return the advice for providers that one step alone excludes."""
    before = next(one for one, other in pairwise(part.stages) if other.step is step)
    count = f"{'All ' if before.count == len(misses) > 1 else ''}{len(misses)}"
    reasons = [reason for one in misses for reason in one.reasons[step]]
    match step:
        case Step.NOT_RESERVED:
            own = _reserved(misses, now)
        case Step.TRAITS:
            own = _traits(misses)
        case Step.OWNER:
            own = _owner(part, reasons)
        case Step.NOT_USED_UP:
            own = f"{_suitable(count, len(misses))} {are(len(misses))} used up."
        case Step.ENOUGH:
            own = _enough(reasons, count)
        case Step.FITTING:
            own = _fitting(misses)
        case _:
            where = "in other trees" if step is Step.TREE else "in other aggregates"
            those = f"{_suitable(count, len(misses))} {are(len(misses))} {where}"
            own = f"{those}: request {named(part)} there."
    return own


def _suitable(count: str, number: int) -> str:
    return f"{count} suitable {'provider' if number == 1 else 'providers'}"


def _reserved(misses: Sequence[Miss], now: datetime) -> str:
    those = list(part_funnel.holdings(misses))
    count = len(misses)
    them = f"{many(count, 'provider')} {are(count)} reserved"
    if len(those) == 1:
        return f"{them} {_why(those[0], now)}."
    return f"{them}: {'; '.join(f'{one.providers} {_why(one, now)}' for one in those)}."


def _why(one: Holding, now: datetime) -> str:
    if not one.reason:
        return "by other programs"
    if one.first is None or not isinstance(one.first.since, datetime):
        return f"for {one.reason}"
    first = "" if one.providers == 1 else "the first "
    return f"for {one.reason}, {first}since {reservations.age(one.first.since, now)}"


def _traits(misses: Sequence[Miss]) -> str:
    [(reasons, count)] = Counter(one.reasons[Step.TRAITS] for one in misses).most_common(1)
    lacking = [" or ".join(one.choice) for one in reasons if isinstance(one, Untraited)]
    having = [one.trait for one in reasons if isinstance(one, Traited)]
    what = []
    if lacking:
        what.append(f"{'lacks' if count == 1 else 'lack'} only {' and '.join(lacking)}")
    if having:
        only = "" if lacking else "only "
        what.append(f"{have(count)} {only}{' and '.join(having)}, which the request forbids")
    return f"{many(count, 'provider')} {' and '.join(what)}."


def _owner(part: Part, reasons: Iterable[Reason]) -> str:
    owners = Counter(one.owners for one in reasons if isinstance(one, Belonging))
    [(whose, count)] = owners.most_common(1)
    has, asked = have(count), named(part)
    if not whose:
        return (
            f"{many(count, 'provider')} without an owner {has} {asked}: set the owner trait on "
            "the provider, or request no owner."
        )
    if len(whose) > 1:
        return (
            f"{many(count, 'provider')} of both {' and '.join(whose)} {has} {asked}: leave one "
            "owner trait on the provider."
        )
    return f"{many(count, 'provider')} of {whose[0]} {has} {asked}: request that owner."


def _enough(reasons: Iterable[Reason], count: str) -> str:
    short = [one for one in reasons if isinstance(one, Short)]
    free = [one.capacity - one.used for one in short if one.used is not None and one.capacity]
    [one, *_others] = short
    return (
        f"{count} {'has' if count == '1' else 'have'} {one.resource_class} free, {max(free)} at "
        f"most: {one.asked} {are(one.asked)} requested."
    )


def _fitting(misses: Sequence[Miss]) -> str:
    reasons = [one.reasons[Step.FITTING] for one in misses]
    # Providers that are also Short have less free than their smallest unit.
    free = [some for some in reasons if not any(isinstance(one, Short) for one in some)]
    known = Counter(
        one for some in free or reasons for one in some if isinstance(one, Misfit) and one.figure
    )
    if not known:
        them = many(len(misses), "provider")
        return f"{them} {have(len(misses))} enough, but not in units of that size."
    [(one, _times)] = known.most_common(1)
    it = f"{one.figure} of {one.resource_class}"
    if not free:
        them = many(len(misses), "provider")
        return f"{it} is {one.value}, and {them} {have(len(misses))} less free."
    match one.figure:
        case "max_unit":
            return f"{it} is {one.value}: request {-(-one.asked // one.value)} groups."
        case "min_unit":
            return f"{it} is {one.value}: request at least that many."
        case _:
            return f"{it} is {one.value}: request a multiple of it."
