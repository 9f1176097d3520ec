"""Options of commands that describe a request for allocation candidates."""

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

#: The options of a group and their values, in the order of the command line.
GroupOptions = tuple[tuple[str, Any], ...]

#: The default limit of candidates, as in nova's scheduler.
LIMIT: Final = 1000
_NO_OWNER: Final = "none"
_REPEATABLE: Final = "repeatable"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a request."""
    parser.set_defaults(groups={"": ()})
    groups = parser.add_argument_group(
        "groups",
        "Options after a --group belong to that group; its resources come from one provider. "
        "Options before the first --group belong to the group without a suffix; its resources may "
        "come from any provider of a tree, and from providers that share with the tree.",
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
        help="start a group with this suffix, such as 1 or _GPU; the options that follow describe "
        "the group",
    )
    add = partial(groups.add_argument, default=argparse.SUPPRESS)
    add(
        "--resource",
        metavar="CLASS=AMOUNT",
        type=_resource,
        action=_Resource,
        help=f"a resource class and the requested amount, such as VGPU=1 ({_REPEATABLE})",
    )
    add(
        "--required",
        dest="traits",
        metavar="TRAITS",
        type=required,
        action=_OfGroup,
        help="traits that the provider of the group must have. The group without a suffix may "
        f"have several providers: each trait is required of only one of them. {SYNTAX}",
    )
    add(
        "--forbidden",
        dest="traits",
        metavar="TRAIT",
        type=forbidden,
        action=_OfGroup,
        help=f"a trait that the group's providers must not have ({_REPEATABLE})",
    )
    add(
        "--member-of",
        metavar="AGG[,AGG]",
        type=_aggregates,
        action=_OfGroup,
        help="uuids of aggregates: each provider of the group (without a suffix: or its root) must "
        f"be in at least one of them ({_REPEATABLE}; then in at least one of each list)",
    )
    add(
        "--not-member-of",
        metavar="AGG[,AGG]",
        type=_aggregates,
        action=_OfGroup,
        help=f"uuids of aggregates: no provider of the group may be in any of them ({_REPEATABLE})",
    )
    add(
        "--in-tree",
        metavar="PROVIDER",
        type=text(),
        action=_Once,
        help="the group's providers must be in the tree of this provider, by name or uuid",
    )
    add(
        "--owner",
        metavar=f"TRAIT|{_NO_OWNER}",
        type=_owner,
        action=_Once,
        help="the trait of the owner whose resources the group takes; none: only resources without "
        "an owner. Default: the owner trait in --required, or else OWNER_NOVA",
    )


def _add_whole_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--group-policy",
        choices=("none", "isolate"),
        help="with none, one provider may serve several groups with suffixes; with isolate, each "
        "of these groups gets a provider of its own. Default: the policy of the flavor, or else "
        "none",
    )
    group.add_argument(
        "--same-subtree",
        metavar="SUFFIX[,SUFFIX]",
        type=_suffixes,
        action="append",
        default=[],
        help="suffixes of groups whose providers must be in one subtree: the provider of one of "
        f"the groups is an ancestor of all the others, or the same provider ({_REPEATABLE})",
    )
    group.add_argument(
        "--root-required",
        metavar="TRAITS",
        type=required,
        action="append",
        default=[],
        help="traits of the root provider of the tree: T1,T2 (has both) or !T (does not have T) "
        f"({_REPEATABLE})",
    )
    group.add_argument(
        "--limit",
        metavar="N",
        type=number(1),
        help=f"list at most this number of candidates; default: {LIMIT}",
    )


def written(groups: Mapping[str, GroupOptions], find: Callable[[str], str]) -> "list[RequestGroup]":
    """Return the groups that the options request. Raises InvalidRequest."""
    return [_group(suffix, chosen, find) for suffix, chosen in groups.items() if suffix or chosen]


def whole(
    parsed: argparse.Namespace,
    sources: "Sequence[ResourceRequest]",
    groups: "Sequence[RequestGroup]",
) -> "ResourceRequest":
    """Combine the sources, groups and options into one request. Raises InvalidRequest."""
    from wharfinger.scheduling import ResourceRequest
    from wharfinger.scheduling.request import invalid, policy_needed

    theirs = list(chain(*(one.groups for one in sources)))
    for suffix in {group.suffix for group in theirs} & {group.suffix for group in groups}:
        problem = (
            "the flavor or device profile has this group already: choose another suffix."
            if suffix
            else "the flavor has the group without a suffix already: start a group with --group."
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
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        if values in namespace.groups:
            raise argparse.ArgumentError(self, f"{values} occurs twice")
        namespace.groups = {**namespace.groups, values: ()}


class _OfGroup(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any
    ) -> None:
        suffix, chosen = list(namespace.groups.items())[-1]
        self.check(chosen, values)
        namespace.groups = {**namespace.groups, suffix: (*chosen, (self.dest, values))}

    def check(self, chosen: GroupOptions, value: Any) -> None:
        pass


class _Once(_OfGroup):
    def check(self, chosen: GroupOptions, value: Any) -> None:
        if self.dest in dict(chosen):
            raise argparse.ArgumentError(self, "occurs twice for one group")


class _Resource(_OfGroup):
    def check(self, chosen: GroupOptions, value: Any) -> None:
        if value[0] in dict(_all_of(chosen, self.dest)):
            raise argparse.ArgumentError(self, f"{value[0]} occurs twice for one group")


def _all_of(chosen: GroupOptions, option: str) -> list[Any]:
    return [value for name, value in chosen if name == option]


def _group(suffix: str, chosen: GroupOptions, find: Callable[[str], str]) -> "RequestGroup":
    from wharfinger.providers import ownership
    from wharfinger.scheduling import RequestGroup
    from wharfinger.scheduling.request import invalid

    of = f" of group {suffix}" if suffix else ""
    traits = together(_all_of(chosen, "traits"), f"required{of}")
    named = ownership.owners(traits.wanted)
    once = {"owner": None if named else ownership.NOVA, "in_tree": None, **dict(chosen)}
    if named and not once["owner"] and "owner" in dict(chosen):
        raise invalid(
            f"owner{of}", _NO_OWNER, f"--required has {', '.join(sorted(named))}: remove one."
        )
    return RequestGroup(
        suffix=suffix,
        resources=dict(_all_of(chosen, "resource")),
        traits=traits,
        member_of=tuple(_all_of(chosen, "member_of")),
        forbidden_aggregates=frozenset().union(*_all_of(chosen, "not_member_of")),
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
    return None if given == _NO_OWNER else owner(given)
