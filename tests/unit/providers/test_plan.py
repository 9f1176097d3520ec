import uuid
from dataclasses import replace

from wharfinger.exceptions import InvalidTree
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    Identity,
    PendingRemoval,
    Plan,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    UpdateProvider,
)
from wharfinger.providers.record import Record

A, B, C, D = (str(uuid.UUID(int=number)) for number in range(1, 5))
NOTHING: frozenset[str] = frozenset()


def traits(one: str, root: str) -> SetTraits:
    return SetTraits(uuid=one, name=one, root_uuid=root, before=NOTHING, after=NOTHING)


def inventories(one: str, root: str) -> SetInventories:
    after = {"VGPU": Inventory(total=1)}
    return SetInventories(uuid=one, name=one, root_uuid=root, before={}, after=after)


def test_trees_are_separated_each_with_its_steps_in_order_and_its_records() -> None:
    steps = (traits(A, A), traits(C, C), inventories(B, A), inventories(C, C))
    records: dict[str, Record | None] = {A: Record(), B: None, C: Record(reservations=("x",))}
    remembered, first, second = Plan(steps=steps, records=records).by_tree()
    assert remembered == Plan()
    assert first == Plan(steps=(steps[0], steps[2]), records={A: Record(), B: None})
    assert second == Plan(steps=(steps[1], steps[3]), records={C: records[C]})


def test_what_is_only_remembered_comes_first_and_has_no_steps() -> None:
    plan = Plan(steps=(traits(A, A),), records={A: Record(), D: None})
    remembered, tree = plan.by_tree()
    assert remembered == Plan(records={D: None})
    assert tree == Plan(steps=plan.steps, records={A: Record()})


def test_steps_that_leave_nothing_to_remember_are_still_taken() -> None:
    # What is to be remembered afterwards may be what is remembered already.
    _remembered, tree = Plan(steps=(traits(A, A),)).by_tree()
    assert tree.steps == (traits(A, A),)


def test_a_reshape_belongs_to_its_tree_with_all_the_providers_it_touches() -> None:
    changes = (inventories(A, A), inventories(B, A))
    reshape = Reshape(uuid=A, name="a", root_uuid=A, inventories=changes, allocations={})
    assert reshape.touched == (A, B)
    plan = Plan(steps=(reshape,), records={A: Record(), B: Record()})
    _remembered, tree = plan.by_tree()
    assert tree == plan


def test_merged_plans_keep_everything_in_order() -> None:
    problem = InvalidTree(driver="gpus", provider="c", problem="wrong")
    waiting = PendingRemoval(uuid=D, name="d", reason="absent")
    one = Plan(steps=(traits(A, A),), records={A: Record()}, pending=(waiting,))
    other = Plan(steps=(traits(C, C),), records={C: None}, problems=(problem,))
    assert Plan.merge(iter([one, Plan(), other])) == Plan(
        steps=(traits(A, A), traits(C, C)),
        records={A: Record(), C: None},
        pending=(waiting,),
        problems=(problem,),
    )


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


def test_a_created_provider_has_nothing_on_it() -> None:
    step = CreateProvider(uuid=B, name="gpu", root_uuid=A, parent_uuid=A)
    expected = Provider(uuid=B, name="gpu", root_uuid=A, parent_uuid=A)
    assert step.result(None) == step.result(PROVIDER) == expected


def test_each_change_changes_one_thing() -> None:
    more = frozenset(["CUSTOM_U"])
    set_traits = SetTraits(uuid=B, name="gpu", root_uuid=A, before=PROVIDER.traits, after=more)
    assert set_traits.result(PROVIDER) == replace(PROVIDER, traits=more)
    aggregates = SetAggregates(uuid=B, name="gpu", root_uuid=A, before=NOTHING, after=more)
    assert aggregates.result(PROVIDER) == replace(PROVIDER, aggregates=more)
    after = {"VGPU": Inventory(total=2)}
    figures = SetInventories(uuid=B, name="gpu", root_uuid=A, before={}, after=after)
    assert figures.result(PROVIDER) == replace(PROVIDER, inventories=after)


def test_a_moved_provider_is_in_the_tree_it_was_moved_to() -> None:
    step = UpdateProvider(
        uuid=B,
        name="gpu-0",
        root_uuid=C,
        before=Identity(name="gpu", parent_uuid=A),
        after=Identity(name="gpu-0", parent_uuid=D),
    )
    moved = replace(PROVIDER, name="gpu-0", parent_uuid=D, root_uuid=C)
    assert step.result(PROVIDER) == moved


def test_nothing_is_left_of_a_deleted_provider_or_of_a_change_to_none() -> None:
    step = DeleteProvider(uuid=B, name="gpu", root_uuid=A)
    step.result(PROVIDER)
    assert traits(B, A).result(None) is None
