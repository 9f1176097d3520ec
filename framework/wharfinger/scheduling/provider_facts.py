"""Facts on all providers for the explanation of a request, as values. Pure."""

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
    """A provider's units of a resource class; an unknown figure is None."""

    capacity: int
    used: int | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts on all providers; keys are provider uuids except where stated.

    - ``with_one_of``: the providers with any trait of a set, by set.
    - ``members``: the providers in any aggregate of a set, by set.
    - ``stocks``: the stocks by class, of examined providers.
    - ``fitting``: the providers that can give an amount at once, by class and amount.
    - ``last_seen``: the providers whose stocks a driver instance saw last; they may have changed.
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
        """Return the root uuid of a provider."""
        return self.providers[uuid].root_provider_uuid

    @property
    def sharing(self) -> frozenset[str]:
        """Return the providers that share through aggregates."""
        return self.with_one_of.get(frozenset([SHARES]), frozenset())
