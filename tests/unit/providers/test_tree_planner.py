"""Rules of the three-way diff, one at a time; test_tree_planner_properties.py has random trees."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.unit.providers.world import Driver, World, gone, planned_records
from wharfinger.exceptions import (
    DuplicateProvider,
    InvalidTree,
    NameTaken,
    OwnershipConflict,
    ProviderMissing,
)
from wharfinger.providers import (
    DesiredProvider,
    Inventory,
    Provider,
    ProviderTree,
    PublishingMode,
    names,
)
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    UpdateProvider,
)
from wharfinger.providers.plan_draft import PlanFacts
from wharfinger.providers.provider import Record
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.providers.tree_planner import plan_trees

US = Publisher("gpus", "OWNER_NOVA")
#: The driver instance with `adopt = matching`.
ADOPTING = replace(US, adopts_matching=True)
CYBORGS = Publisher("fpgas", "OWNER_CYBORG")
MARKS = frozenset(["OWNER_NOVA", "CUSTOM_WHARFINGER_GPUS"])
HOST = names.root_uuid("host")
GPU = names.child_uuid(HOST, "gpu")
NOW = PlanFacts(publisher=US, now=1, is_listing=True, removal_delay=60)
RACK = "00000000-0000-0000-0000-00000000000a"
ROW = "00000000-0000-0000-0000-00000000000b"


def provider(name: str = "host", parent: str | None = None, **contents: Any) -> Provider:
    uuid = names.child_uuid(parent, name) if parent else names.root_uuid(name)
    root = HOST if parent else uuid
    return Provider(
        uuid=uuid, name=name, root_uuid=root, parent_uuid=parent, generation=1, **contents
    )


def untagged(*classes: str, **contents: Any) -> Provider:
    contents.setdefault("inventories", {kind: Inventory(total=4) for kind in classes})
    return provider(**contents)


def cyborgs(name: str = "host", parent: str | None = None) -> Provider:
    return provider(
        name,
        parent,
        traits=frozenset(["OWNER_CYBORG", "CUSTOM_THEIRS"]),
        inventories={"FPGA": Inventory(total=1)},
        aggregates=frozenset([RACK]),
    )


def says(
    *,
    children: Mapping[str, int] | None = None,
    traits: tuple[str, ...] = (),
    aggregates: tuple[str, ...] = (),
    reserve: tuple[str, ...] = (),
    **classes: int,
) -> Driver:
    """Return a driver that states all facts of one host, and the VGPUs of its children."""

    def driver(tree: ProviderTree) -> None:
        if not tree.exists("host"):
            tree.new_root("host")
        tree.update_inventory("host", {name: {"total": total} for name, total in classes.items()})
        tree.update_traits("host", traits)
        tree.update_aggregates("host", aggregates)
        for uuid in tree.get_provider_uuids("host")[1:]:
            if tree.exists(uuid) and tree.data(uuid).name not in (children or {}):
                tree.remove(uuid)
        for name, total in (children or {}).items():
            if not tree.exists(name):
                tree.new_child(name, "host")
            tree.update_inventory(name, {"VGPU": {"total": total}})
            tree.update_traits(name, ())
        for name in reserve:
            tree.reserve(name, "cleaning")

    return driver


def overlays(*, traits: tuple[str, ...] = (), reserve: bool = False) -> Driver:
    """Return a driver that overlays a host of another program."""

    def driver(tree: ProviderTree) -> None:
        if not tree.exists("host"):
            tree.new_root("host")
        tree.set_publishing_mode("host", PublishingMode.OVERLAY)
        tree.update_traits("host", traits)
        if reserve:
            tree.reserve("host", "maintenance")

    return driver


def is_silent(tree: ProviderTree) -> None:
    """Leave the tree unchanged, as a driver that states nothing."""


def published(driver: Driver, *providers: Provider, publisher: Publisher = US) -> World:
    """Return a world after one cycle of the driver; assert that it had no problems."""
    world = World(publisher, providers)
    assert not world.cycle(driver).problems
    return world


def kinds(plan: Plan) -> list[tuple[type, str]]:
    return [(type(step), step.name) for step in plan.steps]


def only(plan: Plan, kind: type) -> Any:
    (step,) = (step for step in plan.steps if isinstance(step, kind))
    return step


# Publishing.


def test_first_plan_creates_and_tags_parents_first_and_sets_inventories_last() -> None:
    world = World(US)
    plan = world.plan(says(children={"gpu": 2}, VCPU=8, traits=("HW_CPU_X86_VMX",)))
    assert kinds(plan) == [
        (CreateProvider, "host"),
        (SetTraits, "host"),
        (CreateProvider, "gpu"),
        (SetTraits, "gpu"),
        (SetInventories, "host"),
        (SetInventories, "gpu"),
    ]
    assert plan.steps[0] == CreateProvider(uuid=HOST, name="host", root_uuid=HOST, parent_uuid=None)
    assert plan.steps[2] == CreateProvider(uuid=GPU, name="gpu", root_uuid=HOST, parent_uuid=HOST)


def test_plan_tags_root_and_children() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8, traits=("HW_CPU_X86_VMX",)))
    assert world.by_name("host").traits == MARKS | {"HW_CPU_X86_VMX"}
    assert world.by_name("gpu").traits == MARKS


def test_plan_sets_aggregates_before_inventories() -> None:
    plan = World(US).plan(says(VCPU=8, aggregates=(RACK,)))
    assert kinds(plan) == [
        (CreateProvider, "host"),
        (SetTraits, "host"),
        (SetAggregates, "host"),
        (SetInventories, "host"),
    ]


def test_plan_of_an_unchanged_world_is_empty() -> None:
    driver = says(
        children={"gpu": 2},
        VCPU=8,
        traits=("HW_CPU_X86_VMX",),
        aggregates=(RACK,),
        reserve=("gpu",),
    )
    assert published(driver).plan(driver) == Plan()


def test_steps_have_values_before_and_after() -> None:
    world = published(says(VCPU=8, traits=("CUSTOM_A",)))
    plan = world.plan(says(VCPU=6, traits=("CUSTOM_B",)))
    traits, figures = only(plan, SetTraits), only(plan, SetInventories)
    assert (traits.before, traits.after) == (MARKS | {"CUSTOM_A"}, MARKS | {"CUSTOM_B"})
    assert (figures.before, figures.after) == (
        {"VCPU": Inventory(total=8)},
        {"VCPU": Inventory(total=6)},
    )
    assert len(plan.steps) == 2


def test_plan_of_a_renamed_provider_keeps_its_uuid() -> None:
    def renamed(tree: ProviderTree) -> None:
        if tree.exists("gpu"):
            tree.remove("gpu")
        tree.new_child("gpu-0", "host", uuid=GPU)
        tree.update_inventory("gpu-0", {"VGPU": {"total": 2}})

    world = published(says(children={"gpu": 2}, VCPU=8))
    plan = world.cycle(renamed)
    assert kinds(plan) == [(UpdateProvider, "gpu-0")]
    assert world.live[GPU].name == "gpu-0"


def test_plan_of_a_moved_provider_moves_it() -> None:
    def moved(tree: ProviderTree) -> None:
        says(children={"gpu": 2, "card": 1}, VCPU=8)(tree)
        tree.remove("gpu")
        tree.new_child("gpu", "card", uuid=GPU)
        tree.update_inventory("gpu", {"VGPU": {"total": 2}})

    world = published(says(children={"gpu": 2}, VCPU=8))
    world.cycle(moved)
    assert world.live[GPU].parent_uuid == world.by_name("card").uuid
    assert world.plan(moved).steps == ()


@pytest.mark.parametrize("figures", [{"VGPU": 2}, {}], ids=["less", "gone"])
def test_plan_lowers_inventories_before_it_raises_others(figures: dict[str, int]) -> None:
    def driver(a: dict[str, int], b: int) -> Driver:
        def fill(tree: ProviderTree) -> None:
            says(children={"b": b})(tree)
            tree.update_inventory("host", {name: {"total": total} for name, total in a.items()})

        return fill

    world = published(driver({"VGPU": 4}, 4))
    assert kinds(world.plan(driver(figures, 6))) == [
        (SetInventories, "host"),
        (SetInventories, "b"),
    ]
    # If the parent grows, the child is lowered first.
    assert kinds(world.plan(driver({"VGPU": 6}, 2))) == [
        (SetInventories, "b"),
        (SetInventories, "host"),
    ]


def test_plan_counts_a_reservation_as_a_smaller_inventory() -> None:
    world = published(says(children={"gpu": 4}, VCPU=4))
    plan = world.plan(says(children={"gpu": 4}, VCPU=5, reserve=("gpu",)))
    assert kinds(plan) == [(SetInventories, "gpu"), (SetInventories, "host")]


def test_absent_child_is_reserved_before_others_of_the_tree_grow_in_its_class() -> None:
    world = published(says(children={"old": 4, "stays": 1}, VCPU=4))
    old = world.by_name("old").uuid

    plan = world.cycle(says(children={"new": 4, "stays": 1}, VCPU=4))

    assert kinds(plan)[-2:] == [(SetInventories, "old"), (SetInventories, "new")]
    assert world.live[old].inventories == {"VGPU": Inventory(total=4, reserved=4)}
    assert world.plan(says(children={"new": 4, "stays": 1}, VCPU=4)).steps == ()
    back = world.cycle(says(children={"old": 4, "stays": 1}, VCPU=4))
    assert kinds(back) == [(SetInventories, "new"), (SetInventories, "old")]
    assert world.live[old].inventories == {"VGPU": Inventory(total=4)}
    assert world.by_name("new").inventories == {"VGPU": Inventory(total=4, reserved=4)}


@pytest.mark.parametrize(
    "after", [{"children": {"stays": 1}, "VCPU": 9}, {"children": {"stays": 1}, "VCPU": 1}]
)
def test_absent_child_keeps_its_figures_while_nothing_grows_in_its_class(
    after: dict[str, Any],
) -> None:
    world = published(says(children={"old": 4, "stays": 1}, VCPU=4))

    world.cycle(says(**after))

    assert world.by_name("old").inventories == {"VGPU": Inventory(total=4)}


def test_reshape_with_edited_allocations_replaces_all_inventory_steps() -> None:
    world = published(says(children={"gpu": 1}, VCPU=4))
    tree = ProviderTree.from_providers(world.live.values())
    says(children={"gpu": 2}, VCPU=3, traits=("CUSTOM_A",))(tree)
    before, moved, kept = (
        {"allocations": {holder: {"resources": {name: 1}}}}
        for holder, name in ((HOST, "VGPU"), (GPU, "VGPU"), (HOST, "VCPU"))
    )
    plan = Plan(
        trees=plan_trees(
            replace(
                NOW, reshapes={HOST: ({"one": before, "two": kept}, {"one": moved, "two": kept})}
            ),
            tree.desired(),
            world.live,
            world.memory.records,
        )
    )
    assert kinds(plan) == [(SetTraits, "host"), (Reshape, "host")]
    reshape = only(plan, Reshape)
    assert set(reshape.touched) == {HOST, GPU}
    assert reshape.allocations == {"one": moved}


def test_reshape_without_changes_is_no_step() -> None:
    world = published(says(VCPU=8))
    tree = ProviderTree.from_providers(world.live.values())
    kept = {"allocations": {HOST: {"resources": {"VCPU": 1}}}}
    plan = Plan(
        trees=plan_trees(
            replace(NOW, reshapes={HOST: ({"one": kept}, {"one": kept})}),
            tree.desired(),
            world.live,
            world.memory.records,
        )
    )
    assert plan.steps == ()


def test_reshape_with_a_problem_in_its_tree_is_not_planned() -> None:
    world = World(US, [cyborgs()])
    tree = ProviderTree.from_providers(world.live.values())
    says(children={"gpu": 2}, FPGA=1)(tree)
    plan = Plan(
        trees=plan_trees(
            replace(NOW, reshapes={HOST: ({}, {})}),
            tree.desired(),
            world.live,
            {},
        )
    )
    assert [type(problem) for problem in plan.problems] == [OwnershipConflict]
    assert (plan.steps, planned_records(plan)) == ((), {})


# Additions of other programs to our providers.


def test_plan_keeps_additions_of_other_programs() -> None:
    world = published(says(VGPU=4, traits=("CUSTOM_A",), aggregates=(RACK,)))
    ours = world.by_name("host")
    world.change(
        "host",
        traits=ours.traits | {"CUSTOM_THEIRS"},
        aggregates=ours.aggregates | {ROW},
        inventories={**ours.inventories, "CUSTOM_THEIR_CLASS": Inventory(total=1)},
    )
    world.cycle(says(VGPU=5, traits=("CUSTOM_B",)))
    after = world.by_name("host")
    assert after.traits == MARKS | {"CUSTOM_B", "CUSTOM_THEIRS"}
    assert after.aggregates == {ROW}
    assert after.inventories == {
        "VGPU": Inventory(total=5),
        "CUSTOM_THEIR_CLASS": Inventory(total=1),
    }


def test_plan_removes_our_unwanted_parts() -> None:
    world = published(says(VGPU=4, CUSTOM_X=1, traits=("CUSTOM_A",), aggregates=(RACK,)))
    world.cycle(says(VGPU=4))
    after = world.by_name("host")
    assert after.traits == MARKS
    assert after.aggregates == frozenset()
    assert after.inventories == {"VGPU": Inventory(total=4)}


def test_plan_restores_parts_that_other_programs_removed() -> None:
    driver = says(VGPU=4, traits=("CUSTOM_A",), aggregates=(RACK,))
    world = published(driver)
    before = world.contents()
    world.change("host", traits=frozenset(), aggregates=frozenset(), inventories={})
    world.cycle(driver)
    assert world.contents() == before


def test_plan_never_removes_traits_and_aggregates_that_were_there_before_ours() -> None:
    there = untagged("VGPU", traits=frozenset(["CUSTOM_A"]), aggregates=frozenset([RACK]))
    says_more = says(VGPU=4, traits=("CUSTOM_A", "CUSTOM_B"), aggregates=(RACK, ROW))
    world = published(says_more, there, publisher=ADOPTING)
    world.cycle(says(VGPU=4))
    after = world.by_name("host")
    assert after.traits == MARKS | {"CUSTOM_A"}
    assert after.aggregates == {RACK}


def test_class_of_others_is_not_claimed_by_a_reservation() -> None:
    def reserves(tree: ProviderTree) -> None:
        tree.reserve("host", "cleaning")

    world = published(says(VGPU=4))
    theirs = {"CUSTOM_THEIR_CLASS": Inventory(total=1)}
    world.change("host", inventories={**world.by_name("host").inventories, **theirs})
    world.cycle(reserves)
    world.cycle(says(VGPU=4))
    assert world.by_name("host").inventories == {"VGPU": Inventory(total=4), **theirs}


def test_class_of_others_is_not_claimed_when_the_driver_returns_it() -> None:
    def writes_back(tree: ProviderTree) -> None:
        inventory = tree.data("host").inventory
        inventory["VGPU"]["total"] = 5
        tree.update_inventory("host", inventory)

    world = published(says(VGPU=4))
    theirs = {"CUSTOM_THEIR_CLASS": Inventory(total=1)}
    world.change("host", inventories={**world.by_name("host").inventories, **theirs})
    world.cycle(writes_back)
    world.cycle(says(VGPU=5))
    assert world.by_name("host").inventories == {"VGPU": Inventory(total=5), **theirs}


def test_plan_restores_a_changed_name() -> None:
    driver = says(children={"gpu": 2}, VCPU=8)

    def by_uuid(tree: ProviderTree) -> None:
        if tree.exists(GPU):
            tree.remove(GPU)
        driver(tree)

    world = published(driver)
    # Placement raises no generation for a new name.
    world.live[GPU] = replace(world.live[GPU], name="renamed")
    plan = world.cycle(by_uuid)
    assert kinds(plan) == [(UpdateProvider, "gpu")]
    assert world.live[GPU].name == "gpu"
    assert world.memory.get(GPU).is_ours


# Ownership.


def test_provider_of_another_owner_is_kept_with_an_error_that_names_both() -> None:
    world = World(US, [cyborgs()])
    before = world.contents()
    plan = world.cycle(says(VCPU=8, traits=("CUSTOM_A",), reserve=("host",)))
    assert plan.steps == ()
    assert world.contents() == before
    (problem,) = plan.problems
    assert isinstance(problem, OwnershipConflict)
    assert (problem.owner, problem.other) == ("OWNER_NOVA", "OWNER_CYBORG")
    assert (problem.provider, problem.uuid, problem.instance) == ("host", HOST, "gpus")
    assert all(word in str(problem) for word in ("OWNER_NOVA", "OWNER_CYBORG", "host", "gpus"))


def test_children_below_another_owners_provider_are_published() -> None:
    world = World(US, [cyborgs()])
    plan = world.cycle(says(children={"gpu": 2}, VCPU=8))
    assert kinds(plan) == [(CreateProvider, "gpu"), (SetTraits, "gpu"), (SetInventories, "gpu")]
    assert world.by_name("gpu").parent_uuid == HOST


def fills(tree: ProviderTree) -> None:
    """Edit a host without a statement about its traits."""
    if not tree.exists("host"):
        tree.new_root("host")
    tree.update_inventory("host", {"VGPU": {"total": 4}})


@pytest.mark.parametrize("driver", [fills, says(VGPU=4)], ids=["silent", "replaces traits"])
def test_new_owner_replaces_the_one_that_we_published_under(driver: Driver) -> None:
    world = published(driver)
    world.publisher = Publisher("gpus", "OWNER_CYBORG")
    plan = world.cycle(driver)
    assert kinds(plan) == [(SetTraits, "host")]
    assert world.by_name("host").traits == {"OWNER_CYBORG", "CUSTOM_WHARFINGER_GPUS"}
    assert world.plan(driver) == Plan()


def test_provider_that_another_owner_has_tagged_is_no_longer_written() -> None:
    world = published(says(VCPU=8))
    world.change("host", traits=frozenset(["OWNER_CYBORG"]))
    plan = world.plan(says(VCPU=4))
    assert plan.steps == ()
    assert [type(problem) for problem in plan.problems] == [OwnershipConflict]


def test_untagged_providers_without_a_statement_are_ignored() -> None:
    world = World(US, [untagged("VCPU"), cyborgs("fpga", HOST)])
    plan = world.plan(is_silent)
    assert (plan.steps, plan.problems) == ((), ())


THERE: Final = [
    untagged("VGPU"),
    untagged("VGPU", traits=frozenset(["OWNER_NOVA", "CUSTOM_THEIRS"])),
]


@pytest.mark.parametrize("there", THERE, ids=["untagged", "with our owner trait"])
def test_plan_of_a_provider_that_another_program_created_is_a_conflict(there: Provider) -> None:
    world = World(US, [there])
    before = world.contents()
    for driver in (says(VGPU=8), says(VGPU=8, reserve=("host",)), says(CUSTOM_X=1)):
        plan = world.cycle(driver)
        (problem,) = plan.problems
        assert isinstance(problem, OwnershipConflict)
        assert plan.steps == ()
        assert not any(record.is_ours for record in world.memory.records.values())
    for _ in range(3):
        world.now += 100
        assert world.cycle(lambda tree: tree.remove("host")).steps == ()
    assert world.contents() == before


@pytest.mark.parametrize("there", THERE, ids=["untagged", "with our owner trait"])
def test_plan_of_an_instance_that_adopts_takes_a_matching_provider_over(there: Provider) -> None:
    world = World(ADOPTING, [there])
    plan = world.cycle(says(VGPU=8))
    assert kinds(plan) == [(SetTraits, "host"), (SetInventories, "host")]
    assert world.by_name("host").traits == MARKS | there.traits


def test_plan_of_an_overlaid_provider_that_the_driver_wants_to_own_is_a_conflict() -> None:
    world = published(overlays(), untagged("VGPU"))
    before = world.contents()
    plan = world.cycle(says(VGPU=8))
    (problem,) = plan.problems
    assert isinstance(problem, OwnershipConflict)
    assert f"wharfinger provider adopt {HOST} --instance gpus" in problem.remedy
    assert world.contents() == before
    world.publisher = ADOPTING
    assert not world.cycle(says(VGPU=8)).problems
    assert world.by_name("host").inventories == {"VGPU": Inventory(total=8)}


def test_create_after_another_program_leaves_no_claim() -> None:
    world = World(US)
    plan = world.plan(says(VGPU=4))
    world.live[HOST] = replace(untagged(), generation=0)
    before = world.contents()
    with pytest.raises(DuplicateProvider):
        world.apply(plan)
    for driver in (says(VGPU=4), lambda tree: tree.remove("host")):
        world.now += 100
        assert world.cycle(driver).steps == ()
    assert world.contents() == before


def test_provider_created_by_another_program_before_our_write_is_a_conflict() -> None:
    world = published(says(VGPU=4))
    del world.live[HOST]
    plan = world.plan(says(VGPU=4))
    world.live[HOST] = replace(untagged("VGPU"), generation=9)
    with pytest.raises(DuplicateProvider):
        world.apply(plan)
    (problem,) = world.cycle(says(VGPU=4)).problems
    assert isinstance(problem, OwnershipConflict)


def test_provider_created_again_by_another_program_under_our_uuid_is_a_conflict() -> None:
    world = published(says(VGPU=4))
    world.live[HOST] = untagged("VGPU", traits=frozenset(["OWNER_NOVA"]))
    before = world.contents()
    (problem,) = world.cycle(says(VGPU=4)).problems
    assert isinstance(problem, OwnershipConflict)
    world.change(
        "host", aggregates=frozenset([RACK])
    )  # its generation is now higher than the recorded one
    world.change("host", aggregates=frozenset())
    (problem,) = world.cycle(says(VGPU=4)).problems
    assert isinstance(problem, OwnershipConflict)
    assert world.contents() == before


def test_untagged_provider_with_an_unreported_class_is_a_conflict() -> None:
    world = World(US, [untagged("VCPU", "CUSTOM_THEIRS")])
    plan = world.cycle(says(VCPU=8))
    assert plan.steps == ()
    (problem,) = plan.problems
    assert isinstance(problem, OwnershipConflict)
    assert "it has no owner trait" in problem.other


def test_untagged_provider_in_another_place_is_a_conflict() -> None:
    elsewhere = Provider(uuid=GPU, name="gpu", root_uuid=GPU)
    desired = DesiredProvider(provider=provider("gpu", HOST))
    plan = Plan(
        trees=plan_trees(
            NOW,
            [desired],
            {GPU: elsewhere},
            {},
        )
    )
    assert [type(problem) for problem in plan.problems] == [OwnershipConflict]
    assert plan.steps == ()


def test_our_own_provider_that_lost_its_tag_is_tagged_again() -> None:
    world = published(says(VCPU=8))
    ours = world.by_name("host")
    world.change(
        "host", traits=frozenset(), inventories={**ours.inventories, "VGPU": Inventory(total=1)}
    )
    assert not world.cycle(says(VCPU=8)).problems
    assert world.by_name("host").traits == MARKS


@pytest.mark.parametrize("owner", ["OWNER_CYBORG", "CUSTOM_OWNER_ACME"])
def test_driver_that_adds_an_owner_trait_is_refused(owner: str) -> None:
    plan = World(US).plan(says(VCPU=8, traits=(owner,)))
    (problem,) = plan.problems
    assert isinstance(problem, InvalidTree)
    assert (problem.driver, problem.provider) == ("gpus", "host")
    assert owner in problem.problem
    assert plan.steps == ()


def test_child_of_another_owner_may_have_vcpu_and_its_root_other_classes() -> None:
    def driver(tree: ProviderTree) -> None:
        says(children={"dpu": 1}, FPGA=1)(tree)
        tree.update_inventory("dpu", {"VCPU": {"total": 4}})

    plan = World(CYBORGS).plan(driver)
    assert plan.problems == ()
    assert len(plan.steps) == 6


def test_plan_below_a_refused_provider_is_empty() -> None:
    plan = World(CYBORGS).plan(says(children={"gpu": 2}, VCPU=8))
    assert [type(problem) for problem in plan.problems] == [InvalidTree]
    assert plan.steps == ()


def test_invalid_report_removes_nothing_of_its_tree() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.cycle(says(VCPU=8))
    world.now += 60
    plan = world.plan(says(VCPU=8, traits=("OWNER_CYBORG",)))
    assert [type(problem) for problem in plan.problems] == [InvalidTree]
    assert plan.steps == ()
    assert plan.pending == ()


def test_invalid_report_makes_no_orphans() -> None:
    plan = World(US, [untagged("VGPU", traits=MARKS)]).plan(says(traits=("OWNER_CYBORG",)))
    assert [type(problem) for problem in plan.problems] == [InvalidTree]
    assert plan.pending == ()


def test_root_of_another_owner_without_a_statement_is_accepted() -> None:
    def driver(tree: ProviderTree) -> None:
        tree.new_child("fpga", "host")
        tree.update_inventory("fpga", {"FPGA": {"total": 1}})

    plan = World(CYBORGS, [untagged("VCPU", traits=frozenset(["OWNER_NOVA"]))]).plan(driver)
    assert plan.problems == ()
    assert {step.name for step in plan.steps} == {"fpga"}


def test_provider_without_a_statement_is_not_created() -> None:
    unsaid = DesiredProvider(provider=provider(), stated=False)
    plan = Plan(trees=plan_trees(NOW, [unsaid], {}, {}))
    assert [type(problem) for problem in plan.problems] == [ProviderMissing]
    assert plan.steps == ()


def test_invalid_report_keeps_our_claims() -> None:
    world = published(says(VCPU=8, traits=("CUSTOM_A",)))
    world.cycle(says(VCPU=8, traits=("CUSTOM_A", "OWNER_CYBORG")))
    world.cycle(says(VCPU=8))
    assert world.by_name("host").traits == MARKS


def test_invalid_report_keeps_the_own_amounts() -> None:
    nova = untagged(inventories={"VCPU": Inventory(total=8, reserved=2)})
    world = published(overlays(reserve=True), nova)
    world.cycle(overlays(reserve=True, traits=("OWNER_CYBORG",)))
    world.cycle(overlays())
    assert world.by_name("host").inventories == {"VCPU": Inventory(total=8, reserved=2)}


# Overlays.


def test_overlay_adds_only_its_traits() -> None:
    nova = untagged("VCPU", traits=frozenset(["CUSTOM_THEIRS"]), aggregates=frozenset([RACK]))
    world = World(US, [nova])
    plan = world.cycle(overlays(traits=("CUSTOM_A",)))
    assert kinds(plan) == [(SetTraits, "host")]
    after = world.by_name("host")
    assert after.traits == MARKS | {"CUSTOM_THEIRS", "CUSTOM_A"}
    assert (after.inventories, after.aggregates) == (nova.inventories, nova.aggregates)


def test_overlay_never_writes_inventory_aggregates_name_or_parent() -> None:
    def meddles(tree: ProviderTree) -> None:
        overlays()(tree)
        tree.update_inventory("host", {"CUSTOM_X": {"total": 1}})
        tree.update_aggregates("host", [ROW])

    nova = untagged("VCPU", aggregates=frozenset([RACK]))
    assert kinds(World(US, [nova]).plan(meddles)) == [(SetTraits, "host")]


def test_overlay_removes_traits_that_are_no_longer_named() -> None:
    world = published(overlays(traits=("CUSTOM_A", "CUSTOM_B")), untagged("VCPU"))
    world.cycle(overlays(traits=("CUSTOM_B",)))
    assert world.by_name("host").traits == MARKS | {"CUSTOM_B"}


def test_overlay_of_a_missing_provider_is_a_problem_and_writes_nothing_below() -> None:
    def driver(tree: ProviderTree) -> None:
        overlays()(tree)
        tree.new_child("gpu", "host")
        tree.new_child("part", "gpu")
        tree.update_inventory("part", {"VGPU": {"total": 1}})

    plan = World(US).plan(driver)
    (problem,) = plan.problems
    assert isinstance(problem, ProviderMissing)
    assert (problem.provider, problem.uuid, problem.instance) == ("host", HOST, "gpus")
    assert plan.steps == ()


def test_children_of_an_overlay_are_published_once_it_exists() -> None:
    def driver(tree: ProviderTree) -> None:
        overlays()(tree)
        if not tree.exists("gpu"):
            tree.new_child("gpu", "host")
        tree.update_inventory("gpu", {"VGPU": {"total": 1}})

    world = World(US)
    world.cycle(driver)
    world.live[HOST] = untagged("VCPU")
    assert not world.cycle(driver).problems
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=1)}


def test_overlay_without_a_statement_stays_an_overlay() -> None:
    world = published(overlays(), untagged("VCPU"))
    world.cycle(is_silent)
    assert world.memory.get(HOST).mode is PublishingMode.OVERLAY
    assert world.memory.get(HOST).claimed_classes == frozenset()


def test_overlay_after_a_cycle_without_a_statement_is_never_deleted() -> None:
    world = published(overlays(), untagged("VCPU"))
    world.cycle(is_silent)
    for _ in range(3):
        world.now += 100
        plan = world.cycle(lambda tree: tree.remove("host"))
        assert plan.steps == ()


# Reservation.


def test_reserved_provider_is_full_in_every_class() -> None:
    world = published(says(VGPU=4, CUSTOM_X=2))
    theirs = {"CUSTOM_THEIR_CLASS": Inventory(total=3, reserved=1)}
    world.change("host", inventories={**world.by_name("host").inventories, **theirs})
    world.cycle(says(VGPU=4, CUSTOM_X=2, reserve=("host",)))
    assert {
        name: (one.total, one.reserved) for name, one in world.by_name("host").inventories.items()
    } == {"VGPU": (4, 4), "CUSTOM_X": (2, 2), "CUSTOM_THEIR_CLASS": (3, 3)}


def test_released_provider_regains_each_amount() -> None:
    def driver(reserve: bool) -> Driver:
        def fill(tree: ProviderTree) -> None:
            says()(tree)
            tree.update_inventory("host", {"VGPU": {"total": 4, "reserved": 1}})
            if reserve:
                tree.reserve("host", "cleaning")

        return fill

    world = published(driver(False))
    theirs = {"CUSTOM_THEIR_CLASS": Inventory(total=3, reserved=2)}
    world.change("host", inventories={**world.by_name("host").inventories, **theirs})
    for reserve in (True, True, False):
        world.cycle(driver(reserve))
    assert world.by_name("host").inventories == {
        "VGPU": Inventory(total=4, reserved=1),
        **theirs,
    }


def test_overlaid_provider_is_reserved_and_released() -> None:
    own = {"VCPU": Inventory(total=8, reserved=2), "MEMORY_MB": Inventory(total=64)}
    world = published(overlays(), untagged(inventories=own))
    plan = world.cycle(overlays(reserve=True))
    assert kinds(plan) == [(SetInventories, "host")]
    assert all(one.is_fully_reserved for one in world.by_name("host").inventories.values())
    assert world.plan(overlays(reserve=True)) == Plan()
    world.cycle(overlays())
    assert world.by_name("host").inventories == own


def test_amount_that_the_owner_changes_during_a_reservation_is_restored() -> None:
    nova = untagged(inventories={"VCPU": Inventory(total=8, reserved=2)})
    world = published(overlays(reserve=True), nova)
    world.change("host", inventories={"VCPU": Inventory(total=16, reserved=5)})
    world.cycle(overlays(reserve=True))
    assert world.by_name("host").inventories == {"VCPU": Inventory(total=16, reserved=16)}
    world.cycle(overlays())
    assert world.by_name("host").inventories == {"VCPU": Inventory(total=16, reserved=5)}


def test_full_reservation_of_the_owner_stays_after_our_release() -> None:
    full = {"VCPU": Inventory(total=8, reserved=8)}
    world = published(overlays(reserve=True), untagged(inventories=full))
    world.cycle(overlays())
    assert world.by_name("host").inventories == full


def test_reservation_ends_when_the_driver_no_longer_states_it() -> None:
    world = published(says(VGPU=4, reserve=("host",)))
    world.cycle(is_silent)
    assert world.by_name("host").inventories == {"VGPU": Inventory(total=4)}


def test_reasons_are_recorded_while_the_driver_reports_them() -> None:
    world = published(overlays(reserve=True), untagged("VCPU"))
    assert world.memory.get(HOST).reservations == ("maintenance",)
    world.cycle(overlays())
    assert world.memory.get(HOST).reservations == ()


# Removal.


def test_provider_absent_once_is_pending_and_its_absence_recorded() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    plan = world.cycle(says(VCPU=8))
    assert plan.steps == ()
    assert [waiting.name for waiting in plan.pending] == ["gpu"]
    absence = world.memory.get(GPU).absence
    assert absence
    assert absence.since == 1000.0


@pytest.mark.parametrize(("later", "deleted"), [(59.9, False), (60.0, True), (3600.0, True)])
def test_provider_absent_after_the_delay_is_deleted(later: float, deleted: bool) -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.cycle(says(VCPU=8))
    world.now += later
    plan = world.cycle(says(VCPU=8))
    assert kinds(plan) == ([(DeleteProvider, "gpu")] if deleted else [])
    assert (GPU in world.live) is not deleted
    assert (GPU in world.memory.records) is not deleted


def test_removal_delay_counts_from_the_first_absence() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    for _ in range(2):
        world.cycle(says(VCPU=8))
        world.now += 40
    assert kinds(world.plan(says(VCPU=8))) == [(DeleteProvider, "gpu")]


def test_provider_that_returned_is_no_longer_absent() -> None:
    driver = says(children={"gpu": 2}, VCPU=8)
    world = published(driver)
    world.cycle(says(VCPU=8))
    world.cycle(driver)
    assert world.memory.get(GPU).absence is None
    world.now += 3600
    assert world.cycle(says(VCPU=8)).steps == ()


def test_children_are_deleted_before_their_parents() -> None:
    def deep(tree: ProviderTree) -> None:
        says(children={"gpu": 2}, VCPU=8)(tree)
        if not tree.exists("part"):
            tree.new_child("part", "gpu")
        tree.update_inventory("part", {"VGPU": {"total": 1}})

    def removes_all(tree: ProviderTree) -> None:
        for root in tree.roots:
            tree.remove(root.uuid)

    world = published(deep)
    world.cycle(removes_all)
    world.now += 60
    plan = world.cycle(removes_all)
    assert kinds(plan) == [
        (DeleteProvider, "part"),
        (DeleteProvider, "gpu"),
        (DeleteProvider, "host"),
    ]
    assert not world.live


def test_absent_provider_with_allocations_is_reserved_and_kept() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.allocated = frozenset([GPU])
    world.cycle(says(VCPU=8))
    world.now += 60
    plan = world.cycle(says(VCPU=8))
    assert kinds(plan) == [(SetInventories, "gpu")]
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=2, reserved=2)}
    assert "allocations" in plan.pending[0].reason
    again = world.plan(says(VCPU=8))
    assert (again.steps, planned_records(again)) == ((), {})


def test_absent_provider_without_its_allocations_is_deleted() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.allocated = frozenset([GPU])
    for _ in range(2):
        world.cycle(says(VCPU=8))
        world.now += 60
    world.allocated = frozenset()
    assert kinds(world.cycle(says(VCPU=8))) == [(DeleteProvider, "gpu")]


def test_overlaid_provider_is_never_deleted() -> None:
    world = published(overlays(), untagged("VCPU"))
    for _ in range(3):
        plan = world.cycle(lambda tree: tree.remove("host"))
        assert plan.steps == ()
        assert [waiting.name for waiting in plan.pending] == ["host"]
        world.now += 3600


def test_absent_parent_of_a_child_of_another_owner_is_reserved_and_kept() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    theirs = cyborgs("fpga", GPU)
    world.live[theirs.uuid] = theirs
    world.cycle(says(VCPU=8))
    world.now += 60
    plan = world.cycle(says(VCPU=8))
    assert kinds(plan) == [(SetInventories, "gpu")]
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=2, reserved=2)}
    assert "children" in plan.pending[0].reason
    assert world.live[theirs.uuid] == theirs
    world.now += 60
    again = world.plan(says(VCPU=8))
    assert (again.steps, planned_records(again)) == ((), {})
    assert "children" in again.pending[0].reason


def test_absent_parent_of_unread_children_is_reserved_and_kept() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.unseen_parents = frozenset([GPU])
    world.cycle(says(VCPU=8))
    world.now += 60
    assert kinds(world.cycle(says(VCPU=8))) == [(SetInventories, "gpu")]
    world.unseen_parents = frozenset()
    assert kinds(world.cycle(says(VCPU=8))) == [(DeleteProvider, "gpu")]


@pytest.mark.parametrize("kept_for", ["allocated", "unseen_parents"])
def test_kept_provider_that_returned_is_released(kept_for: str) -> None:
    driver = says(children={"gpu": 2}, VCPU=8)
    world = published(driver)
    setattr(world, kept_for, frozenset([GPU]))
    for _ in range(2):
        world.cycle(says(VCPU=8))
        world.now += 60
    world.cycle(driver)
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=2)}
    assert world.memory.get(GPU).absence is None


def test_mass_removal_that_is_refused_neither_deletes_nor_reserves_and_keeps_the_absence() -> None:
    world = published(says(children={"gpu": 2, "card": 1}, VCPU=8))
    world.allocated = frozenset([GPU])
    world.withheld = True
    for _ in range(3):
        plan = world.cycle(says(VCPU=9))
        world.now += 60
    assert (plan.steps, gone(plan)) == ((), set())
    assert sorted(waiting.name for waiting in plan.pending) == ["card", "gpu"]
    assert all("too many" in waiting.reason for waiting in plan.pending)
    assert world.by_name("host").inventories == {"VCPU": Inventory(total=9)}
    world.withheld = False
    assert kinds(world.cycle(says(VCPU=9))) == [(SetInventories, "gpu"), (DeleteProvider, "card")]


def test_plan_names_each_absent_provider_that_it_removes_or_reserves_once() -> None:
    world = published(says(children={"gpu": 2, "card": 1}, VCPU=8))
    world.allocated = frozenset([GPU])
    assert gone(world.cycle(says(VCPU=8))) == set()
    world.now += 60
    card = world.by_name("card").uuid
    assert gone(world.cycle(says(VCPU=8))) == {GPU, card}
    assert gone(world.cycle(says(VCPU=8))) == set()


@pytest.mark.parametrize(
    ("gone", "providers", "mass"),
    [(4, 4, False), (4, 19, False), (5, 5, True), (5, 24, True), (5, 25, False), (6, 29, True)],
)
def test_believes_refuses_a_removal_of_more_than_four_providers_and_more_than_a_fifth(
    gone: int, providers: int, mass: bool
) -> None:
    assert RemovalPolicy(delay=60).allows(gone, providers) is not mass
    assert RemovalPolicy(delay=60, allow_mass=True).allows(gone, providers)


def test_absent_provider_of_another_owner_is_not_deleted() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.cycle(says(VCPU=8))
    world.change("gpu", traits=frozenset(["OWNER_CYBORG"]))
    world.now += 60
    assert world.cycle(says(VCPU=8)).steps == ()
    assert world.by_name("gpu").traits == {"OWNER_CYBORG"}


def test_absent_provider_without_a_record_is_not_deleted() -> None:
    world = published(says(children={"gpu": 2}, VCPU=8))
    world.memory.records.clear()
    for _ in range(3):
        assert world.cycle(says(VCPU=8)).steps == ()
        world.now += 60
    assert GPU in world.live


def test_provider_deleted_by_another_program_is_forgotten_or_created_again() -> None:
    driver = says(children={"gpu": 2}, VCPU=8)
    world = published(driver)
    del world.live[GPU]
    assert planned_records(world.plan(says(VCPU=8))) == {GPU: None}
    world.cycle(driver)
    assert world.by_name("gpu").inventories == {"VGPU": Inventory(total=2)}


def test_device_with_the_name_of_an_absent_one_is_published_after_its_removal() -> None:
    other = "00000000-0000-0000-0000-0000000000ff"

    def replaced(tree: ProviderTree) -> None:
        if tree.exists("gpu"):
            tree.remove("gpu")
        says(VCPU=8)(tree)
        tree.new_child("gpu", "host", uuid=other)
        tree.update_inventory("gpu", {"VGPU": {"total": 2}})

    world = published(says(children={"gpu": 2}, VCPU=8))
    for _ in range(4):
        # Placement refuses the new provider until the old one with this name is deleted.
        world.cycle(replaced)
        world.now += 60
    assert world.by_name("gpu").uuid == other


def test_name_of_a_provider_of_another_owner_is_not_waited_for() -> None:
    """The provider will not be deleted, so the plan lets Placement refuse the name."""

    def replaced(tree: ProviderTree) -> None:
        tree.remove("gpu")
        tree.new_child("gpu", "host", uuid="00000000-0000-0000-0000-0000000000ff")

    world = published(says(children={"gpu": 2}, VCPU=8))
    world.change("gpu", traits=frozenset(["OWNER_CYBORG"]))
    assert (CreateProvider, "gpu") in kinds(world.plan(replaced))


def test_provider_whose_new_name_is_in_use_is_no_orphan() -> None:
    live = provider("before", traits=MARKS)
    other = provider("host", traits=frozenset(["OWNER_CYBORG"]))
    renamed = DesiredProvider(provider=replace(live, name="host"))
    plan = Plan(
        trees=plan_trees(
            replace(NOW, name_owners={"host": other}),
            [renamed],
            {live.uuid: live},
            {live.uuid: Record(applied=live, live=live)},
        )
    )
    assert [type(problem) for problem in plan.problems] == [NameTaken]
    assert plan.pending == ()


def test_owner_changes_once_there_are_no_allocations() -> None:
    world = published(says(VGPU=4))
    world.publisher = Publisher("gpus", "CUSTOM_OWNER_ACME")
    world.allocated = frozenset([HOST])
    plan = world.cycle(says(VGPU=4))
    assert [type(problem) for problem in plan.problems] == [OwnershipConflict]
    assert plan.steps == ()
    world.allocated = frozenset()
    assert kinds(world.cycle(says(VGPU=4))) == [(SetTraits, "host")]
    assert world.by_name("host").traits == world.publisher.traits


def has_a_card(tree: ProviderTree) -> None:
    """Edit a host with a card, which has a gpu."""
    says(children={"card": 1}, VCPU=8)(tree)
    tree.new_child("gpu", "card", uuid=GPU)
    tree.update_inventory("gpu", {"VGPU": {"total": 2}})


def has_moved_the_gpu(tree: ProviderTree) -> None:
    """Edit a host without the card; the gpu is directly below the host."""
    says(VCPU=8)(tree)
    tree.new_child("gpu", "host", uuid=GPU)
    tree.update_inventory("gpu", {"VGPU": {"total": 2}})


def test_child_of_an_absent_provider_is_moved_before_the_deletion() -> None:
    world = published(has_a_card)
    world.cycle(says(VCPU=8))
    world.now += 60
    plan = world.cycle(has_moved_the_gpu)
    assert kinds(plan) == [(UpdateProvider, "gpu"), (DeleteProvider, "card")]
    assert world.live[GPU].parent_uuid == HOST


def hosts_with_one_card_each(places: Mapping[int, int]) -> Driver:
    """Return a driver of four hosts; card N is on host N, or on the host in ``places``."""

    def driver(tree: ProviderTree) -> None:
        for number in range(4):
            if not tree.exists(f"host-{number}"):
                tree.new_root(f"host-{number}")
        for number in range(4):
            name, host = f"card-{number}", f"host-{places.get(number, number)}"
            uuid = names.child_uuid(HOST, name)
            if not tree.exists(uuid):
                tree.new_child(name, host, uuid=uuid)
            elif tree.data(uuid).parent_uuid != tree.data(host).uuid:
                tree.remove(uuid)
                tree.new_child(name, host, uuid=uuid)
            tree.update_inventory(uuid, {"VGPU": {"total": 1 + number}})

    return driver


@pytest.mark.parametrize("places", [{0: 1, 1: 2, 2: 3}, {2: 3, 1: 2, 0: 1}, {0: 1, 1: 0}, {3: 2}])
def test_plan_trees_moves_between_several_trees_are_planned_as_one(places: dict[int, int]) -> None:
    world = published(hosts_with_one_card_each({}))
    moved = hosts_with_one_card_each(places)
    (plan,) = world.plan(moved).trees
    assert {step.name for step in plan.steps} == {f"card-{number}" for number in places}
    world.cycle(moved)
    for number, place in places.items():
        assert world.by_name(f"card-{number}").root_uuid == world.by_name(f"host-{place}").uuid
    assert world.plan(moved).trees == ()


@pytest.mark.parametrize(
    ("unplanned", "places", "root", "moved"),
    [
        ("host-0", {0: 1, 1: 2}, "host-2", {"card-0", "card-1"}),
        ("host-1", {0: 1, 3: 0}, "host-0", {"card-3"}),
    ],
    ids=["leaves it", "joins it"],
)
def test_plan_trees_move_with_an_unplanned_tree_plans_the_other_trees_alone(
    unplanned: str, places: dict[int, int], root: str, moved: set[str]
) -> None:
    world = published(hosts_with_one_card_each({}))
    tree = ProviderTree.from_providers(world.live.values())
    hosts_with_one_card_each(places)(tree)
    left_out = world.by_name(unplanned).uuid
    (plan,) = plan_trees(
        NOW,
        tree.desired(),
        dict(world.live),
        world.memory.records,
        is_planned=lambda root: root != left_out,
    )
    assert plan.root_uuid == world.by_name(root).uuid
    assert {step.name for step in plan.steps} == moved


def test_child_of_a_provider_whose_name_another_gets_is_moved() -> None:
    other = "00000000-0000-0000-0000-0000000000ff"

    def replaced(tree: ProviderTree) -> None:
        has_moved_the_gpu(tree)
        tree.new_child("card", "host", uuid=other)

    world = published(has_a_card)
    world.cycle(says(VCPU=8))
    for _ in range(4):
        world.now += 60
        world.cycle(replaced)
    assert world.by_name("card").uuid == other
    assert world.live[GPU].parent_uuid == HOST


def test_record_of_a_provider_of_others_has_only_the_live_side() -> None:
    world = World(US, [cyborgs()])
    world.cycle(is_silent)
    assert world.memory.get(HOST) == Record(live=world.live[HOST])
    assert world.plan(is_silent) == Plan()
