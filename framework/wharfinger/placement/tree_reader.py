"""Reads the trees of a driver instance in Placement, with few requests."""

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from wharfinger.exceptions import NotFound, PermissionRefused, PlacementError, PlacementUnavailable
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names
from wharfinger.providers.ownership import instance_trait
from wharfinger.providers.provider import NO_RECORD, Provider, Record

#: For more look-ups than this, one list of all providers is cheaper.
FEW: Final = 8

_Summaries = dict[str, ProviderSummary]


@dataclass(frozen=True, slots=True)
class Reading:
    """Providers in Placement, as ``PlacementReader.read`` has found them."""

    #: The providers in the trees of the driver instance, by uuid.
    live: Mapping[str, Provider]
    #: Providers outside of these trees that have the trait of the driver instance.
    strays: tuple[ProviderSummary, ...]
    #: Errors of trees with a provider that cannot be read, by root uuid.
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
        unchanged_roots: Set[str] = frozenset(),
        named: Collection[str] = (),
    ) -> Reading:
        """Read the providers in the trees of the driver instance; raises PlacementError.

        ``roots`` has uuids by name, and ``records`` are by provider uuid. ``named`` are more
        providers to read, if they belong to these trees or may be former children of the roots.
        """
        ours = {uuid for uuid, record in records.items() if record.is_ours}
        found = self._list(roots, {records[uuid].root_uuid for uuid in ours})
        listed = frozenset(found)
        # A provider of ours that is not in the list may only lack our instance trait.
        found |= self._with_uuids(ours - found.keys())
        found = {**_remembered(records, unchanged_roots), **found}
        self._add_missing_trees(roots, found, records)
        found |= self._with_uuids({*named} - found.keys())
        trees = {
            provider.root_provider_uuid
            for uuid, provider in found.items()
            if provider.name in roots or (uuid in ours and _is_written(records[uuid], provider))
        }.union(roots.values())
        unsure = [
            found[uuid]
            for uuid in (ours | {*named}) & found.keys()
            if found[uuid].root_provider_uuid not in trees
        ]
        trees |= {one.root_provider_uuid for one in unsure if _has_derived_uuid(one, roots)}
        live = {}
        strays = []
        unreadable: dict[str, PlacementError] = {}
        for uuid, summary in found.items():
            if summary.root_provider_uuid not in trees:
                if uuid in listed:
                    strays.append(summary)
                continue
            try:
                live[uuid] = self._content(summary, records.get(uuid))
            except NotFound:
                pass  # deleted since it was listed
            except (PlacementUnavailable, PermissionRefused):
                raise  # the next read would fail, too
            except PlacementError as error:
                unreadable[summary.root_provider_uuid] = error
        # For one node, these are providers of other hosts, and no strays.
        return Reading(live, tuple(strays) if len(roots) > 1 else (), unreadable)

    def by_name(self, names: Collection[str]) -> dict[str, Provider]:
        """Return the providers with these names, by name; only their traits are read."""
        found = self._look_up(names, lambda name: self._client.list_providers(name=name))
        return {
            one.name: replace(
                without_contents(one), traits=self._client.get_traits(one.uuid).traits
            )
            for one in found
            if one.name in names
        }

    def unseen_parents(self, root: str, live: Collection[str]) -> frozenset[str]:
        """List a tree; return the parent of each provider that ``live`` lacks."""
        return frozenset(
            provider.parent_provider_uuid
            for provider in self._client.list_providers(in_tree=root)
            if provider.uuid not in live and provider.parent_provider_uuid
        )

    def _list(self, roots: Mapping[str, str], known_roots: set[str | None]) -> _Summaries:
        if len(roots) == 1 and len(known_roots) <= 1:
            # Other hosts may have an instance of this name: a list by its trait would have the
            # providers of all these hosts. So list the tree, with the children of other owners.
            return _by_uuid(
                one for root in known_roots for one in self._client.list_providers(in_tree=root)
            )
        try:
            return _by_uuid(self._client.list_providers(required=(self._trait,)))
        except PlacementError as error:
            # For a trait that does not exist yet, Placement answers 400 instead of an empty list.
            is_bad = error.status == HTTPStatus.BAD_REQUEST
            if is_bad and not self._client.list_traits([self._trait]):
                return {}
            raise

    def _add_missing_trees(
        self, roots: Mapping[str, str], found: _Summaries, records: Mapping[str, Record]
    ) -> None:
        # If another program has renamed its root, there may be a new root with the old name.
        listed = {provider.name for provider in found.values()}
        missing = {
            name: uuid
            for name, uuid in roots.items()
            if name not in listed and (uuid not in found or not records.get(uuid, NO_RECORD).is_own)
        }
        if len(missing) > FEW:
            every = self._client.list_providers()
            trees = {one.root_provider_uuid for one in every if one.name in missing}
            trees.update(missing.values())
            found |= _by_uuid(one for one in every if one.root_provider_uuid in trees)
            return
        for name, uuid in missing.items():
            found |= _by_uuid(
                (uuid not in found and self._client.list_providers(in_tree=uuid))
                or [
                    provider
                    for root in self._client.list_providers(name=name)
                    for provider in self._client.list_providers(in_tree=root.uuid)
                ]
            )

    def _with_uuids(self, uuids: Set[str]) -> _Summaries:
        found = self._look_up(uuids, lambda uuid: self._client.list_providers(uuid=uuid))
        return _by_uuid(provider for provider in found if provider.uuid in uuids)

    def _look_up(
        self, keys: Collection[str], one: Callable[[str], list[ProviderSummary]]
    ) -> list[ProviderSummary]:
        if len(keys) > FEW:
            return self._client.list_providers()
        return [provider for key in sorted(keys) for provider in one(key)]

    def _content(self, summary: ProviderSummary, record: Record | None) -> Provider:
        known = record and record.live
        if known and known.generation == summary.generation:
            # The generation stays when a provider, or one above it, is renamed or moved.
            place = (summary.name, summary.parent_provider_uuid, summary.root_provider_uuid)
            if (known.name, known.parent_uuid, known.root_uuid) == place:
                return known
            return replace(known, name=place[0], parent_uuid=place[1], root_uuid=place[2])
        traits = self._client.get_traits(summary.uuid)
        aggregates = self._client.get_aggregates(summary.uuid)
        inventories = self._client.get_inventories(summary.uuid)
        return replace(
            without_contents(summary),
            # If the provider changed between these reads, Placement refuses a write with the
            # oldest generation.
            generation=min(
                answer.resource_provider_generation for answer in (traits, aggregates, inventories)
            ),
            inventories=inventories.inventories,
            traits=traits.traits,
            aggregates=aggregates.aggregates,
        )


def _remembered(records: Mapping[str, Record], roots: Set[str]) -> _Summaries:
    return {
        uuid: ProviderSummary(uuid, live.name, live.generation, live.root_uuid, live.parent_uuid)
        for uuid, record in records.items()
        if not record.is_ours
        and (live := record.live) is not None
        and live.generation is not None
        and live.root_uuid in roots
    }


def _is_written(record: Record, one: ProviderSummary) -> bool:
    # If only the intent is ours, another host may have created the provider in another tree.
    intended = record.intended
    is_there = intended is not None and intended.root_uuid == one.root_provider_uuid
    return record.applied is not None or is_there


def _has_derived_uuid(one: ProviderSummary, nodes: Iterable[str]) -> bool:
    # Another host may publish a provider with our instance trait, but only the publisher of the
    # node derives this uuid.
    return any(names.overlaid_child_uuid(node, one.name) == one.uuid for node in nodes)


def _by_uuid(listed: Iterable[ProviderSummary]) -> _Summaries:
    return {provider.uuid: provider for provider in listed}


def without_contents(summary: ProviderSummary) -> Provider:
    """Return a summary as a Provider without generation, inventories, traits and aggregates."""
    return Provider(
        uuid=summary.uuid,
        name=summary.name,
        root_uuid=summary.root_provider_uuid,
        parent_uuid=summary.parent_provider_uuid,
    )
