"""Show the explanation of a request's candidates as text and as JSON data."""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, groupby, pairwise
from typing import Any, Final

from wharfinger.console import exclusion_reasons, request_advice, reservations
from wharfinger.console.plurals import many
from wharfinger.console.request_advice import counted, named
from wharfinger.exceptions import printable
from wharfinger.scheduling.explanation import NAMED, Explanation, Held, Part, Step, TreeStage
from wharfinger.scheduling.provider_details import Reserved

#: ``_excluded`` has the texts for CLASS and OWNER.
_EXCLUDED: Final = {
    Step.TREE: "in another tree",
    Step.AGGREGATES: "in the wrong aggregates",
    Step.TRAITS: "with the wrong traits",
    Step.NOT_RESERVED: "reserved",
    Step.NOT_USED_UP: "used up",
    Step.ENOUGH: "with too little free",
    Step.FITTING: "that do not allow this amount",
}


def as_text(explained: Explanation, now: datetime) -> Iterator[str]:
    """Yield the lines of an explanation."""
    yield _candidates(explained)
    for (_suffix, _survivors, counts), parts in groupby(explained.parts, key=_counts):
        yield printable(f"{' '.join(map(named, parts))}: {counts}.")
    if advice := request_advice.sentence(explained, now):
        yield printable(advice)


def as_data(explained: Explanation, now: datetime) -> dict[str, Any]:
    """Return an explanation as JSON data; ages are in seconds."""
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
            for one in explained.tree_misses[:NAMED]
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
                # The usage of reserved providers is unknown.
                "kept_out_by_this_alone": None if one.step is Step.NOT_RESERVED else one.alone,
            }
            for one in part.stages
        ],
        "unowned": part.unowned,
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
                "reasons": [exclusion_reasons.words(reason, now) for reason in one.all_reasons],
                "reserved": [
                    _reserved_data(known, now)
                    for known in dict.fromkeys(
                        chain(*(it.by for it in one.all_reasons if isinstance(it, Held)))
                    )
                ],
            }
            for one in part.misses[:NAMED]
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


def _candidates(explained: Explanation) -> str:
    if not explained.candidates:
        return "No candidates."
    last = explained.trees[-1]
    candidates = counted(last.candidates or explained.candidates, last)
    more = " or more" if explained.not_looked_at else ""
    return f"{candidates} in {many(last.count, 'tree')}{more}."


def _counts(part: Part) -> tuple[str, frozenset[str], str]:
    left = part.survivors
    text = f"{len(left)} of {many(part.stages[0].count, 'provider')} suitable"
    # In most trees, some providers only have other classes.
    is_plain = bool(left) and part.resources and left == part.stages[1].providers
    others = [] if is_plain else [f"{count} {what}" for count, what in _excluded(part) if count]
    return part.suffix, left, f"{text}: {', '.join(others)}" if others else text


def _excluded(part: Part) -> Iterator[tuple[int, str]]:
    for before, after in pairwise(part.stages):
        count = before.count - after.count
        match after.step:
            case Step.CLASS:
                yield count - part.not_looked_at, f"without {' or without '.join(part.resources)}"
                yield part.not_looked_at, "not examined"
            case Step.OWNER:
                yield count - part.unowned, "of another owner"
                yield part.unowned, "without an owner"
            case _:
                yield count, _EXCLUDED[after.step]
