"""One sentence on what would help a request to more candidates."""

from collections import Counter
from datetime import datetime
from itertools import pairwise
from typing import Final

import os_traits

from wharfinger.console import exclusion_reasons
from wharfinger.console.plurals import are, have, many
from wharfinger.console.request_part_advice import NARROWING, named, of_part
from wharfinger.scheduling.explanation import Explanation, Step, Traited, TreeStage, TreeStep

#: What keeps trees out at a step that have a provider for each part in reach.
_KEEPING_OUT: Final = {
    TreeStep.TRAITS: "the traits together",
    TreeStep.TOGETHER: "the amounts together",
    TreeStep.POLICY: "the group policy",
    TreeStep.SUBTREE: "the same subtree",
}
_DISABLED: Final = (Traited(os_traits.COMPUTE_STATUS_DISABLED),)


def sentence(told: Explanation, now: datetime) -> str:
    """What would help, chosen from where the funnel ends; not fit for a terminal yet."""
    if told.candidates:
        return _found(told, now)
    for part in told.parts:
        if not part.survivors:
            return of_part(part, now)
    for before, after in pairwise(told.trees):
        if not after.roots:
            return _of_trees(told, before, after, now)
    return "Placement has no candidates now: ask again, this may have changed meanwhile."


def _found(told: Explanation, now: datetime) -> str:
    there = _there_are(told)
    steps = [
        (before.count - after.count, before, after, part)
        for part in told.parts
        for before, after in pairwise(part.stages)
        if after.step is not Step.CLASS
    ]
    lost, before, after, part = max(steps, key=lambda one: one[0])
    # What has a provider for each part in reach, and falls out as a tree.
    trees = Counter(one.step for one in told.tree_misses if not one.parts)
    if trees and (most := max(trees, key=lambda step: trees[step])) and trees[most] > lost:
        if most is TreeStep.ROOT:
            return f"{there}; {_of_roots(told, now)}"
        dropped = next(stage.dropped for stage in told.trees if stage.step is most)
        what = f"{_KEEPING_OUT[most]}{' or request filters' if dropped else ''}"
        return f"{there}; {what} kept out most: {many(trees[most], 'tree')}."
    if not lost:
        return f"{there}; all that have the classes would do."
    what = NARROWING[after.step]
    return f"{there}; {what} narrowed most: {before.count} to {after.count} for {named(part)}."


def _there_are(told: Explanation) -> str:
    last = told.trees[-1]
    candidates = last.candidates or told.candidates
    more = " or more" if not last.is_all else ""
    listed = f", of which {told.candidates} {are(told.candidates)} listed"
    return (
        f"There {are(candidates)} {many(candidates, 'candidate')}{more} in "
        f"{many(last.count, 'tree')}{' or more' if told.not_looked_at else ''}"
        f"{listed if told.candidates < candidates else ''}"
    )


def _of_trees(told: Explanation, before: TreeStage, after: TreeStage, now: datetime) -> str:
    match after.step:
        case TreeStep.ROOT | TreeStep.PARTS:
            return _of_roots(told, now) or _of_parts(told)
        case TreeStep.TRAITS:
            traits = next(one.traits for one in told.request.groups if not one.suffix)
            return (
                f"{many(before.count, 'tree')} {have(before.count)} it all, and not "
                f"{' with '.join(traits.values())} among those that would give it."
            )
        case TreeStep.POLICY if before.candidates:
            without = " and without --same-subtree" if told.request.same_subtree else ""
            return f"With --group-policy none{without} there would be {before.candidates}."
        case TreeStep.SUBTREE if before.candidates:
            return f"Without --same-subtree there would be {before.candidates}."
    if after.dropped:
        counts = ", ".join(f"{count} by {name}" for name, count in after.dropped.items())
        return f"Request filters dropped all candidates: {counts}."
    see = f": see the tree of {told.tree_misses[0].name}" if told.tree_misses else ""
    return (
        f"{many(before.count, 'tree')} {have(before.count)} something for each group, and not "
        f"enough for all of them together{see}."
    )


def _of_roots(told: Explanation, now: datetime) -> str:
    """What is wrong with roots alone; "" where that is nothing."""
    roots = [one.reasons for one in told.tree_misses if one.reasons and not one.parts]
    if not roots:
        return ""
    [(wrong, count)] = Counter(roots).most_common(1)
    them = f"{many(count, 'tree')} {have(count)} it all"
    if wrong == _DISABLED:
        return f"{them}, and {are(count)} of a disabled service: `wharfinger service enable`."
    return (
        f"{them}, but the root {' and '.join(exclusion_reasons.words(one, now) for one in wrong)}."
    )


def _of_parts(told: Explanation) -> str:
    if not told.tree_misses:
        return "No tree has any of it."
    fewest = min(len(one.parts) for one in told.tree_misses)
    near = [one for one in told.tree_misses if len(one.parts) == fewest]
    [(numbers, count)] = Counter(one.parts for one in near).most_common(1)
    lacking = " and ".join(named(told.parts[number]) for number in numbers)
    first = next(one.name for one in near if one.parts == numbers)
    return (
        f"No tree has it all: {many(count, 'tree')}, such as that of {first}, {have(count)} "
        f"nothing for {lacking}."
    )
