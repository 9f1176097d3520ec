"""What providers have of the classes that a request asks for, whether they offer it or not.

What they do not offer is told by the candidates of their trees, and by what driver instances
remember. The rest is looked at one by one, as far as that goes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from wharfinger.exceptions import NotFound
from wharfinger.objects import Context
from wharfinger.placement import survey
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import AllocationCandidates
from wharfinger.providers.inventory import Inventory
from wharfinger.scheduling.facts import Facts, Stock
from wharfinger.scheduling.funnel import Wanted

#: Up to so many providers are looked at one by one, of which it is not known what they have.
LOOKED_AT: Final = 50
#: Of so many it is tried first whether others have what they have.
_TRIED: Final = 4


def _least(inventory: Inventory) -> int:
    """The least amount that can be had in one go."""
    return -(-inventory.min_unit // inventory.step_size) * inventory.step_size


class Stocks:
    """Finds out what providers have of the classes that are asked for."""

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
        self._looks = 0

    def gathered(self) -> Facts:
        """The facts, with the stocks, without those that have gone."""
        tried = set()
        for kind, amount in self._wanted:
            self._fitting[kind, amount] = self._offered(kind, amount)
            tried |= {kind} if amount == 1 else set()
        for kind in sorted(self._classes - tried):
            self._fitting[kind, 1] = self._offered(kind, 1)
        self._remember()
        self._try_others()
        for uuid in self._unknown()[: LOOKED_AT - self._looks]:
            self._look_at(uuid)
        providers = {
            uuid: one for uuid, one in self._facts.providers.items() if uuid not in self._gone
        }
        return replace(self._facts, providers=providers, stocks=self._stocks, fitting=self._fitting)

    def _offered(self, kind: str, amount: int) -> frozenset[str]:
        """Who gives that; notes what the trees of those have besides."""
        answer = self._client.get_allocation_candidates([("resources", f"{kind}:{amount}")])
        self._note(answer)
        return frozenset(uuid for one in answer.allocation_requests for uuid in one.allocations)

    def _note(self, answer: AllocationCandidates) -> None:
        for uuid, one in answer.provider_summaries.items():
            self._stocks[uuid] = {
                kind: Stock(its.capacity, its.used) for kind, its in one.resources.items()
            }

    def _remember(self) -> None:
        """Take what driver instances remember, of those that the answers say nothing of."""
        if self._objects is None or not self._unknown():
            return
        remembered = survey.known_inventories(self._objects)
        least = Counter(
            (kind, _least(one))
            for uuid in self._unknown()
            for kind, one in remembered.get(uuid, {}).items()
            if kind in self._classes and not one.is_fully_reserved
        )
        for (kind, amount), _times in least.most_common(_TRIED):
            if (kind, amount) not in self._fitting:
                self._fitting[kind, amount] = self._offered(kind, amount)
        for uuid in self._unknown():
            inventories = remembered.get(uuid)
            if inventories is not None and self._is_clear(inventories):
                self._stocks[uuid] = {
                    kind: Stock(int(one.capacity), None, one) for kind, one in inventories.items()
                }

    def _is_clear(self, inventories: Mapping[str, Inventory]) -> bool:
        """Whether it is clear why nothing is offered: not one unit of what can be had by one."""
        return all(
            one.is_fully_reserved or _least(one) == 1
            for kind, one in inventories.items()
            if kind in self._classes
        )

    def _unknown(self) -> list[str]:
        """The providers of which it is not known what they have: those first that may matter."""
        facts = self._facts
        return sorted(
            facts.providers.keys() - self._stocks.keys() - self._gone,
            key=lambda uuid: (uuid not in facts.reserved, facts.providers[uuid].name, uuid),
        )

    def _try_others(self) -> None:
        """Look at a few, and ask who else has what they have: fleets are much alike."""
        asked = {kind for kind, _amount in self._fitting}
        for _ in range(_TRIED):
            unknown = self._unknown()
            if len(unknown) <= _TRIED:
                return
            uuid = unknown[0]
            self._look_at(uuid)
            for kind, stock in sorted(self._stocks.get(uuid, {}).items()):
                if kind not in asked and stock.capacity >= 1 and stock.inventory:
                    asked.add(kind)
                    self._offered(kind, _least(stock.inventory))
                    break

    def _look_at(self, uuid: str) -> None:
        """Look at what a provider has; at its use, where it has anything that is asked for."""
        self._looks += 1
        try:
            inventories = self._client.get_inventories(uuid).inventories
            is_used = any(
                inventories[kind].capacity >= 1 for kind in self._classes & {*inventories}
            )
            used = self._client.get_usages(uuid) if is_used else {}
        except NotFound:
            self._gone.add(uuid)
        else:
            self._stocks[uuid] = {
                kind: Stock(int(one.capacity), used.get(kind, 0), one)
                for kind, one in inventories.items()
            }
