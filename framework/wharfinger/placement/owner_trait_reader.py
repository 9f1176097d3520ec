"""Reads which owner traits Placement knows, and which providers have them."""

import threading
from typing import Final

from cachetools import TTLCache

from wharfinger.placement.client import PlacementClient
from wharfinger.providers import ownership

_PREFIXES: Final = ("OWNER_", "CUSTOM_OWNER_")


def find(client: PlacementClient) -> frozenset[str]:
    """Return all owner traits that Placement knows."""
    return ownership.owners(trait for prefix in _PREFIXES for trait in client.find_traits(prefix))


def by_provider(client: PlacementClient) -> dict[str, tuple[str, ...]]:
    """Return the owner traits of each provider that has any, by uuid."""
    owners: dict[str, tuple[str, ...]] = {}
    for trait in sorted(find(client)):
        for provider in client.list_providers(required=(trait,)):
            owners[provider.uuid] = (*owners.get(provider.uuid, ()), trait)
    return owners


class OwnerTraits:
    """Cache of all owner traits; safe for several threads."""

    def __init__(self, client: PlacementClient, cache_time: float) -> None:
        self._client: Final = client
        self._lock: Final = threading.Lock()
        self._cache: Final[TTLCache[None, frozenset[str]]] = TTLCache(1, cache_time)

    def get(self) -> frozenset[str]:
        """Return all owner traits, from the cache or from Placement; raises PlacementError."""
        with self._lock:
            known = self._cache.get(None)
            if known is None:
                known = self._cache[None] = find(self._client)
            return known

    def learn(self, seen: frozenset[str]) -> None:
        """Add owner traits that exist in Placement, unless the cache is empty."""
        with self._lock:
            known = self._cache.get(None)
            if known is not None and not seen <= known:
                self._cache[None] = known | seen

    def forget(self) -> None:
        """Empty the cache."""
        with self._lock:
            self._cache.clear()
