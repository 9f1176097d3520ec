"""Why a request has the candidates that it has: values. Pure.

Providers go through a funnel for each part of a request, trees through one for the whole of it;
each stage keeps those of the stage before it that pass. Words for it are the console's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from wharfinger.scheduling.provider_details import Reserved
from wharfinger.scheduling.request import ResourceRequest


class Step(StrEnum):
    """What providers have to be for a part of a request, in the order in which it is looked at."""

    ALL = "all"
    #: Has an inventory of each class, however much of it is reserved or used.
    CLASS = "class"
    #: Stands in the tree that the group names.
    TREE = "in_tree"
    #: Is in the aggregates that the group names, and in none of those that it forbids.
    AGGREGATES = "aggregates"
    #: Is one that the request filter ``owner`` lets the group take from.
    OWNER = "owner"
    #: Has what is required of each provider, and nothing that is forbidden.
    TRAITS = "traits"
    #: Has capacity: total less reserved, times the allocation ratio, is one unit or more.
    NOT_RESERVED = "not_reserved"
    #: Has one unit or more that nobody uses.
    NOT_USED_UP = "not_used_up"
    #: Has as many units that nobody uses as are asked for.
    ENOUGH = "enough"
    #: Placement would give that amount: min_unit, max_unit and step_size are as they have to be.
    FITTING = "fitting"


class TreeStep(StrEnum):
    """What trees have to be for a request, in the order in which it is looked at."""

    ALL = "all"
    #: The root has what is required of it, and nothing that is forbidden.
    ROOT = "root"
    #: Has for each part a provider that has passed all of its stages, or shares with one.
    PARTS = "parts"
    #: Those of the group without a suffix have the required traits together.
    TRAITS = "traits"
    #: Placement has candidates for all groups, under neither policy nor same_subtree.
    TOGETHER = "together"
    #: Under the group policy too.
    POLICY = "group_policy"
    #: Under all that is asked for.
    SUBTREE = "same_subtree"


@dataclass(frozen=True, slots=True)
class Lacking:
    """It has no inventory of these classes."""

    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody has looked at what it has: there were too many."""


@dataclass(frozen=True, slots=True)
class Outside:
    """It is not in the tree, or not in the aggregates."""

    step: Step


@dataclass(frozen=True, slots=True)
class Belonging:
    """It belongs to others: to nobody, where there are no owners."""

    owners: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Untraited:
    """It has none of these traits, one of which is required."""

    choice: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traited:
    """It has a trait that is forbidden."""

    trait: str


@dataclass(frozen=True, slots=True)
class Held:
    """All of a class is reserved; by others, where nobody here has done it."""

    resource_class: str
    by: tuple[Reserved, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """Too little of a class is free; figures are None where they are not known."""

    resource_class: str
    asked: int
    capacity: int | None
    used: int | None


@dataclass(frozen=True, slots=True)
class Small:
    """It would have too little of a class, were all of it free."""

    resource_class: str
    asked: int
    most: int


@dataclass(frozen=True, slots=True)
class Misfit:
    """An amount is free and cannot be had in one go.

    ``figure`` is min_unit, max_unit or step_size, and "" where it is not known.
    """

    resource_class: str
    asked: int
    figure: str = ""
    value: int = 0


Reason = (
    Lacking | Unknown | Outside | Belonging | Untraited | Traited | Held | Short | Small | Misfit
)


@dataclass(frozen=True, slots=True)
class Miss:
    """A provider that falls out of a part's funnel, at ``step``; and all that keeps it out."""

    uuid: str
    name: str
    step: Step
    reasons: Mapping[Step, tuple[Reason, ...]]

    @property
    def is_alone(self) -> bool:
        """Whether one step alone keeps it out."""
        return len(self.reasons) == 1


@dataclass(frozen=True, slots=True)
class Stage:
    """The providers that are left, and those that this step alone keeps out."""

    step: Step
    providers: frozenset[str]
    alone: tuple[Miss, ...] = ()

    @property
    def count(self) -> int:
        """How many are left."""
        return len(self.providers)


@dataclass(frozen=True, slots=True)
class Holding:
    """How many providers fall out for one reason of reservations; "" is that of others.

    ``first`` is the reservation that has lasted longest, as far as that is known.
    """

    reason: str
    providers: int
    first: Reserved | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The funnel of what one provider has to give alone: a group with a suffix, or one class.

    ``misses`` are the providers that came furthest, of those that have the class;
    ``not_looked_at`` counts those of which it is not known whether they have it; ``last_seen``
    those that fall out for amounts that may have changed since a driver instance saw them.
    """

    suffix: str
    resources: Mapping[str, int]
    stages: tuple[Stage, ...]
    misses: tuple[Miss, ...] = ()
    holdings: tuple[Holding, ...] = ()
    not_looked_at: int = 0
    last_seen: int = 0

    @property
    def survivors(self) -> frozenset[str]:
        """The providers that pass all of it."""
        return self.stages[-1].providers


@dataclass(frozen=True, slots=True)
class TreeStage:
    """The trees that are left, by root uuid.

    Where Placement was asked, ``candidates`` is how many there are in them, ``is_all`` whether
    that is all, and ``dropped`` how many others a request filter has dropped, by its name.
    """

    step: TreeStep
    roots: frozenset[str]
    candidates: int | None = None
    is_all: bool = True
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many are left."""
        return len(self.roots)


@dataclass(frozen=True, slots=True)
class TreeMiss:
    """A tree that falls out, at ``step``.

    ``parts`` are the numbers of those parts for which no provider is in reach; ``reasons`` what is
    wrong with its root.
    """

    uuid: str
    name: str
    step: TreeStep
    parts: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All of it.

    ``tree_misses`` are the trees that fall out in which anything could be had, the nearest first.
    ``candidates`` is how many of them a list with the request's limit has; ``dropped`` as in
    TreeStage, of the whole request. ``owners`` are the owner traits that providers have, where
    anybody minds them. ``not_looked_at`` counts the providers that share, and of which it is not
    known with which trees.
    """

    request: ResourceRequest
    parts: tuple[Part, ...]
    trees: tuple[TreeStage, ...]
    tree_misses: tuple[TreeMiss, ...]
    candidates: int
    dropped: Mapping[str, int]
    owners: frozenset[str] = frozenset()
    not_looked_at: int = 0
