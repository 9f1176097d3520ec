"""Which function a programmable device holds: a trait of its provider says so. Pure.

The names are those that Cyborg gives them, so that its device profiles ask for them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_trait
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.record import Record

PREFIX: Final = "CUSTOM_FPGA_FUNCTION_ID_"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9]+")


def function_trait(function: str, vendor: str = "") -> str:
    """The trait for a function, whatever characters it is written with.

    A uuid loses its dashes. ``vendor`` stands before it, where functions of several are told
    apart. Raises InvalidName where nothing is left, or it is too long.
    """
    named = function.replace("-", "") if is_uuid_like(function) else function
    words = [_NOT_IN_NAMES.sub("_", word.upper()).strip("_") for word in (vendor, named)]
    if not words[-1]:
        raise InvalidName(
            kind="function", name=function, problem="needs a letter or digit for a trait's name"
        )
    return check_trait(PREFIX + "_".join(filter(None, words)))


def function_traits(traits: Iterable[str]) -> frozenset[str]:
    """Those of the traits that say which function a device holds."""
    return frozenset(trait for trait in traits if trait.startswith(PREFIX))


@dataclass(frozen=True, slots=True)
class HeldFunction:
    """The trait of the function that a device was programmed with, and of the one before."""

    trait: str
    former: str | None = None


def with_function(
    wanted: DesiredProvider, live: Provider | None, record: Record, held: HeldFunction
) -> DesiredProvider:
    """A device with the trait of the function that it was programmed with.

    Not where another function has been said of it since: whoever programs it behind our back, and
    says so, is right. A driver that reports the former one does not know better yet.
    """
    mine = wanted.provider
    newer = function_traits(live.traits) if live else frozenset()
    said = frozenset[str]()
    stale: set[str | None] = {held.trait}
    if wanted.mode is PublishingMode.OWN:
        newer -= record.claimed_traits
        stale.add(held.former)
        said = function_traits(mine.traits) - stale
    traits = mine.traits - stale
    if not newer - {held.trait} and not said:
        traits |= {held.trait}
    if traits == mine.traits:
        return wanted
    return replace(wanted, provider=replace(mine, traits=traits))


def with_claims(
    records: Mapping[str, Record], held: Mapping[str, HeldFunction]
) -> Mapping[str, Record]:
    """The records, with the traits of functions, by provider uuid, as ours to take away again.

    A job has put them there.
    """
    claimed = {
        uuid: replace(record, applied=replace(applied, traits=applied.traits | {function.trait}))
        for uuid, function in held.items()
        if (record := records.get(uuid)) is not None
        and (applied := record.applied) is not None
        and function.trait not in applied.traits
    }
    return {**records, **claimed} if claimed else records
