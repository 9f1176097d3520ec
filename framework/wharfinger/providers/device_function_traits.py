"""Function traits, which show what function a programmable device has.

They have the same names as in Cyborg, so that Cyborg's device profiles can request them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_trait
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.provider_record import NO_RECORD, Record

PREFIX: Final = "CUSTOM_FPGA_FUNCTION_ID_"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9]+")


def function_trait(function: str, vendor: str = "") -> str:
    """Return the trait for a function: CUSTOM_FPGA_FUNCTION_ID_[VENDOR_]FUNCTION.

    Characters other than letters and digits become "_"; a uuid loses its dashes. Raises InvalidName
    if the function has no letter (A to Z) or digit, or if the trait is too long.
    """
    named = function.replace("-", "") if is_uuid_like(function) else function
    words = [_NOT_IN_NAMES.sub("_", word.upper()).strip("_") for word in (vendor, named)]
    if not words[-1]:
        raise InvalidName(
            kind="function",
            name=function,
            problem="needs a letter from A to Z or a digit, since its trait keeps only these",
        )
    return check_trait(PREFIX + "_".join(filter(None, words)))


def function_traits(traits: Iterable[str]) -> frozenset[str]:
    """Return the function traits among some traits."""
    return frozenset(trait for trait in traits if trait.startswith(PREFIX))


@dataclass(frozen=True, slots=True)
class HeldFunction:
    """Function that a job has loaded into a device."""

    #: The function trait, None if the function is unknown.
    trait: str | None
    #: The traits of earlier functions of the device.
    stale: frozenset[str] = frozenset()
    #: The uuids of all providers of the device.
    parts: tuple[str, ...] = ()
    #: The revision of the job.
    revision: int = 0


def reported_since(
    wanted: DesiredProvider, live: Provider | None, record: Record, held: HeldFunction
) -> frozenset[str]:
    """Return the traits of other functions that the device has got since the job programmed it.

    The driver reports them, or another program has set them in Placement. Earlier functions that
    the driver still reports do not count.
    """
    known = {held.trait} if held.trait else set[str]()
    newer = function_traits(live.traits) - known if live else frozenset[str]()
    if wanted.mode is PublishingMode.OWN:
        reported = function_traits(wanted.provider.traits) - held.stale - known
        return reported | newer - record.claimed_traits
    return newer - (held.stale & record.claimed_traits)


def with_function(
    wanted: DesiredProvider, record: Record, held: HeldFunction, *, superseded: bool
) -> DesiredProvider:
    """Return a device's desired provider with the trait of the function that a job has loaded.

    The traits of earlier functions are removed; if the job is ``superseded``, this trait, too.
    """
    mine = wanted.provider
    known = {held.trait} if held.trait else set[str]()
    is_own = wanted.mode is PublishingMode.OWN
    stale = held.stale if is_own else held.stale & record.claimed_traits
    traits = mine.traits - stale - known if superseded else mine.traits - stale | known
    if traits == mine.traits:
        return wanted
    return replace(wanted, provider=replace(mine, traits=traits))


def with_functions(
    desired: Mapping[str, DesiredProvider],
    functions: Mapping[str, HeldFunction],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    instance_trait: str,
) -> tuple[Mapping[str, DesiredProvider], frozenset[str]]:
    """Return the desired providers with function traits, and uuids of those with superseded jobs.

    ``functions`` are the functions that jobs have loaded. A job is superseded if the device has got
    another function since, or was replaced.
    """
    mine = {
        uuid: held
        for uuid, held in functions.items()
        if (wanted := desired.get(uuid)) and wanted.stated
    }
    since = {
        uuid: reported_since(desired[uuid], live.get(uuid), records.get(uuid, NO_RECORD), held)
        for uuid, held in mine.items()
    }
    new = {uuid for uuid in mine if uuid in live and instance_trait not in live[uuid].traits}
    superseded = new.union(uuid for uuid, reported in since.items() if reported)
    changed = {
        uuid: with_function(
            desired[uuid],
            records.get(uuid, NO_RECORD),
            held,
            superseded=not superseded.isdisjoint((uuid, *held.parts)),
        )
        for uuid, held in mine.items()
    }
    # A trait from before the job may have been read from Placement before the job ended.
    ended = new.union(uuid for uuid, reported in since.items() if reported - mine[uuid].stale)
    return {**desired, **changed}, frozenset(uuid for uuid in ended if mine[uuid].trait is not None)


def with_claims(
    records: Mapping[str, Record], held: Mapping[str, HeldFunction]
) -> Mapping[str, Record]:
    """Return the records, with the function traits that jobs have set added to ``applied``."""
    claimed = {
        uuid: replace(record, applied=replace(applied, traits=applied.traits | {function.trait}))
        for uuid, function in held.items()
        if function.trait is not None
        and (record := records.get(uuid)) is not None
        and (applied := record.applied) is not None
        and function.trait not in applied.traits
    }
    return {**records, **claimed} if claimed else records
