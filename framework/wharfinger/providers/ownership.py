"""Whose a provider is.

Every published provider carries exactly one owner trait. What another owner's trait
marks is never written. Pure functions over providers.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import os_traits

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_trait
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.record import Record

#: nova 34 requires it on the roots that it schedules to.
NOVA: Final = "OWNER_NOVA"
CYBORG: Final = "OWNER_CYBORG"

_INSTANCE_PREFIX: Final = "CUSTOM_WHARFINGER_"
_OWNER: Final = re.compile(r"(OWNER_|CUSTOM_OWNER_)[A-Z0-9_]+\Z")


@dataclass(frozen=True, slots=True)
class Publisher:
    """A driver instance, as far as what it publishes is marked by it.

    ``owner`` is the owner trait of all its providers. ``traits`` are what marks them: the
    owner's, and one of the instance's own (CUSTOM_WHARFINGER_<INSTANCE>) by which one
    request lists them. Both are set in one write.
    """

    instance: str
    owner: str
    traits: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        marks = frozenset((check_owner(self.owner), instance_trait(self.instance)))
        object.__setattr__(self, "traits", marks)


class Standing(Enum):
    """What a provider in Placement is to a driver instance."""

    OURS = auto()
    #: Ours, with the owner trait that this instance published under before.
    OURS_BEFORE = auto()
    UNTAGGED = auto()
    FOREIGN = auto()


def check_owner(name: str) -> str:
    """Return an owner trait; raise InvalidName for anything else."""
    if not _OWNER.match(name):
        raise InvalidName(
            kind="owner trait",
            name=name,
            problem=f"must be {NOVA}, {CYBORG} or of the form CUSTOM_OWNER_[A-Z0-9_]+",
        )
    return check_trait(name)


def instance_trait(instance: str) -> str:
    """The trait that marks what the driver instance of that name publishes."""
    return check_trait(os_traits.normalize_name(f"wharfinger_{instance}"))


def is_instance_trait(trait: str) -> bool:
    """Whether a trait marks what some driver instance publishes."""
    return trait.startswith(_INSTANCE_PREFIX)


def owners(traits: Iterable[str]) -> frozenset[str]:
    """The owner traits among some traits."""
    return frozenset(trait for trait in traits if _OWNER.match(trait))


def standing(provider: Provider, publisher: Publisher, record: Record) -> Standing:
    """Whose a provider is, seen from a driver instance that remembers the record of it."""
    found = owners(provider.traits)
    if not found:
        return Standing.UNTAGGED
    if found == {publisher.owner}:
        return Standing.OURS
    former = owners(record.claimed_traits) if record.mode is PublishingMode.OWN else frozenset()
    if found <= former and instance_trait(publisher.instance) in provider.traits:
        return Standing.OURS_BEFORE
    return Standing.FOREIGN


def other_instances(traits: Iterable[str], publisher: Publisher) -> frozenset[str]:
    """The marks of other driver instances, where the publisher's own is not among them."""
    marks = frozenset(filter(is_instance_trait, traits))
    return frozenset() if marks & publisher.traits else marks


def may_adopt(
    live: Provider, wanted: DesiredProvider, dropped: Collection[str] = frozenset()
) -> bool:
    """Whether an untagged provider in Placement is the one that a driver means.

    Its uuid or its name, and its parent have to match, and it may have no resource class that
    the driver did not report, and has not just moved away (``dropped``): otherwise it is
    somebody's who does not tag.
    """
    mine = wanted.provider
    reported = mine.inventories if wanted.reported else {}
    return (
        (live.uuid == mine.uuid or live.name == mine.name)
        and live.parent_uuid == mine.parent_uuid
        and set(live.inventories) <= {*reported, *dropped}
    )
