"""One sentence of advice on how a request gets more candidates."""

from collections import Counter
from datetime import datetime
from itertools import pairwise
from typing import Final

import os_traits

from wharfinger.console import exclusion_reasons
from wharfinger.console.plurals import are, have, many
from wharfinger.console.request_part_advice import NARROWING, named, of_part
from wharfinger.scheduling.explanation import Explanation, Step, Traited, TreeStage, TreeStep

#: Names of the conditions of trees, by the step that checks them.
_KEEPING_OUT: Final = {
    TreeStep.TRAITS: "the traits together",
    TreeStep.TOGETHER: "the amounts together",
    TreeStep.POLICY: "the group policy",
    TreeStep.SUBTREE: "the same subtree",
}
_DISABLED: Final = (Traited(os_traits.COMPUTE_STATUS_DISABLED),)


def sentence(explained: Explanation, now: datetime) -> str:
    """Return advice on the first step that leaves nothing; control characters are not escaped."""
    if explained.candidates:
        return _found(explained, now)
    for part in explained.parts:
        if not part.survivors:
            return of_part(part, now)
    for before, after in pairwise(explained.trees):
        if not after.roots:
            return _of_trees(explained, before, after, now)
    return "Repeat the command: Placement has no candidates, and may have changed meanwhile."


def _found(explained: Explanation, now: datetime) -> str:
    there = _there_are(explained)
    steps = [
        (before.count - after.count, before, after, part)
        for part in explained.parts
        for before, after in pairwise(part.stages)
        if after.step is not Step.CLASS
    ]
    lost, before, after, part = max(steps, key=lambda one: one[0])
    # Trees that have a provider for each part, and fail a condition of the whole tree.
    trees = Counter(one.step for one in explained.tree_misses if not one.parts)
    if trees and (most := max(trees, key=lambda step: trees[step])) and trees[most] > lost:
        if most is TreeStep.ROOT:
            return f"{there}; {_of_roots(explained, now)}"
        dropped = next(stage.dropped for stage in explained.trees if stage.step is most)
        what = f"{_KEEPING_OUT[most]}{' or request filters' if dropped else ''}"
        return f"{there}; {what} excluded most: {many(trees[most], 'tree')}."
    if not lost:
        return f"{there}; each provider of the resource classes is suitable."
    what = NARROWING[after.step]
    return f"{there}; {what} narrowed most: {before.count} to {after.count} for {named(part)}."


def _there_are(explained: Explanation) -> str:
    last = explained.trees[-1]
    candidates = last.candidates or explained.candidates
    more = " or more" if not last.is_all else ""
    listed = f", of which {explained.candidates} {are(explained.candidates)} listed"
    return (
        f"There {are(candidates)} {many(candidates, 'candidate')}{more} in "
        f"{many(last.count, 'tree')}{' or more' if explained.not_looked_at else ''}"
        f"{listed if explained.candidates < candidates else ''}"
    )


def _of_trees(explained: Explanation, before: TreeStage, after: TreeStage, now: datetime) -> str:
    match after.step:
        case TreeStep.ROOT | TreeStep.PARTS:
            return _of_roots(explained, now) or _of_parts(explained)
        case TreeStep.TRAITS:
            traits = next(one.traits for one in explained.request.groups if not one.suffix)
            return (
                f"{many(before.count, 'tree')} {have(before.count)} all resources, but their "
                f"providers do not have {' with '.join(traits.values())} together."
            )
        case TreeStep.POLICY if before.candidates:
            without = " and without --same-subtree" if explained.request.same_subtree else ""
            return (
                f"Use --group-policy none{without} to get {many(before.candidates, 'candidate')}."
            )
        case TreeStep.SUBTREE if before.candidates:
            return f"Omit --same-subtree to get {many(before.candidates, 'candidate')}."
    if after.dropped:
        counts = ", ".join(f"{count} by {name}" for name, count in after.dropped.items())
        return f"Request filters dropped all candidates: {counts}."
    see = f": see the tree of {explained.tree_misses[0].name}" if explained.tree_misses else ""
    return (
        f"{many(before.count, 'tree')} {have(before.count)} a provider for each group, but not "
        f"enough for all groups together{see}."
    )


def _of_roots(explained: Explanation, now: datetime) -> str:
    """Return the advice on trees that only their roots exclude; "" if there are none."""
    roots = [one.reasons for one in explained.tree_misses if one.reasons and not one.parts]
    if not roots:
        return ""
    [(wrong, count)] = Counter(roots).most_common(1)
    them = f"{many(count, 'tree')} {have(count)} all resources"
    if wrong == _DISABLED:
        return f"{them}, but {are(count)} of a disabled service: run `wharfinger service enable`."
    return (
        f"{them}, but the root {' and '.join(exclusion_reasons.words(one, now) for one in wrong)}."
    )


def _of_parts(explained: Explanation) -> str:
    if not explained.tree_misses:
        return "No tree has any of the requested resources."
    fewest = min(len(one.parts) for one in explained.tree_misses)
    near = [one for one in explained.tree_misses if len(one.parts) == fewest]
    [(numbers, count)] = Counter(one.parts for one in near).most_common(1)
    lacking = " and ".join(named(explained.parts[number]) for number in numbers)
    first = next(one.name for one in near if one.parts == numbers)
    return (
        f"No tree has all resources: {many(count, 'tree')}, such as that of {first}, "
        f"{have(count)} no provider for {lacking}."
    )
