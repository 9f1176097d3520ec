"""Conditions on traits as arguments, and what is said of names that Placement does not know."""

import argparse
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from wharfinger.exceptions import InvalidRequest, PlacementError, shown

if TYPE_CHECKING:
    from wharfinger.placement.client import PlacementClient
    from wharfinger.placement.trait_conditions import TraitConditions

#: How ``--required`` is written, for its help.
SYNTAX: Final = (
    "a trait, or as in the Placement API: T1,T2 (both), in:T1,T2 (one or both), !T (not that one); "
    "may be given several times: all of it holds"
)
#: The options of what an error calls otherwise.
_OPTIONS: Final = {"resources": "resource", "suffix": "group"}
#: What options are, in errors.
SUBJECT: Final = "request"
#: Of what it is, where names stand ("{}" is the name), and the names there.
Named = Collection[tuple[str, str, Collection[str]]]


def required(text: str) -> "TraitConditions":
    """Take conditions as the API writes them, as an argument."""
    from wharfinger.placement.trait_conditions import TraitConditions

    try:
        return TraitConditions.parse([text])
    except InvalidRequest as error:
        raise refused(text, error) from None


def forbidden(text: str) -> "TraitConditions":
    """Take a trait that is not to be there, as an argument."""
    from wharfinger.placement.trait_conditions import TraitConditions

    try:
        return TraitConditions(forbidden=frozenset([text]))
    except InvalidRequest as error:
        raise refused(text, error) from None


def together(conditions: Iterable["TraitConditions"], key: str = "required") -> "TraitConditions":
    """All of them; raises InvalidRequest, of that key, where they cannot hold together."""
    from wharfinger.placement.trait_conditions import TraitConditions

    return TraitConditions.parse((value for one in conditions for value in one.values()), key)


def refused(text: str, error: InvalidRequest) -> argparse.ArgumentTypeError:
    """The error of an argument that cannot be part of a request."""
    return argparse.ArgumentTypeError(f"{shown(text)}: {error.problem}")


@contextmanager
def usage(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Have an InvalidRequest be wrong usage of the options."""
    try:
        yield
    except InvalidRequest as error:
        key, _space, where = error.key.partition(" ")
        option = f"--{_OPTIONS.get(key, key).replace('_', '-')}"
        value = f"{shown(error.value)}: " if error.value else ""
        parser.error(f"argument {' '.join(filter(None, (option, where)))}: {value}{error.problem}")


@contextmanager
def naming_unknown(client: "PlacementClient", traits: Named, classes: Named = ()) -> Iterator[None]:
    """Have an error say which name Placement does not know, where it refuses what is asked."""
    try:
        yield
    except PlacementError as error:
        if error.status == HTTPStatus.BAD_REQUEST:
            check_known(client, traits, classes)
        raise


def check_known(client: "PlacementClient", traits: Named, classes: Named = ()) -> None:
    """Raise InvalidRequest for a name that Placement does not know."""
    for problem in unknown("trait", traits, client.find_traits("")):
        raise problem
    known = client.list_resource_classes() if classes else ()
    for problem in unknown("resource class", classes, known):
        raise problem


def unknown(kind: str, named: Named, known: Collection[str]) -> Iterator[InvalidRequest]:
    """An error for each name that is not among those that Placement knows."""
    for subject, where, names in named:
        for name in sorted(names):
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f" Did you mean {close[0]}?" if close else ""
                yield InvalidRequest(
                    subject=subject,
                    key=where.format(name),
                    value=name,
                    problem=f"Placement knows no such {kind}.{hint}",
                )
