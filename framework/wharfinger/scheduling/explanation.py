"""Values that explain why a request has candidates or none. Pure.

A part of a request is a group with a suffix, or one class of the group without a suffix.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from math import inf
from typing import Final

from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.request import ResourceRequest

#: The largest number of excluded providers or trees that an explanation names.
NAMED: Final = 5


class Step(StrEnum):
    """The conditions on a provider, in the order of the checks."""

    ALL = "all"
    #: The provider has an inventory of each class.
    CLASS = "class"
    #: The provider is in the group's tree.
    TREE = "in_tree"
    #: The provider is in the group's aggregates, and in no forbidden aggregate.
    AGGREGATES = "aggregates"
    #: The request filter ``owner`` lets the group take from the provider.
    OWNER = "owner"
    #: The provider satisfies the trait conditions.
    TRAITS = "traits"
    #: The capacity is one unit or more.
    NOT_RESERVED = "not_reserved"
    #: One unit or more is free.
    NOT_USED_UP = "not_used_up"
    #: The requested number of units is free.
    ENOUGH = "enough"
    #: The amount satisfies min_unit, max_unit and step_size.
    FITTING = "fitting"


class TreeStep(StrEnum):
    """The conditions on a provider tree, in the order of the checks."""

    ALL = "all"
    #: The root provider satisfies the trait conditions.
    ROOT = "root"
    #: Each part has a suitable provider that is in the tree or shares with it.
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
    """Reason: the tree or the aggregates exclude the provider."""

    step: Step


@dataclass(frozen=True, slots=True)
class Belonging:
    """Reason: the provider belongs to these owners, or to no owner."""

    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Untraited:
    """Reason: the provider lacks all traits of ``choice``, and needs one of them."""

    choice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traited:
    """Reason: the provider has a trait that the request forbids."""

    trait: str


@dataclass(frozen=True, slots=True)
class Held:
    """Reason: a resource class is fully reserved.

    ``by`` is empty if another program has reserved it.
    """

    resource_class: str
    by: tuple[Reserved, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """Reason: too little of a resource class is free; ``used`` is None if unknown."""

    resource_class: str
    asked: int
    capacity: int
    used: int | None


@dataclass(frozen=True, slots=True)
class Small:
    """Reason: the inventory of a resource class is too small."""

    resource_class: str
    asked: int
    most: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """Reason: min_unit, max_unit or step_size does not allow the amount.

    ``figure`` is the name of that field, "" if unknown.
    """

    resource_class: str
    asked: int
    figure: str = ""
    value: int = 0


Reason = Outside | Belonging | Untraited | Traited | Held | Short | Small | Misfit


def gap(reason: Reason) -> float:
    """Return the difference between an amount and its limit; infinity if unknown."""
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
    """An excluded provider that has the requested classes.

    ``step`` is the first condition that it fails.
    """

    uuid: str
    name: str
    step: Step
    reasons: Mapping[Step, tuple[Reason, ...]]

    @property
    def all_reasons(self) -> tuple[Reason, ...]:
        """Return the reasons of all failed conditions."""
        return tuple(chain(*self.reasons.values()))


@dataclass(frozen=True, slots=True)
class Stage:
    """The providers that remain after one check.

    ``alone`` counts the providers that have the classes and fail only this check.
    """

    step: Step
    providers: frozenset[str]
    alone: int = 0

    @property
    def count(self) -> int:
        """Return the number of remaining providers."""
        return len(self.providers)


@dataclass(frozen=True, slots=True)
class Holding:
    """The number of providers that reservations with one reason exclude.

    ``reason`` is "" for other programs. ``first`` is the oldest reservation, if known.
    """

    reason: str
    providers: int
    first: Reserved | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The providers that can and cannot serve one group (or class) of a request."""

    suffix: str
    resources: Mapping[str, int]
    stages: tuple[Stage, ...]
    #: The excluded providers with the classes, the most suitable first.
    misses: tuple[Miss, ...] = ()
    holdings: tuple[Holding, ...] = ()
    #: The number of providers that are excluded for lack of an owner trait.
    unowned: int = 0
    #: The number of providers whose inventories were not read.
    not_looked_at: int = 0
    #: The number of excluded providers with perhaps outdated amounts.
    last_seen: int = 0

    @property
    def survivors(self) -> frozenset[str]:
        """Return the uuids of the providers that pass all stages."""
        return self.stages[-1].providers


@dataclass(frozen=True, slots=True)
class TreeStage:
    """The trees that remain after one check, as uuids of their roots.

    ``candidates`` is None if the check needs no candidates.
    """

    step: TreeStep
    roots: frozenset[str]
    candidates: int | None = None
    #: False if a limit cut off the candidates.
    is_all: bool = True
    #: Refused candidates, by request filter.
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of remaining trees."""
        return len(self.roots)


@dataclass(frozen=True, slots=True)
class TreeMiss:
    """An excluded provider tree."""

    uuid: str
    name: str
    step: TreeStep
    #: The indexes of the parts without a suitable provider.
    parts: tuple[int, ...] = ()
    #: The providers that are nearest to these parts.
    part_misses: tuple[Miss, ...] = ()
    #: The traits that exclude the root.
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a request."""

    request: ResourceRequest
    parts: tuple[Part, ...]
    trees: tuple[TreeStage, ...]
    #: The most suitable first.
    tree_misses: tuple[TreeMiss, ...]
    candidates: int
    #: Refused candidates, by request filter.
    dropped: Mapping[str, int]
    owners: frozenset[str] = frozenset()
    #: The number of sharing providers whose trees are unknown.
    not_looked_at: int = 0
