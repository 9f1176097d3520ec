"""Funnels by brute force: the number of providers left at each step, from Placement's API.

Do not import the framework: tests compare explanations with this module. Each step checks the
conditions of all steps before it, anew, for each provider and each tree.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tests.lab import brute_force
from tests.lab.brute_force import UNNUMBERED, Group, Provider, Providers, Request, Rule

Test = Callable[[Provider], bool]
#: Number left, by step.
Counts = dict[str, int]


def parts(request: Request) -> list[tuple[str, Group, dict[str, int]]]:
    """Return the suffix, the group and the resources of each part."""
    found = []
    for suffix, group in request.groups.items():
        if suffix == UNNUMBERED:
            found += [
                (suffix, group, {kind: amount}) for kind, amount in sorted(group.resources.items())
            ]
        else:
            found.append((suffix, group, dict(group.resources)))
    return found


def of_part(
    providers: Providers,
    suffix: str,
    group: Group,
    resources: Mapping[str, int],
    rule: Rule | None,
) -> Counts:
    """Return the number of providers left at each step for a part; without a rule, of any owner."""
    counts = {}
    left = list(providers.by_uuid.values())
    for step, test in _tests(providers, suffix, group, resources, rule):
        left = [one for one in left if test(one)]
        counts[step] = len(left)
    return counts


def _tests(
    providers: Providers,
    suffix: str,
    group: Group,
    resources: Mapping[str, int],
    rule: Rule | None,
) -> Iterator[tuple[str, Test]]:
    def places(one: Provider) -> list[Provider]:
        return [one] if suffix else [one, providers.by_uuid[one.root]]

    yield "all", lambda one: True
    if resources:
        yield "class", lambda one: resources.keys() <= one.inventories.keys()
        if group.in_tree:
            yield "in_tree", lambda one: one.root == providers.by_uuid[str(group.in_tree)].root
    if group.member_of or group.forbidden_aggregates:
        yield (
            "aggregates",
            lambda one: (
                any(all(choice & it.aggregates for choice in group.member_of) for it in places(one))
                and not any(group.forbidden_aggregates & it.aggregates for it in places(one))
            ),
        )
    if resources and rule:
        yield "owner", lambda one: rule(one, group.owner)
    wanted = group.required | frozenset().union(*group.any_of)
    is_each = bool(suffix) or len(group.resources) == 1
    if group.forbidden or (wanted and is_each):
        yield (
            "traits",
            lambda one: (
                not group.forbidden & one.traits
                and (
                    not is_each
                    or (
                        group.required <= one.traits
                        and all(choice & one.traits for choice in group.any_of)
                    )
                )
            ),
        )
    if resources:
        yield "not_reserved", lambda one: all(_capacity(one, kind) >= 1 for kind in resources)
        yield (
            "not_used_up",
            lambda one: all(_capacity(one, kind) - one.used[kind] >= 1 for kind in resources),
        )
        yield (
            "enough",
            lambda one: all(
                _capacity(one, kind) - one.used[kind] >= amount
                for kind, amount in resources.items()
            ),
        )
        yield (
            "fitting",
            lambda one: all(one.gives(kind, amount) for kind, amount in resources.items()),
        )


def _capacity(one: Provider, kind: str) -> int:
    stock = one.inventories[kind]
    return int((stock["total"] - stock["reserved"]) * stock["allocation_ratio"])


def of_trees(providers: Providers, request: Request, rule: Rule) -> Counts:
    """Return the number of trees left at each step."""
    left = list(providers.reach)
    counts = {"all": len(left)}
    for step, test in _tree_tests(providers, request, rule):
        left = [root for root in left if test(root)]
        counts[step] = len(left)
    return counts


def _tree_tests(
    providers: Providers, request: Request, rule: Rule
) -> Iterator[tuple[str, Callable[[str], bool]]]:
    def has(asked: Request) -> Callable[[str], bool]:
        return lambda root: bool(brute_force.candidates(_only(providers, root), asked, rule))

    if request.root_required or request.root_forbidden:
        yield (
            "root",
            lambda root: (
                request.root_required <= providers.by_uuid[root].traits
                and not request.root_forbidden & providers.by_uuid[root].traits
            ),
        )

    groups = [
        (suffix, replace(group, resources=resources), suffix or len(group.resources) == 1)
        for suffix, group, resources in parts(request)
    ]
    singles = [
        Request({suffix: group if is_each else replace(group, required=frozenset(), any_of=())})
        for suffix, group, is_each in groups
    ]
    yield "parts", lambda root: all(has(one)(root) for one in singles)
    unnumbered = request.groups.get(UNNUMBERED)
    if unnumbered and len(unnumbered.resources) > 1 and (unnumbered.required or unnumbered.any_of):
        yield "traits", has(Request({UNNUMBERED: unnumbered}))
    takers = {suffix: group for suffix, group in request.groups.items() if group.resources}
    plain = Request(takers, "none", (), request.root_required, request.root_forbidden)
    yield "together", has(plain)
    if request.group_policy == "isolate" and len(takers.keys() - {UNNUMBERED}) > 1:
        yield "group_policy", has(replace(plain, group_policy="isolate"))
    if request.same_subtree:
        yield "same_subtree", has(request)


def _only(providers: Providers, root: str) -> Providers:
    """Return the providers, as if only this tree had inventory."""
    only = Providers(providers.by_uuid)
    object.__setattr__(only, "reach", {root: providers.reach[root]})
    return only
