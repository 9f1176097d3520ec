"""Inventory that moves between the providers of a tree: never offered twice, nor lost."""

import uuid
from collections.abc import Callable

import pytest

from tests.lab import placement as lab
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import DEVICE, flat, moves_vgpus, with_children, with_device
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import InventoryInUse, PlacementUnavailable, ReshapeNeeded
from wharfinger.providers import ProviderTree
from wharfinger.providers.plan import Reshape

#: A microversion that has allocations with generations, and no reshape.
NO_RESHAPE = "1.29"


def use(placement: PlacementFixture, microversion: str = "1.39", **amounts: int) -> str:
    """Have a new consumer use amounts, by class, of the node; returns its uuid."""
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, microversion, cn=amounts)
    return consumer


def figures(placement: PlacementFixture) -> dict[str, dict[str, int]]:
    return {
        name: {kind: total for kind, (total, _reserved) in one["inventories"].items()}
        for name, one in contents(placement).items()
    }


# Inventory that is to move without its allocations.


@pytest.fixture(params=["together", "as admin", "without reshape"])
def way(
    request: pytest.FixtureRequest,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """How inventories go: in one request, or one by one since Placement refuses that one."""
    if request.param == "as admin":
        placement.without_service_role()
    elif request.param == "without reshape":
        lab.lower(monkeypatch, NO_RESHAPE)
    return str(request.param)


ON_THE_NODE = with_children({"VCPU": 8, "VGPU": 4}, {"nic": {"SRIOV_NET_VF": 2}})
ON_A_CHILD = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}, "nic": {"SRIOV_NET_VF": 8}})


def test_a_class_that_a_node_cannot_lose_is_not_offered_by_its_child_too(
    way: str, publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = ON_THE_NODE
    assert not publishing.cycle.sync().problems
    consumer = use(placement, NO_RESHAPE, VGPU=1)
    publishing.driver.nodes["cn"] = ON_A_CHILD
    placement.requests.clear()

    for _ in range(2):
        outcome = publishing.cycle.sync()

        assert [type(one) for one in outcome.problems] == [InventoryInUse]
        assert figures(placement) == {
            "cn": {"VCPU": 8, "VGPU": 4},
            "gpu": {},
            "nic": {"SRIOV_NET_VF": 8},
        }

    assert ("POST /reshaper" in placement.requests.writes) == (way == "together")
    placement.client.delete_allocations(consumer)
    assert not publishing.restarted().sync().problems
    assert figures(placement) == {
        "cn": {"VCPU": 8},
        "gpu": {"VGPU": 4},
        "nic": {"SRIOV_NET_VF": 8},
    }


@pytest.mark.usefixtures("way")
def test_a_class_that_nobody_uses_moves_to_the_child_at_once(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = ON_THE_NODE
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = ON_A_CHILD

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert figures(placement) == {
        "cn": {"VCPU": 8},
        "gpu": {"VGPU": 4},
        "nic": {"SRIOV_NET_VF": 8},
    }


# Inventory that moves with its allocations.


def held_by(placement: PlacementFixture, consumer: str) -> dict[str, dict[str, int]]:
    uuids = {one["uuid"]: name for name, one in contents(placement).items()}
    found = placement.client.get_allocations(consumer)["allocations"]
    return {uuids[provider]: part["resources"] for provider, part in found.items()}


def test_a_reshape_has_the_consumers_whose_allocations_moved_and_no_others(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved, unmoved = use(placement, VCPU=1, VGPU=2), use(placement, VCPU=1)
    before = placement.client.get_allocations(unmoved)
    publishing.driver.nodes["cn"] = moves_vgpus

    (step,) = (one for one in publishing.cycle.plan().steps if isinstance(one, Reshape))
    outcome = publishing.cycle.sync()

    assert set(step.allocations) == {moved}
    assert not outcome.problems
    assert held_by(placement, moved) == {"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}
    after = placement.client.get_allocations(unmoved)
    assert after["consumer_generation"] == before["consumer_generation"]
    assert figures(placement) == {"cn": {"VCPU": 8}, "gpu": {"VGPU": 4}}
    assert not publishing.restarted().sync().steps


def test_a_reshape_in_which_nothing_moves_writes_nothing(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def asks_in_vain(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if allocations is None:
            raise ReshapeNeeded
        seen.append(set(allocations))
        flat(VCPU=8, VGPU=4)(tree, node, allocations)

    seen: list[set[str]] = []
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    consumers = {use(placement, VGPU=1), use(placement, VCPU=1)}
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = asks_in_vain
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert (outcome.steps, outcome.problems) == ((), ())
    assert seen == [consumers]
    assert placement.requests.writes == []


# What others do while the allocations are looked up.


def _once(placement: PlacementFixture, look_up: str, act: Callable[[], object]) -> list[str]:
    """Somebody does something just before the first look-up of that path."""
    return placement.adapter.once_before(lambda *request: request == ("GET", look_up), act)


def test_a_consumer_that_goes_while_it_is_looked_up_is_not_the_drivers_to_move(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved, gone = use(placement, VGPU=2), use(placement, VGPU=1)
    publishing.driver.nodes["cn"] = moves_vgpus
    struck = _once(
        placement, f"/allocations/{gone}", lambda: placement.client.delete_allocations(gone)
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    assert held_by(placement, moved) == {"gpu": {"VGPU": 2}}
    assert figures(placement) == {"cn": {"VCPU": 8}, "gpu": {"VGPU": 4}}


@pytest.mark.usefixtures("no_waiting")
def test_a_tree_of_which_somebody_deletes_a_provider_is_read_again_and_reshaped(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8, "VGPU": 4}, {"nic": {"SRIOV_NET_VF": 2}}
    )
    publishing.cycle.sync()
    moved, nic = use(placement, VGPU=2), contents(placement)["nic"]["uuid"]
    publishing.driver.nodes["cn"] = moves_vgpus
    struck = _once(
        placement,
        f"/resource_providers/{nic}/allocations",
        lambda: placement.client.delete_provider(nic),
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    assert held_by(placement, moved) == {"gpu": {"VGPU": 2}}


def test_a_placement_that_is_away_when_allocations_are_looked_up_ends_the_sync(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def away() -> None:
        raise PlacementUnavailable(request=f"GET {look_up}", status=0, code="", detail="no answer")

    nodes = publishing.driver.nodes
    nodes["cn"], nodes["other"] = flat(VCPU=8, VGPU=4), flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    look_up = f"/resource_providers/{contents(placement)['cn']['uuid']}/allocations"
    nodes["cn"], nodes["other"] = moves_vgpus, flat(CUSTOM_GOLD=2)
    _once(placement, look_up, away)
    placement.requests.clear()

    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()

    assert placement.requests.writes == []


# What moves into a tree that is reshaped.


@pytest.mark.parametrize("listed_first", [True, False])
def test_a_device_that_moves_into_a_tree_that_is_reshaped_arrives_there(
    publishing: Publishing, placement: PlacementFixture, listed_first: bool
) -> None:
    nodes = publishing.driver.nodes
    nodes["a"] = with_device(flat(CUSTOM_GOLD=1))
    nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved = use(placement, VGPU=2)
    nodes.clear()
    without, reshaped = with_children({"CUSTOM_GOLD": 1}, {}), with_device(moves_vgpus)
    nodes.update({"a": without, "cn": reshaped} if listed_first else {"cn": reshaped, "a": without})

    outcome = publishing.cycle.sync()

    assert (outcome.problems, outcome.pending) == ((), ())
    found = contents(placement)
    assert (found["device"]["uuid"], found["device"]["parent"]) == (DEVICE, "cn")
    assert figures(placement) == {
        "a": {"CUSTOM_GOLD": 1},
        "cn": {"VCPU": 8},
        "gpu": {"VGPU": 4},
        "device": {"FPGA": 2},
    }
    assert held_by(placement, moved) == {"gpu": {"VGPU": 2}}
    assert not publishing.restarted().sync().steps
