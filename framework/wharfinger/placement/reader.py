"""What Placement has of a driver instance's trees, in as few requests as can be.

One list tells which providers there are and at which generation; what has not moved
since it was last seen is taken from memory, what has is read.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from wharfinger.exceptions import NotFound, PlacementError
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names
from wharfinger.providers.ownership import instance_trait
from wharfinger.providers.provider import Provider
from wharfinger.providers.record import Record

#: Above so many names to look up, one list of all providers is cheaper.
_FEW: Final = 8
_BAD_REQUEST: Final = 400

_Summaries = dict[str, ProviderSummary]


class PlacementReader:
    """Reads the trees of one driver instance."""

    def __init__(self, client: PlacementClient, instance: str) -> None:
        self._client: Final = client
        self._trait: Final = instance_trait(instance)

    def read(self, roots: Mapping[str, str], records: Mapping[str, Record]) -> dict[str, Provider]:
        """The providers of the instance's trees, by uuid.

        ``roots`` are the uuids that its root providers have unless Placement has them
        under another, by name; ``records`` what was remembered of the providers.
        Unchanged, this is one request.
        """
        found = self._list(roots, records)
        self._look_up_roots(roots, found)
        self._look_up_ours(records, found)
        live = {}
        for uuid, summary in found.items():
            with suppress(NotFound):  # deleted since it was listed
                live[uuid] = self._content(summary, records.get(uuid))
        return live

    def allocated(self, uuids: Iterable[str]) -> frozenset[str]:
        """Those of the providers that have allocations; one request each."""
        return frozenset(uuid for uuid in uuids if self._client.get_provider_allocations(uuid))

    def _list(self, roots: Mapping[str, str], records: Mapping[str, Record]) -> _Summaries:
        ours = {record.root_uuid for record in records.values() if record.is_ours}
        if len(roots) == 1 and len(ours) == 1:
            # The whole tree, others' children in it too.
            return self._providers(in_tree=str(ours.pop()))
        return self._tagged()

    def _tagged(self) -> _Summaries:
        try:
            return self._providers(required=self._trait)
        except PlacementError as error:
            # A trait that nobody has created yet is a bad request, not an empty list.
            if error.status == _BAD_REQUEST and not self._client.list_traits([self._trait]):
                return {}
            raise

    def _look_up_roots(self, roots: Mapping[str, str], found: _Summaries) -> None:
        """Find roots that stand in Placement without our mark, by name."""
        listed = {provider.name for provider in found.values()}
        missing = [name for name, uuid in roots.items() if name not in listed and uuid not in found]
        if len(missing) > _FEW:
            everything = self._providers()
            wanted = set(missing)
            trees = {
                provider.root_provider_uuid
                for provider in everything.values()
                if provider.name in wanted
            }
            found |= {
                uuid: provider
                for uuid, provider in everything.items()
                if provider.root_provider_uuid in trees
            }
            return
        for name in missing:
            for root in self._providers(name=name).values():
                found |= self._providers(in_tree=root.uuid)

    def _look_up_ours(self, records: Mapping[str, Record], found: _Summaries) -> None:
        """Find what is remembered as ours and was not listed: it may only be untagged."""
        missing = [uuid for uuid, record in records.items() if record.is_ours and uuid not in found]
        if len(missing) > _FEW:
            everything = self._providers()
            found |= {uuid: everything[uuid] for uuid in missing if uuid in everything}
            return
        for uuid in missing:
            found |= self._providers(uuid=uuid)

    def _providers(self, **filters: str) -> _Summaries:
        listed = self._client.list_providers(**filters)
        return {names.check_uuid(provider.uuid): provider for provider in listed}

    def _content(self, summary: ProviderSummary, record: Record | None) -> Provider:
        known = record and record.live
        if known and known.generation == summary.generation:
            if (known.name, known.parent_uuid) == (summary.name, summary.parent_provider_uuid):
                return known
            # Neither renaming nor moving raises the generation.
            return replace(
                known,
                name=summary.name,
                parent_uuid=summary.parent_provider_uuid,
                root_uuid=summary.root_provider_uuid,
            )
        traits = self._client.get_traits(summary.uuid)
        aggregates = self._client.get_aggregates(summary.uuid)
        inventories = self._client.get_inventories(summary.uuid)
        generations = {
            answer.resource_provider_generation for answer in (traits, aggregates, inventories)
        }
        return Provider(
            uuid=summary.uuid,
            name=summary.name,
            root_uuid=summary.root_provider_uuid,
            parent_uuid=summary.parent_provider_uuid,
            # Changed while it was read: with the oldest, a write that relies on it is refused.
            generation=min(generations),
            inventories=inventories.inventories,
            traits=traits.traits,
            aggregates=aggregates.aggregates,
        )
