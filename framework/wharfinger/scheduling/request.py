"""Requests for resources to Placement, as values. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, Self, get_args

from wharfinger.exceptions import InvalidName, InvalidRequest
from wharfinger.placement.trait_conditions import NO_CONDITIONS, SUBJECT, TraitConditions
from wharfinger.providers import names, ownership

GroupPolicy = Literal["none", "isolate"]
GROUP_POLICIES: Final[tuple[str, ...]] = get_args(GroupPolicy)
#: The suffix of the group whose resources may come from several providers.
UNNUMBERED: Final = ""
#: The pattern of Placement's schema, from microversion 1.33.
_SUFFIX: Final = re.compile(r"[a-zA-Z0-9_-]{0,64}\Z")
_RESOURCE_CLASS: Final = re.compile(r"[A-Z0-9_]+\Z")
#: The largest amount or limit that Placement's columns can hold.
MAX_AMOUNT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGroup:
    """Requested resources, and conditions on the providers that give them.

    With a ``suffix``, one provider gives all resources; without a suffix, several may.
    ``resources`` are amounts by resource class. A provider is in an aggregate of each set of
    ``member_of``, and in none of ``forbidden_aggregates``. ``in_tree`` is the uuid of any provider
    of the tree.

    ``owner`` is the owner trait of the providers, by default the one that the group requires. A
    group with neither requests providers without an owner trait. Raises InvalidRequest.
    """

    suffix: str = UNNUMBERED
    resources: Mapping[str, int] = field(default_factory=dict, hash=False)
    traits: TraitConditions = NO_CONDITIONS
    member_of: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None
    owner: str | None = None

    def __post_init__(self) -> None:
        if not _SUFFIX.match(self.suffix):
            problem = "a suffix has at most 64 characters: letters, digits, _ and -."
            raise invalid("suffix", self.suffix, problem)
        for resource_class, amount in self.resources.items():
            check_resource(resource_class, amount)
        object.__setattr__(self, "resources", MappingProxyType(dict(self.resources)))
        self._check_uuids()
        object.__setattr__(self, "owner", self._the_owner())

    @property
    def is_empty(self) -> bool:
        """Return whether the group has no resources, and no conditions except an owner."""
        conditions = self.traits, self.member_of, self.forbidden_aggregates, self.in_tree
        return not self.resources and not any(conditions)

    def _check_uuids(self) -> None:
        try:
            member_of = tuple(names.check_aggregates(one) for one in self.member_of)
            forbidden = names.check_aggregates(self.forbidden_aggregates)
            in_tree = None if self.in_tree is None else names.check_uuid(self.in_tree)
        except InvalidName as error:
            key = f"{error.kind} of {_name(self.suffix)}"
            raise invalid(key, error.name, error.problem) from error
        for key, value in (
            ("member_of", member_of),
            ("forbidden_aggregates", forbidden),
            ("in_tree", in_tree),
        ):
            object.__setattr__(self, key, value)
        if frozenset() in member_of:
            raise invalid("member_of", "", "it names no aggregate.")

    def _the_owner(self) -> str | None:
        named = ownership.owners(self.traits.wanted)
        if self.resources and self.owner in self.traits.forbidden:
            raise invalid(
                f"forbidden of {_name(self.suffix)}",
                self.owner,
                "the group requests resources of this owner. Remove this trait, or set another "
                "owner.",
            )
        owners = named | {self.owner} if self.owner else named
        if len(owners) > 1:
            raise invalid(
                f"required of {_name(self.suffix)}",
                ",".join(sorted(owners)),
                "a provider has one owner, and so has a group. Request each owner's resources in a "
                "group of its own.",
            )
        try:
            return ownership.check_owner(*owners) if self.owner else next(iter(named), None)
        except InvalidName as error:
            raise invalid(f"owner of {_name(self.suffix)}", error.name, error.problem) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """Groups that each candidate has to satisfy together.

    The ``group_policy`` "isolate" forbids groups with suffixes to share a provider. Each
    ``same_subtree`` is a set of suffixes: one of their providers is an ancestor of the others, or
    the same provider. ``root`` are conditions on the root provider. ``limit`` is the largest number
    of candidates. Raises InvalidRequest.
    """

    groups: tuple[RequestGroup, ...]
    group_policy: GroupPolicy | None = None
    same_subtree: tuple[frozenset[str], ...] = ()
    root: TraitConditions = NO_CONDITIONS
    limit: int | None = None

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise problem

    def _problems(self) -> Iterator[InvalidRequest]:
        suffixes = [group.suffix for group in self.groups]
        for suffix in sorted({one for one in suffixes if suffixes.count(one) > 1}):
            yield invalid("suffix", suffix, "two groups have this suffix.")
        if not any(group.resources for group in self.groups):
            yield invalid("resources", "", "no resources are requested.")
        together = frozenset().union(*self.same_subtree)
        for group in self.groups:
            if not group.resources and group.suffix not in together:
                yield invalid(
                    "resources",
                    "",
                    f"{_name(group.suffix)} has no resources, and is in no same_subtree.",
                )
            elif group.is_empty:
                yield invalid(
                    "resources",
                    "",
                    f"{_name(group.suffix)} has no resources, and no conditions on a provider.",
                )
        if frozenset() in self.same_subtree:
            yield invalid("same_subtree", "", "it names no group.")
        for suffix in sorted(together - {*suffixes} | together & {UNNUMBERED}):
            yield invalid("same_subtree", suffix, "no group has this suffix.")
        if self.group_policy not in (None, *GROUP_POLICIES):
            yield invalid(
                "group_policy", self.group_policy, f"it has to be {' or '.join(GROUP_POLICIES)}."
            )
        if self.group_policy is None and sum(suffix != UNNUMBERED for suffix in suffixes) > 1:
            yield invalid(
                "group_policy",
                "",
                f"there are groups {', '.join(filter(None, suffixes))}: set whether one provider "
                "may give the resources of several of them (none) or not (isolate).",
            )
        if self.root.any_of:
            yield invalid(
                "root_required",
                ",".join(self.root.values()),
                "a root's traits are required or forbidden; there is no choice between them.",
            )
        if self.limit is not None and not _is_count(self.limit):
            yield invalid(
                "limit", self.limit, f"it has to be a whole number from 1 to {MAX_AMOUNT}."
            )

    def also(self, other: Self) -> Self:
        """Return the two requests as one.

        This request's group policy and limit take precedence.
        """
        groups = (*self.groups, *other.groups)
        return type(self)(
            groups=groups,
            group_policy=self.group_policy or other.group_policy or policy_needed(groups),
            same_subtree=(*self.same_subtree, *other.same_subtree),
            root=self.root & other.root,
            limit=other.limit if self.limit is None else self.limit,
        )


def check_resource(resource_class: str, amount: int) -> None:
    """Raise InvalidRequest for an invalid resource class or amount."""
    if not _RESOURCE_CLASS.match(resource_class) or len(resource_class) > names.MAX_NAME:
        raise invalid(
            "resources",
            resource_class,
            "the name of a resource class consists of A-Z, 0-9 and _, such as VGPU or CUSTOM_GOLD.",
        )
    if not _is_count(amount):
        key = f"resources:{resource_class}"
        raise invalid(key, amount, f"it has to be a whole number from 1 to {MAX_AMOUNT}.")


def policy_needed(groups: Iterable[RequestGroup]) -> GroupPolicy | None:
    """Return the group policy "none" if the groups need a policy, or else None."""
    return "none" if sum(group.suffix != UNNUMBERED for group in groups) > 1 else None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_AMOUNT


def invalid(key: str, value: object, problem: str) -> InvalidRequest:
    """Return an InvalidRequest without a source; ``about`` adds the source."""
    return InvalidRequest(subject=SUBJECT, key=key, value=value, problem=problem)


@contextmanager
def about(subject: str) -> Iterator[None]:
    """Add the source, such as a flavor, to an InvalidRequest without a source."""
    try:
        yield
    except InvalidRequest as error:
        if error.subject != SUBJECT:
            raise
        raise InvalidRequest(**{**error.facts, "subject": subject}) from error


def _name(suffix: str) -> str:
    return f"group {suffix}" if suffix else "the group without a suffix"
