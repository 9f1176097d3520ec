"""Explanation of a request's candidates, as values. Pure.

For each part of a request, a funnel excludes providers; one more funnel excludes trees for the
whole request. Each stage keeps a subset of the stage before it. The console has the texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from math import inf
from typing import Final

from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.request import ResourceRequest

#: The number of nearest misses that are named.
NAMED: Final = 5


class Step(StrEnum):
    """The conditions on providers for a part of a request, in the order of their checks."""

    ALL = "all"
    #: The provider has an inventory of each class, however much of it is reserved or used.
    CLASS = "class"
    #: The provider is in the group's tree.
    TREE = "in_tree"
    #: The provider is in the group's aggregates, and in no forbidden aggregate.
    AGGREGATES = "aggregates"
    #: The request filter ``owner`` lets the group take from the provider.
    OWNER = "owner"
    #: The provider has the traits required of each provider, and no forbidden trait.
    TRAITS = "traits"
    #: Its capacity, (total - reserved) * allocation_ratio, is one unit or more.
    NOT_RESERVED = "not_reserved"
    #: One unit or more is free.
    NOT_USED_UP = "not_used_up"
    #: The requested number of units is free.
    ENOUGH = "enough"
    #: The amount satisfies min_unit, max_unit and step_size.
    FITTING = "fitting"


class TreeStep(StrEnum):
    """The conditions on trees for a request, in the order of their checks."""

    ALL = "all"
    #: The root has the traits required of it, and no forbidden trait.
    ROOT = "root"
    #: For each part, a provider that passed all stages is in the tree or shares with it.
    PARTS = "parts"
    #: The providers of the group without a suffix have its required traits together.
    TRAITS = "traits"
    #: Placement has candidates for all groups, without group policy and same_subtree.
    TOGETHER = "together"
    #: Placement has candidates that satisfy the group policy.
    POLICY = "group_policy"
    #: Placement has candidates that satisfy the whole request.
    SUBTREE = "same_subtree"


@dataclass(frozen=True, slots=True)
class Outside:
    """The provider is not in the tree, or not in the aggregates."""

    step: Step


@dataclass(frozen=True, slots=True)
class Belonging:
    """The provider belongs to these other owners; to none if ``owners`` is empty."""

    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Untraited:
    """The provider has none of these traits; the request requires one of them."""

    choice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traited:
    """The provider has a forbidden trait."""

    trait: str


@dataclass(frozen=True, slots=True)
class Held:
    """All of a class is reserved; by other programs if ``by`` is empty."""

    resource_class: str
    by: tuple[Reserved, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """Too little of a class is free; ``used`` is None if unknown."""

    resource_class: str
    asked: int
    capacity: int
    used: int | None


@dataclass(frozen=True, slots=True)
class Small:
    """The provider has too little of a class even if all of it is free."""

    resource_class: str
    asked: int
    most: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """The amount is free, but its inventory does not allow it in one allocation.

    ``figure`` is min_unit, max_unit or step_size, "" if unknown.
    """

    resource_class: str
    asked: int
    figure: str = ""
    value: int = 0


Reason = Outside | Belonging | Untraited | Traited | Held | Short | Small | Misfit


def gap(reason: Reason) -> float:
    """Return by how many units an amount misses what the provider allows; infinity if unknown."""
    match reason:
        case Short(used=None) | Misfit(figure=""):
            return inf
        case Short(asked=asked, capacity=capacity, used=int(used)):
            return asked + used - capacity
        case Small(asked=asked, most=most):
            return asked - most
        case Misfit(asked=asked, value=value):
            return abs(asked - value)
    return 0


@dataclass(frozen=True, slots=True)
class Miss:
    """A provider of a part's classes that its funnel excludes, first at ``step``."""

    uuid: str
    name: str
    step: Step
    reasons: Mapping[Step, tuple[Reason, ...]]

    @property
    def all_reasons(self) -> tuple[Reason, ...]:
        """Return the reasons of all steps."""
        return tuple(chain(*self.reasons.values()))


@dataclass(frozen=True, slots=True)
class Stage:
    """The providers that remain after a step.

    ``alone`` counts those with the classes that this step excludes, and no other step.
    """

    step: Step
    providers: frozenset[str]
    alone: int = 0

    @property
    def count(self) -> int:
        """Return the number that remains."""
        return len(self.providers)


@dataclass(frozen=True, slots=True)
class Holding:
    """Number of providers that reservations with one ``reason`` exclude.

    The reason is "" for reservations of other programs. ``first`` is the oldest of these
    reservations, None if unknown.
    """

    reason: str
    providers: int
    first: Reserved | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The funnel of a part, which one provider has to serve: a group with a suffix, or one class.

    ``misses`` are the excluded providers of the classes, the nearest first. ``unowned`` counts the
    providers that are excluded because they have no owner trait, ``not_looked_at`` those that were
    not examined. ``last_seen`` counts the providers whose amounts are as a driver instance last saw
    them, and exclude them.
    """

    suffix: str
    resources: Mapping[str, int]
    stages: tuple[Stage, ...]
    misses: tuple[Miss, ...] = ()
    holdings: tuple[Holding, ...] = ()
    unowned: int = 0
    not_looked_at: int = 0
    last_seen: int = 0

    @property
    def survivors(self) -> frozenset[str]:
        """Return the providers that pass all stages."""
        return self.stages[-1].providers


@dataclass(frozen=True, slots=True)
class TreeStage:
    """The trees that remain after a step, by root uuid.

    For steps that need candidates, ``candidates`` counts them, ``is_all`` is False if a limit cut
    the count off, and ``dropped`` counts those that request filters dropped, by filter.
    """

    step: TreeStep
    roots: frozenset[str]
    candidates: int | None = None
    is_all: bool = True
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number that remains."""
        return len(self.roots)


@dataclass(frozen=True, slots=True)
class TreeMiss:
    """A tree that is excluded at ``step``.

    ``parts`` are the numbers of the parts without a provider in the tree or sharing with it.
    ``part_misses`` are the nearest misses of these parts in the tree. ``reasons`` are those that
    exclude its root.
    """

    uuid: str
    name: str
    step: TreeStep
    parts: tuple[int, ...] = ()
    part_misses: tuple[Miss, ...] = ()
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The whole explanation of a request.

    ``tree_misses`` are the excluded trees with a provider for any part, the nearest first.
    ``candidates`` counts the candidates within the request's limit; ``dropped`` is that of
    TreeStage, for the whole request. ``owners`` are the owner traits of all providers, if the
    filter ``owner`` is enabled. ``not_looked_at`` counts sharing providers whose trees are unknown.
    """

    request: ResourceRequest
    parts: tuple[Part, ...]
    trees: tuple[TreeStage, ...]
    tree_misses: tuple[TreeMiss, ...]
    candidates: int
    dropped: Mapping[str, int]
    owners: frozenset[str] = frozenset()
    not_looked_at: int = 0
