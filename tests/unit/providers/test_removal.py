"""Removals that take several cycles: children, mistakes between two listings, changes of owner."""

import sys
from contextlib import suppress
from typing import Final

import pytest

from tests.unit.providers.world import Crash, Driver, World
from wharfinger.exceptions import InvalidTree
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, names
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import DeleteProvider, SetInventories, SetTraits

US: Final = Publisher("gpus", "OWNER_NOVA")
AS_CYBORG: Final = Publisher("gpus", "OWNER_CYBORG")
HOST: Final = names.root_uuid("host")
GPU: Final = names.child_uuid(HOST, "gpu")
DELAY: Final = 60


def has(gpus: int = 0, *traits: str, reserve: bool = False) -> Driver:
    """Return a driver of a host with a GPU of ``gpus`` VGPUs; with 0 the GPU is absent."""

    def driver(tree: ProviderTree) -> None:
        if not tree.exists("host"):
            tree.new_root("host")
        tree.update_inventory("host", {"CUSTOM_GOLD": {"total": 1}})
        if tree.exists("gpu") and not gpus:
            tree.remove("gpu")
        if gpus:
            if not tree.exists("gpu"):
                tree.new_child("gpu", "host")
            tree.update_inventory("gpu", {"VGPU": {"total": gpus}})
            tree.update_traits("gpu", traits)
            if reserve:
                tree.reserve("gpu", "cleaning")

    return driver


def is_empty(tree: ProviderTree) -> None:
    for root in tree.roots:
        tree.remove(root.uuid)


def published(driver: Driver) -> World:
    world = World(US)
    assert not world.cycle(driver).problems
    return world


def kinds(world: World, driver: Driver) -> list[tuple[type, str]]:
    """Run a cycle after the removal delay; return type and provider name of its steps."""
    world.now += DELAY
    return [(type(step), step.name) for step in world.cycle(driver).steps]


def test_remove_of_a_deep_tree_deletes_the_deepest_providers_first() -> None:
    depth = sys.getrecursionlimit()

    def deep(tree: ProviderTree) -> None:
        if not tree.exists("0"):
            tree.new_root("0")
            for number in range(depth):
                tree.new_child(str(number + 1), str(number))

    world = published(deep)
    world.cycle(is_empty)

    deleted = [(DeleteProvider, str(number)) for number in range(depth, -1, -1)]
    assert kinds(world, is_empty) == deleted


def test_remove_of_an_allocated_root_deletes_its_children_and_keeps_the_root() -> None:
    world = published(has(4))
    world.allocated = frozenset([HOST])
    world.cycle(is_empty)

    assert kinds(world, is_empty) == [(SetInventories, "host"), (DeleteProvider, "gpu")]
    assert world.by_name("host").inventories == {"CUSTOM_GOLD": Inventory(total=1, reserved=1)}


def test_remove_of_a_root_keeps_it_for_a_child_that_is_kept() -> None:
    world = published(has(4))
    world.allocated = frozenset([GPU])
    world.cycle(is_empty)

    assert {name for _, name in kinds(world, is_empty)} == {"host", "gpu"}
    assert {one.name: one.inventories for one in world.live.values()} == {
        "host": {"CUSTOM_GOLD": Inventory(total=1, reserved=1)},
        "gpu": {"VGPU": Inventory(total=4, reserved=4)},
    }
    world.allocated = frozenset()
    assert kinds(world, is_empty) == [(DeleteProvider, "gpu"), (DeleteProvider, "host")]


def test_absence_of_a_provider_that_returned_with_a_mistake_restarts() -> None:
    world = published(has(4))
    world.cycle(has())
    world.now += DELAY

    plan = world.cycle(has(4, "OWNER_CYBORG"))

    assert [type(one) for one in plan.problems] == [InvalidTree]
    assert kinds(world, has()) == []
    assert kinds(world, has()) == [(DeleteProvider, "gpu")]


def test_remove_after_a_change_of_owner_deletes_what_the_former_owner_published() -> None:
    world = published(has(4))
    world.publisher = AS_CYBORG
    world.cycle(has())

    assert kinds(world, has()) == [(DeleteProvider, "gpu")]
    assert world.by_name("host").traits == AS_CYBORG.traits


def test_change_of_owner_of_a_reserved_provider_leaves_it_reserved() -> None:
    world = published(has(4, reserve=True))
    world.publisher = AS_CYBORG

    assert set(kinds(world, has(4, reserve=True))) == {(SetTraits, "host"), (SetTraits, "gpu")}
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=4, reserved=4)}
    world.cycle(has(4))
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=4)}


@pytest.mark.parametrize("crash", range(6))
def test_change_of_owner_that_a_crash_cuts_off_is_completed_or_undone(crash: int) -> None:
    for owner in (AS_CYBORG, US):
        world = published(has(4))
        before = world.contents()
        world.publisher = AS_CYBORG
        world.fuse.left = crash
        with suppress(Crash):
            world.cycle(has(4))
        world.fuse.left = None
        world.publisher = owner

        assert not world.cycle(has(4)).problems

        assert world.by_name("gpu").traits == owner.traits
        if owner is US:
            assert world.contents() == before


@pytest.mark.parametrize("mode", PublishingMode)
@pytest.mark.parametrize(
    "trait", ["OWNER_CYBORG", "CUSTOM_OWNER_ACME", "CUSTOM_OWNER_NOVA", "CUSTOM_WHARFINGER_ANOTHER"]
)
def test_plan_of_an_owner_trait_that_a_driver_adds_is_refused(
    trait: str, mode: PublishingMode
) -> None:
    def driver(tree: ProviderTree) -> None:
        has()(tree)
        tree.add_traits("host", trait)
        tree.set_publishing_mode("host", mode)

    world = published(has())
    before = world.contents()
    (problem,) = world.cycle(driver).problems
    assert isinstance(problem, InvalidTree)
    assert (problem.driver, problem.provider) == ("gpus", "host")
    assert trait in str(problem)
    assert world.contents() == before
