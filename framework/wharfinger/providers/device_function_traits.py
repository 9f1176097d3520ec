"""Traits that show the function of a programmable device, with the same names in Cyborg."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_trait
from wharfinger.providers.provider import (
    NO_RECORD,
    DesiredProvider,
    Provider,
    PublishingMode,
    Record,
)

PREFIX: Final = "CUSTOM_FPGA_FUNCTION_ID_"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Z0-9]+")


def function_trait(function: str, vendor: str = "") -> str:
    """Return the trait for a function: CUSTOM_FPGA_FUNCTION_ID_[VENDOR_]FUNCTION.

    Raises InvalidName.
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

    #: The function trait, or none if the function is unknown.
    traits: frozenset[str]
    #: Traits of earlier functions of the device.
    stale: frozenset[str] = frozenset()
    #: The uuids of all providers of the device.
    parts: tuple[str, ...] = ()
    #: The revision of the job.
    revision: int = 0


def newer_traits(
    wanted: DesiredProvider, live: Provider | None, record: Record, held: HeldFunction
) -> frozenset[str]:
    """Return function traits that a device may have got after ``held``."""
    newer = function_traits(live.traits) - held.traits if live else frozenset[str]()
    if wanted.mode is PublishingMode.OWN:
        reported = function_traits(wanted.provider.traits) - held.stale - held.traits
        return reported | newer - record.claimed_traits
    return newer - (held.stale & record.claimed_traits)


def with_corrected_traits(
    wanted: DesiredProvider, record: Record, held: HeldFunction, *, superseded: bool
) -> DesiredProvider:
    """Return the desired provider of a device with corrected function traits."""
    mine = wanted.provider
    is_own = wanted.mode is PublishingMode.OWN
    traits = mine.traits - (held.stale if is_own else held.stale & record.claimed_traits)
    traits = traits - held.traits if superseded else traits | held.traits
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
    """Return desired with corrected function traits, and uuids of devices with obsolete jobs."""
    devices = {
        uuid: (wanted, live.get(uuid), records.get(uuid, NO_RECORD), held)
        for uuid, held in functions.items()
        if (wanted := desired.get(uuid)) and wanted.stated
    }
    newer = {uuid: newer_traits(*device) for uuid, device in devices.items()}
    new = {uuid for uuid in devices if uuid in live and instance_trait not in live[uuid].traits}
    superseded = new.union(uuid for uuid, traits in newer.items() if traits)
    changed = {
        uuid: with_corrected_traits(
            wanted, record, held, superseded=not superseded.isdisjoint((uuid, *held.parts))
        )
        for uuid, (wanted, _live, record, held) in devices.items()
    }
    # A trait from before the job may have been read from Placement before the job ended.
    ended = new.union(uuid for uuid, traits in newer.items() if traits - functions[uuid].stale)
    return {**desired, **changed}, frozenset(uuid for uuid in ended if functions[uuid].traits)


def with_claims(
    records: Mapping[str, Record], held: Mapping[str, HeldFunction]
) -> Mapping[str, Record]:
    """Count function traits of jobs as applied; return all records."""
    claimed = {
        uuid: replace(record, applied=replace(applied, traits=applied.traits | function.traits))
        for uuid, function in held.items()
        if (record := records.get(uuid)) is not None
        and (applied := record.applied) is not None
        and not function.traits <= applied.traits
    }
    return {**records, **claimed} if claimed else records
