"""A request for resources as options: group by group, and what holds for the whole of it."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from wharfinger.cli.object_command import number, owner, text, uuid
from wharfinger.cli.trait_options import SYNTAX, forbidden, refused, required, together
from wharfinger.exceptions import InvalidRequest, shown

if TYPE_CHECKING:
    from wharfinger.scheduling import RequestGroup, ResourceRequest

#: Options of a group, and their values, in their order.
Said = tuple[tuple[str, Any], ...]

#: How many candidates are wanted where nobody says it, as in nova's scheduler.
LIMIT: Final = 1000
_NOBODY: Final = "none"
_AGAIN: Final = "may be given several times"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all of them; what is said of groups is then in ``groups``, by suffix."""
    parser.set_defaults(groups={"": ()})
    groups = parser.add_argument_group(
        "groups",
        "What follows a --group is of that group, whose resources come from one provider. What "
        "comes before the first is of the group without a suffix, whose resources come from any "
        "provider of a tree, and from what shares with it.",
    )
    _add_group_options(groups)
    _add_whole_options(parser.add_argument_group("the whole request"))


def _add_group_options(groups: argparse._ArgumentGroup) -> None:
    groups.add_argument(
        "--group",
        metavar="SUFFIX",
        type=_suffix,
        action=_Group,
        default=argparse.SUPPRESS,
        help="begin a group, such as 1 or _GPU",
    )
    add = partial(groups.add_argument, default=argparse.SUPPRESS)
    add(
        "--resource",
        metavar="CLASS=AMOUNT",
        type=_resource,
        action=_Resource,
        help=f"what is asked for, such as VGPU=1 ({_AGAIN})",
    )
    add(
        "--required",
        dest="traits",
        metavar="TRAITS",
        type=required,
        action=_OfGroup,
        help=f"traits that its providers have (without a suffix: together): {SYNTAX}",
    )
    add(
        "--forbidden",
        dest="traits",
        metavar="TRAIT",
        type=forbidden,
        action=_OfGroup,
        help=f"a trait that none of its providers has ({_AGAIN})",
    )
    add(
        "--member-of",
        metavar="AGG[,AGG]",
        type=_aggregates,
        action=_OfGroup,
        help=f"they are in one of these aggregates, by uuid ({_AGAIN}: all of it holds)",
    )
    add(
        "--not-member-of",
        metavar="AGG[,AGG]",
        type=_aggregates,
        action=_OfGroup,
        help=f"they are in none of these aggregates ({_AGAIN})",
    )
    add(
        "--in-tree",
        metavar="PROVIDER",
        type=text(),
        action=_Once,
        help="they are in the tree of this provider, by name or uuid",
    )
    add(
        "--owner",
        metavar=f"TRAIT|{_NOBODY}",
        type=_owner,
        action=_Once,
        help="whose resources are asked for; none: what has no owner, as network ports ask for. "
        "Default: the owner that --required names, or else OWNER_NOVA",
    )


def _add_whole_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--group-policy",
        choices=("none", "isolate"),
        help="whether one provider may give to several groups with suffixes (none) or not "
        "(isolate); default: as the flavor says, or else none",
    )
    group.add_argument(
        "--same-subtree",
        metavar="SUFFIX[,SUFFIX]",
        type=_suffixes,
        action="append",
        default=[],
        help=f"the providers of these groups stand below one of them ({_AGAIN})",
    )
    group.add_argument(
        "--root-required",
        metavar="TRAITS",
        type=required,
        action="append",
        default=[],
        help=f"traits of the root of the tree: T1,T2 (both), !T (not that one) ({_AGAIN})",
    )
    group.add_argument(
        "--limit",
        metavar="N",
        type=number(1),
        help=f"no more candidates than that; default: {LIMIT}",
    )


def written(groups: Mapping[str, Said], find: Callable[[str], str]) -> "list[RequestGroup]":
    """The groups of the options; ``find`` gives the uuid of the provider of a name.

    Raises InvalidRequest, and what ``find`` raises.
    """
    return [_group(suffix, said, find) for suffix, said in groups.items() if suffix or said]


def whole(
    parsed: argparse.Namespace,
    sources: "Sequence[ResourceRequest]",
    groups: "Sequence[RequestGroup]",
) -> "ResourceRequest":
    """All that is asked for, by other sources and by options, as one; raises InvalidRequest."""
    from wharfinger.scheduling import ResourceRequest
    from wharfinger.scheduling.request import invalid, policy_needed

    theirs = list(chain(*(one.groups for one in sources)))
    for suffix in {group.suffix for group in theirs} & {group.suffix for group in groups}:
        problem = (
            "the flavor or device profile has it already: begin another."
            if suffix
            else "the group without a suffix is the flavor's: begin one for what else is asked for."
        )
        raise invalid("suffix", suffix, problem)
    everything = (*theirs, *groups)
    policies = [parsed.group_policy, *(one.group_policy for one in sources)]
    return ResourceRequest(
        groups=everything,
        group_policy=next(filter(None, policies), policy_needed(everything)),
        same_subtree=(*chain(*(one.same_subtree for one in sources)), *parsed.same_subtree),
        root=together([*(one.root for one in sources), *parsed.root_required], "root_required"),
        limit=parsed.limit or LIMIT,
    )


class _Group(argparse.Action):
    """Begins a group."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        if values in namespace.groups:
            raise argparse.ArgumentError(self, f"{values} is given twice")
        namespace.groups = {**namespace.groups, values: ()}


class _OfGroup(argparse.Action):
    """Says something of the group that was begun last."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        suffix, said = list(namespace.groups.items())[-1]
        self.check(said, values)
        namespace.groups = {**namespace.groups, suffix: (*said, (self.dest, values))}

    def check(self, said: Said, value: Any) -> None:
        """Raise ArgumentError for what cannot be said besides."""


class _Once(_OfGroup):
    """Says something of a group that can be said once."""

    def check(self, said: Said, value: Any) -> None:
        if self.dest in dict(said):
            raise argparse.ArgumentError(self, "is given twice for one group")


class _Resource(_OfGroup):
    """Asks for a resource class once."""

    def check(self, said: Said, value: Any) -> None:
        if value[0] in dict(_all_of(said, self.dest)):
            raise argparse.ArgumentError(self, f"{value[0]} is given twice for one group")


def _all_of(said: Said, option: str) -> list[Any]:
    return [value for name, value in said if name == option]


def _group(suffix: str, said: Said, find: Callable[[str], str]) -> "RequestGroup":
    from wharfinger.providers import ownership
    from wharfinger.scheduling import RequestGroup
    from wharfinger.scheduling.request import invalid

    of = f" of group {suffix}" if suffix else ""
    traits = together(_all_of(said, "traits"), f"required{of}")
    named = ownership.owners(traits.wanted)
    once = {"owner": None if named else ownership.NOVA, "in_tree": None, **dict(said)}
    if named and not once["owner"] and "owner" in dict(said):
        raise invalid(
            f"owner{of}", _NOBODY, f"--required names {', '.join(sorted(named))}: leave one out."
        )
    return RequestGroup(
        suffix=suffix,
        resources=dict(_all_of(said, "resource")),
        traits=traits,
        member_of=tuple(_all_of(said, "member_of")),
        forbidden_aggregates=frozenset().union(*_all_of(said, "not_member_of")),
        in_tree=once["in_tree"] and find(once["in_tree"]),
        owner=once["owner"],
    )


def _resource(given: str) -> tuple[str, int]:
    from wharfinger.scheduling.request import check_resource

    name, _separator, amount = given.replace(":", "=").partition("=")
    if not _separator:
        raise argparse.ArgumentTypeError(f"{shown(given)} is not CLASS=AMOUNT, such as VGPU=1")
    try:
        check_resource(name, 1)
        return name, number(1)(amount)
    except InvalidRequest as error:
        raise refused(given, error) from None
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"the amount of {name}: {error}") from None


def _suffix(given: str) -> str:
    from wharfinger.scheduling import RequestGroup

    try:
        RequestGroup(suffix=given)
    except InvalidRequest as error:
        raise refused(given, error) from None
    if not given:
        raise argparse.ArgumentTypeError("name the group")
    return given


def _suffixes(given: str) -> frozenset[str]:
    return frozenset(map(_suffix, given.split(",")))


def _aggregates(given: str) -> frozenset[str]:
    return frozenset(map(uuid, given.split(",")))


def _owner(given: str) -> str | None:
    return None if given == _NOBODY else owner(given)
