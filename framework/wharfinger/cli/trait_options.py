"""Conditions on traits as arguments, and what is said of names that Placement does not know."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from wharfinger.exceptions import InvalidRequest, PlacementError, shown

if TYPE_CHECKING:
    from wharfinger.placement.client import PlacementClient
    from wharfinger.placement.trait_conditions import TraitConditions
    from wharfinger.scheduling.requested_names import Named

#: How ``--required`` is written, for its help.
SYNTAX: Final = (
    "a trait, or as in the Placement API: T1,T2 (both), in:T1,T2 (one or both), !T (not that one); "
    "may be given several times: all of it holds"
)
#: The options of what an error calls otherwise.
_OPTIONS: Final = {"resources": "resource", "suffix": "group"}
#: What options are, in errors.
SUBJECT: Final = "request"


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
def naming_unknown(
    client: "PlacementClient", traits: "Named", classes: "Named" = ()
) -> Iterator[None]:
    """Have an error say which name Placement does not know, where it refuses what is asked."""
    try:
        yield
    except PlacementError as error:
        if error.status == HTTPStatus.BAD_REQUEST:
            from wharfinger.scheduling.requested_names import check_known

            check_known(client, traits, classes)
        raise
