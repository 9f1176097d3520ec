import uuid
from dataclasses import replace

from wharfinger.exceptions import InvalidTree
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    PendingRemoval,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    TreePlan,
    UpdateProvider,
    after_step,
)

A, B, C, D = (str(uuid.UUID(int=number)) for number in range(1, 5))
NOTHING: frozenset[str] = frozenset()


def traits(one: str, root: str) -> SetTraits:
    return SetTraits(uuid=one, name=one, root_uuid=root, before=NOTHING, after=NOTHING)


def inventories(one: str, root: str) -> SetInventories:
    after = {"VGPU": Inventory(total=1)}
    return SetInventories(uuid=one, name=one, root_uuid=root, before={}, after=after)


def test_reshape_touches_all_providers_whose_inventories_it_changes() -> None:
    changes = (inventories(A, A), inventories(B, A))
    reshape = Reshape(uuid=A, name="a", root_uuid=A, inventories=changes, allocations={})
    assert reshape.touched == (A, B)


def test_plan_concatenates_its_trees_in_order() -> None:
    problem = InvalidTree(driver="gpus", provider="c", problem="wrong")
    waiting = PendingRemoval(uuid=D, name="d", reason="absent")
    orphan = PendingRemoval(uuid=B, name="b", reason="no record")
    other = InvalidTree(driver="gpus", provider="e", problem="wrong")
    one = TreePlan(root_uuid=A, steps=(traits(A, A),), pending=(waiting,))
    two = TreePlan(root_uuid=C, steps=(traits(C, C),), problems=(problem,))
    plan = Plan(trees=(one, two), orphans=(orphan,), errors=(other,))
    assert plan.steps == (traits(A, A), traits(C, C))
    assert plan.pending == (orphan, waiting)
    assert plan.problems == (other, problem)


PROVIDER = Provider(
    uuid=B,
    name="gpu",
    root_uuid=A,
    parent_uuid=A,
    generation=7,
    inventories={"VGPU": Inventory(total=1)},
    traits=frozenset(["CUSTOM_T"]),
    aggregates=frozenset([D]),
)


def test_create_step_results_in_an_empty_provider() -> None:
    step = CreateProvider(uuid=B, name="gpu", root_uuid=A, parent_uuid=A)
    expected = Provider(uuid=B, name="gpu", root_uuid=A, parent_uuid=A)
    assert after_step(step, None) == after_step(step, PROVIDER) == expected


def test_each_step_changes_one_part() -> None:
    more = frozenset(["CUSTOM_U"])
    set_traits = SetTraits(uuid=B, name="gpu", root_uuid=A, before=PROVIDER.traits, after=more)
    assert after_step(set_traits, PROVIDER) == replace(PROVIDER, traits=more)
    aggregates = SetAggregates(uuid=B, name="gpu", root_uuid=A, before=NOTHING, after=more)
    assert after_step(aggregates, PROVIDER) == replace(PROVIDER, aggregates=more)
    after = {"VGPU": Inventory(total=2)}
    figures = SetInventories(uuid=B, name="gpu", root_uuid=A, before={}, after=after)
    assert after_step(figures, PROVIDER) == replace(PROVIDER, inventories=after)


def test_update_step_moves_the_provider_to_the_new_tree() -> None:
    moved = replace(PROVIDER, name="gpu-0", parent_uuid=D, root_uuid=C)
    step = UpdateProvider(
        uuid=B,
        name="gpu-0",
        root_uuid=C,
        before=PROVIDER,
        after=moved,
    )
    assert after_step(step, PROVIDER) == moved


def test_deletion_and_step_on_a_missing_provider_result_in_none() -> None:
    step = DeleteProvider(uuid=B, name="gpu", root_uuid=A)
    assert after_step(step, PROVIDER) is None
    assert after_step(traits(B, A), None) is None
