"""The tree of resource providers that a driver edits.

It has the methods of nova's ProviderTree.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from wharfinger.exceptions import ProviderExists, ProviderNotFound
from wharfinger.providers import names
from wharfinger.providers.inventory import Inventory, check_inventories
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode

#: An inventory as a driver may write it.
AnyInventory = Inventory | Mapping[str, Any]


class ProviderData(NamedTuple):
    """A copy of a provider's data."""

    uuid: str
    name: str
    generation: int | None
    parent_uuid: str | None
    #: A dict of all six figures, by resource class.
    inventory: dict[str, dict[str, Any]]
    traits: set[str]
    aggregates: set[str]
    #: The last argument of ``update_resources``.
    resources: dict[str, Any]


class ProviderTree:
    """Trees of resource providers, found by name or uuid.

    Methods can raise ProviderNotFound, InvalidName and InvalidInventory, which are ValueErrors. A
    ``generation`` other than None replaces the provider's generation.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        #: By uuid, parents before their children.
        self._desired: dict[str, DesiredProvider] = {}
        #: The uuids of children, by the uuid of their parent; None: the roots.
        self._children: dict[str | None, dict[str, None]] = {None: {}}
        #: By name.
        self._uuids: dict[str, str] = {}
        #: The arguments of ``update_resources``, by uuid.
        self._resources: dict[str, dict[str, Any]] = {}
        self._is_others: Callable[[str], bool] = lambda _uuid: False
        self._child_uuids: Mapping[str, str] = MappingProxyType({})

    # Methods for the framework.

    @classmethod
    def from_providers(
        cls,
        providers: Iterable[Provider],
        is_others: Callable[[str], bool] = lambda _uuid: False,
        child_uuids: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Return a tree on which the driver has set nothing yet. Raises ValueError."""
        tree = cls()
        tree._child_uuids = child_uuids
        tree._populate(providers)
        tree._is_others = is_others
        return tree

    def desired(self) -> list[DesiredProvider]:
        """Return all providers of the tree as the driver has edited them, parents first."""
        with self.lock:
            return list(self._desired.values())

    def is_stated(self, name_or_uuid: str) -> bool:
        """Return whether the driver has set anything on a provider."""
        return self._desired[self._find(name_or_uuid).uuid].stated

    # Structure.

    @property
    def roots(self) -> list[ProviderData]:
        """Return the root providers."""
        with self.lock:
            return [self._data(self._find(uuid)) for uuid in self._children[None]]

    def get_provider_uuids(self, name_or_uuid: str | None = None) -> list[str]:
        """Return the uuids of a provider and its descendants, parents first.

        Without ``name_or_uuid``, return the uuids of all providers, tree by tree.
        """
        with self.lock:
            if name_or_uuid is None:
                return [uuid for root in self._children[None] for uuid in self._walk(root)]
            return self._walk(self._find(name_or_uuid).uuid)

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[str]:
        """Return the uuids of the whole tree of a provider, parents first."""
        with self.lock:
            return self.get_provider_uuids(self._find(name_or_uuid).root_uuid)

    def populate_from_iterable(self, provider_dicts: Iterable[Mapping[str, Any]]) -> None:
        """Add providers, and replace the providers that have the same uuids.

        A dict has ``name`` and ``uuid``, and may have ``generation`` and ``parent_provider_uuid``.
        A replaced provider loses its contents and children. Raises ValueError for invalid values.
        """
        providers = [
            Provider(
                uuid=(uuid := names.check_uuid(record["uuid"])),
                name=names.check_provider_name(record["name"]),
                root_uuid=uuid,
                parent_uuid=(parent := record.get("parent_provider_uuid"))
                and names.check_uuid(parent),
                generation=record.get("generation"),
            )
            for record in provider_dicts
        ]
        with self.lock:
            self._populate(providers)

    def new_root(self, name: str, uuid: str | None = None, generation: int | None = None) -> str:
        """Add a root provider and return its uuid, which by default is derived from the name.

        Raises ProviderExists.
        """
        with self.lock:
            return self._new(name, uuid, generation, None)

    def new_child(
        self, name: str, parent: str, uuid: str | None = None, generation: int | None = None
    ) -> str:
        """Add a provider below ``parent`` (a name or uuid) and return its uuid.

        Without ``uuid``, a child keeps its former uuid or gets a derived uuid. Raises
        ProviderExists.
        """
        with self.lock:
            return self._new(name, uuid, generation, self._find(parent))

    def remove(self, name_or_uuid: str) -> None:
        """Remove a provider and its descendants from the tree."""
        with self.lock:
            self._remove(self._find(name_or_uuid).uuid)

    def remove_unreported_children(self, parent: str) -> None:
        """Remove each child of ``parent`` if the driver has set nothing on it or below it.

        Call this after all children that the driver publishes are set up. In Placement, the
        children of other programs stay.
        """
        with self.lock:
            for child in list(self._children.get(self._find(parent).uuid, ())):
                if not any(self._desired[uuid].stated for uuid in self._walk(child)):
                    self._remove(child)

    def exists(self, name_or_uuid: str) -> bool:
        """Return whether the tree has a provider with this name or uuid."""
        with self.lock:
            return name_or_uuid in self._desired or name_or_uuid in self._uuids

    def data(self, name_or_uuid: str) -> ProviderData:
        """Return a copy of a provider's data."""
        with self.lock:
            return self._data(self._find(name_or_uuid))

    def subtree(self, name_or_uuid: str) -> Self:
        """Return copies of a root's tree and of the trees whose roots share resources.

        Raises ValueError for a provider that is not a root.
        """
        with self.lock:
            root = self._find(name_or_uuid)
            if root.parent_uuid is not None:
                raise ValueError(f"provider {name_or_uuid} is not a root")
            sharing = (uuid for uuid in self._children[None] if self._find(uuid).shares)
            roots = dict.fromkeys((root.uuid, *sharing))
            return self._copy(self._desired[uuid] for top in roots for uuid in self._walk(top))

    def __deepcopy__(self, memo: object) -> Self:
        with self.lock:
            return self._copy(self._desired.values())

    # Inventory.

    def has_inventory(self, name_or_uuid: str) -> bool:
        """Return whether a provider has any inventory."""
        return bool(self._find(name_or_uuid).inventories)

    def has_inventory_changed(
        self, name_or_uuid: str, inventory: Mapping[str, AnyInventory]
    ) -> bool:
        """Return whether these inventories differ from the provider's inventories."""
        provider = self._find(name_or_uuid)
        there = provider.inventories
        return check_inventories(provider.name, inventory, there) != there

    def update_inventory(
        self,
        name_or_uuid: str,
        inventory: Mapping[str, AnyInventory],
        generation: int | None = None,
    ) -> bool:
        """Replace a provider's inventories; return whether they changed."""
        with self.lock:
            provider = self._find(name_or_uuid)
            checked = check_inventories(provider.name, inventory, provider.inventories)
            return self._edit(provider.uuid, "inventories", checked, generation)

    def has_sharing_provider(self, resource_class: str) -> bool:
        """Return whether a sharing provider has inventory of a resource class."""
        with self.lock:
            return any(
                one.provider.shares and resource_class in one.provider.inventories
                for one in self._desired.values()
            )

    # Traits.

    def has_traits(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        """Return whether a provider has all of these traits."""
        return self._find(name_or_uuid).traits.issuperset(traits)

    def have_traits_changed(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        """Return whether these traits differ from the provider's traits."""
        return self._find(name_or_uuid).traits != frozenset(traits)

    def update_traits(
        self, name_or_uuid: str, traits: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace a provider's traits; return whether they changed.

        In Placement, traits of other programs stay.
        """
        with self.lock:
            provider = self._find(name_or_uuid)
            checked = names.several(traits, f"{provider.name}: trait")
            # The present traits may include standard traits that our os-traits is too old to know.
            for trait in checked - provider.traits:
                names.check_trait(trait, provider.name)
            return self._edit(provider.uuid, "traits", checked, generation)

    def add_traits(self, name_or_uuid: str, *traits: str) -> None:
        """Add these traits to a provider."""
        if traits:
            with self.lock:
                old = self._find(name_or_uuid).traits
                self.update_traits(name_or_uuid, old.union(traits))

    def remove_traits(self, name_or_uuid: str, *traits: str) -> None:
        """Remove these traits from a provider."""
        if traits:
            with self.lock:
                old = self._find(name_or_uuid).traits
                self.update_traits(name_or_uuid, old.difference(traits))

    # Aggregates.

    def in_aggregates(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        """Return whether a provider is in all of these aggregates."""
        wanted = names.check_aggregates(aggregates)
        return self._find(name_or_uuid).aggregates >= wanted

    def have_aggregates_changed(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        """Return whether these aggregates differ from the provider's aggregates."""
        wanted = names.check_aggregates(aggregates)
        return self._find(name_or_uuid).aggregates != wanted

    def update_aggregates(
        self, name_or_uuid: str, aggregates: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the aggregates of a provider; return whether they changed."""
        with self.lock:
            provider = self._find(name_or_uuid)
            checked = names.check_aggregates(aggregates, provider.name)
            return self._edit(provider.uuid, "aggregates", checked, generation)

    def add_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        """Add a provider to these aggregates."""
        with self.lock:
            old = self._find(name_or_uuid).aggregates
            self.update_aggregates(name_or_uuid, old | names.check_aggregates(aggregates))

    def remove_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        """Remove a provider from these aggregates."""
        with self.lock:
            old = self._find(name_or_uuid).aggregates
            self.update_aggregates(name_or_uuid, old - names.check_aggregates(aggregates))

    # Operations that nova does not have, except update_resources.

    def update_resources(self, name_or_uuid: str, resources: Mapping[str, Any]) -> bool:
        """Replace a provider's ``resources``; return whether they changed.

        Resources are not published.
        """
        with self.lock:
            uuid = self._find(name_or_uuid).uuid
            changed = self._resources.get(uuid, {}) != resources
            self._resources[uuid] = deepcopy(dict(resources))
            return changed

    def reserve(self, name_or_uuid: str, reason: str) -> None:
        """Reserve a provider fully until the next ``update_provider_tree``.

        Call this in each ``update_provider_tree`` while the reservation lasts. ``reason`` is a
        printable text for operators, such as "cleaning".
        """
        with self.lock:
            desired = self._desired[self._find(name_or_uuid).uuid]
            reason = names.check_reason(reason, desired.provider.name)
            if reason not in desired.reservations:
                reasons = (*desired.reservations, reason)
                self._set(replace(desired, reservations=reasons, stated=True))

    def set_publishing_mode(self, name_or_uuid: str, mode: PublishingMode) -> PublishingMode:
        """Set whether this instance (own) or another program (overlay) creates a provider.

        Return the mode that applies: for ``auto``, this is own or overlay.
        """
        with self.lock:
            desired = self._desired[self._find(name_or_uuid).uuid]
            mode = PublishingMode(mode)
            if mode is PublishingMode.AUTO:
                is_others = self._is_others(desired.provider.uuid)
                mode = PublishingMode.OVERLAY if is_others else PublishingMode.OWN
            self._set(replace(desired, mode=mode, stated=True))
            return mode

    def _find(self, name_or_uuid: str) -> Provider:
        with self.lock:
            uuid = name_or_uuid if name_or_uuid in self._desired else self._uuids.get(name_or_uuid)
            if uuid is None:
                raise ProviderNotFound(name_or_uuid=name_or_uuid)
            return self._desired[uuid].provider

    # The caller of these methods has the lock.

    def _new(
        self, name: str, uuid: str | None, generation: int | None, parent: Provider | None
    ) -> str:
        name = names.check_provider_name(name)
        if uuid is not None:
            uuid = names.check_uuid(uuid)
        elif parent is None:
            uuid = names.root_uuid(name)
        else:
            uuid = self._child_uuids.get(name)
            if uuid is None or uuid in self._desired:
                uuid = self._derived_uuid(parent, name)
        for key in (name, uuid):
            if self.exists(key):
                raise ProviderExists(name_or_uuid=key)
        provider = Provider(
            uuid=uuid,
            name=name,
            root_uuid=parent.root_uuid if parent else uuid,
            parent_uuid=parent.uuid if parent else None,
            generation=generation,
        )
        self._set(DesiredProvider(provider=provider))
        return uuid

    def _derived_uuid(self, parent: Provider, name: str) -> str:
        is_overlaid = self._desired[parent.uuid].mode is PublishingMode.OVERLAY
        if is_overlaid or self._is_others(parent.uuid):
            return names.overlaid_child_uuid(parent.name, name)
        return names.child_uuid(parent.uuid, name)

    def _set(self, desired: DesiredProvider) -> None:
        provider = desired.provider
        self._desired[provider.uuid] = desired
        self._uuids[provider.name] = provider.uuid
        self._children.setdefault(provider.parent_uuid, {})[provider.uuid] = None

    def _edit(self, uuid: str, field: str, value: Any, generation: int | None) -> bool:
        # Equal values keep the same object: later comparisons are fast.
        before = self._desired[uuid]
        provider = before.provider
        is_new: bool = getattr(provider, field) != value
        if is_new:
            provider = replace(provider, **{field: value})
        if generation not in (None, provider.generation):
            provider = replace(provider, generation=generation)
        reported = before.reported or field == "inventories"
        if provider is not before.provider or not before.stated or reported is not before.reported:
            self._set(replace(before, provider=provider, stated=True, reported=reported))
        return is_new

    def _walk(self, uuid: str) -> list[str]:
        found, left = list[str](), [uuid]
        while left:
            found.append(left.pop())
            left += reversed(self._children.get(found[-1], {}))
        return found

    def _remove(self, top: str) -> None:
        del self._children[self._desired[top].provider.parent_uuid][top]
        for uuid in self._walk(top):
            del self._uuids[self._desired.pop(uuid).provider.name]
            self._children.pop(uuid, None)
            self._resources.pop(uuid, None)

    def _copy(self, desired: Iterable[DesiredProvider]) -> Self:
        copy = type(self)()
        copy._is_others = self._is_others
        copy._child_uuids = self._child_uuids
        for one in desired:
            copy._set(one)
        there = copy._desired.keys() & self._resources.keys()
        copy._resources = {uuid: self._resources[uuid] for uuid in there}
        return copy

    def _populate(self, providers: Iterable[Provider]) -> None:
        new = {provider.uuid: provider for provider in providers}
        given = frozenset(new)
        tree = self._copy(self._desired.values())  # so an error leaves this tree unchanged
        for uuid in given:
            if uuid in tree._desired:
                tree._remove(uuid)

        def place(provider: Provider) -> None:
            parent = provider.parent_uuid
            if parent in new:
                place(new.pop(parent))
            above = tree._desired.get(parent or "")
            if parent is not None and above is None:
                problem = "it is above its parent" if parent in given else "there is no parent"
                raise ValueError(f"provider {provider.name}: {problem} {parent}")
            if provider.name in tree._uuids:
                raise ProviderExists(name_or_uuid=provider.name)
            root_uuid = above.provider.root_uuid if above else provider.uuid
            if provider.root_uuid != root_uuid:
                provider = replace(provider, root_uuid=root_uuid)
            tree._set(DesiredProvider(provider=provider, stated=False))

        while new:
            place(new.pop(next(iter(new))))
        self._desired, self._uuids = tree._desired, tree._uuids
        self._children, self._resources = tree._children, tree._resources

    def _data(self, provider: Provider) -> ProviderData:
        return ProviderData(
            uuid=provider.uuid,
            name=provider.name,
            generation=provider.generation,
            parent_uuid=provider.parent_uuid,
            inventory={name: item.to_dict() for name, item in provider.inventories.items()},
            traits=set(provider.traits),
            aggregates=set(provider.aggregates),
            resources=deepcopy(self._resources.get(provider.uuid, {})),
        )
