"""Read provider inventories of the requested classes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from wharfinger.exceptions import NotFound
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import AllocationCandidates
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import Provider
from wharfinger.scheduling import provider_details
from wharfinger.scheduling.part_funnel import Wanted
from wharfinger.scheduling.provider_facts import Facts, Stock

#: The largest number of providers that are read one by one.
LOOKED_AT: Final = 50
#: The largest number of additional candidate requests of each kind.
_MOST_REQUESTS: Final = 4


class Stocks:
    """Reads provider inventories and usages of the requested classes."""

    def __init__(
        self,
        client: PlacementClient,
        objects: Context | None,
        facts: Facts,
        parts: Iterable[Wanted],
    ) -> None:
        self._client: Final = client
        self._objects: Final = objects
        self._facts: Final = facts
        self._wanted: Final = sorted({item for one in parts for item in one.resources.items()})
        self._classes: Final = {kind for kind, _amount in self._wanted}
        self._stocks: Final[dict[str, dict[str, Stock]]] = {}
        self._fitting: Final[dict[tuple[str, int], frozenset[str]]] = {}
        self._gone: Final[set[str]] = set()
        self._reads = 0

    def gather(self) -> Facts:
        """Return the facts with more inventories; some may stay unknown."""
        tried = set()
        for kind, amount in self._wanted:
            self._fitting[kind, amount] = self._offered(kind, amount)
            tried |= {kind} if amount == 1 else set()
        for kind in sorted(self._classes - tried):
            self._fitting[kind, 1] = self._offered(kind, 1)
        remembered = self._remembered()
        unchanged = [one for one in remembered if self._is_as_seen(one)]
        self._request_least(remembered)
        self._use_last_known(unchanged)
        self._request_other_classes()
        for uuid in self._unknown()[: LOOKED_AT - self._reads]:
            self._read(uuid)
        self._complete(unchanged)
        last_seen = self._use_last_known(remembered)
        providers = {
            uuid: one for uuid, one in self._facts.providers.items() if uuid not in self._gone
        }
        return replace(
            self._facts,
            providers=providers,
            stocks=self._stocks,
            fitting=self._fitting,
            last_seen=last_seen,
        )

    def _offered(self, kind: str, amount: int) -> frozenset[str]:
        answer = self._client.get_allocation_candidates([("resources", f"{kind}:{amount}")])
        self._store(answer)
        return frozenset(uuid for one in answer.allocation_requests for uuid in one.allocations)

    def _store(self, answer: AllocationCandidates) -> None:
        for uuid, one in answer.provider_summaries.items():
            self._stocks[uuid] = {
                kind: Stock(its.capacity, its.used) for kind, its in one.resources.items()
            }

    def _remembered(self) -> list[Provider]:
        seen = provider_details.last_seen(self._objects) if self._objects else {}
        return [one for uuid, one in seen.items() if uuid in self._facts.providers]

    def _request_least(self, remembered: Iterable[Provider]) -> None:
        least = Counter(
            (kind, one.least)
            for provider in remembered
            if provider.uuid not in self._stocks
            for kind, one in provider.inventories.items()
            if kind in self._classes and not one.is_fully_reserved
        )
        for (kind, amount), _times in least.most_common(_MOST_REQUESTS):
            if (kind, amount) not in self._fitting:
                self._fitting[kind, amount] = self._offered(kind, amount)

    def _is_as_seen(self, one: Provider) -> bool:
        # With the same generation, neither the provider nor its allocations have changed.
        return one.generation == self._facts.providers[one.uuid].generation

    def _complete(self, seen: Iterable[Provider]) -> None:
        for one in seen:
            stocks = self._stocks.get(one.uuid, {})
            for kind in stocks.keys() & one.inventories.keys():
                stocks[kind] = replace(stocks[kind], inventory=one.inventories[kind])

    def _use_last_known(self, last_known: Iterable[Provider]) -> frozenset[str]:
        believed = {
            one.uuid: one.inventories
            for one in last_known
            if one.uuid not in self._stocks.keys() | self._gone
            and self._has_no_free_unit(one.inventories)
        }
        for uuid, inventories in believed.items():
            self._stocks[uuid] = {
                kind: Stock(int(one.capacity), None, one) for kind, one in inventories.items()
            }
        return frozenset(believed)

    def _has_no_free_unit(self, inventories: Mapping[str, Inventory]) -> bool:
        # This is certain only for a provider that Placement does not offer.
        return all(
            one.is_fully_reserved or one.least == 1
            for kind, one in inventories.items()
            if kind in self._classes
        )

    def _unknown(self) -> list[str]:
        facts = self._facts
        return sorted(
            facts.providers.keys() - self._stocks.keys() - self._gone,
            key=lambda uuid: (uuid not in facts.reserved, facts.providers[uuid].name, uuid),
        )

    def _request_other_classes(self) -> None:
        # The classes of a few unknown providers lead to other providers like these.
        asked = {kind for kind, _amount in self._fitting}
        for _ in range(_MOST_REQUESTS):
            unknown = self._unknown()
            if len(unknown) <= _MOST_REQUESTS:
                return
            uuid = unknown[0]
            self._read(uuid)
            for kind, stock in sorted(self._stocks.get(uuid, {}).items()):
                if kind not in asked and stock.capacity >= 1 and stock.inventory:
                    asked.add(kind)
                    self._offered(kind, stock.inventory.least)
                    break

    def _read(self, uuid: str) -> None:
        self._reads += 1
        try:
            inventories = self._client.get_inventories(uuid).inventories
            has_any = any(
                inventories[kind].capacity >= 1 for kind in self._classes & {*inventories}
            )
            # A provider that has a requested class but was not offered is used up: skip its usages.
            is_used_up = self._has_no_free_unit(inventories) and uuid not in self._facts.reserved
            used = self._client.get_usages(uuid) if has_any and not is_used_up else {}
        except NotFound:
            self._gone.add(uuid)
        else:
            self._stocks[uuid] = {
                kind: Stock(int(one.capacity), None if is_used_up else used.get(kind, 0), one)
                for kind, one in inventories.items()
            }
