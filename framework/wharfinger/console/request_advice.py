"""Write one sentence of advice on how a request gets candidates, or more candidates."""

from collections.abc import Collection
from datetime import datetime
from itertools import pairwise

from wharfinger.console import exclusion_reasons
from wharfinger.console.plurals import many
from wharfinger.scheduling.explanation import (
    Explanation,
    Held,
    Miss,
    Part,
    Reason,
    TreeMiss,
    TreeStage,
    TreeStep,
)
from wharfinger.scheduling.part_funnel import AMOUNTS
from wharfinger.scheduling.request import UNNUMBERED

#: A remedy as an imperative, such as "request less", and the reason for it.
_RemedyAndReason = tuple[str, str]


def sentence(explained: Explanation, now: datetime) -> str:
    """Return the advice, or "" without one; control characters are not escaped yet."""
    advice = (
        _advice_on_more_candidates(explained, now)
        if explained.candidates
        else _advice_without_candidates(explained, now)
    )
    if advice is None:
        return ""
    remedy, why = advice
    goal = " to get more candidates" if explained.candidates else ""
    return f"{remedy[0].upper()}{remedy[1:]}{goal}: {why}."


def named(part: Part) -> str:
    """Return as text a group, or one resource of the group without a suffix."""
    asked = _resources(part)
    if part.suffix == UNNUMBERED:
        return asked
    return f"group {part.suffix}: {asked}" if asked else f"group {part.suffix}"


def counted(candidates: int, stage: TreeStage) -> str:
    """Return the number of candidates as text, such as "3 candidates or more"."""
    return f"{many(candidates, 'candidate')}{'' if stage.is_all else ' or more'}"


def _resources(part: Part) -> str:
    return " ".join(f"{kind}={amount}" for kind, amount in part.resources.items())


def _advice_without_candidates(explained: Explanation, now: datetime) -> _RemedyAndReason:
    failed = [part for part in explained.parts if not part.survivors]
    if failed:
        return _on_part(min(failed, key=_end), now)
    if explained.tree_misses:
        return _on_tree(explained, explained.tree_misses[0], now)
    if explained.trees[-1].roots:
        return "repeat the command", "Placement has changed meanwhile"
    return "request other trees or aggregates", "the requested ones do not have all resources"


def _advice_on_more_candidates(explained: Explanation, now: datetime) -> _RemedyAndReason | None:
    part = max(explained.parts, key=_excluded_by_amounts)
    lost = _excluded_by_amounts(part)
    trees = [one for one in explained.tree_misses if not one.parts]
    if len(trees) > lost:
        is_most = len(trees) >= explained.trees[-1].count
        return _on_tree(explained, trees[0], now) if is_most else None
    is_most = lost >= max(1, len(part.survivors)) and part.misses[0].step in AMOUNTS
    return _on_part(part, now) if is_most else None


def _end(part: Part) -> int:
    return next(number for number, stage in enumerate(part.stages) if not stage.count)


def _excluded_by_amounts(part: Part) -> int:
    stages = pairwise(part.stages)
    return sum(before.count - after.count for before, after in stages if after.step in AMOUNTS)


def _on_part(part: Part, now: datetime) -> _RemedyAndReason:
    if part.misses:
        return _remedies_of(part.misses[0], part.misses[0].all_reasons, now)
    classes = " and ".join(part.resources)
    if part.not_looked_at:
        return (
            f"release {_resources(part)}",
            "no provider has enough free, and not all were examined",
        )
    if len(part.resources) > 1 and part.stages[0].count:
        return "split the group", f"no provider has {classes}"
    return f"publish a provider{f' with {classes}' if classes else ''}", "Placement has none"


def _on_tree(explained: Explanation, one: TreeMiss, now: datetime) -> _RemedyAndReason:
    before, after = next(pair for pair in pairwise(explained.trees) if pair[1].step is one.step)
    tree, request = f"the tree of {one.name} ({one.uuid})", explained.request
    if one.parts:
        if one.part_misses:
            return _remedies_of(one.part_misses[0], one.part_misses[0].all_reasons, now)
        parts = [explained.parts[number] for number in one.parts]
        lacking = " and ".join(_resources(part) or named(part) for part in parts)
        advice = f"make {lacking} available in {tree}", "it has all other resources"
    elif one.step is TreeStep.ROOT:
        remedy, why = _remedies_of(one, one.reasons, now)
        advice = remedy, f"the root {why}"
    elif one.step is TreeStep.TRAITS:
        traits = next(group.traits for group in request.groups if group.suffix == UNNUMBERED)
        together = " and ".join(traits.values())
        advice = "require fewer traits", f"no suitable providers in {tree} have {together}"
    elif one.step is TreeStep.TOGETHER and after.dropped:
        counts = [f"{name} dropped {many(it, 'candidate')}" for name, it in after.dropped.items()]
        advice = "check the request filters", " and ".join(counts)
    elif one.step is TreeStep.TOGETHER:
        advice = "request less", f"{tree} has too little for all groups together"
    else:
        policy = "use --group-policy none" if one.step is TreeStep.POLICY else ""
        subtree = "omit --same-subtree" if request.same_subtree else ""
        remedies = " and ".join(filter(None, (policy, subtree)))
        advice = remedies, f"this gives {counted(before.candidates or 0, before)}"
    return advice


def _remedies_of(
    one: Miss | TreeMiss, reasons: Collection[Reason], now: datetime
) -> _RemedyAndReason:
    # The remedy for a reservation has two verbs: it is the last.
    reasons = sorted(reasons, key=lambda reason: isinstance(reason, Held))
    remedies = dict.fromkeys(map(exclusion_reasons.remedy, reasons))
    words = " and ".join(exclusion_reasons.words(reason, now) for reason in reasons)
    return " and ".join(remedies), f"{one.name} ({one.uuid}) {words}"
