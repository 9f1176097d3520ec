"""The explanation of a request's candidates, as text and as JSON."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

from rich.text import Text

from wharfinger.console import exclusion_reasons, request_advice, reservations
from wharfinger.console.plurals import many
from wharfinger.console.request_part_advice import named
from wharfinger.exceptions import printable
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import part_funnel
from wharfinger.scheduling.explanation import (
    Explanation,
    Held,
    Miss,
    Part,
    Stage,
    Step,
    TreeMiss,
    TreeStage,
    TreeStep,
)
from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.request import RequestGroup

#: Label, count and remark of a table row.
_Row = tuple[str, int, str]
_TREES: Final = {
    TreeStep.ALL: "trees",
    TreeStep.ROOT: "with a suitable root",
    TreeStep.PARTS: "with a provider for each group",
    TreeStep.TRAITS: "with all required traits",
    TreeStep.TOGETHER: "with enough for all groups",
    TreeStep.POLICY: "that satisfy the group policy",
    TreeStep.SUBTREE: "that satisfy same_subtree",
}


def as_text(explained: Explanation, now: datetime) -> Iterator[Text]:
    """Yield a table for each part of the request, a table of trees, and one line of advice."""
    groups = {group.suffix: group for group in explained.request.groups}
    for part in explained.parts:
        yield Text(printable(named(part)), style="bold")
        yield from _table(list(_rows(part, groups[part.suffix])))
        for one in part.holdings:
            yield _line(_holding(one.reason, one.providers, one.first, now), "yellow")
        for miss in part.misses:
            yield _line(f"{miss.name} ({miss.uuid}) {_of_miss(miss, now)}")
        yield Text()
    yield Text("the whole request", style="bold")
    yield from _table(list(_tree_rows(explained)))
    for tree in explained.tree_misses[: part_funnel.NAMED]:
        yield _line(f"the tree of {tree.name} ({tree.uuid}) {_of_tree(explained, tree, now)}")
    yield Text()
    yield Text(printable(request_advice.sentence(explained, now)), style="bold")


def as_data(explained: Explanation, now: datetime) -> dict[str, Any]:
    """Return the explanation as plain data; times are ISO 8601 texts, ages are in seconds."""
    return {
        "candidates": explained.candidates,
        "dropped": dict(explained.dropped),
        "advice": printable(request_advice.sentence(explained, now)),
        "parts": [_part_data(part, now) for part in explained.parts],
        "trees": [_tree_data(stage) for stage in explained.trees],
        "sharing_not_looked_at": explained.not_looked_at,
        "nearest_trees": [
            {
                "uuid": one.uuid,
                "name": one.name,
                "step": str(one.step),
                "without": [named(explained.parts[number]) for number in one.parts],
                "reasons": [exclusion_reasons.words(reason, now) for reason in one.reasons],
            }
            for one in explained.tree_misses[: part_funnel.NAMED]
        ],
    }


def _part_data(part: Part, now: datetime) -> dict[str, Any]:
    return {
        "group": part.suffix,
        "resources": dict(part.resources),
        "stages": [
            {
                "step": str(one.step),
                "providers": one.count,
                "kept_out_by_this_alone": _alone(one),
            }
            for one in part.stages
        ],
        "not_looked_at": part.not_looked_at,
        "as_last_seen": part.last_seen,
        "reserved": [
            {
                "reason": one.reason or None,
                "providers": one.providers,
                "first": None if one.first is None else _reserved_data(one.first, now),
            }
            for one in part.holdings
        ],
        "nearest": [
            {
                "uuid": one.uuid,
                "name": one.name,
                "step": str(one.step),
                "reasons": [exclusion_reasons.words(reason, now) for reason in _all(one)],
                "reserved": [_reserved_data(known, now) for known in _holders(one)],
            }
            for one in part.misses
        ],
    }


def _tree_data(stage: TreeStage) -> dict[str, Any]:
    return {
        "step": str(stage.step),
        "trees": stage.count,
        "candidates": stage.candidates,
        "is_all": stage.is_all,
        "dropped": dict(stage.dropped),
    }


def _reserved_data(one: Reserved, now: datetime) -> dict[str, Any]:
    seconds = None
    if isinstance(one.since, datetime):
        seconds = max(0, int((now - one.since).total_seconds()))
    return {**reservations.as_data(one), "age": seconds}


def _all(miss: Miss) -> list[Any]:
    return list(chain(*miss.reasons.values()))


def _holders(miss: Miss) -> list[Reserved]:
    held = (one for one in _all(miss) if isinstance(one, Held))
    return list(dict.fromkeys(chain.from_iterable(one.by for one in held)))


def _line(text: str, style: str = "dim") -> Text:
    return Text(f"  {printable(text)}", style=style)


def _table(rows: Sequence[_Row]) -> Iterator[Text]:
    """Yield the lines of a table; it ends at the first row whose count is 0."""
    end = next((number for number, row in enumerate(rows, 1) if not row[1]), len(rows))
    shown = [(printable(name), str(count), printable(notes)) for name, count, notes in rows[:end]]
    names = max(len(name) for name, _count, _said in shown)
    counts = max(len(count) for _name, count, _said in shown)
    for name, count, notes in shown:
        line = Text(f"  {name:<{names}}  ")
        line.append(f"{count:>{counts}}", style="red" if count == "0" else "")
        yield line.append(f"  {notes}", style="dim") if notes else line


def _rows(part: Part, group: RequestGroup) -> Iterator[_Row]:
    before = part.stages[0].count
    for stage in part.stages:
        notes = []
        if out := before - stage.count:
            alone = _alone(stage)
            notes.append(f"{out} out" + (f", {alone} for this reason alone" if alone else ""))
        if stage.step is Step.CLASS and part.not_looked_at:
            notes.append(f"{part.not_looked_at} not examined")
        if stage.step is Step.NOT_RESERVED and part.last_seen:
            notes.append(f"{part.last_seen} by the last report of their drivers")
        yield _name(stage, part, group), stage.count, "; ".join(notes)
        before = stage.count


def _alone(stage: Stage) -> int | None:
    """Return how many providers this step alone excludes.

    Return None for the step of reservations: the usage of fully reserved providers is unknown.
    """
    return None if stage.step is Step.NOT_RESERVED else len(stage.alone)


def _name(stage: Stage, part: Part, group: RequestGroup) -> str:
    names = {
        Step.ALL: "providers",
        Step.CLASS: f"with {' and '.join(part.resources)}",
        Step.TREE: "in the requested tree",
        Step.AGGREGATES: "in the requested aggregates",
        Step.OWNER: f"open to {group.owner or 'requests without an owner'}",
        Step.TRAITS: _traits(group.traits),
        Step.NOT_RESERVED: "not fully reserved",
        Step.NOT_USED_UP: "not used up",
        Step.ENOUGH: "with enough free",
        Step.FITTING: "in units that fit",
    }
    return names[stage.step]


def _traits(conditions: TraitConditions) -> str:
    return f"with {' and '.join(conditions.values())}"


def _tree_rows(explained: Explanation) -> Iterator[_Row]:
    for stage in explained.trees:
        notes = []
        if stage.step is TreeStep.PARTS and explained.not_looked_at:
            notes.append(f"{explained.not_looked_at} sharing providers not examined")
        if stage.candidates is not None:
            all_of_them = many(stage.candidates, "candidate")
            notes.append(all_of_them if stage.is_all else f"{stage.candidates} or more candidates")
        notes += [f"{count} dropped by {name}" for name, count in stage.dropped.items()]
        yield _TREES[stage.step], stage.count, ", ".join(notes)


def _holding(reason: str, providers: int, first: Reserved | None, now: datetime) -> str:
    if first is None:
        return f"{providers} reserved{f': {reason}' if reason else ' by other programs'}"
    which = "" if providers == 1 else "the first: "
    return f"{providers} reserved: {which}{exclusion_reasons.holder(first, now)}"


def _of_miss(miss: Miss, now: datetime) -> str:
    return ", ".join(exclusion_reasons.words(reason, now) for reason in _all(miss))


def _of_tree(explained: Explanation, one: TreeMiss, now: datetime) -> str:
    notes = [f"has no provider for {named(explained.parts[number])}" for number in one.parts]
    notes += [f"has a root that {exclusion_reasons.words(reason, now)}" for reason in one.reasons]
    return ", ".join(notes) or f"is not among the trees {_TREES[one.step]}"
