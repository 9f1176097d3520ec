"""A reshape whole: reserved providers, what is sent of consumers, refusals, and crashes between."""

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.functional.tracker.places import ANYWHERE
from tests.lab import placement as lab
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import Edit, also, flat, moves_vgpus, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    Conflict,
    InvalidTree,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
    ReshapeNeeded,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, names
from wharfinger.providers.plan import Reshape

#: What is offered, as total and reserved, by provider and class.
Figures = dict[str, dict[str, tuple[int, int]]]

VERSIONS: Final = [f"1.{minor}" for minor in range(30, 40)]


def reserves(*providers: str) -> Callable[[Edit], Edit]:
    """A node's edit, and these providers are in maintenance."""

    def reserve(tree: ProviderTree) -> None:
        for name in providers:
            tree.reserve(name, "maintenance")

    return also(reserve)


def use(placement: PlacementFixture, **amounts: dict[str, int]) -> str:
    """Have a new consumer use amounts, by class, of providers by name; returns its uuid."""
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, "1.39", **amounts)
    return consumer


def figures(placement: PlacementFixture) -> Figures:
    return {name: one["inventories"] for name, one in contents(placement).items()}


def held(placement: PlacementFixture, *consumers: str) -> list[dict[str, dict[str, int]]]:
    """What consumers have, by provider name and class."""
    uuids = {one["uuid"]: name for name, one in contents(placement).items()}
    return [
        {
            uuids[provider]: part["resources"]
            for provider, part in placement.client.get_allocations(one)["allocations"].items()
        }
        for one in consumers
    ]


def consumers_of(placement: PlacementFixture) -> dict[str, Any]:
    """All that Placement has of every consumer of anything, generations included."""
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


def offered(client: PlacementClient, **amounts: int) -> int:
    """How many ways there are to have these amounts."""
    wanted = ",".join(f"{name}:{amount}" for name, amount in amounts.items())
    return len(client.get_allocation_candidates([("resources", wanted)]).allocation_requests)


def writes(placement: PlacementFixture) -> list[str]:
    """The writes of inventories so far, without uuids."""
    return [
        request.split("/")[-1] for request in placement.requests.writes if "traits" not in request
    ]


# A reserved provider.


@pytest.fixture
def server(publishing: Publishing, placement: PlacementFixture) -> str:
    """A server on a node, with VGPUs of the node's own, which are to move to a child."""
    publishing.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    assert not publishing.cycle.sync().problems
    server = use(placement, cn={"VCPU": 1, "VGPU": 2})
    placement.requests.clear()
    return server


def test_allocations_move_onto_a_reserved_child(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    other = use(placement, cn={"VGPU": 1})
    publishing.driver.nodes["cn"] = reserves("gpu")(moves_vgpus)

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert figures(placement) == {"cn": {"VCPU": (8, 0)}, "gpu": {"VGPU": (4, 4)}}
    assert held(placement, server, other) == [
        {"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}},
        {"gpu": {"VGPU": 1}},
    ]
    assert not publishing.cycle.sync().steps
    assert not publishing.restarted().sync().steps


def test_it_takes_one_request_more_and_no_conflict(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    """The generations that the reshaper leaves are known without asking."""
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves_vgpus)
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    inventories = [one for one in writes(placement) if one in ("reshaper", "inventories")]
    assert inventories == ["reshaper", "inventories", "inventories"]
    assert figures(placement) == {"cn": {"VCPU": (8, 8)}, "gpu": {"VGPU": (4, 4)}}


@pytest.mark.parametrize("ratio", [1.0, 4.0])
def test_nothing_can_be_had_between_the_reshape_and_the_full_figure(
    publishing: Publishing, placement: PlacementFixture, ratio: float
) -> None:
    def moves(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        moves_vgpus(tree, node, allocations)
        tree.update_inventory(node, {"VCPU": {"total": 8, "allocation_ratio": ratio}})
        tree.update_inventory("gpu", {"VGPU": {"total": 4, "allocation_ratio": ratio}})

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


def test_what_stays_on_a_node_that_was_reserved_before_is_no_obstacle(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    publishing.driver.nodes["cn"] = reserves("cn")(flat(VCPU=8, VGPU=4))
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = reserves("cn")(moves_vgpus)

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert figures(placement) == {"cn": {"VCPU": (8, 8)}, "gpu": {"VGPU": (4, 0)}}
    publishing.driver.nodes["cn"] = moves_vgpus
    assert not publishing.cycle.sync().problems
    assert figures(placement)["cn"] == {"VCPU": (8, 0)}


def test_each_of_many_trees_has_its_full_figures_after_its_own_reshape(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    nodes = [f"node-{number}" for number in range(6)]
    fleet = {name: flat(VCPU=8, VGPU=4) for name in nodes}
    publishing.driver.nodes |= fleet | {"plain": flat(CUSTOM_GOLD=1)}
    publishing.cycle.sync()
    for name in nodes:
        use(placement, **{name: {"VCPU": 1, "VGPU": 1}})
    for name in nodes:
        publishing.driver.nodes[name] = reserves(name, f"gpu-{name}")(_moves_to(f"gpu-{name}"))
    publishing.driver.nodes["plain"] = flat(CUSTOM_GOLD=2)

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    expected: Figures = {"plain": {"CUSTOM_GOLD": (2, 0)}}
    for name in nodes:
        expected |= {name: {"VCPU": (8, 8)}, f"gpu-{name}": {"VGPU": (4, 4)}}
    assert figures(placement) == expected


def _moves_to(child: str) -> Edit:
    """A node whose VGPUs a child of that name has now, with what is allocated from them."""

    def moves(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        root = tree.data(node)
        if "VGPU" in root.inventory and allocations is None:
            raise ReshapeNeeded
        if not tree.exists(child):
            tree.new_child(child, node)
        tree.update_inventory(child, {"VGPU": {"total": 4}})
        tree.update_inventory(node, {"VCPU": {"total": 8}})
        _move(allocations or {}, "VGPU", root.uuid, tree.data(child).uuid)

    return moves


def _move(allocations: Allocations, name: str, source: str, target: str) -> None:
    """Move what all consumers have of a class."""
    for its in allocations.values():
        parts = its["allocations"]
        amount = parts.get(source, {"resources": {}})["resources"].pop(name, 0)
        if amount:
            resources = parts.setdefault(target, {"resources": {}})["resources"]
            resources[name] = resources.get(name, 0) + amount


# A root that somebody else publishes.


@pytest.fixture
def overlaid(publishing: Publishing, placement: PlacementFixture) -> str:
    """A server on a node of nova's with its own figures, and on a child; both reserved."""
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
    """A node of somebody else's; the last child has VGPUs, and the others had them."""

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


def test_the_figures_of_a_root_that_is_overlaid_come_back(
    publishing: Publishing, placement: PlacementFixture, overlaid: str
) -> None:
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert figures(placement) == MOVED
    assert held(placement, overlaid) == [{"cn": {"VCPU": 5, "MEMORY_MB": 8}, "new": {"VGPU": 2}}]
    publishing.driver.nodes["cn"] = _overlays("old", "new")
    assert not publishing.cycle.sync().problems
    assert placement.client.get_inventories(names.root_uuid("cn")).inventories == NOVAS


#: The last part of each write that moves a server's VGPUs from the old child to the new one.
WRITES: Final = ["resource_providers", "traits", "reshaper", "inventories", "inventories"]


class Crash(Exception):
    """The process died."""


def crash_at(placement: PlacementFixture, number: int, when: str) -> None:
    """Have the process die at its write of that number, before it or after its answer."""
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
@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed"])
@pytest.mark.parametrize(
    "moment", [(number, when) for number in range(len(WRITES)) for when in ("before", "after")]
)
def test_after_a_crash_between_any_two_requests_the_own_figures_are_known(
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
    if changed:  # nova writes its own figures again, with another for one of them
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


def test_the_crashes_are_at_all_requests(
    publishing: Publishing, placement: PlacementFixture, overlaid: str
) -> None:
    publishing.cycle.sync()
    sent = [request.split("/")[-1] for request in placement.requests.writes]
    assert sent == WRITES


# What others do meanwhile.


@pytest.mark.usefixtures("no_waiting")
def test_a_write_between_the_reshape_and_the_full_figure_has_the_tree_planned_again(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    def somebody_tags() -> None:
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
        somebody_tags,
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
@pytest.mark.parametrize("reserved", [(), ("cn", "gpu")], ids=["free", "reserved"])
@pytest.mark.parametrize("what", OTHERS)
def test_allocations_that_change_before_the_reshape_are_looked_up_again(
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
def test_a_server_that_goes_to_another_host_meanwhile_is_not_the_drivers_to_move(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    publishing.driver.nodes["other"] = flat(VCPU=8, VGPU=4)
    publishing.cycle.sync()
    moves = {names.root_uuid("other"): {"resources": {"VCPU": 1, "VGPU": 2}}}

    def somebody_moves() -> None:
        client = placement.new_client()
        its = client.get_allocations(server)
        client.set_allocations({server: {**its, "allocations": moves, "consumer_type": "INSTANCE"}})

    publishing.driver.nodes["cn"] = moves_vgpus
    struck = placement.adapter.once_before(
        lambda _method, path: path == f"/allocations/{server}", somebody_moves
    )

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert not outcome.problems
    assert held(placement, server) == [{"other": {"VCPU": 1, "VGPU": 2}}]
    assert figures(placement)["gpu"] == {"VGPU": (4, 0)}


# Refused, or failed.


def _failing(error: type[PlacementError], status: int, **more: str) -> PlacementError:
    return error(request="POST /reshaper (cn)", status=status, code="", detail="Told.", **more)


FAILURES: Final = {
    "400": _failing(PlacementError, 400),
    "403": _failing(PermissionRefused, 403, remedy="Ask."),
    "409": _failing(Conflict, 409),
    "500": _failing(PlacementError, 500),
    "no answer": _failing(PlacementUnavailable, 0),
}


def _raising(error: PlacementError) -> Callable[[str, str], None]:
    def strike(_method: str, path: str) -> None:
        if path == "/reshaper":
            raise error

    return strike


@pytest.mark.parametrize("kind", FAILURES)
def test_a_reshape_that_fails_leaves_all_as_it_was_and_nothing_follows(
    publishing: Publishing, placement: PlacementFixture, server: str, kind: str
) -> None:
    before, offers = consumers_of(placement), figures(placement)
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves_vgpus)
    placement.requests.clear()
    placement.adapter.before = _raising(FAILURES[kind])
    problems: tuple[Exception, ...]
    try:
        problems = publishing.cycle.sync().problems
    except PlacementUnavailable as error:
        problems = (error,)

    assert problems == (FAILURES[kind],)
    assert "inventories" not in writes(placement)
    assert consumers_of(placement) == before
    assert figures(placement) == {**offers, "gpu": {}}  # the child is there, and has nothing
    recover(placement)
    assert not publishing.restarted().sync().problems
    assert figures(placement) == {"cn": {"VCPU": (8, 8)}, "gpu": {"VGPU": (4, 4)}}
    assert held(placement, server) == [{"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}]


@pytest.mark.parametrize("kind", ["500", "no answer"])
def test_a_reshape_whose_answer_was_lost_is_whole(
    publishing: Publishing, placement: PlacementFixture, server: str, kind: str
) -> None:
    publishing.driver.nodes["cn"] = reserves("cn", "gpu")(moves_vgpus)
    placement.adapter.after = _raising(FAILURES[kind])
    with suppress(PlacementUnavailable):
        publishing.cycle.sync()

    assert figures(placement) == {"cn": {"VCPU": (8, 7)}, "gpu": {"VGPU": (4, 2)}}
    assert held(placement, server) == [{"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}]
    recover(placement)
    assert not publishing.restarted().sync().problems
    assert figures(placement) == {"cn": {"VCPU": (8, 8)}, "gpu": {"VGPU": (4, 4)}}
    assert held(placement, server) == [{"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}]


def test_without_the_role_for_it_the_error_says_so(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    before = consumers_of(placement)
    publishing.driver.nodes["cn"] = moves_vgpus
    placement.without_service_role()

    (problem,) = publishing.restarted().sync().problems

    assert isinstance(problem, PermissionRefused)
    assert "POST /reshaper (cn)" in str(problem)
    assert "service role" in str(problem)
    assert consumers_of(placement) == before
    assert figures(placement)["cn"] == {"VCPU": (8, 0), "VGPU": (4, 0)}


def _forgets_one(allocations: Allocations, root: str, gpu: str) -> None:
    del next(iter(allocations.values()))["allocations"][root]["resources"]["VGPU"]


def _counts_twice(allocations: Allocations, root: str, gpu: str) -> None:
    for its in allocations.values():
        its["allocations"][gpu] = {"resources": {"VGPU": 2}}


def _moves_none(allocations: Allocations, root: str, gpu: str) -> None:
    pass


def _moves_elsewhere(allocations: Allocations, root: str, gpu: str) -> None:
    _move(allocations, "VGPU", root, names.root_uuid("elsewhere"))


def _moves_onto_nothing(allocations: Allocations, root: str, gpu: str) -> None:
    _move(allocations, "VGPU", root, str(uuid.uuid4()))


@pytest.mark.parametrize(
    "moves", [_forgets_one, _counts_twice, _moves_none, _moves_elsewhere, _moves_onto_nothing]
)
def test_a_driver_that_moves_wrongly_moves_nothing(
    publishing: Publishing,
    placement: PlacementFixture,
    server: str,
    moves: Callable[[Allocations, str, str], None],
) -> None:
    def wrong(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        root = tree.data(node)
        if "VGPU" in root.inventory and allocations is None:
            raise ReshapeNeeded
        gpu = tree.new_child("gpu", node)
        tree.update_inventory("gpu", {"VGPU": {"total": 4}})
        tree.update_inventory(node, {"VCPU": {"total": 8}})
        moves(allocations or {}, root.uuid, gpu)

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


# A class that somebody else has put there.


@pytest.mark.parametrize("used", [True, False], ids=["in use", "unused"])
def test_what_nova_published_on_the_root_is_not_offered_there_too(
    publishing: Publishing, placement: PlacementFixture, used: bool
) -> None:
    client, root = placement.client, names.root_uuid("cn")
    client.create_provider(root, "cn", None)
    client.create_resource_class("CUSTOM_THEIRS")
    inventories = {
        name: Inventory(total=total)
        for name, total in {"VCPU": 8, "VGPU": 4, "CUSTOM_THEIRS": 1}.items()
    }
    client.set_inventories(root, client.set_traits(root, 0, ["OWNER_NOVA"]), inventories)
    server = use(placement, cn={"VCPU": 1, **({"VGPU": 2} if used else {})})
    publishing.driver.nodes["cn"] = moves_vgpus

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert figures(placement) == {
        "cn": {"CUSTOM_THEIRS": (1, 0), "VCPU": (8, 0)},
        "gpu": {"VGPU": (4, 0)},
    }
    (its,) = held(placement, server)
    assert its == {"cn": {"VCPU": 1}, **({"gpu": {"VGPU": 2}} if used else {})}
    assert not publishing.restarted().sync().steps


# What is sent of consumers.


@pytest.mark.parametrize("version", VERSIONS)
def test_consumers_keep_all_that_they_are(
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


def test_below_the_reshapers_microversion_nothing_is_written(
    publishing: Publishing, placement: PlacementFixture, server: str
) -> None:
    before = consumers_of(placement)
    publishing.driver.nodes["cn"] = reserves("gpu")(moves_vgpus)
    with pytest.MonkeyPatch.context() as patch:
        lab.lower(patch, "1.29")
        (problem,) = publishing.restarted().sync().problems

    assert "1.30" in str(problem)
    assert consumers_of(placement) == before
    assert figures(placement) == {"cn": {"VCPU": (8, 0), "VGPU": (4, 0)}}


def test_allocations_that_move_between_providers_that_stay_as_they_are_do_move(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    shape = with_children({"VCPU": 8}, {"a": {"VGPU": 4}, "b": {"VGPU": 4}})

    def swaps(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if allocations is None:
            raise ReshapeNeeded
        shape(tree, node, allocations)
        _move(allocations, "VGPU", tree.data("a").uuid, tree.data("b").uuid)

    publishing.driver.nodes["cn"] = shape
    publishing.cycle.sync()
    server = use(placement, a={"VGPU": 1})
    publishing.driver.nodes["cn"] = swaps

    assert not publishing.cycle.sync().problems

    assert held(placement, server) == [{"b": {"VGPU": 1}}]
    assert not publishing.restarted().sync().steps


# Any tree.


class Shape:
    """A node with cards, and VGPUs on all of them that move to one of them.

    ``moving`` are the providers that lose theirs; the node's own VCPUs are nova's to publish
    where it is ``overlaid``. ``reserved`` and ``ratios`` are by provider.
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
        """What a provider has when nothing is reserved."""
        classes = {"VCPU"} if name == "cn" else set()
        if name not in self.moving and not (name == "cn" and self._overlaid):
            classes.add("VGPU")
        ratio = self._ratios[name]
        return {one: Inventory(total=self.TOTAL, allocation_ratio=ratio) for one in classes}

    @property
    def figures(self) -> Figures:
        """What is to be in Placement."""
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
    """What consumers have, by provider ("VCPU": of that, of the node), and what changes."""

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


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=CASES)
def test_whatever_moves_is_neither_lost_nor_doubled(
    placement: PlacementFixture, tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    lab.empty()
    last = case.last
    if case.overlaid:
        client, root = placement.client, names.root_uuid("cn")
        client.create_provider(root, "cn", None)
        generation = client.set_traits(root, 0, ["OWNER_NOVA"])
        client.set_inventories(root, generation, last.inventories("cn"))
    with Publishing(placement, tmp_path_factory.mktemp("state")) as publishing:
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
    """What is in use of a provider, by class."""
    return placement.client.get_usages(contents(placement)[name]["uuid"])


def _parts(amounts: Mapping[str, int], *, overlaid: bool) -> dict[str, dict[str, int]]:
    """A consumer's amounts by provider and class."""
    parts: dict[str, dict[str, int]] = {}
    for place, amount in amounts.items():
        if place == "VCPU":
            parts.setdefault("cn", {})["VCPU"] = amount
        elif place != "cn" or not overlaid:
            parts.setdefault(place, {})["VGPU"] = amount
    return parts


def _totals(consumer: Mapping[str, Any]) -> Counter[str]:
    """What a consumer has, by class."""
    totals: Counter[str] = Counter()
    for part in consumer["allocations"].values():
        totals.update(part["resources"])
    return totals
