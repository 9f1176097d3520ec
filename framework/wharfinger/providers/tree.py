"""The tree of resource providers that a driver edits.

It has the methods of nova's ProviderTree.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import os_traits

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


class _Node:
    __slots__ = ("children", "desired", "parent", "resources")

    def __init__(self, desired: DesiredProvider, parent: "_Node | None") -> None:
        self.desired = desired
        self.parent = parent
        self.children: dict[str, _Node] = {}
        self.resources: Mapping[str, Any] = {}

    @property
    def provider(self) -> Provider:
        return self.desired.provider

    def edit(self, field: str, value: Any, generation: int | None) -> bool:
        # Equal values keep the same object: later comparisons are fast.
        before, provider = self.desired, self.provider
        is_new: bool = getattr(provider, field) != value
        if is_new:
            provider = replace(provider, **{field: value})
        if generation not in (None, provider.generation):
            provider = replace(provider, generation=generation)
        reported = before.reported or field == "inventories"
        if provider is not before.provider or not before.stated or reported is not before.reported:
            self.desired = replace(before, provider=provider, stated=True, reported=reported)
        return is_new

    @property
    def shares(self) -> bool:
        return os_traits.MISC_SHARES_VIA_AGGREGATE in self.provider.traits

    def walk(self) -> Iterator["_Node"]:
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))


class ProviderTree:
    """Trees of resource providers, found by name or uuid.

    Methods can raise ProviderNotFound, InvalidName and InvalidInventory, which are ValueErrors. A
    ``generation`` other than None replaces the provider's generation.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._by_uuid: dict[str, _Node] = {}
        self._by_name: dict[str, _Node] = {}
        self._roots: dict[str, _Node] = {}
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
            return [node.desired for root in self._roots.values() for node in root.walk()]

    def is_stated(self, name_or_uuid: str) -> bool:
        """Return whether the driver has set anything on a provider."""
        return self._find(name_or_uuid).desired.stated

    # Structure.

    @property
    def roots(self) -> list[ProviderData]:
        """Return the root providers."""
        with self.lock:
            return [_data(node) for node in self._roots.values()]

    def get_provider_uuids(self, name_or_uuid: str | None = None) -> list[str]:
        """Return the uuids of a provider and its descendants, parents first.

        Without ``name_or_uuid``, return the uuids of all providers.
        """
        with self.lock:
            tops = self._roots.values() if name_or_uuid is None else [self._find(name_or_uuid)]
            return [node.provider.uuid for top in tops for node in top.walk()]

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[str]:
        """Return the uuids of the whole tree of a provider, parents first."""
        with self.lock:
            return self.get_provider_uuids(self._find(name_or_uuid).provider.root_uuid)

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
            self._remove(self._find(name_or_uuid))

    def remove_unreported_children(self, parent: str) -> None:
        """Remove each child of ``parent`` if the driver has set nothing on it or below it.

        Call this after all children that the driver publishes are set up. In Placement, the
        children of other programs stay.
        """
        with self.lock:
            for child in list(self._find(parent).children.values()):
                if not any(node.desired.stated for node in child.walk()):
                    self._remove(child)

    def exists(self, name_or_uuid: str) -> bool:
        """Return whether the tree has a provider with this name or uuid."""
        with self.lock:
            return name_or_uuid in self._by_uuid or name_or_uuid in self._by_name

    def data(self, name_or_uuid: str) -> ProviderData:
        """Return a copy of a provider's data."""
        with self.lock:
            return _data(self._find(name_or_uuid))

    def subtree(self, name_or_uuid: str) -> Self:
        """Return copies of a root's tree and of the trees whose roots share resources.

        Raises ValueError for a provider that is not a root.
        """
        with self.lock:
            root = self._find(name_or_uuid)
            if root.parent is not None:
                raise ValueError(f"provider {name_or_uuid} is not a root")
            return self._copy(
                [root, *(node for node in self._roots.values() if node.shares and node is not root)]
            )

    def __deepcopy__(self, memo: object) -> Self:
        with self.lock:
            return self._copy(self._roots.values())

    # Inventory.

    def has_inventory(self, name_or_uuid: str) -> bool:
        """Return whether a provider has any inventory."""
        return bool(self._find(name_or_uuid).provider.inventories)

    def has_inventory_changed(
        self, name_or_uuid: str, inventory: Mapping[str, AnyInventory]
    ) -> bool:
        """Return whether these inventories differ from the provider's inventories."""
        provider = self._find(name_or_uuid).provider
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
            node = self._find(name_or_uuid)
            there = node.provider.inventories
            checked = check_inventories(node.provider.name, inventory, there)
            return node.edit("inventories", checked, generation)

    def has_sharing_provider(self, resource_class: str) -> bool:
        """Return whether a sharing provider has inventory of a resource class."""
        with self.lock:
            return any(
                node.shares and resource_class in node.provider.inventories
                for node in self._by_uuid.values()
            )

    # Traits.

    def has_traits(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        """Return whether a provider has all of these traits."""
        return self._find(name_or_uuid).provider.traits.issuperset(traits)

    def have_traits_changed(self, name_or_uuid: str, traits: Iterable[str]) -> bool:
        """Return whether these traits differ from the provider's traits."""
        return self._find(name_or_uuid).provider.traits != frozenset(traits)

    def update_traits(
        self, name_or_uuid: str, traits: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace a provider's traits; return whether they changed.

        In Placement, traits of other programs stay.
        """
        with self.lock:
            node = self._find(name_or_uuid)
            checked = names.several(traits, f"{node.provider.name}: trait")
            # The present traits may include standard traits that our os-traits is too old to know.
            for trait in checked - node.provider.traits:
                names.check_trait(trait, node.provider.name)
            return node.edit("traits", checked, generation)

    def add_traits(self, name_or_uuid: str, *traits: str) -> None:
        """Add these traits to a provider."""
        if not traits:
            return
        with self.lock:
            old = self._find(name_or_uuid).provider.traits
            self.update_traits(name_or_uuid, old.union(traits))

    def remove_traits(self, name_or_uuid: str, *traits: str) -> None:
        """Remove these traits from a provider."""
        if not traits:
            return
        with self.lock:
            old = self._find(name_or_uuid).provider.traits
            self.update_traits(name_or_uuid, old.difference(traits))

    # Aggregates.

    def in_aggregates(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        """Return whether a provider is in all of these aggregates."""
        wanted = names.check_aggregates(aggregates)
        return self._find(name_or_uuid).provider.aggregates >= wanted

    def have_aggregates_changed(self, name_or_uuid: str, aggregates: Iterable[str]) -> bool:
        """Return whether these aggregates differ from the provider's aggregates."""
        wanted = names.check_aggregates(aggregates)
        return self._find(name_or_uuid).provider.aggregates != wanted

    def update_aggregates(
        self, name_or_uuid: str, aggregates: Iterable[str], generation: int | None = None
    ) -> bool:
        """Replace the aggregates of a provider; return whether they changed."""
        with self.lock:
            node = self._find(name_or_uuid)
            checked = names.check_aggregates(aggregates, node.provider.name)
            return node.edit("aggregates", checked, generation)

    def add_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        """Add a provider to these aggregates."""
        with self.lock:
            old = self._find(name_or_uuid).provider.aggregates
            self.update_aggregates(name_or_uuid, old | names.check_aggregates(aggregates))

    def remove_aggregates(self, name_or_uuid: str, *aggregates: str) -> None:
        """Remove a provider from these aggregates."""
        with self.lock:
            old = self._find(name_or_uuid).provider.aggregates
            self.update_aggregates(name_or_uuid, old - names.check_aggregates(aggregates))

    # Operations that nova does not have, except update_resources.

    def update_resources(self, name_or_uuid: str, resources: Mapping[str, Any]) -> bool:
        """Replace a provider's ``resources``; return whether they changed.

        Resources are not published.
        """
        with self.lock:
            node = self._find(name_or_uuid)
            changed = node.resources != resources
            node.resources = deepcopy(dict(resources))
            return changed

    def reserve(self, name_or_uuid: str, reason: str) -> None:
        """Reserve a provider fully until the next ``update_provider_tree``.

        Call this in each ``update_provider_tree`` while the reservation lasts. ``reason`` is a
        printable text for operators, such as "cleaning".
        """
        with self.lock:
            node = self._find(name_or_uuid)
            reason = names.check_reason(reason, node.provider.name)
            if reason not in node.desired.reservations:
                node.desired = replace(
                    node.desired, reservations=(*node.desired.reservations, reason), stated=True
                )

    def set_publishing_mode(self, name_or_uuid: str, mode: PublishingMode) -> PublishingMode:
        """Set whether this instance (own) or another program (overlay) creates a provider.

        Return the mode that applies: for ``auto``, this is own or overlay.
        """
        with self.lock:
            node = self._find(name_or_uuid)
            mode = PublishingMode(mode)
            if mode is PublishingMode.AUTO:
                is_others = self._is_others(node.provider.uuid)
                mode = PublishingMode.OVERLAY if is_others else PublishingMode.OWN
            node.desired = replace(node.desired, mode=mode, stated=True)
            return mode

    def _find(self, name_or_uuid: str) -> _Node:
        with self.lock:
            node = self._by_uuid.get(name_or_uuid) or self._by_name.get(name_or_uuid)
        if node is None:
            raise ProviderNotFound(name_or_uuid=name_or_uuid)
        return node

    # The caller of these methods has the lock.

    def _new(
        self, name: str, uuid: str | None, generation: int | None, parent: _Node | None
    ) -> str:
        name = names.check_provider_name(name)
        if uuid is not None:
            uuid = names.check_uuid(uuid)
        elif parent is None:
            uuid = names.root_uuid(name)
        else:
            uuid = self._child_uuids.get(name)
            if uuid is None or uuid in self._by_uuid:
                uuid = names.child_uuid(parent.provider.uuid, name)
        for key in (name, uuid):
            if self.exists(key):
                raise ProviderExists(name_or_uuid=key)
        provider = Provider(
            uuid=uuid,
            name=name,
            root_uuid=parent.provider.root_uuid if parent else uuid,
            parent_uuid=parent.provider.uuid if parent else None,
            generation=generation,
        )
        self._add(DesiredProvider(provider=provider), parent)
        return uuid

    def _add(self, desired: DesiredProvider, parent: _Node | None) -> _Node:
        node = _Node(desired, parent)
        provider = desired.provider
        self._by_uuid[provider.uuid] = self._by_name[provider.name] = node
        (self._roots if parent is None else parent.children)[provider.uuid] = node
        return node

    def _remove(self, top: _Node) -> None:
        siblings = self._roots if top.parent is None else top.parent.children
        del siblings[top.provider.uuid]
        for node in top.walk():
            del self._by_uuid[node.provider.uuid]
            del self._by_name[node.provider.name]

    def _copy(self, roots: Iterable[_Node]) -> Self:
        copy = type(self)()
        copy._is_others = self._is_others
        copy._child_uuids = self._child_uuids
        for root in roots:
            for node in root.walk():
                parent = node.parent and copy._by_uuid[node.parent.provider.uuid]
                copy._add(node.desired, parent).resources = node.resources
        return copy

    def _populate(self, providers: Iterable[Provider]) -> None:
        new = {provider.uuid: provider for provider in providers}
        given = frozenset(new)
        tree = self._copy(self._roots.values())  # so an error leaves this tree unchanged
        for uuid in given:
            if uuid in tree._by_uuid:
                tree._remove(tree._by_uuid[uuid])

        def place(provider: Provider) -> None:
            parent = provider.parent_uuid
            if parent in new:
                place(new.pop(parent))
            above = tree._by_uuid.get(parent or "")
            if parent is not None and above is None:
                problem = "it is above its parent" if parent in given else "there is no parent"
                raise ValueError(f"provider {provider.name}: {problem} {parent}")
            if provider.name in tree._by_name:
                raise ProviderExists(name_or_uuid=provider.name)
            root_uuid = above.provider.root_uuid if above else provider.uuid
            if provider.root_uuid != root_uuid:
                provider = replace(provider, root_uuid=root_uuid)
            tree._add(DesiredProvider(provider=provider, stated=False), above)

        while new:
            place(new.pop(next(iter(new))))
        self._by_uuid, self._by_name, self._roots = tree._by_uuid, tree._by_name, tree._roots


def _data(node: _Node) -> ProviderData:
    provider = node.provider
    return ProviderData(
        uuid=provider.uuid,
        name=provider.name,
        generation=provider.generation,
        parent_uuid=provider.parent_uuid,
        inventory={name: item.to_dict() for name, item in provider.inventories.items()},
        traits=set(provider.traits),
        aggregates=set(provider.aggregates),
        resources=deepcopy(dict(node.resources)),
    )
