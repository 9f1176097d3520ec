"""Reshapes: their contents, the steps after them, and reshapes refused before they are sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.providers.world import planned_records
from wharfinger.providers import Inventory, Provider, ProviderTree, PublishingMode, names
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import Allocations, Plan, Reshape, SetInventories
from wharfinger.providers.plan_draft import PlanFacts, own_view
from wharfinger.providers.provider import Record
from wharfinger.providers.reshape import admitting
from wharfinger.providers.tree_planner import plan_trees

US: Final = Publisher("gpus", "OWNER_NOVA")
NOW: Final = PlanFacts(publisher=US, now=1, is_listing=True, removal_delay=60)
HOST: Final = names.root_uuid("host")
GPU: Final = names.child_uuid(HOST, "gpu")
CARD: Final = names.child_uuid(HOST, "card")
NAMES: Final = {HOST: "host", GPU: "gpu", CARD: "card"}

Held = Mapping[str, Mapping[str, int]]


def some(total: int, **figures: float) -> Inventory:
    return Inventory(total=total, **figures)  # type: ignore[arg-type]


def ours(uuid: str, **inventories: Inventory) -> Provider:
    return Provider(
        uuid=uuid,
        name=NAMES[uuid],
        root_uuid=HOST,
        parent_uuid=None if uuid == HOST else HOST,
        generation=3,
        traits=US.traits,
        inventories=inventories,
    )


def holding(**consumers: Held) -> Allocations:
    return {
        consumer: {"allocations": {uuid: {"resources": dict(its)} for uuid, its in held.items()}}
        for consumer, held in consumers.items()
    }


class Tree:
    """A host in Placement; without ``is_known``, its providers have no records."""

    def __init__(self, *live: Provider, is_known: bool = True, **record: Any) -> None:
        self.live = {one.uuid: one for one in live}
        self.records = {
            one.uuid: Record(applied=one, live=one, **record) for one in live if is_known
        }
        seen = [own_view(one, self.records.get(one.uuid, Record())) for one in live]
        self.tree = ProviderTree.from_providers(seen)

    def has(self, uuid: str, **inventories: Inventory) -> None:
        """Let the driver report these inventories of a provider."""
        if not self.tree.exists(uuid):
            self.tree.new_child(NAMES[uuid], HOST, uuid)
        self.tree.update_inventory(uuid, inventories)

    def plan(self, before: Allocations, after: Allocations) -> Plan:
        trees = plan_trees(
            replace(NOW, reshapes={HOST: (before, after)}),
            self.tree.desired(),
            self.live,
            self.records,
        )
        return Plan(trees=trees)


def reshape_of(plan: Plan) -> Reshape:
    assert not plan.problems
    (found,) = (step for step in plan.steps if isinstance(step, Reshape))
    return found


def sent(plan: Plan) -> dict[str, dict[str, Inventory]]:
    """Return the inventories in the reshape, by provider name."""
    return {change.name: dict(change.after) for change in reshape_of(plan).inventories}


def following(plan: Plan) -> dict[str, dict[str, Inventory]]:
    """Return the inventories that steps after the reshape set, by provider name."""
    steps = plan.steps[plan.steps.index(reshape_of(plan)) + 1 :]
    return {step.name: dict(step.after) for step in steps if isinstance(step, SetInventories)}


# Reserved amounts that leave room for a used amount.


@pytest.mark.parametrize(
    ("inventory", "used", "reserved"),
    [
        (some(4, reserved=4), 1, 3),
        (some(4, reserved=4), 4, 0),
        (some(4, reserved=4), 0, 4),
        (some(4, reserved=3), 1, 3),
        (some(4, reserved=3), 2, 2),
        (some(4, reserved=1), 2, 1),
        (some(4, reserved=4), 5, 0),
        (some(4, reserved=4, allocation_ratio=16.0), 1, 3),
        (some(4, reserved=4, allocation_ratio=16.0), 17, 2),
        (some(4, reserved=4, allocation_ratio=0.5), 1, 2),
        (some(4, reserved=4, allocation_ratio=0.0), 1, 0),
        (some(40, reserved=40, allocation_ratio=0.3), 3, 30),
        (some(100, reserved=100, allocation_ratio=1.1), 77, 30),
        (some(40, reserved=40, allocation_ratio=0.7), 21, 10),
    ],
)
def test_admitting_reserves_all_but_the_used_amount(
    inventory: Inventory, used: int, reserved: int
) -> None:
    assert admitting(inventory, used) == replace(inventory, reserved=reserved)


@given(st.integers(1, 10**6), st.integers(0, 2 * 10**6), st.floats(1e-3, 1e3), st.floats(0, 1))
@example(total=49, used=7, ratio=1 / 7, part=1.0)
def test_admitting_has_the_largest_reserved_amount_with_room(
    total: int, used: int, ratio: float, part: float
) -> None:
    full = some(total, reserved=int(total * part), allocation_ratio=ratio)
    figure = admitting(full, used)
    assert figure.reserved <= full.reserved
    assert figure.capacity >= used or figure.reserved == 0
    if figure != full:
        less = replace(figure, reserved=figure.reserved + 1)
        assert less.reserved > total or less.capacity < used


@given(st.integers(1, 10**6), st.integers(1, 2 * 10**6), st.floats(1e-3, 1e3))
def test_admitting_exactly_lowers_the_ratio_so_that_nothing_is_free(
    total: int, used: int, ratio: float
) -> None:
    full = some(total, reserved=total, allocation_ratio=ratio)
    exact, figure = admitting(full, used, exactly=True), admitting(full, used)
    assert exact.reserved == figure.reserved
    assert exact.allocation_ratio <= ratio
    assert exact.capacity < used + 1
    assert (exact.capacity >= used) == (figure.capacity >= used)


# A reserved provider to which allocations move.


def moving(*reasons: str) -> tuple[Tree, Plan]:
    """Return the plan for VGPUs that move from a host to a reserved child; VCPUs stay."""
    tree = Tree(ours(HOST, VCPU=some(8), VGPU=some(4)))
    tree.has(HOST, VCPU=some(8))
    tree.has(GPU, VGPU=some(4))
    for reason in reasons:
        tree.tree.reserve(GPU, reason)
    plan = tree.plan(
        holding(one={HOST: {"VCPU": 1, "VGPU": 2}}, two={HOST: {"VGPU": 1}}),
        holding(one={HOST: {"VCPU": 1}, GPU: {"VGPU": 2}}, two={GPU: {"VGPU": 1}}),
    )
    return tree, plan


def test_reshape_to_a_reserved_provider_leaves_room_for_the_used_amount() -> None:
    _tree, plan = moving("maintenance")
    assert sent(plan) == {"host": {"VCPU": some(8)}, "gpu": {"VGPU": some(4, reserved=1)}}
    assert following(plan) == {"gpu": {"VGPU": some(4, reserved=4)}}
    remembered = planned_records(plan)[GPU]
    assert remembered is not None
    assert remembered.own_reserved == {"VGPU": 0}


def test_reshape_to_an_unreserved_provider_has_no_following_steps() -> None:
    _tree, plan = moving()
    assert sent(plan) == {"host": {"VCPU": some(8)}, "gpu": {"VGPU": some(4)}}
    assert following(plan) == {}


def test_reshape_to_a_figure_that_the_driver_reserves_leaves_room() -> None:
    tree = Tree(ours(HOST, VGPU=some(4)))
    tree.has(HOST)
    tree.has(GPU, VGPU=some(4, reserved=3))
    plan = tree.plan(holding(one={HOST: {"VGPU": 2}}), holding(one={GPU: {"VGPU": 2}}))
    assert sent(plan)["gpu"] == {"VGPU": some(4, reserved=2)}
    assert following(plan) == {"gpu": {"VGPU": some(4, reserved=3)}}


def test_reshape_and_the_following_steps_belong_to_one_tree_in_order() -> None:
    _tree, plan = moving("maintenance")
    (tree,) = plan.trees
    assert [step.verb for step in tree.steps[-2:]] == ["reshape", "set inventories"]
    assert {HOST, GPU} <= tree.records.keys()


# Allocations of a changed consumer that do not move.


def staying(mode: PublishingMode) -> Plan:
    """Return the plan for a VGPU that moves between children; the VCPUs stay on a reserved host."""
    vcpus = some(8, reserved=8, allocation_ratio=4.0)
    tree = Tree(
        ours(HOST, VCPU=vcpus, MEMORY_MB=some(64, reserved=64)),
        ours(GPU, VGPU=some(4)),
        own_reserved={"VCPU": 2, "MEMORY_MB": 0},
        mode=mode,
    )
    tree.records[GPU] = replace(tree.records[GPU], mode=PublishingMode.OWN)
    tree.tree.set_publishing_mode(HOST, mode)
    tree.tree.reserve(HOST, "maintenance")
    if mode is PublishingMode.OWN:
        tree.has(HOST, VCPU=replace(vcpus, reserved=2), MEMORY_MB=some(64))
    tree.has(GPU, VGPU=some(2))
    tree.has(CARD, VGPU=some(2))
    return tree.plan(
        holding(one={HOST: {"VCPU": 6}, GPU: {"VGPU": 1}}, two={HOST: {"VCPU": 1}}),
        holding(one={HOST: {"VCPU": 6}, CARD: {"VGPU": 1}}, two={HOST: {"VCPU": 1}}),
    )


def test_reshape_includes_a_reserved_overlaid_provider_of_the_consumer() -> None:
    plan = staying(PublishingMode.OVERLAY)
    vcpus = some(8, reserved=6, allocation_ratio=4.0)
    assert sent(plan)["host"] == {"VCPU": vcpus, "MEMORY_MB": some(64, reserved=64)}
    assert following(plan)["host"]["VCPU"] == replace(vcpus, reserved=8)


def test_reshape_of_a_provider_that_the_driver_states_lowers_its_ratio() -> None:
    plan = staying(PublishingMode.OWN)
    interim = sent(plan)["host"]["VCPU"]
    assert (interim.reserved, interim.capacity) == (6, 7.5)
    assert following(plan)["host"]["VCPU"] == some(8, reserved=8, allocation_ratio=4.0)


def test_reshape_keeps_a_foreign_reservation() -> None:
    host = ours(HOST, CUSTOM_THEIRS=some(4, reserved=4))
    tree = Tree(host, ours(GPU, VGPU=some(4)))
    tree.records[HOST] = Record(applied=replace(host, inventories={}), live=host)
    tree.has(GPU)
    tree.has(CARD, VGPU=some(4))
    plan = tree.plan(
        holding(one={HOST: {"CUSTOM_THEIRS": 1}, GPU: {"VGPU": 1}}),
        holding(one={HOST: {"CUSTOM_THEIRS": 1}, CARD: {"VGPU": 1}}),
    )
    assert sent(plan)["host"] == {"CUSTOM_THEIRS": some(4, reserved=4)}
    assert following(plan) == {}


def test_reshape_excludes_a_provider_of_another_owner() -> None:
    theirs = replace(
        ours(CARD, FPGA=some(1, reserved=1)), traits=frozenset(["OWNER_CYBORG", "CUSTOM_A"])
    )
    tree = Tree(ours(HOST, VGPU=some(4)))
    tree.live[CARD] = theirs
    tree.tree = ProviderTree.from_providers(tree.live.values())
    tree.has(HOST)
    tree.has(GPU, VGPU=some(4))
    plan = tree.plan(
        holding(one={HOST: {"VGPU": 1}, CARD: {"FPGA": 1}}),
        holding(one={GPU: {"VGPU": 1}, CARD: {"FPGA": 1}}),
    )
    assert sent(plan).keys() == {"host", "gpu"}


def test_reshape_of_allocations_only_includes_their_unchanged_inventories() -> None:
    """POST /reshaper refuses a request without inventories."""
    tree = Tree(ours(HOST, VGPU=some(4)), ours(GPU, VGPU=some(4)))
    plan = tree.plan(holding(one={HOST: {"VGPU": 1}}), holding(one={GPU: {"VGPU": 1}}))
    assert sent(plan) == {"gpu": {"VGPU": some(4)}}
    assert [step.verb for step in plan.steps] == ["reshape"]


def test_reshape_excludes_consumers_that_the_driver_did_not_change() -> None:
    tree = Tree(ours(HOST, VCPU=some(8), VGPU=some(4)))
    tree.has(HOST, VCPU=some(8))
    tree.has(GPU, VGPU=some(4))
    kept = holding(two={HOST: {"VCPU": 1}})
    plan = tree.plan(
        {**holding(one={HOST: {"VGPU": 1}}), **kept}, {**holding(one={GPU: {"VGPU": 1}}), **kept}
    )
    assert reshape_of(plan).allocations.keys() == {"one"}


# A class that has moved away.


def unknown(**inventories: Inventory) -> Tree:
    """Return a host with classes that another program or an older release has published."""
    tree = Tree(ours(HOST, **inventories), is_known=False)
    tree.records[HOST] = Record(
        applied=replace(tree.live[HOST], inventories={}), live=tree.live[HOST]
    )
    return tree


@pytest.mark.parametrize("used", [0, 2])
def test_reshape_removes_a_class_that_moved_away_whatever_program_added_it(used: int) -> None:
    tree = unknown(VCPU=some(8), VGPU=some(4), CUSTOM_THEIRS=some(1))
    tree.has(HOST, VCPU=some(8))
    tree.has(GPU, VGPU=some(4))
    held = {"VGPU": used} if used else {"VCPU": 1}
    goes = {GPU: held} if used else {HOST: held}
    plan = tree.plan(holding(one={HOST: held}), holding(one=goes))
    assert sent(plan)["host"] == {"VCPU": some(8), "CUSTOM_THEIRS": some(1)}


def to_a_card_that_has_some(*, left: int) -> Plan:
    """Return the plan for VGPUs that move from ``unknown`` to a child which already has VGPUs."""
    tree = unknown(VCPU=some(8), VGPU=some(4))
    card = ours(GPU, VGPU=some(4))
    tree.live[GPU], tree.records[GPU] = card, Record(applied=card, live=card)
    tree.tree = ProviderTree.from_providers(tree.live.values())
    tree.has(HOST, VCPU=some(8))
    goes = {GPU: {"VGPU": 2 - left}, **({HOST: {"VGPU": left}} if left else {})}
    return tree.plan(holding(one={HOST: {"VGPU": 2}}), holding(one=goes))


def test_reshape_removes_a_class_that_moved_to_a_child_that_had_it() -> None:
    assert sent(to_a_card_that_has_some(left=0))["host"] == {"VCPU": some(8)}


def test_reshape_of_only_a_part_of_a_class_is_refused() -> None:
    told = refusal(to_a_card_that_has_some(left=1))
    assert (
        "consumers would use VGPU (1 by consumer one), but the provider will have no VGPU" in told
    )


def test_reshape_keeps_classes_of_others_without_moved_allocations() -> None:
    tree = unknown(VCPU=some(8), CUSTOM_THEIRS=some(4))
    tree.has(HOST)
    tree.has(GPU, VCPU=some(8), CUSTOM_THEIRS=some(4))
    both = {"VCPU": 1, "CUSTOM_THEIRS": 1}
    plan = tree.plan(
        holding(one={HOST: both}), holding(one={HOST: {"CUSTOM_THEIRS": 1}, GPU: {"VCPU": 1}})
    )
    assert sent(plan)["host"] == {"CUSTOM_THEIRS": some(4)}


@pytest.mark.parametrize("mode", PublishingMode)
def test_reshape_keeps_inventories_of_a_provider_without_a_report(
    mode: PublishingMode,
) -> None:
    tree = unknown(VGPU=some(4))
    tree.tree.set_publishing_mode(HOST, mode)
    tree.has(GPU, VGPU=some(4))
    plan = tree.plan(holding(one={HOST: {"VGPU": 2}}), holding(one={GPU: {"VGPU": 2}}))
    assert sent(plan) == {"gpu": {"VGPU": some(4)}}


# Reshapes that Placement would refuse.


def refusal(plan: Plan) -> str:
    (problem,) = plan.problems
    assert (plan.steps, planned_records(plan)) == ((), {})
    return str(problem)


def test_reshape_that_leaves_a_consumer_without_inventory_names_it() -> None:
    tree = Tree(ours(HOST, VCPU=some(8), VGPU=some(4)))
    tree.has(HOST, VCPU=some(8))
    tree.has(GPU, VGPU=some(4))
    told = refusal(
        tree.plan(
            holding(one={HOST: {"VGPU": 1}}, two={HOST: {"VGPU": 2}}),
            holding(one={GPU: {"VGPU": 1}}, two={HOST: {"VGPU": 2}}),
        )
    )
    assert "provider host" in told
    assert (
        "consumers would use VGPU (2 by consumer two), but the provider will have no VGPU" in told
    )


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({"max_unit": 2}, "(3 by consumer one), but amounts have to be from 1 to 2"),
        ({"min_unit": 4}, "(3 by consumer one), but amounts have to be from 4 to "),
        ({"step_size": 2}, "(3 by consumer one), but amounts have to be from 1 to "),
        ({"total": 2}, "(3 by consumer one), but the capacity is 2"),
        ({"allocation_ratio": 0.5}, "(3 by consumer one), but the capacity is 2"),
    ],
)
def test_reshape_whose_consumer_does_not_fit_names_it(figures: dict[str, Any], told: str) -> None:
    tree = Tree(ours(HOST, VGPU=some(4)))
    tree.has(HOST)
    tree.has(GPU, VGPU=replace(some(4), **figures))
    plan = tree.plan(holding(one={HOST: {"VGPU": 3}}), holding(one={GPU: {"VGPU": 3}}))
    assert told in refusal(plan)
    assert "provider gpu" in refusal(plan)


def test_reshape_to_a_foreign_reservation_is_refused() -> None:
    card = ours(CARD, VGPU=some(4, reserved=4))
    tree = Tree(ours(GPU, VGPU=some(4)), ours(HOST), card)
    tree.records[CARD] = Record(applied=replace(card, inventories={}), live=card)
    tree.has(GPU)
    plan = tree.plan(holding(one={GPU: {"VGPU": 1}}), holding(one={CARD: {"VGPU": 1}}))
    assert "provider card" in refusal(plan)
    assert "the capacity is 0" in refusal(plan)


def test_reshape_with_an_earlier_excess_is_accepted_if_it_does_not_grow() -> None:
    tree = Tree(ours(HOST, VCPU=some(2), VGPU=some(4)))
    tree.has(HOST, VCPU=some(2))
    tree.has(GPU, VGPU=some(4))
    plan = tree.plan(
        holding(one={HOST: {"VCPU": 2, "VGPU": 1}}, two={HOST: {"VCPU": 2}}),
        holding(one={HOST: {"VCPU": 2}, GPU: {"VGPU": 1}}, two={HOST: {"VCPU": 2}}),
    )
    assert sent(plan)["host"] == {"VCPU": some(2)}
