"""What Placement has of a driver instance's trees, in as few requests as can be.

One list tells which providers there are and at which generation; what has not moved
since it was last seen is taken from memory, what has is read.
"""

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from wharfinger.exceptions import (
    NotFound,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers.ownership import instance_trait
from wharfinger.providers.provider import Provider
from wharfinger.providers.provider_record import Record

#: Above so many look-ups, one list of all providers is cheaper.
FEW: Final = 8

_Summaries = dict[str, ProviderSummary]


@dataclass(frozen=True, slots=True)
class Reading:
    """Providers in Placement.

    ``live`` are the providers of the instance's trees, by uuid. ``strays`` carry the
    instance's mark too, but stand in none of its trees and nothing is remembered of them.
    ``unreadable`` are, by root uuid, the trees with a provider that cannot be understood.
    """

    live: Mapping[str, Provider]
    strays: tuple[ProviderSummary, ...]
    unreadable: Mapping[str, PlacementError]


class PlacementReader:
    """Reads the trees of one driver instance."""

    def __init__(self, client: PlacementClient, instance: str) -> None:
        self._client: Final = client
        self._trait: Final = instance_trait(instance)

    def read(
        self,
        roots: Mapping[str, str],
        records: Mapping[str, Record],
        believed: Set[str] = frozenset(),
        named: Collection[str] = (),
    ) -> Reading:
        """The providers of the instance's trees.

        ``roots`` are, by name, the uuids that its root providers have unless Placement has
        them under another; ``records`` what was remembered of the providers. Where nothing
        has changed, this is one request. In the trees of the roots in ``believed`` (uuids),
        providers of other owners that were not listed count as unchanged. ``named`` are uuids
        of providers in these trees that are read even without our instance trait.
        """
        found = self._list(roots, records)
        self._look_up_ours(records, found)
        found = {**_remembered(records, believed), **found}
        self._look_up_roots(roots, found)
        unmarked = {
            uuid: one
            for name in sorted({*named} - found.keys())
            for uuid, one in _by_uuid(self._client.list_providers(uuid=name)).items()
        }
        found |= unmarked
        trees = {
            provider.root_provider_uuid
            for provider in found.values()
            if provider.name in roots
            or (provider.uuid in records and records[provider.uuid].is_ours)
        }.union(roots.values())
        live = {}
        strays = []
        unreadable: dict[str, PlacementError] = {}
        for uuid, summary in found.items():
            if summary.root_provider_uuid not in trees:
                if uuid not in unmarked:
                    strays.append(summary)
                continue
            try:
                live[uuid] = self._content(summary, records.get(uuid))
            except NotFound:
                pass  # deleted since it was listed
            except (PlacementUnavailable, PermissionRefused):
                raise  # the next provider would fare no better
            except PlacementError as error:
                unreadable[summary.root_provider_uuid] = error
        # Of an instance with one node, those are other hosts'.
        return Reading(live, tuple(strays) if len(roots) > 1 else (), unreadable)

    def by_name(self, names: Collection[str]) -> dict[str, Provider]:
        """The providers that have any of these names, by name: who they are, and traits."""
        named = {
            provider.name: provider
            for provider in self._look_up(
                names, lambda name: _by_uuid(self._client.list_providers(name=name))
            )
            if provider.name in names
        }
        return {
            name: replace(_provider(summary), traits=self._client.get_traits(summary.uuid).traits)
            for name, summary in named.items()
        }

    def unseen_parents(self, root: str, live: Collection[str]) -> frozenset[str]:
        """The providers in the tree of this root that have children not in ``live``.

        A list by our mark does not bring others' children.
        """
        return frozenset(
            provider.parent_provider_uuid
            for provider in self._client.list_providers(in_tree=root)
            if provider.uuid not in live and provider.parent_provider_uuid
        )

    def _list(self, roots: Mapping[str, str], records: Mapping[str, Record]) -> _Summaries:
        ours = {record.root_uuid for record in records.values() if record.is_ours}
        if len(roots) == 1 and len(ours) <= 1:
            # The whole tree, others' children in it too. Other hosts may have an instance
            # of this name: a list by its mark would bring all of theirs.
            return _by_uuid(self._client.list_providers(in_tree=ours.pop())) if ours else {}
        return self._marked()

    def _marked(self) -> _Summaries:
        try:
            return _by_uuid(self._client.list_providers(required=(self._trait,)))
        except PlacementError as error:
            # A trait that nobody has created yet is a bad request, not an empty list.
            if error.status == HTTPStatus.BAD_REQUEST and not self._client.list_traits(
                [self._trait]
            ):
                return {}
            raise

    def _look_up_roots(self, roots: Mapping[str, str], found: _Summaries) -> None:
        """Find roots that stand there without our mark, by uuid or else name, with their trees."""
        listed = {provider.name for provider in found.values()}
        missing = {
            name: uuid for name, uuid in roots.items() if name not in listed and uuid not in found
        }
        if len(missing) > FEW:
            everything = _by_uuid(self._client.list_providers())
            trees = {
                one.root_provider_uuid for one in everything.values() if one.name in missing
            }.union(missing.values())
            found |= {
                uuid: one for uuid, one in everything.items() if one.root_provider_uuid in trees
            }
            return
        for name, uuid in missing.items():
            if tree := _by_uuid(self._client.list_providers(in_tree=uuid)):
                found |= tree
                continue
            for root in _by_uuid(self._client.list_providers(name=name)).values():
                found |= _by_uuid(self._client.list_providers(in_tree=root.uuid))

    def _look_up_ours(self, records: Mapping[str, Record], found: _Summaries) -> None:
        """Find what is remembered as ours and was not listed: it may only be unmarked."""
        missing = {uuid for uuid, record in records.items() if record.is_ours and uuid not in found}
        for provider in self._look_up(
            missing, lambda uuid: _by_uuid(self._client.list_providers(uuid=uuid))
        ):
            if provider.uuid in missing:
                found[provider.uuid] = provider

    def _look_up(
        self, keys: Collection[str], one: Callable[[str], _Summaries]
    ) -> list[ProviderSummary]:
        """Providers by a key each; where there are many keys, simply all providers."""
        if len(keys) > FEW:
            return list(_by_uuid(self._client.list_providers()).values())
        return [provider for key in keys for provider in one(key).values()]

    def _content(self, summary: ProviderSummary, record: Record | None) -> Provider:
        known = record and record.live
        if known and known.generation == summary.generation:
            # Neither renaming nor moving, itself or what is above it, raises the generation.
            name, parent_uuid = summary.name, summary.parent_provider_uuid
            root_uuid = summary.root_provider_uuid
            if (known.name, known.parent_uuid, known.root_uuid) == (name, parent_uuid, root_uuid):
                return known
            return replace(known, name=name, parent_uuid=parent_uuid, root_uuid=root_uuid)
        traits = self._client.get_traits(summary.uuid)
        aggregates = self._client.get_aggregates(summary.uuid)
        inventories = self._client.get_inventories(summary.uuid)
        return replace(
            _provider(summary),
            # Changed while it was read: with the oldest, a write that relies on it is refused.
            generation=min(
                answer.resource_provider_generation for answer in (traits, aggregates, inventories)
            ),
            inventories=inventories.inventories,
            traits=traits.traits,
            aggregates=aggregates.aggregates,
        )


def _remembered(records: Mapping[str, Record], roots: Set[str]) -> _Summaries:
    """What is somebody else's in the trees of these roots, as it was seen last."""
    return {
        uuid: ProviderSummary(
            uuid=uuid,
            name=live.name,
            generation=live.generation,
            root_provider_uuid=live.root_uuid,
            parent_provider_uuid=live.parent_uuid,
        )
        for uuid, record in (records.items() if roots else ())
        if not record.is_ours
        and (live := record.live) is not None
        and live.generation is not None
        and live.root_uuid in roots
    }


def _by_uuid(listed: list[ProviderSummary]) -> _Summaries:
    return {provider.uuid: provider for provider in listed}


def _provider(summary: ProviderSummary) -> Provider:
    """A provider of which nothing but its place is known."""
    return Provider(
        uuid=summary.uuid,
        name=summary.name,
        root_uuid=summary.root_provider_uuid,
        parent_uuid=summary.parent_provider_uuid,
    )
