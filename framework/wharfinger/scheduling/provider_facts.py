"""Facts about all providers from which the candidates of a request are explained. Pure."""

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
    """Capacity of a resource class; its used units and inventory, each None if unknown."""

    capacity: int
    used: int | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about all providers; keys are provider uuids except where stated.

    - ``with_one_of``: the providers that have any trait of a set, by set of traits.
    - ``members``: the providers in any aggregate of a set, by set of aggregates.
    - ``stocks``: by provider and resource class.
    - ``fitting``: the providers that can give an amount, by class and amount.
    - ``last_seen``: the providers whose inventories may be outdated.
    - ``reached``: the roots of the trees that a sharing provider shares with.
    - ``not_reached``: the number of sharing providers whose trees are unknown.
    """

    providers: Mapping[str, ProviderSummary]
    with_one_of: Mapping[frozenset[str], frozenset[str]] = field(default_factory=dict)
    members: Mapping[frozenset[str], frozenset[str]] = field(default_factory=dict)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stocks: Mapping[str, Mapping[str, Stock]] = field(default_factory=dict)
    fitting: Mapping[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    last_seen: frozenset[str] = frozenset()
    reserved: Mapping[str, tuple[Reserved, ...]] = field(default_factory=dict)
    reached: Mapping[str, frozenset[str]] = field(default_factory=dict)
    not_reached: int = 0

    def root(self, uuid: str) -> str:
        """Return the uuid of a provider's root."""
        return self.providers[uuid].root_provider_uuid

    @property
    def sharing(self) -> frozenset[str]:
        """Return the uuids of the providers that share resources through aggregates."""
        return self.with_one_of.get(frozenset([SHARES]), frozenset())
