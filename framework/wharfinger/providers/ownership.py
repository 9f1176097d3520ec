"""Ownership of providers.

Every published provider carries exactly one owner trait. A provider with the trait of another
owner is never written. Our owner trait alone proves nothing: other programs publish with it, too.
Pure functions over providers.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

import os_resource_classes as orc
import os_traits

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_trait
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.provider_record import Record

#: nova 34 requires this trait on the roots that it schedules to.
NOVA: Final = "OWNER_NOVA"
CYBORG: Final = "OWNER_CYBORG"

_INSTANCE_PREFIX: Final = "CUSTOM_WHARFINGER_"
_OWNER: Final = re.compile(r"(OWNER_|CUSTOM_OWNER_)[A-Z0-9_]+\Z")


@dataclass(frozen=True, slots=True)
class Publisher:
    """A driver instance with the traits of its providers.

    ``owner`` is the owner trait of all its providers. ``traits`` are the owner trait and the
    instance trait (CUSTOM_WHARFINGER_<INSTANCE>), by which one request lists its providers. One
    write sets both.

    ``adopts_matching``: the instance adopts every provider that matches the report of its driver.
    ``adopts`` are the uuids of the providers that the operator has named for adoption.
    """

    instance: str
    owner: str
    adopts_matching: bool = False
    adopts: frozenset[str] = frozenset()
    traits: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        marks = frozenset((check_owner(self.owner), instance_trait(self.instance)))
        object.__setattr__(self, "traits", marks)


class Standing(Enum):
    """Relation of a provider in Placement to a driver instance."""

    OURS = auto()
    #: Ours, with the owner trait that this instance published under before.
    OURS_BEFORE = auto()
    #: Untagged, or with our owner trait, and nothing proves that this instance created it.
    UNPROVEN = auto()
    #: With the trait of another owner.
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
    """Return the trait that marks the providers of a driver instance."""
    return check_trait(os_traits.normalize_name(f"wharfinger_{instance}"))


def is_instance_trait(trait: str) -> bool:
    """Return whether a trait is the instance trait of any driver instance."""
    return trait.startswith(_INSTANCE_PREFIX)


def owners(traits: Iterable[str]) -> frozenset[str]:
    """Return the owner traits among some traits."""
    return frozenset(trait for trait in traits if _OWNER.match(trait))


def standing(provider: Provider, publisher: Publisher, record: Record) -> Standing:
    """Return the standing of a provider for a driver instance that has this record of it.

    This is the one rule: a provider is ours if it has our instance trait, or if our record shows
    that we published it. A record of a creation that was only intended proves this as long as
    the provider has not changed since its creation.
    """
    found, mark = owners(provider.traits), instance_trait(publisher.instance)
    if not found <= {publisher.owner}:
        is_own = record.mode is PublishingMode.OWN
        former = owners(record.claimed_traits) if is_own else frozenset()
        is_ours = found <= former and mark in provider.traits
        return Standing.OURS_BEFORE if is_ours else Standing.FOREIGN
    if mark in provider.traits or record.applied is not None:
        return Standing.OURS
    has = provider.inventories or provider.traits or provider.aggregates
    is_new = provider.generation == 0 and not has
    return Standing.OURS if record.intended is not None and is_new else Standing.UNPROVEN


def is_published(traits: Collection[str], record: Record) -> bool:
    """Return whether a driver instance publishes the provider with these traits.

    ``record`` is the record that a driver instance keeps of it, or an empty record.
    """
    if record.applied is None and not any(map(is_instance_trait, traits)):
        return False
    return not record.is_ours or owners(traits) <= owners(record.claimed_traits)


def without_lost(record: Record, live: Provider | None, publisher: Publisher) -> Record:
    """Return the record without its claims if the provider was deleted since.

    Generations never fall. A provider with a lower one than we know was created anew under the
    same uuid, by another program if it lacks our instance trait.
    """
    known = record.live
    if (
        live is None
        or live.generation is None
        or known is None
        or known.generation is None
        or live.generation >= known.generation
        or record.mode is not PublishingMode.OWN
        or instance_trait(publisher.instance) in live.traits
    ):
        return record
    return replace(record, applied=None, intended=None)


def other_instances(traits: Iterable[str], publisher: Publisher) -> frozenset[str]:
    """Return the instance traits of others; none if the publisher's own is among the traits."""
    marks = frozenset(filter(is_instance_trait, traits))
    return frozenset() if marks & publisher.traits else marks


def adopts(
    publisher: Publisher,
    live: Provider,
    wanted: DesiredProvider,
    dropped: Collection[str] = frozenset(),
) -> bool:
    """Return whether an instance adopts a provider that it did not create.

    Its configuration or the operator must allow it. The provider must have no owner trait but ours,
    and no trait of another instance, and it must match the report of the driver.
    """
    return (
        (publisher.adopts_matching or live.uuid in publisher.adopts)
        and owners(live.traits) <= {publisher.owner}
        and not other_instances(live.traits, publisher)
        and not any(obstacles(live, wanted, dropped))
    )


def is_overlaid(record: Record) -> bool:
    """Return whether this instance has only overlaid a provider that another program created."""
    return record.applied is not None and record.mode is PublishingMode.OVERLAY


def is_others(live: Provider, publisher: Publisher, record: Record) -> bool:
    """Return whether another program has created a provider, and publishes it.

    Not if the operator has named it for adoption.
    """
    record = without_lost(record, live, publisher)
    is_ours = standing(live, publisher, record) in (Standing.OURS, Standing.OURS_BEFORE)
    return live.uuid not in publisher.adopts and (is_overlaid(record) or not is_ours)


def is_adoption(
    publisher: Publisher, live: Provider, wanted: DesiredProvider, record: Record
) -> bool:
    """Return whether an instance adopts a provider if it publishes it.

    A provider with our instance trait is ours even if its record is lost: it is not adopted again.
    """
    if wanted.mode is not PublishingMode.OWN:
        return False
    found = standing(live, publisher, record)
    return found is Standing.UNPROVEN or (found is Standing.OURS and is_overlaid(record))


def explains_reserved(live: Provider, wanted: DesiredProvider, *, is_allocated: bool) -> bool:
    """Return whether the full reservation of a provider is explained when it is adopted.

    Either the driver has a reason for it now, or nova's IronicDriver wrote it. That driver writes
    ``reserved`` of each node in each period, and reserves nodes that are in use, in maintenance or
    in cleaning: no figure of an operator survives there. A nova older than the owner traits leaves
    no trait; an allocation shows that the node was in use. On other providers, ``reserved`` may be
    an operator's: nova leaves it alone on PCI devices.
    """
    is_bare_metal = live.parent_uuid is None and all(
        name.startswith(orc.CUSTOM_NAMESPACE) and inventory.total == 1
        for name, inventory in live.inventories.items()
    )
    is_of_nova = is_bare_metal and (NOVA in live.traits or is_allocated)
    return bool(wanted.reservations) or is_of_nova


def obstacles(
    live: Provider, wanted: DesiredProvider, dropped: Collection[str] = frozenset()
) -> Iterator[str]:
    """Yield the reasons against the adoption of a provider, as text with both values.

    Its uuid, name, parent and resource classes have to be those that the driver reports. Classes
    that the driver has just moved away (``dropped``) do not count. Only nova publishes roots with
    VCPU.
    """
    mine = wanted.provider
    reported = mine.inventories if wanted.reported else {}
    for what, there, here in (
        ("uuid", live.uuid, wanted.reported_uuid or mine.uuid),
        ("name", live.name, mine.name),
        ("parent", live.parent_uuid or "none", mine.parent_uuid or "none"),
        ("resource classes", _listed(set(live.inventories) - {*dropped}), _listed(reported)),
    ):
        if there != here:
            is_many = what.endswith("s")
            yield f"its {what} {'are' if is_many else 'is'} {there}; the driver reports {here}"
    if live.parent_uuid is None and "VCPU" in {**live.inventories, **reported}:
        yield "it is a root with VCPU, which is nova-compute's to publish"


def _listed(classes: Iterable[str]) -> str:
    return ", ".join(sorted(classes)) or "none"
