"""Facts about providers that explain the candidates of a request. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import os_traits

from wharfinger.placement.model import ProviderSummary
from wharfinger.providers.inventory import Inventory
from wharfinger.scheduling.provider_details import Reserved

SHARES: Final = os_traits.MISC_SHARES_VIA_AGGREGATE


@dataclass(frozen=True, slots=True)
class Stock:
    """Capacity of a provider for one class. Its used units and inventory are None if unknown."""

    capacity: int
    used: int | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about all providers; keys are provider uuids unless stated otherwise."""

    providers: Mapping[str, ProviderSummary]
    #: The providers that have any trait of a set, by set of traits.
    with_one_of: Mapping[frozenset[str], frozenset[str]] = field(default_factory=dict)
    #: The providers in any aggregate of a set, by set of aggregates.
    members: Mapping[frozenset[str], frozenset[str]] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stocks: Mapping[str, Mapping[str, Stock]] = field(default_factory=dict)
    #: The providers that can give an amount, by class and amount.
    fitting: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    #: The providers whose inventories may be outdated.
    last_seen: frozenset[str] = frozenset()
    reserved: Mapping[str, tuple[Reserved, ...]] = field(default_factory=dict)
    #: The roots of the trees that a sharing provider shares with.
    reached: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: The number of sharing providers whose trees are unknown.
    not_reached: int = 0

    def root(self, uuid: str) -> str:
        """Return the uuid of a provider's root."""
        return self.providers[uuid].root_provider_uuid

    @property
    def sharing(self) -> frozenset[str]:
        """Return the uuids of the sharing providers."""
        return self.with_one_of.get(frozenset([SHARES]), frozenset())
