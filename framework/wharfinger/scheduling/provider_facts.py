"""What is known of all providers when a request is explained: values. Pure."""

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
    """What a provider has of a class, in units; what is not known is None."""

    capacity: int
    used: int | None = None
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of all providers; the keys are their uuids where nothing else is said.

    ``with_one_of``: who has one or more of these traits. ``members``: who is in one or more of
    these aggregates. ``stocks``: by class, of those whose classes are known. ``fitting``: who
    gives that amount of that class in one go. ``last_seen``: whose stocks are as a driver instance
    remembers them, and may have changed since. ``reached``: the roots of the trees that one which
    shares may give to; of ``not_reached`` others that share, nobody has looked at that.
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
        """The root of a provider."""
        return self.providers[uuid].root_provider_uuid

    @property
    def sharing(self) -> frozenset[str]:
        """Who shares through aggregates."""
        return self.with_one_of.get(frozenset([SHARES]), frozenset())
