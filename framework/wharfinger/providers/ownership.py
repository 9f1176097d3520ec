"""Ownership of resource providers, which owner traits show."""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

import os_resource_classes as orc
import os_traits

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_trait
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode, Record

#: nova 34 requires this trait on the roots that it schedules to.
NOVA: Final = "OWNER_NOVA"
CYBORG: Final = "OWNER_CYBORG"

_INSTANCE_PREFIX: Final = "CUSTOM_WHARFINGER_"
_OWNER: Final = re.compile(r"(OWNER_|CUSTOM_OWNER_)[A-Z0-9_]+\Z")


@dataclass(frozen=True, slots=True)
class Publisher:
    """A driver instance, with the traits that mark its providers."""

    instance: str
    #: The owner trait of all its providers.
    owner: str
    #: Whether the instance adopts all providers that match the report of its driver.
    adopts_matching: bool = False
    #: The uuids of the providers that the operator has named for adoption.
    adopts: frozenset[str] = frozenset()
    #: The owner trait, and the instance trait CUSTOM_WHARFINGER_<INSTANCE>.
    traits: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        marks = frozenset((check_owner(self.owner), instance_trait(self.instance)))
        object.__setattr__(self, "traits", marks)


class Standing(Enum):
    """Relation of a provider in Placement to a driver instance."""

    #: The provider may still have the former owner trait of the instance.
    OURS = auto()
    #: No other owner, but nothing proves that this instance created the provider.
    UNPROVEN = auto()
    #: Another owner has the provider.
    FOREIGN = auto()


def check_owner(name: str) -> str:
    """Return a valid owner trait. Raises InvalidName."""
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
    """Return whether a trait is that of a driver instance."""
    return trait.startswith(_INSTANCE_PREFIX)


def owners(traits: Iterable[str]) -> frozenset[str]:
    """Return the owner traits among some traits."""
    return frozenset(trait for trait in traits if _OWNER.match(trait))


def standing(provider: Provider, publisher: Publisher, record: Record) -> Standing:
    """Return the relation of a provider to a driver instance."""
    found, mark = owners(provider.traits), instance_trait(publisher.instance)
    if not found <= {publisher.owner}:
        is_own = record.mode is PublishingMode.OWN
        former = owners(record.claimed_traits) if is_own else frozenset()
        is_ours = found <= former and mark in provider.traits
        return Standing.OURS if is_ours else Standing.FOREIGN
    if mark in provider.traits or record.applied is not None:
        return Standing.OURS
    has = provider.inventories or provider.traits or provider.aggregates
    is_new = provider.generation == 0 and not has
    return Standing.OURS if record.intended is not None and is_new else Standing.UNPROVEN


def is_published(traits: Collection[str], record: Record) -> bool:
    """Return whether any driver instance publishes the provider with these traits."""
    if record.applied is None and not any(map(is_instance_trait, traits)):
        return False
    return not record.is_ours or owners(traits) <= owners(record.claimed_traits)


def was_created_again(known: Provider | None, live: Provider) -> bool:
    """Return whether the generation shows that a provider was created again."""
    if known is None or known.generation is None or live.generation is None:
        return False
    return live.generation < known.generation


def without_lost(record: Record, live: Provider | None, publisher: Publisher) -> Record:
    """Drop applied and intended if another program recreated a provider of mode ``own``."""
    if (
        live is None
        or not was_created_again(record.live, live)
        or record.mode is not PublishingMode.OWN
        or instance_trait(publisher.instance) in live.traits
    ):
        return record
    return replace(record, applied=None, intended=None)


def other_instances(traits: Iterable[str], publisher: Publisher) -> frozenset[str]:
    """Return the traits of other driver instances; none if this instance's trait is there."""
    marks = frozenset(filter(is_instance_trait, traits))
    return frozenset() if marks & publisher.traits else marks


def adopts(
    publisher: Publisher,
    live: Provider,
    wanted: DesiredProvider,
    dropped: Collection[str] = frozenset(),
) -> bool:
    """Return whether a driver instance may adopt an existing provider."""
    return (
        (publisher.adopts_matching or live.uuid in publisher.adopts)
        and owners(live.traits) <= {publisher.owner}
        and not other_instances(live.traits, publisher)
        and not any(obstacles(live, wanted, dropped))
    )


def is_overlaid(record: Record) -> bool:
    """Return whether the record is of a provider published in overlay mode."""
    return record.applied is not None and record.mode is PublishingMode.OVERLAY


def is_others(live: Provider, publisher: Publisher, record: Record) -> bool:
    """Return whether a provider counts as another program's."""
    record = without_lost(record, live, publisher)
    is_ours = standing(live, publisher, record) is Standing.OURS
    return live.uuid not in publisher.adopts and (is_overlaid(record) or not is_ours)


def is_adoption(
    publisher: Publisher, live: Provider, wanted: DesiredProvider, record: Record
) -> bool:
    """Return whether publishing the provider would adopt it."""
    if wanted.mode is not PublishingMode.OWN:
        return False
    found = standing(live, publisher, record)
    return found is Standing.UNPROVEN or (found is Standing.OURS and is_overlaid(record))


def explains_reserved(live: Provider, wanted: DesiredProvider, *, is_allocated: bool) -> bool:
    """Return whether an adopted provider's full reservation need not be kept."""
    is_bare_metal = live.parent_uuid is None and all(
        name.startswith(orc.CUSTOM_NAMESPACE) and inventory.total == 1
        for name, inventory in live.inventories.items()
    )
    is_of_nova = is_bare_metal and (NOVA in live.traits or is_allocated)
    return bool(wanted.reservations) or is_of_nova


def obstacles(
    live: Provider, wanted: DesiredProvider, dropped: Collection[str] = frozenset()
) -> Iterator[str]:
    """Yield reasons against an adoption, except traits."""
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
        yield "it is a root with VCPU, which only nova-compute may publish"


def _listed(classes: Iterable[str]) -> str:
    return ", ".join(sorted(classes)) or "none"
