"""Plans of a cycle: they depend only on the state; each tree is planned or left by a rule."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from types import FunctionType
from typing import Any, Final

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from tests.lab.drivers import ScriptedDriver, also, flat, with_children
from tests.lab.samples import reservation
from tests.unit.reconcile.states import US, child, published, root, state_of
from wharfinger.db.database import Database
from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.exceptions import BackendError, NameTaken
from wharfinger.objects import ComputeNode, Context, Reservation
from wharfinger.objects.base import WharfingerObject
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import DesiredProvider, Inventory, Provider, ProviderTree
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    Plan,
    Reshape,
    SetInventories,
    SetTraits,
    TreePlan,
)
from wharfinger.providers.provider import Absence, Uptime
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.desire import collect_desired
from wharfinger.reconcile.driver_calls import list_nodes
from wharfinger.reconcile.node_list import NodeList
from wharfinger.reconcile.plan import plan_cycle
from wharfinger.tracker.node_rows import Node

#: An absence that is longer than the delay of the policy.
DUE: Final = Absence(900.0, Uptime("boot", 0.0))
NOW: Final = Uptime("boot", 100.0)
#: Fields of the state after a complete listing.
LISTING: Final[dict[str, Any]] = {"is_listing": True, "uptime": NOW}

VGPUS: Final = {"VGPU": Inventory(total=4, reserved=1)}
MORE_VGPUS: Final = {"VGPU": Inventory(total=8)}
RESERVED_VGPUS: Final = {"VGPU": Inventory(total=4, reserved=4)}


def node(name: str, **contents: Any) -> Provider:
    """Return the root of a node that this instance has published."""
    return root(name, **({"inventories": VGPUS, "traits": US.traits} | contents))


def device(name: str, parent: Provider) -> Provider:
    """Return a device that this instance has published."""
    return child(name, parent, inventories=VGPUS, traits=US.traits)


def reported(*providers: Provider, **contents: Any) -> dict[str, DesiredProvider]:
    """Return these providers as the driver reports them, by uuid."""
    return {
        one.uuid: DesiredProvider(
            provider=replace(one, **({"generation": None, "traits": frozenset()} | contents)),
            reported=True,
        )
        for one in providers
    }


def plan_of(state: CycleState) -> Plan:
    return plan_cycle(state)


def roots(plan: Plan) -> set[str]:
    return {tree.root_uuid for tree in plan.trees}


# A state with everything that a plan can depend on.

CHANGED, SAME, GONE, BLOCKED = node("changed"), node("same"), node("gone"), node("blocked")
BLOCKED_GPU: Final = device("blocked-gpu", BLOCKED)
RELEASED: Final = node("released")
RELEASED_GPU: Final = device("released-gpu", RELEASED)
NEW: Final = root("new")
STRAY: Final = ProviderSummary(root("stray").uuid, "stray", 1, root("stray").uuid, None)


def fails(_tree: ProviderTree, _node: str, _allocations: Allocations | None) -> None:
    raise ConnectionError("the node does not answer")


class Driver(ScriptedDriver):
    """A driver that lists four nodes; the node "blocked" fails."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = {
            "changed": also(lambda tree: tree.reserve("changed", "cleaning"))(flat(VGPU=8)),
            "same": lambda _tree, _node, _allocations: None,
            "new": with_children({"VCPU": 2}, {"new-gpu": {"VGPU": 4}}),
            "blocked": fails,
        }


def observed_state(driver: Driver) -> CycleState:
    """Return a state with new, changed, unchanged, absent, blocked and released trees."""
    live = (CHANGED, SAME, GONE, BLOCKED, BLOCKED_GPU, RELEASED, RELEASED_GPU)
    state = state_of(
        *live,
        nodes=list_nodes(driver),
        records=published(*live) | published(GONE, absence=DUE),
        reservations=[reservation(Context(), provider_uuid=BLOCKED_GPU.uuid, revision=1)],
        strays=(STRAY,),
        **LISTING,
    )
    state = collect_desired(state, driver, lambda _uuids: {})
    return replace(
        state,
        held=frozenset(state.reservations),
        blocked=state.blocked | {RELEASED.uuid},
        released_roots=frozenset([RELEASED.uuid]),
    )


def forbid_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call of a driver, of a Placement client and of a database raise AssertionError."""

    def refuse(*_args: object, **_kwargs: object) -> Any:
        raise AssertionError("a plan must not depend on this call")

    for kind in (ComputeDriver, ScriptedDriver, Driver, PlacementClient, Database):
        for name, member in list(vars(kind).items()):
            if name.startswith("__"):
                continue
            if isinstance(member, property):
                monkeypatch.setattr(kind, name, property(refuse))
            elif isinstance(member, FunctionType | classmethod):
                monkeypatch.setattr(kind, name, refuse)
    monkeypatch.setattr(Context, "db", property(refuse))


def contents(value: Any) -> Any:
    """Return the value in a form that can be compared; objects and errors have no equality."""
    if isinstance(value, WharfingerObject):
        return value.obj_to_primitive()
    if isinstance(value, Mapping):
        return {key: contents(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [contents(one) for one in value]
    if isinstance(value, BaseException):
        return type(value), str(value)
    if is_dataclass(value):
        return {one.name: contents(getattr(value, one.name)) for one in fields(value)}
    return value


def test_plan_cycle_twice_returns_equal_plans_calls_no_service_and_changes_no_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    state = observed_state(driver)
    before = contents(deepcopy(state))
    forbid_calls(monkeypatch)

    first, second = plan_of(state), plan_of(state)

    assert first == second
    assert contents(state) == before
    assert roots(first) == {one.uuid for one in (NEW, CHANGED, GONE, BLOCKED, RELEASED)}
    assert {type(step) for step in first.steps} == {
        CreateProvider,
        SetTraits,
        SetInventories,
        DeleteProvider,
    }


def test_forbid_calls_refuses_the_driver_placement_and_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, client = Driver(), PlacementClient(Adapter(Session()))
    row = Reservation(Context(), uuid=GONE.uuid)
    forbid_calls(monkeypatch)
    for call in (
        driver.get_available_nodes,
        lambda: driver.node_is_available("gone"),
        lambda: client.get_traits(GONE.uuid),
        lambda: client.command("DELETE", "/"),
        lambda: client.microversion,
        row.save,
    ):
        with pytest.raises(AssertionError, match="a plan must not depend"):
            call()


def test_plan_cycle_has_each_step_in_the_plan_of_its_tree() -> None:
    plan = plan_of(observed_state(Driver()))

    providers = [uuid for tree in plan.trees for uuid in _touched(tree)]
    assert len(plan.trees) == len(roots(plan)) == 5
    assert len(providers) == len(set(providers)) == 5
    for tree in plan.trees:
        assert {step.root_uuid for step in tree.steps} <= {tree.root_uuid}
        assert {one.root_uuid for one in tree.live.values()} <= {tree.root_uuid}
        assert _touched(tree) <= tree.records.keys()


def _touched(tree: TreePlan) -> set[str]:
    return {uuid for step in tree.steps for uuid in step.touched}


# Blocked trees.


def blocked_state(**facts: Any) -> CycleState:
    """Return a state with a blocked tree, whose device the driver no longer reports."""
    live = (BLOCKED, BLOCKED_GPU)
    chosen: dict[str, Any] = {"records": published(BLOCKED) | published(BLOCKED_GPU, absence=DUE)}
    return state_of(*live, **(LISTING | chosen | {"blocked": frozenset([BLOCKED.uuid])} | facts))


def test_plan_cycle_of_a_blocked_tree_has_no_step() -> None:
    state = blocked_state(desired=reported(BLOCKED, inventories=MORE_VGPUS))
    assert plan_of(state) == Plan()
    # If the tree is not blocked, the root changes and the device is deleted.
    free = plan_of(replace(state, blocked=frozenset()))
    assert {type(step) for step in free.steps} == {SetInventories, DeleteProvider}


def test_plan_cycle_of_a_blocked_tree_writes_only_stored_reservations() -> None:
    state = blocked_state(
        records=published(BLOCKED, BLOCKED_GPU), held=frozenset([BLOCKED_GPU.uuid])
    )

    (tree,) = plan_of(state).trees

    assert tree.root_uuid == BLOCKED.uuid
    (step,) = tree.steps
    assert isinstance(step, SetInventories)
    assert (step.uuid, step.before, step.after) == (BLOCKED_GPU.uuid, VGPUS, RESERVED_VGPUS)
    assert tree.records.keys() == {BLOCKED_GPU.uuid}
    record = tree.records[BLOCKED_GPU.uuid]
    assert record is not None
    assert record.own_reserved == {"VGPU": 1}
    assert record.live == replace(BLOCKED_GPU, inventories=RESERVED_VGPUS)


@pytest.mark.parametrize("record", [{"absence": DUE}, {"applied": None}], ids=["absent", "other's"])
def test_plan_cycle_of_a_blocked_tree_does_not_reserve_a_provider_that_is_not_ours(
    record: dict[str, Any],
) -> None:
    records = published(BLOCKED) | published(BLOCKED_GPU, **record)
    assert plan_of(blocked_state(records=records, held=frozenset([BLOCKED_GPU.uuid]))) == Plan()


@pytest.mark.parametrize(("disabled", "steps"), [(True, 1), (False, 0), (None, 0)])
def test_plan_cycle_of_a_blocked_tree_marks_its_root_as_disabled_with_the_service(
    disabled: bool | None, steps: int
) -> None:
    plan = plan_of(blocked_state(service_disabled=disabled))

    assert len(plan.steps) == steps
    for step in plan.steps:
        assert isinstance(step, SetTraits)
        assert step.uuid == BLOCKED.uuid
        assert step.after == US.traits | {"COMPUTE_STATUS_DISABLED"}


def test_plan_cycle_of_a_blocked_node_that_is_listed_again_ends_its_absence() -> None:
    records = published(BLOCKED, absence=DUE)
    nodes = NodeList(nodes=(Node("blocked", BLOCKED.uuid),))
    (tree,) = plan_of(blocked_state(records=records, nodes=nodes)).trees
    assert tree.steps == ()
    assert tree.records == published(BLOCKED)


# Nodes that another host has taken over.


def test_plan_cycle_of_a_released_root_deletes_its_records() -> None:
    live = (RELEASED, RELEASED_GPU, SAME)
    state = state_of(
        *live,
        records=published(*live),
        desired=reported(SAME),
        blocked=frozenset([RELEASED.uuid]),
        held=frozenset([RELEASED_GPU.uuid]),
        released_roots=frozenset([RELEASED.uuid]),
        **LISTING,
    )
    records = dict.fromkeys((RELEASED.uuid, RELEASED_GPU.uuid))
    assert plan_of(state).trees == (TreePlan(root_uuid=RELEASED.uuid, records=records),)


def test_plan_cycle_of_a_node_to_be_taken_over_has_no_step_before_the_takeover() -> None:
    row = ComputeNode(uuid=BLOCKED.uuid)
    facts: dict[str, Any] = {"records": published(BLOCKED), "service_disabled": True}
    assert len(plan_of(blocked_state(**facts)).steps) == 1
    assert plan_of(blocked_state(**facts, takeovers={row.uuid: row})) == Plan()


# Trees that are planned, and trees that are not.


def test_plan_cycle_of_a_stored_reservation_reserves_the_provider_without_a_drivers_reason() -> (
    None
):
    state = state_of(SAME, records=published(SAME), desired=reported(SAME), **LISTING)
    assert plan_of(state).steps == ()
    (step,) = plan_of(replace(state, held=frozenset([SAME.uuid]))).steps
    assert isinstance(step, SetInventories)
    assert step.after == RESERVED_VGPUS


def test_plan_cycle_with_the_name_of_another_provider_reports_it() -> None:
    state = state_of(desired=reported(NEW), name_owners={"new": root("new", STRAY.uuid)})
    plan = plan_of(state)
    assert plan.steps == ()
    assert [type(problem) for problem in plan.problems] == [NameTaken]


def test_plan_cycle_with_edited_allocations_reshapes_the_tree() -> None:
    gpu = device("gpu", SAME)
    before = {"consumer": {"allocations": {SAME.uuid: {"resources": {"VGPU": 1}}}}}
    after = {"consumer": {"allocations": {gpu.uuid: {"resources": {"VGPU": 1}}}}}
    state = state_of(
        SAME,
        records=published(SAME),
        desired=reported(SAME, inventories={}) | reported(gpu),
        reshapes={SAME.uuid: (before, after)},
        **LISTING,
    )
    [reshape] = [step for step in plan_of(state).steps if isinstance(step, Reshape)]
    assert reshape.allocations == after
    assert set(reshape.touched) == {SAME.uuid, gpu.uuid}


@pytest.mark.parametrize(
    ("facts", "planned"),
    [
        ({}, {CHANGED.uuid, SAME.uuid}),
        ({"scope": frozenset([SAME.uuid])}, {SAME.uuid}),
        ({"scope": frozenset()}, set()),
        ({"unchanged": frozenset([CHANGED.uuid])}, {SAME.uuid}),
        ({"scope": frozenset([SAME.uuid]), "unchanged": frozenset([SAME.uuid])}, set()),
        ({"blocked": frozenset([SAME.uuid])}, {CHANGED.uuid}),
    ],
    ids=["all", "in scope", "empty scope", "unchanged", "unchanged in scope", "blocked"],
)
def test_plan_cycle_plans_trees_in_scope_that_may_have_changed(
    facts: dict[str, Any], planned: set[str]
) -> None:
    live = (CHANGED, SAME)
    desired = reported(*live, inventories=MORE_VGPUS)
    plan = plan_of(state_of(*live, records=published(*live), desired=desired, **LISTING, **facts))
    assert roots(plan) == planned
    assert {step.uuid for step in plan.steps} == planned


@pytest.mark.parametrize("is_read", [True, False])
def test_plan_cycle_outside_the_scope_reports_reservations_of_other_programs(is_read: bool) -> None:
    theirs = replace(CHANGED, inventories=RESERVED_VGPUS)
    state = state_of(
        theirs,
        records=published(CHANGED),
        scope=frozenset([SAME.uuid]),
        is_read=is_read,
    )
    plan = plan_of(state)
    assert plan.steps == ()
    assert [one.uuid for one in plan.foreign] == ([CHANGED.uuid] if is_read else [])


@pytest.mark.parametrize(
    ("traits", "facts"),
    [
        (CHANGED.traits, {}),
        (CHANGED.traits, {"blocked": frozenset([CHANGED.uuid])}),
        (frozenset(["OWNER_CYBORG"]), {"desired": reported(CHANGED)}),
    ],
    ids=["absent", "blocked", "another owner's"],
)
def test_plan_cycle_with_a_listing_reports_only_foreign_reservations_of_reported_providers_of_ours(
    traits: frozenset[str], facts: dict[str, Any]
) -> None:
    full = replace(CHANGED, traits=traits, inventories=RESERVED_VGPUS, generation=2)
    assert plan_of(state_of(full, records=published(CHANGED), **LISTING, **facts)).foreign == ()


def test_plan_cycle_of_a_blocked_tree_outside_the_scope_keeps_its_steps() -> None:
    """The tree's device that another program has reserved gets no step."""
    theirs = replace(device("theirs", BLOCKED), inventories=RESERVED_VGPUS)
    live = (BLOCKED, BLOCKED_GPU, theirs)
    state = state_of(
        *live,
        records=published(BLOCKED, BLOCKED_GPU) | published(device("theirs", BLOCKED)),
        blocked=frozenset([BLOCKED.uuid]),
        held=frozenset([BLOCKED_GPU.uuid]),
        scope=frozenset(),
    )
    (step,) = plan_of(state).steps
    assert step.uuid == BLOCKED_GPU.uuid


# Removals.


@pytest.mark.parametrize(
    "facts",
    [
        {"is_listing": False},
        {"uptime": None},
        {"withheld": True},
        {"kept": {BLOCKED_GPU.uuid: "kept: the driver still has it"}},
        {"allocated": frozenset([BLOCKED_GPU.uuid])},
        {"parents": frozenset([BLOCKED_GPU.uuid])},
        {"problems": (BackendError(driver="gpus", operation="read", reason="timeout"),)},
        {"is_partial": True},
    ],
    ids=lambda facts: next(iter(facts)),
)
def test_plan_cycle_with_a_reason_to_keep_an_absent_device_does_not_delete_it(
    facts: dict[str, Any],
) -> None:
    state = blocked_state(blocked=frozenset(), desired=reported(BLOCKED))
    (step,) = plan_of(state).steps
    assert isinstance(step, DeleteProvider)
    assert step.uuid == BLOCKED_GPU.uuid

    plan = plan_of(replace(state, **facts))

    assert not [step for step in plan.steps if isinstance(step, DeleteProvider)]
    assert plan.errors == state.problems + facts.get("problems", ())


def test_plan_cycle_with_an_unknown_node_does_not_delete_an_absent_root() -> None:
    error = BackendError(driver="gpus", operation="get_available_resource", reason="timeout")
    state = state_of(GONE, records=published(GONE, absence=DUE), **LISTING)
    (step,) = plan_of(state).steps
    assert isinstance(step, DeleteProvider)

    unknown = NodeList(failed=(Node("unknown", NEW.uuid),), problems=(error,))
    plan = plan_of(replace(state, every_node=unknown))

    assert plan.steps == ()
    assert [one.uuid for one in plan.pending] == [GONE.uuid]


def test_plan_cycle_has_the_errors_of_the_state() -> None:
    errors = tuple(BackendError(driver="gpus", operation="read", reason=one) for one in "ab")
    assert plan_of(state_of(problems=errors[:1], other_problems=errors[1:])).errors == errors


def test_plan_cycle_reports_strays_as_orphans() -> None:
    plan = plan_of(state_of(strays=(STRAY,)))
    assert [(one.uuid, one.name) for one in plan.orphans] == [(STRAY.uuid, "stray")]
    assert plan.trees == ()
