"""ProviderTree compared with a simple model during random operations."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wharfinger.providers import Inventory, ProviderTree, names

NAMES = ("a", "b", "c", "d", "e", "f")
UUIDS = {name: names.root_uuid(name) for name in NAMES}
SHARING = "MISC_SHARES_VIA_AGGREGATE"
TRAITS = ("CUSTOM_A", "CUSTOM_B", SHARING)
AGGREGATES = tuple(UUIDS.values())[:3]

a_name = st.sampled_from(NAMES)
some_traits = st.frozensets(st.sampled_from(TRAITS))
some_aggregates = st.frozensets(st.sampled_from(AGGREGATES))
some_inventory = st.dictionaries(
    st.sampled_from(["VGPU", "DISK_GB"]), st.builds(Inventory, total=st.integers(1, 3))
)


@dataclass
class Simple:
    """A provider in the model: its parent's name, and its contents."""

    parent: str | None
    generation: int | None = None
    inventory: dict[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


class TreeMachine(RuleBasedStateMachine):
    """The model is a dict in the order of creation, which each look-up searches completely."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = ProviderTree()
        self.model: dict[str, Simple] = {}

    def below(self, name: str) -> list[str]:
        """Return a provider and its descendants, parents first."""
        found = [name]
        for child, simple in self.model.items():
            if simple.parent == name:
                found += self.below(child)
        return found

    def known(self, name: str) -> bool:
        """Return whether the model has the provider; if not, assert that the tree lacks it, too."""
        if name not in self.model:
            with pytest.raises(ValueError):
                self.tree.data(name)
        return name in self.model

    def forget(self, name: str) -> None:
        for one in self.below(name):
            del self.model[one]

    @rule(name=a_name, generation=st.none() | st.integers(0, 9))
    def new_root(self, name: str, generation: int | None) -> None:
        if name in self.model:
            with pytest.raises(ValueError):
                self.tree.new_root(name, UUIDS[name])
        else:
            assert self.tree.new_root(name, UUIDS[name], generation) == UUIDS[name]
            self.model[name] = Simple(None, generation)

    @rule(name=a_name, parent=a_name, by_uuid=st.booleans())
    def new_child(self, name: str, parent: str, by_uuid: bool) -> None:
        above = UUIDS[parent] if by_uuid else parent
        if name in self.model or parent not in self.model:
            with pytest.raises(ValueError):
                self.tree.new_child(name, above, UUIDS[name])
        else:
            self.tree.new_child(name, above, uuid=UUIDS[name])
            self.model[name] = Simple(parent)

    @rule(name=a_name)
    def remove(self, name: str) -> None:
        if self.known(name):
            self.tree.remove(name)
            self.forget(name)

    @rule(given_=st.lists(st.tuples(a_name, st.none() | a_name), max_size=4))
    def populate(self, given_: list[tuple[str, str | None]]) -> None:
        given = dict(given_)
        lost = {one for name in given if name in self.model for one in self.below(name)}
        staying = self.model.keys() - lost
        fits = all(_reaches_a_root(name, given, staying) for name in given)
        records = [
            {"name": name, "uuid": UUIDS[name], "parent_provider_uuid": parent and UUIDS[parent]}
            for name, parent in given.items()
        ]
        if not fits:
            with pytest.raises(ValueError):
                self.tree.populate_from_iterable(records)
            return
        self.tree.populate_from_iterable(records)
        for name in lost:
            del self.model[name]
        self.model |= {name: Simple(parent) for name, parent in given.items()}

    @rule(name=a_name, inventory=some_inventory, generation=st.none() | st.integers(0, 9))
    def update_inventory(
        self, name: str, inventory: dict[str, Inventory], generation: int | None
    ) -> None:
        if self.known(name):
            simple = self.model[name]
            changed = simple.inventory != inventory
            assert self.tree.has_inventory_changed(name, inventory) == changed
            assert self.tree.update_inventory(name, inventory, generation) == changed
            simple.inventory = dict(inventory)
            simple.generation = simple.generation if generation is None else generation

    @rule(name=a_name, traits=some_traits, how=st.sampled_from(["update", "add", "remove"]))
    def change_traits(self, name: str, traits: frozenset[str], how: str) -> None:
        if self.known(name):
            simple = self.model[name]
            assert self.tree.has_traits(name, traits) == (traits <= simple.traits)
            assert self.tree.have_traits_changed(name, traits) == (traits != simple.traits)
            if how == "update":
                assert self.tree.update_traits(name, traits) == (traits != simple.traits)
            else:
                getattr(self.tree, f"{how}_traits")(name, *traits)
            simple.traits = _changed(simple.traits, traits, how)

    @rule(name=a_name, groups=some_aggregates, how=st.sampled_from(["update", "add", "remove"]))
    def change_aggregates(self, name: str, groups: frozenset[str], how: str) -> None:
        if self.known(name):
            simple = self.model[name]
            assert self.tree.in_aggregates(name, groups) == (groups <= simple.aggregates)
            changed = groups != simple.aggregates
            assert self.tree.have_aggregates_changed(name, groups) == changed
            if how == "update":
                assert self.tree.update_aggregates(name, groups) == changed
            else:
                getattr(self.tree, f"{how}_aggregates")(name, *groups)
            simple.aggregates = _changed(simple.aggregates, groups, how)

    @rule(name=a_name)
    def go_on_with_a_subtree(self, name: str) -> None:
        if self.known(name) and self.model[name].parent is None:
            self.tree = self.tree.subtree(name)
            for root, simple in list(self.model.items()):
                if simple.parent is None and root != name and SHARING not in simple.traits:
                    self.forget(root)

    @invariant()
    def has_the_same_providers(self) -> None:
        data = {one.name: one for one in map(self.tree.data, self.tree.get_provider_uuids())}
        assert {name: _simple(one) for name, one in data.items()} == self.model

    @invariant()
    def has_the_same_structure(self) -> None:
        for name in NAMES:
            assert self.tree.exists(name) == self.tree.exists(UUIDS[name]) == (name in self.model)
        for name in self.model:
            below = self.tree.get_provider_uuids(name)
            assert set(below) == {UUIDS[one] for one in self.below(name)}
            seen: set[str | None] = {self.tree.data(name).parent_uuid}
            for uuid in below:
                assert self.tree.data(uuid).parent_uuid in seen
                seen.add(uuid)

    @invariant()
    def has_the_same_roots_and_sharing_providers(self) -> None:
        roots = {name for name, simple in self.model.items() if simple.parent is None}
        assert {root.name for root in self.tree.roots} == roots
        for kind in ("VGPU", "DISK_GB"):
            shared = any(
                kind in simple.inventory and SHARING in simple.traits
                for simple in self.model.values()
            )
            assert self.tree.has_sharing_provider(kind) == shared


def _reaches_a_root(name: str, given: dict[str, str | None], staying: set[str]) -> bool:
    seen: set[str] = set()
    above: str | None = name
    while above is not None and above in given:
        if above in seen:
            return False
        seen.add(above)
        above = given[above]
    return above is None or above in staying


def _changed(before: frozenset[str], given: frozenset[str], how: str) -> frozenset[str]:
    return {"update": given, "add": before | given, "remove": before - given}[how]


def _simple(data: Any) -> Simple:
    parent = next((name for name, uuid in UUIDS.items() if uuid == data.parent_uuid), None)
    return Simple(
        parent,
        data.generation,
        {kind: Inventory(**record) for kind, record in data.inventory.items()},
        frozenset(data.traits),
        frozenset(data.aggregates),
    )


TestTreeMachine = pytest.mark.filterwarnings("error")(TreeMachine.TestCase)
TestTreeMachine.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
