"""Values that explain which candidates a request has, and why providers are excluded. Pure.

A part of a request is a group with a suffix, or one class of the group without a suffix. Its funnel
excludes providers, one condition after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from math import inf
from typing import Final

from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.request import ResourceRequest

#: The number of excluded providers or trees that an explanation names, the nearest to suitable
#: first.
NAMED: Final = 5


class Step(StrEnum):
    """The conditions on a provider for a part of a request, in the order of the checks."""

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
    #: The provider's capacity, (total - reserved) * allocation_ratio, is one unit or more.
    NOT_RESERVED = "not_reserved"
    #: One unit or more is free.
    NOT_USED_UP = "not_used_up"
    #: The requested number of units is free.
    ENOUGH = "enough"
    #: The amount satisfies min_unit, max_unit and step_size.
    FITTING = "fitting"


class TreeStep(StrEnum):
    """The conditions on a provider tree for the whole request, in the order of the checks."""

    ALL = "all"
    #: The root provider has the traits required of it, and no forbidden trait.
    ROOT = "root"
    #: For each part, the tree has a provider that passed all stages, or such a provider shares with
    #: it.
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
    """Reason: the provider is not in the requested tree, or is excluded by its aggregates."""

    step: Step


@dataclass(frozen=True, slots=True)
class Belonging:
    """Reason: the provider belongs to other owners; to no owner if ``owners`` is empty."""

    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Untraited:
    """Reason: the provider has none of the traits ``choice``, of which the request requires one."""

    choice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traited:
    """Reason: the provider has a trait that the request forbids."""

    trait: str


@dataclass(frozen=True, slots=True)
class Held:
    """Reason: the provider's whole inventory of a resource class is reserved.

    ``by`` has the reservations; it is empty if another program has reserved the inventory.
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
    """Reason: the provider has too little of a resource class even if all of it is free."""

    resource_class: str
    asked: int
    most: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """Reason: min_unit, max_unit or step_size of the inventory does not allow the amount.

    ``figure`` is the name of that field, "" if unknown.
    """

    resource_class: str
    asked: int
    figure: str = ""
    value: int = 0


Reason = Outside | Belonging | Untraited | Traited | Held | Short | Small | Misfit


def gap(reason: Reason) -> float:
    """Return by how many units an amount misses what the provider allows.

    Return infinity if the number is unknown, and 0 for reasons without amounts.
    """
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
    """A provider that has the classes of a part of a request, but is excluded.

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
    """The providers that remain after the check of one condition.

    ``alone`` counts the providers with the classes that fail only this condition.
    """

    step: Step
    providers: frozenset[str]
    alone: int = 0

    @property
    def count(self) -> int:
        """Return the number of providers that remain."""
        return len(self.providers)


@dataclass(frozen=True, slots=True)
class Holding:
    """Number of providers that reservations with the same reason exclude.

    ``reason`` is "" for other programs. ``first`` is the oldest reservation, if known.
    """

    reason: str
    providers: int
    first: Reserved | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The funnel of a part of a request, which a single provider has to serve.

    ``misses`` are the excluded providers that have the classes, the most suitable first.
    ``holdings`` counts those that reservations exclude, by reason of the reservation. ``unowned``
    counts those excluded for lack of an owner trait, ``last_seen`` those with perhaps outdated
    amounts, and ``not_looked_at`` the providers whose inventories were not read.
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
        """Return the uuids of the providers that pass all stages."""
        return self.stages[-1].providers


@dataclass(frozen=True, slots=True)
class TreeStage:
    """The trees that remain after the check of one condition, by uuids of their roots.

    ``candidates`` is None if the check needs no candidates. ``is_all`` is False if a limit cut off
    their number. ``dropped`` counts refused candidates by request filter.
    """

    step: TreeStep
    roots: frozenset[str]
    candidates: int | None = None
    is_all: bool = True
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the number of trees that remain."""
        return len(self.roots)


@dataclass(frozen=True, slots=True)
class TreeMiss:
    """A provider tree that the condition ``step`` excludes.

    ``parts`` are the indexes of those ``Explanation.parts`` for which the tree has no suitable
    provider. ``part_misses`` are the providers that come nearest to them. ``reasons`` are the
    traits that exclude the root.
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

    ``tree_misses`` are excluded trees, the most suitable first. ``dropped`` counts refused
    candidates by request filter, ``not_looked_at`` sharing providers whose trees are unknown.
    ``owners`` are all owner traits of providers.
    """

    request: ResourceRequest
    parts: tuple[Part, ...]
    trees: tuple[TreeStage, ...]
    tree_misses: tuple[TreeMiss, ...]
    candidates: int
    dropped: Mapping[str, int]
    owners: frozenset[str] = frozenset()
    not_looked_at: int = 0
