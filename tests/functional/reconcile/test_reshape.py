"""Reshapes move inventories and allocations completely or not at all, also if reserved."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.functional.reconcile.places import ANYWHERE
from tests.lab import placement as lab
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drawing import Draw
from tests.lab.drivers import DEVICE, Edit, also, flat, moves_vgpus, with_children, with_device
from tests.lab.placement import PlacementFixture
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    InvalidTree,
    InventoryInUse,
    PlacementError,
    PlacementUnavailable,
    ReshapeNeeded,
)
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, names
from wharfinger.providers.plan import Reshape

#: Total and reserved amounts, by provider name and class.
Figures = dict[str, dict[str, tuple[int, int]]]

#: A microversion with consumer generations and without reshape.
NO_RESHAPE: Final = "1.29"
VERSIONS: Final = [f"1.{minor}" for minor in range(30, 40)]


def reserves(*providers: str) -> Callable[[Edit], Edit]:
    """Return a wrapper of edits that also reserves these providers for maintenance."""

    def reserve(tree: ProviderTree) -> None:
        for name in providers:
            tree.reserve(name, "maintenance")

    return also(reserve)


def use(
    placement: PlacementFixture, microversion: str = "1.39", /, **amounts: dict[str, int]
) -> str:
    """Allocate amounts of named providers, by class, for a new consumer; return its uuid."""
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, microversion, **amounts)
    return consumer


def figures(placement: PlacementFixture) -> Figures:
    """Return the figures that Placement must show after the reshape."""
    return {name: one["inventories"] for name, one in contents(placement).items()}


def totals(placement: PlacementFixture) -> dict[str, dict[str, int]]:
    return {
        name: {kind: total for kind, (total, _reserved) in classes.items()}
        for name, classes in figures(placement).items()
    }


def held(placement: PlacementFixture, *consumers: str) -> list[dict[str, dict[str, int]]]:
    """Return the allocations of consumers, by provider name and class."""
    uuids = {one["uuid"]: name for name, one in contents(placement).items()}
    return [
        {
            uuids[provider]: part["resources"]
            for provider, part in placement.client.get_allocations(one)["allocations"].items()
        }
        for one in consumers
    ]


def consumers_of(placement: PlacementFixture) -> dict[str, Any]:
    """Return all facts in Placement about every consumer, with generations."""
    client = placement.client
    found = {
        consumer
        for one in client.list_providers()
        for consumer in client.get_provider_allocations(one.uuid)
    }
    return {consumer: _whole(placement, consumer) for consumer in found}


def _whole(placement: PlacementFixture, consumer: str) -> dict[str, Any]:
    answer = placement.adapter.request(f"/allocations/{consumer}", "GET", microversion="1.39")
    whole: dict[str, Any] = answer.json()
    for part in whole["allocations"].values():
        del part["generation"]
    return whole


def offered(client: WritingClient, **amounts: int) -> int:
    """Return the number of candidates for these amounts."""
    wanted = ",".join(f"{name}:{amount}" for name, amount in amounts.items())
    return len(client.get_allocation_candidates([("resources", wanted)]).allocation_requests)


def writes(placement: PlacementFixture) -> list[str]:
    """Return the last part of each write's path, except writes of traits."""
    return [
        request.split("/")[-1] for request in placement.requests.writes if "traits" not in request
    ]


# A reserved provider.


@pytest.fixture
def server(publishing: Publishing, placement: PlacementFixture) -> str:
    """A consumer with VGPUs of the node cn; a test moves these VGPUs to a child."""
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    assert not publishing.cycle.sync().problems
    server = use(placement, cn={"VCPU": 1, "VGPU": 2})
    placement.requests.clear()
    return server


def test_reshape_moves_allocations_onto_a_reserved_child_in_one_request(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    """The cycle knows the generations after the reshape without a read."""
    other = use(placement, cn={"VGPU": 1})
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves_vgpus)
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    inventories = [one for one in writes(placement) if one in ("reshaper", "inventories")]
    assert inventories == ["reshaper", "inventories", "inventories"]
    assert figures(placement) == {"cn": {"VCPU": (8, 8)}, "gpu": {"VGPU": (4, 4)}}
    assert held(placement, server, other) == [
        {"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}},
        {"gpu": {"VGPU": 1}},
    ]
    assert not publishing.cycle.sync().steps
    assert not publishing.restarted().sync().steps


def test_reshape_of_reserved_providers_makes_no_candidate_before_they_are_full(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def moves(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        moves_vgpus(tree, node, allocations)
        tree.update_inventory(node, {"VCPU": {"total": 8, "allocation_ratio": 4.0}})
        tree.update_inventory("gpu", {"VGPU": {"total": 4, "allocation_ratio": 4.0}})

    def look(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/inventories"):
            looks.append(
                [offered(client, VCPU=1), offered(client, VGPU=1), offered(client, VCPU=1, VGPU=1)]
            )

    looks: list[list[int]] = []
    client = placement.new_client()
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    use(placement, cn={"VCPU": 5, "VGPU": 3})
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves)
    placement.adapter.before = look

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert looks == [[0, 0, 0]] * 2


def _move(allocations: Allocations, name: str, source: str, target: str) -> None:
    """Move all consumers' allocations of a class from one provider to another."""
    for its in allocations.values():
        parts = its["allocations"]
        amount = parts.get(source, {"resources": {}})["resources"].pop(name, 0)
        if amount:
            resources = parts.setdefault(target, {"resources": {}})["resources"]
            resources[name] = resources.get(name, 0) + amount


def _moves_to(child: str) -> Edit:
    """Return an edit that moves the node's VGPUs to a child of this name."""

    def moves(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if "VGPU" in tree.data(node).inventory and allocations is None:
            raise ReshapeNeeded
        if not tree.exists(child):
            tree.new_child(child, node)
        tree.update_inventory(child, {"VGPU": {"total": 4}})
        tree.update_inventory(node, {"VCPU": {"total": 8}})
        _move(allocations or {}, "VGPU", tree.data(node).uuid, tree.data(child).uuid)

    return moves


@pytest.mark.usefixtures("no_waiting")
def test_reshapes_of_several_trees_keep_figures_and_consumers_apart(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """One consumer uses two of the trees; one tree is not reshaped."""
    nodes, numbers = publishing.driver.nodes, range(3)
    nodes |= {f"cn-{number}": flat(VCPU=8, VGPU=4) for number in numbers}
    nodes["plain"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    servers = [use(placement, **{f"cn-{number}": {"VCPU": 1, "VGPU": 1}}) for number in numbers]
    both = use(placement, **{"cn-0": {"VGPU": 1}, "cn-1": {"VGPU": 2}})
    nodes |= {f"cn-{number}": _moves_to(f"gpu-{number}") for number in numbers}
    nodes["cn-1"] = reserves("cn-1", "gpu-1")(nodes["cn-1"])
    nodes["plain"] = flat(CUSTOM_GOLD=2)

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    expected: Figures = {"plain": {"CUSTOM_GOLD": (2, 0)}}
    for number, vcpus, vgpus in ((0, 0, 0), (1, 8, 4), (2, 0, 0)):
        expected |= {f"cn-{number}": {"VCPU": (8, vcpus)}, f"gpu-{number}": {"VGPU": (4, vgpus)}}
    assert figures(placement) == expected
    assert held(placement, *servers, both) == [
        *({f"cn-{number}": {"VCPU": 1}, f"gpu-{number}": {"VGPU": 1}} for number in numbers),
        {"gpu-0": {"VGPU": 1}, "gpu-1": {"VGPU": 2}},
    ]


# A root that nova-compute publishes.


@pytest.fixture
def overlaid(publishing: Publishing, placement: PlacementFixture) -> str:
    """A consumer of nova's node cn and of our child old; the driver reserves both.

    The driver now moves the VGPUs from old to the child new.
    """
    client, root = placement.client, names.root_uuid("cn")
    client.create_provider(root, "cn", None)
    client.set_inventories(root, client.set_traits(root, 0, ["OWNER_NOVA"]), NOVAS)
    publishing.driver.nodes["cn"] = _overlays("old")
    assert not publishing.cycle.sync().problems
    server = use(placement, cn={"VCPU": 5, "MEMORY_MB": 8}, old={"VGPU": 2})
    publishing.driver.nodes["cn"] = reserves("cn", "old")(_overlays("old"))
    assert not publishing.cycle.sync().problems
    publishing.driver.nodes["cn"] = reserves("cn", "new")(_overlays("old", "new"))
    placement.requests.clear()
    return server


NOVAS: Final = {
    "VCPU": Inventory(total=8, reserved=1, allocation_ratio=4.0),
    "MEMORY_MB": Inventory(total=64, reserved=2),
}
MOVED: Final[Figures] = {
    "cn": {"MEMORY_MB": (64, 64), "VCPU": (8, 8)},
    "old": {},
    "new": {"VGPU": (4, 4)},
}


def _overlays(*children: str) -> Edit:
    """Return an edit that overlays a node and moves the VGPUs of its children to the last child."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.set_publishing_mode(node, PublishingMode.OVERLAY)
        *before, last = children
        for name in children:
            if not tree.exists(name):
                tree.new_child(name, node)
        if any(tree.data(one).inventory for one in before) and allocations is None:
            raise ReshapeNeeded
        for name in children:
            tree.update_inventory(name, {"VGPU": {"total": 4}} if name == last else {})
            _move(allocations or {}, "VGPU", tree.data(name).uuid, tree.data(last).uuid)

    return edit


def test_overlaid_root_regains_its_figures_after_a_reshape(
    publishing: Publishing, placement: PlacementFixture, overlaid: str
) -> None:
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert [one.split("/")[-1] for one in placement.requests.writes] == WRITES
    assert figures(placement) == MOVED
    assert held(placement, overlaid) == [{"cn": {"VCPU": 5, "MEMORY_MB": 8}, "new": {"VGPU": 2}}]
    publishing.driver.nodes["cn"] = _overlays("old", "new")
    assert not publishing.cycle.sync().problems
    assert placement.client.get_inventories(names.root_uuid("cn")).inventories == NOVAS


#: The last part of each write's path in the sync that moves the VGPUs from old to new.
WRITES: Final = ["resource_providers", "traits", "reshaper", "inventories", "inventories"]


class Crash(Exception):
    """Stands for the death of the process."""


def crash_at(placement: PlacementFixture, number: int, when: str) -> None:
    """Raise Crash at the write of this number, before its request or after its answer."""
    seen: list[str] = []

    def strike(method: str, path: str) -> None:
        if method != "GET":
            seen.append(path)
        if len(seen) > number:
            raise Crash

    setattr(placement.adapter, when, strike)


def recover(placement: PlacementFixture) -> None:
    placement.adapter.before = placement.adapter.after = lambda method, path: None


@ANYWHERE
@pytest.mark.drawn(2)
@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed"])
@pytest.mark.parametrize(
    "moment", [(number, when) for number in range(len(WRITES)) for when in ("before", "after")]
)
def test_crash_between_any_two_requests_of_a_reshape_keeps_the_own_figures(
    publishing: Publishing,
    placement: PlacementFixture,
    overlaid: str,
    moment: tuple[int, str],
    changed: bool,
) -> None:
    root, own = names.root_uuid("cn"), dict(NOVAS)
    crash_at(placement, *moment)
    with suppress(Crash):
        publishing.cycle.sync()
    recover(placement)
    if changed:  # nova writes its inventories again, one of them changed
        own["MEMORY_MB"] = Inventory(total=64, reserved=3)
        now = placement.client.get_inventories(root)
        placement.client.set_inventories(root, now.resource_provider_generation, own)

    assert not publishing.restarted().sync().problems

    assert figures(placement) == MOVED
    assert held(placement, overlaid) == [{"cn": {"VCPU": 5, "MEMORY_MB": 8}, "new": {"VGPU": 2}}]
    publishing.driver.nodes["cn"] = _overlays("old", "new")
    assert not publishing.restarted().sync().problems
    assert placement.client.get_inventories(root).inventories == own
    assert figures(placement)["new"] == {"VGPU": (4, 0)}


# Writes of other programs meanwhile.


@pytest.mark.usefixtures("no_waiting")
def test_write_between_the_reshape_and_the_reservation_plans_the_tree_again(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    def tag_meanwhile() -> None:
        client = placement.new_client()
        now = client.get_traits(gpu)
        client.set_traits(gpu, now.resource_provider_generation, now.traits | {"CUSTOM_THEIRS"})

    placement.client.create_trait("CUSTOM_THEIRS")
    publishing.driver.nodes["cn"] = reserves("gpu")(moves_vgpus)
    gpu = names.child_uuid(names.root_uuid("cn"), "gpu")
    reshaped: list[str] = []
    placement.adapter.after = lambda _method, path: (
        reshaped.append(path) if path == "/reshaper" else None
    )
    struck = placement.adapter.once_before(
        lambda method, path: bool(reshaped) and method == "PUT" and path.endswith("/inventories"),
        tag_meanwhile,
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == len(reshaped) == 1
    assert not outcome.problems
    found = contents(placement)["gpu"]
    assert found["inventories"] == {"VGPU": (4, 4)}
    assert "CUSTOM_THEIRS" in found["traits"]


def _added(placement: PlacementFixture, _server: str) -> None:
    use(placement, cn={"VGPU": 1})


def _gone(placement: PlacementFixture, server: str) -> None:
    placement.new_client().delete_allocations(server)


def _grown(placement: PlacementFixture, server: str) -> None:
    client = placement.new_client()
    its = client.get_allocations(server)
    root = names.root_uuid("cn")
    parts = {root: {"resources": {"VCPU": 2, "VGPU": 3}}}
    client.set_allocations({server: {**its, "allocations": parts, "consumer_type": "INSTANCE"}})


OTHERS: Final[dict[str, Callable[[PlacementFixture, str], None]]] = {
    "added": _added,
    "gone": _gone,
    "grown": _grown,
}


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(
    ("what", "reserved"),
    [("added", ("cn", "gpu")), ("gone", ()), ("grown", ("cn", "gpu"))],
    ids=["added", "gone", "grown"],
)
def test_allocations_changed_before_the_reshape_are_looked_up_again(
    publishing: Publishing,
    placement: PlacementFixture,
    server: str,
    what: str,
    reserved: tuple[str, ...],
) -> None:
    publishing.driver.nodes["cn"] = reserves(*reserved)(moves_vgpus)
    struck = placement.adapter.once_before(
        lambda _method, path: path == "/reshaper", lambda: OTHERS[what](placement, server)
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    full = 8 if reserved else 0
    assert figures(placement) == {"cn": {"VCPU": (8, full)}, "gpu": {"VGPU": (4, full // 2)}}
    vgpus = placement.client.get_usages(names.child_uuid(names.root_uuid("cn"), "gpu"))
    assert vgpus == {"VGPU": {"added": 3, "gone": 0, "grown": 3}[what]}
    assert not publishing.cycle.sync().steps


@pytest.mark.usefixtures("no_waiting")
def test_server_that_moves_to_another_host_meanwhile_is_not_reshaped(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    publishing.driver.nodes["other"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved = {names.root_uuid("other"): {"resources": {"VCPU": 1, "VGPU": 2}}}

    def goes() -> None:
        client = placement.new_client()
        its = client.get_allocations(server)
        client.set_allocations({server: {**its, "allocations": moved, "consumer_type": "INSTANCE"}})

    publishing.driver.nodes["cn"] = moves_vgpus
    struck = _once(placement, f"/allocations/{server}", goes)

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    assert held(placement, server) == [{"other": {"VCPU": 1, "VGPU": 2}}]
    assert figures(placement)["gpu"] == {"VGPU": (4, 0)}


# Refused or failed.


def _fails(placement: PlacementFixture, patch: pytest.MonkeyPatch) -> None:
    def strike(_method: str, path: str) -> None:
        if path == "/reshaper":
            raise PlacementError(request="POST /reshaper (cn)", status=500, code="", detail="Told.")

    patch.setattr(placement.adapter, "before", strike)


def _lacks_the_role(placement: PlacementFixture, _patch: pytest.MonkeyPatch) -> None:
    placement.without_service_role()


def _is_too_old(_placement: PlacementFixture, patch: pytest.MonkeyPatch) -> None:
    lab.lower(patch, "1.29")


@pytest.mark.parametrize(
    ("refuse", "told"),
    [(_fails, "Told."), (_lacks_the_role, "service role"), (_is_too_old, "1.30")],
    ids=["500", "without the role", "1.29"],
)
def test_refused_reshape_changes_nothing_and_nothing_follows(
    publishing: Publishing,
    placement: PlacementFixture,
    server: str,
    refuse: Callable[[PlacementFixture, pytest.MonkeyPatch], None],
    told: str,
) -> None:
    before, offers = consumers_of(placement), figures(placement)
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves_vgpus)
    placement.requests.clear()
    with pytest.MonkeyPatch.context() as patch:
        refuse(placement, patch)
        (problem,) = publishing.restarted().sync().problems

    assert isinstance(problem, PlacementError)
    assert told in str(problem)
    assert "inventories" not in writes(placement)
    assert consumers_of(placement) == before
    # The child may have been created, but it has no inventory.
    assert {name: one for name, one in figures(placement).items() if one} == offers


def test_driver_that_moves_allocations_wrongly_moves_nothing(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    """tests/unit/reconcile/test_reshape_allocation_checks.py has more cases."""

    def wrong(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        root = tree.data(node)
        if "VGPU" in root.inventory and allocations is None:
            raise ReshapeNeeded
        tree.new_child("gpu", node)
        tree.update_inventory("gpu", {"VGPU": {"total": 4}})
        tree.update_inventory(node, {"VCPU": {"total": 8}})
        _move(allocations or {}, "VGPU", root.uuid, names.root_uuid("elsewhere"))

    publishing.driver.nodes["elsewhere"] = flat(VGPU=4)
    publishing.cycle.sync()
    before, offers = consumers_of(placement), figures(placement)
    publishing.driver.nodes["cn"] = wrong

    (problem,) = publishing.cycle.sync().problems

    assert isinstance(problem, InvalidTree)
    assert "cn" in str(problem)
    assert server in str(problem)
    assert consumers_of(placement) == before
    assert figures(placement) == offers


# Consumers in the request.


@pytest.mark.drawn(1, keep=[VERSIONS[0]])
@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_keep_their_attributes_in_a_reshape(
    publishing: Publishing, placement: PlacementFixture, version: str
) -> None:
    publishing.driver.nodes |= {"cn": flat(VCPU=8, VGPU=4), "disks": _shares}
    publishing.cycle.sync()
    server = use(placement, cn={"VCPU": 1, "VGPU": 2}, disks={"DISK_GB": 5})
    migration, unknown = str(uuid.uuid4()), str(uuid.uuid4())
    _allocate(placement, migration, {"cn": {"VGPU": 1}}, consumer_type="MIGRATION")
    allocate(placement, unknown, "1.37", cn={"VGPU": 1})
    before = consumers_of(placement)
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves_vgpus)

    with pytest.MonkeyPatch.context() as patch:
        lab.lower(patch, version)
        outcome = publishing.restarted().sync()

    assert not outcome.problems
    assert held(placement, server, migration, unknown) == [
        {"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}, "disks": {"DISK_GB": 5}},
        {"gpu": {"VGPU": 1}},
        {"gpu": {"VGPU": 1}},
    ]
    after = consumers_of(placement)
    assert after.keys() == before.keys()
    for consumer, its in after.items():
        expected = {
            **before[consumer],
            "consumer_generation": before[consumer]["consumer_generation"] + 1,
            "allocations": its["allocations"],
        }
        assert its == expected
    assert after[migration]["consumer_type"] == "MIGRATION"
    assert after[migration]["project_id"] == "theirs"


def _shares(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
    flat(DISK_GB=100)(tree, node, allocations)
    tree.update_traits(node, ["MISC_SHARES_VIA_AGGREGATE"])


def _allocate(
    placement: PlacementFixture,
    consumer: str,
    amounts: Mapping[str, Mapping[str, int]],
    *,
    consumer_type: str = "INSTANCE",
) -> None:
    uuids = {one.name: one.uuid for one in placement.client.list_providers()}
    its = {
        "allocations": {uuids[name]: {"resources": use} for name, use in amounts.items()},
        "project_id": "theirs",
        "user_id": "somebody",
        "consumer_generation": None,
        "consumer_type": consumer_type,
    }
    placement.client.set_allocations({consumer: its})


# Inventory that moves without allocations.


@pytest.fixture(params=["together", "as admin", "without reshape"])
def way(
    request: pytest.FixtureRequest,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """How Placement accepts inventories: all in one request, or one by one if it refuses that."""
    if request.param == "as admin":
        placement.without_service_role()
    elif request.param == "without reshape":
        lab.lower(monkeypatch, NO_RESHAPE)
    return str(request.param)


ON_THE_NODE = with_children({"VCPU": 8, "VGPU": 4}, {"nic": {"SRIOV_NET_VF": 2}})
ON_A_CHILD = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}, "nic": {"SRIOV_NET_VF": 8}})


def test_class_that_a_node_cannot_lose_is_not_published_on_its_child(
    way: str, publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = ON_THE_NODE
    assert not publishing.cycle.sync().problems
    consumer = use(placement, NO_RESHAPE, cn={"VGPU": 1})
    publishing.driver.nodes["cn"] = ON_A_CHILD
    placement.requests.clear()

    for _ in range(2):
        outcome = publishing.cycle.sync()

        assert [type(one) for one in outcome.problems] == [InventoryInUse]
        assert totals(placement) == {
            "cn": {"VCPU": 8, "VGPU": 4},
            "gpu": {},
            "nic": {"SRIOV_NET_VF": 8},
        }

    assert ("POST /reshaper" in placement.requests.writes) == (way == "together")
    placement.client.delete_allocations(consumer)
    assert not publishing.restarted().sync().problems
    assert totals(placement) == {
        "cn": {"VCPU": 8},
        "gpu": {"VGPU": 4},
        "nic": {"SRIOV_NET_VF": 8},
    }


# Inventory that moves with its allocations.


def test_reshape_contains_only_consumers_whose_allocations_moved(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved, unmoved = use(placement, cn={"VCPU": 1, "VGPU": 2}), use(placement, cn={"VCPU": 1})
    before = placement.client.get_allocations(unmoved)
    publishing.driver.nodes["cn"] = moves_vgpus

    (step,) = (one for one in publishing.cycle.plan().steps if isinstance(one, Reshape))
    outcome = publishing.cycle.sync()

    assert set(step.allocations) == {moved}
    assert not outcome.problems
    assert held(placement, moved) == [{"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}]
    after = placement.client.get_allocations(unmoved)
    assert after["consumer_generation"] == before["consumer_generation"]
    assert totals(placement) == {"cn": {"VCPU": 8}, "gpu": {"VGPU": 4}}
    assert not publishing.restarted().sync().steps


# Other clients during the look-up of allocations.


def _once(placement: PlacementFixture, look_up: str, act: Callable[[], object]) -> list[str]:
    """Let another client act just before our first GET of this path."""
    return placement.adapter.once_before(lambda *request: request == ("GET", look_up), act)


def test_consumer_deleted_during_its_look_up_is_not_reshaped(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved, gone = use(placement, cn={"VGPU": 2}), use(placement, cn={"VGPU": 1})
    publishing.driver.nodes["cn"] = moves_vgpus
    struck = _once(
        placement, f"/allocations/{gone}", lambda: placement.client.delete_allocations(gone)
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    assert held(placement, moved) == [{"gpu": {"VGPU": 2}}]
    assert totals(placement) == {"cn": {"VCPU": 8}, "gpu": {"VGPU": 4}}


@pytest.mark.usefixtures("no_waiting")
def test_tree_with_a_provider_deleted_during_the_look_up_is_read_again_and_reshaped(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8, "VGPU": 4}, {"nic": {"SRIOV_NET_VF": 2}}
    )
    publishing.cycle.sync()
    moved, nic = use(placement, cn={"VGPU": 2}), contents(placement)["nic"]["uuid"]
    publishing.driver.nodes["cn"] = moves_vgpus
    struck = _once(
        placement,
        f"/resource_providers/{nic}/allocations",
        lambda: placement.client.delete_provider(nic),
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    assert held(placement, moved) == [{"gpu": {"VGPU": 2}}]


def test_unavailable_placement_during_the_look_up_of_allocations_ends_the_sync(
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


# A device that moves into a tree in a reshape.


def test_device_that_moves_into_a_reshaped_tree_arrives_there(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    nodes = publishing.driver.nodes
    nodes["a"] = with_device(flat(CUSTOM_GOLD=1))
    nodes["cn"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moved = use(placement, cn={"VGPU": 2})
    nodes.clear()
    without, reshaped = with_children({"CUSTOM_GOLD": 1}, {}), with_device(moves_vgpus)
    nodes.update({"cn": reshaped, "a": without})

    outcome = publishing.cycle.sync()

    assert (outcome.problems, outcome.pending) == ((), ())
    found = contents(placement)
    assert (found["device"]["uuid"], found["device"]["parent"]) == (DEVICE, "cn")
    assert totals(placement) == {
        "a": {"CUSTOM_GOLD": 1},
        "cn": {"VCPU": 8},
        "gpu": {"VGPU": 4},
        "device": {"FPGA": 2},
    }
    assert held(placement, moved) == [{"gpu": {"VGPU": 2}}]
    assert not publishing.restarted().sync().steps


# Random trees.


class Shape:
    """An edit of a node with three cards, which moves VGPUs to the card TARGET.

    ``moving`` are the providers that lose their VGPUs. If the node is ``overlaid``, nova publishes
    its VCPUs. ``reserved`` and ``ratios`` are by provider name.
    """

    TOTAL: Final = 64
    CARDS: Final = ("a", "b", "c")
    TARGET: Final = "c"

    def __init__(
        self,
        moving: Collection[str],
        reserved: Collection[str],
        ratios: Mapping[str, float],
        *,
        overlaid: bool,
    ) -> None:
        self.moving = moving
        self._reserved = reserved
        self._ratios = ratios
        self._overlaid = overlaid

    def __call__(self, tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        for name in self.CARDS:
            if not tree.exists(name):
                tree.new_child(name, node)
        places = [name for name in self.moving if "VGPU" in tree.data(name).inventory]
        if places and allocations is None:
            raise ReshapeNeeded
        for name in places:
            _move(allocations or {}, "VGPU", tree.data(name).uuid, tree.data(self.TARGET).uuid)
        for name in (node, *self.CARDS):
            if self._overlaid and name == node:
                tree.set_publishing_mode(node, PublishingMode.OVERLAY)
            else:
                tree.update_inventory(name, self.inventories(name))
            if name in self._reserved:
                tree.reserve(name, "maintenance")

    def inventories(self, name: str) -> dict[str, Inventory]:
        """Return the inventories that a provider has without reservations."""
        classes = {"VCPU"} if name == "cn" else set()
        if name not in self.moving and not (name == "cn" and self._overlaid):
            classes.add("VGPU")
        ratio = self._ratios[name]
        return {one: Inventory(total=self.TOTAL, allocation_ratio=ratio) for one in classes}

    @property
    def figures(self) -> Figures:
        """Return the figures that Placement must show."""
        return {
            name: dict.fromkeys(
                sorted(self.inventories(name)),
                (self.TOTAL, self.TOTAL if name in self._reserved else 0),
            )
            for name in ("cn", *self.CARDS)
        }


PLACES: Final = ("cn", *Shape.CARDS)
_SOME: Final = st.sets(st.sampled_from(PLACES))


@dataclass(frozen=True)
class Case:
    """A reshape, and allocations.

    ``consumers`` has the amounts of each consumer by provider; "VCPU" stands for the node's VCPUs.
    """

    consumers: list[dict[str, int]]
    moving: set[str]
    reserved: set[str]
    reserved_before: set[str]
    ratios: dict[str, float]
    overlaid: bool

    @property
    def first(self) -> Shape:
        return Shape((), self.reserved_before, self.ratios, overlaid=self.overlaid)

    @property
    def last(self) -> Shape:
        moving = self.moving - ({Shape.TARGET, "cn"} if self.overlaid else {Shape.TARGET})
        return Shape(moving, self.reserved, self.ratios, overlaid=self.overlaid)


CASES: Final = st.builds(
    Case,
    consumers=st.lists(
        st.dictionaries(st.sampled_from((*PLACES, "VCPU")), st.integers(1, 4), min_size=1),
        max_size=4,
    ),
    moving=_SOME,
    reserved=_SOME,
    reserved_before=_SOME,
    ratios=st.fixed_dictionaries({name: st.sampled_from((1.0, 1.5, 4.0)) for name in PLACES}),
    overlaid=st.booleans(),
)


def test_random_reshape_keeps_the_amounts_of_each_consumer(
    placement: PlacementFixture, tmp_path_factory: pytest.TempPathFactory, draw: Draw
) -> None:
    @draw.examples(30, some=3)
    @given(case=CASES)
    def of_any_tree(case: Case) -> None:
        _moves_all(placement, tmp_path_factory.mktemp("state"), case)

    of_any_tree()


def _moves_all(placement: PlacementFixture, state: Path, case: Case) -> None:
    """Publish the first layout, then the last one; assert that each consumer keeps its amounts."""
    lab.empty()
    last = case.last
    if case.overlaid:
        client, root = placement.client, names.root_uuid("cn")
        client.create_provider(root, "cn", None)
        generation = client.set_traits(root, 0, ["OWNER_NOVA"])
        client.set_inventories(root, generation, last.inventories("cn"))
    with Publishing(placement, state) as publishing:
        publishing.driver.nodes["cn"] = replace(case, reserved_before=set()).first
        assert not publishing.cycle.sync().problems
        for amounts in case.consumers:
            if parts := _parts(amounts, overlaid=case.overlaid):
                use(placement, **parts)
        publishing.driver.nodes["cn"] = case.first
        assert not publishing.cycle.sync().problems
        before = consumers_of(placement)
        publishing.driver.nodes["cn"] = last

        outcome = publishing.cycle.sync()

        assert not outcome.problems
        after = consumers_of(placement)
        assert {one: _totals(its) for one, its in after.items()} == {
            one: _totals(its) for one, its in before.items()
        }
        assert any(isinstance(step, Reshape) for step in outcome.steps) == bool(last.moving)
        assert figures(placement) == last.figures
        assert not any("VGPU" in _used(placement, name) for name in last.moving)
        assert not publishing.restarted().sync().steps


def _used(placement: PlacementFixture, name: str) -> dict[str, int]:
    return placement.client.get_usages(contents(placement)[name]["uuid"])


def _parts(amounts: Mapping[str, int], *, overlaid: bool) -> dict[str, dict[str, int]]:
    """Return a consumer's amounts by provider and class."""
    parts: dict[str, dict[str, int]] = {}
    for place, amount in amounts.items():
        if place == "VCPU":
            parts.setdefault("cn", {})["VCPU"] = amount
        elif place != "cn" or not overlaid:
            parts.setdefault(place, {})["VGPU"] = amount
    return parts


def _totals(consumer: Mapping[str, Any]) -> Counter[str]:
    """Return the amounts of a consumer, by class."""
    totals: Counter[str] = Counter()
    for part in consumer["allocations"].values():
        totals.update(part["resources"])
    return totals
