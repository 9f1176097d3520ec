"""Argument types of traits, and errors for invalid requests."""

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

#: The syntax of ``--required``, for help texts.
SYNTAX: Final = (
    "T (has this trait), T1,T2 (has both), in:T1,T2 (has at least one) or !T (does not have T), "
    "as in the Placement API; repeatable, all conditions apply"
)
#: Options that have another name than the key in an error.
_OPTIONS: Final = {"resources": "resource", "suffix": "group"}
#: The subject of an error about an option.
SUBJECT: Final = "request"


def required(text: str) -> "TraitConditions":
    """Argument type of trait conditions."""
    from wharfinger.placement.trait_conditions import TraitConditions

    try:
        return TraitConditions.parse([text])
    except InvalidRequest as error:
        raise refused(text, error) from None


def forbidden(text: str) -> "TraitConditions":
    """Argument type of a forbidden trait."""
    from wharfinger.placement.trait_conditions import TraitConditions

    try:
        return TraitConditions(forbidden=frozenset([text]))
    except InvalidRequest as error:
        raise refused(text, error) from None


def together(conditions: Iterable["TraitConditions"], key: str = "required") -> "TraitConditions":
    """Combine trait conditions. Raises InvalidRequest."""
    from wharfinger.placement.trait_conditions import TraitConditions

    return TraitConditions.parse((value for one in conditions for value in one.values()), key)


def refused(text: str, error: InvalidRequest) -> argparse.ArgumentTypeError:
    """Return the error for an invalid argument of a request."""
    return argparse.ArgumentTypeError(f"{shown(text)}: {error.problem}")


@contextmanager
def usage(parser: argparse.ArgumentParser) -> Iterator[None]:
    """Exit with a usage error if the block raises InvalidRequest."""
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
    """Raise InvalidRequest if Placement refuses a request with an unknown name."""
    try:
        yield
    except PlacementError as error:
        if error.status == HTTPStatus.BAD_REQUEST:
            from wharfinger.scheduling.requested_names import check_known

            check_known(client, traits, classes)
        raise
