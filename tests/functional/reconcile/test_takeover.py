"""Takeovers of nodes, with their providers, records and reservations, by another host."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.claiming import instance, noted, taken
from tests.lab.cycles import (
    HOST,
    Publishing,
    allocate,
    contents,
    everything,
    execute,
    record_store,
    stored,
)
from tests.lab.drawing import Draw
from tests.lab.drivers import Edit, also, flat, with_children
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.taking_over import TakingOver
from wharfinger.driver import SUPPORTED, Allocations, Capabilities, unsupported
from wharfinger.exceptions import NodeTaken, PlacementUnavailable, StateError
from wharfinger.objects import (
    AGENT_BINARY,
    ComputeNode,
    ComputeNodeList,
    Context,
    Instance,
    ProviderRecordList,
    Reservation,
    ReservationList,
    Service,
)
from wharfinger.providers import ProviderTree
from wharfinger.providers.provider import encode
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.record_store import RowChanges
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.tracker import service_record

pytestmark = ANYWHERE

FAR, THIRD = "far-host", "third-host"
DISABLED = "COMPUTE_STATUS_DISABLED"
NODE: Edit = flat(VCPU=8, MEMORY_MB=4096)
CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"

RunCycle = Callable[[Reconciler], CycleResult]
CYCLE_TYPES: dict[str, RunCycle] = {
    "sync": Reconciler.sync,
    "drift": Reconciler.drift,
    "poll": Reconciler.poll,
}


def publish(placement: PlacementFixture, publishing: Publishing, host: str) -> Publishing:
    """Return the same driver instance on another host, with the same database."""
    return Publishing(placement, publishing.state_path, host=host)


@pytest.fixture
def near(publishing: Publishing) -> Publishing:
    """The driver instance on a host that is up; it has published two nodes."""
    publishing.driver.nodes |= {"cn": NODE, "stays": NODE}
    sync(publishing)
    return publishing


@pytest.fixture
def far(near: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    with publish(placement, near, FAR) as fixture:
        yield fixture


def sync(*every: Publishing) -> None:
    """Run a full cycle of each instance, and report its service; assert that it has no problems."""
    for one in every:
        outcome = one.cycle.sync()
        assert not outcome.problems, outcome.problems
        report(one)


def report(one: Publishing) -> None:
    service_record.report(one.context, one.host, {"OWNER_NOVA"}, complete=True)


def sync_without(one: Publishing, *names: str) -> None:
    """Run a sync in which the driver does not list these nodes."""
    for name in names:
        del one.driver.nodes[name]
    sync(one)


def row(one: Publishing, name: str = "cn") -> ComputeNode:
    [found] = ComputeNodeList.get_by_filters(one.context, hypervisor_hostname=name)
    return found


def hosts(one: Publishing) -> dict[str, str]:
    found = ComputeNodeList.get_by_filters(one.context)
    return {each.hypervisor_hostname: each.host for each in found}


def force_down(one: Publishing, *, down: bool = True) -> None:
    service = Service.get_by_host_and_binary(one.context, one.host, AGENT_BINARY)
    service.forced_down = down
    service.save()


def recorded(one: Publishing) -> set[str]:
    """Return the names of the providers of which this instance has records on this host."""
    return {
        record.applied.name
        for record in stored(one.state_path, host=one.host).values()
        if record.applied
    }


def assert_nothing_to_do(*every: Publishing) -> None:
    """Assert that no instance has a step, a pending removal or a problem."""
    for one in every:
        plan = one.restarted().plan()
        assert not plan.steps
        assert not plan.pending
        assert not plan.problems


# A node that its former host no longer lists.


def test_tree_no_longer_listed_by_its_host_is_taken_over_completely(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    node = with_children({"VCPU": 8}, {"gpu-0": {"VGPU": 2}, "gpu-1": {"VGPU": 4}})
    near.driver.nodes["cn"] = node
    sync(near)
    use: dict[str, Any] = {"gpu-0": {"VGPU": 1}, "cn": {"VCPU": 2}}
    allocate(placement, CONSUMER, **use)
    before, uuid = everything(), row(near).uuid
    sync_without(near, "cn")
    far.driver.nodes["cn"] = node
    far.cycle.plan()  # a plan takes over nothing
    assert (hosts(far)["cn"], recorded(far), everything()) == (HOST, set(), before)
    sync(far)

    for _ in range(2):
        assert hosts(far) == {"cn": FAR, "stays": HOST}
        assert row(far).uuid == uuid
        assert recorded(far) == {"cn", "gpu-0", "gpu-1"}
        # No provider was reserved as absent, and none was created again.
        assert everything() == before
        sync(near, far)
    assert recorded(near) == {"stays"}
    assert_nothing_to_do(near, far)

    far.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu-0": {"VGPU": 2}})
    sync(far, far)
    assert everything().keys() == {"cn", "gpu-0", "stays"}, "it is this host's to remove"


def test_takeover_keeps_reservations_and_the_own_reserved_amounts(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    def own(tree: ProviderTree) -> None:
        tree.update_inventory(
            "cn", {"VCPU": {"total": 8, "reserved": 1}, "MEMORY_MB": {"total": 4096}}
        )

    def reserve(tree: ProviderTree) -> None:
        tree.reserve("cn", "cleaning")

    near.driver.nodes["cn"] = also(own)(NODE)
    sync(near)
    free = contents(placement)
    client = placement.new_client()
    [summary] = client.list_providers(name="cn")
    Reservations(client, near.context).reserve(summary, reason="operator", holder="people")
    near.driver.nodes["cn"] = also(own, reserve)(NODE)
    sync(near)
    reserved = contents(placement)
    assert reserved["cn"]["inventories"] == {"VCPU": (8, 8), "MEMORY_MB": (4096, 4096)}

    sync_without(near, "cn")
    far.driver.nodes["cn"] = also(own, reserve)(NODE)
    sync(far, near)
    assert contents(placement) == reserved
    [record] = stored(far.state_path, host=FAR).values()
    assert record.own_reserved == {"VCPU": 1, "MEMORY_MB": 0}
    assert record.reservations == ("cleaning",)

    far.driver.nodes["cn"] = also(own)(NODE)
    sync(far, near)
    assert contents(placement) == reserved, "the stored reservation holds it"
    [held] = ReservationList.get_by_filters(far.context)
    assert isinstance(held, Reservation)
    assert (held.provider_uuid, held.holder) == (row(far).uuid, "people")
    held.destroy()
    sync(near, far)
    assert contents(placement) == free


@pytest.mark.parametrize("request_left", ["PUT traits", "PUT inventories"])
def test_node_whose_creation_was_interrupted_is_taken_over_when_it_moves(
    near: Publishing, far: Publishing, placement: PlacementFixture, request_left: str
) -> None:
    method, part = request_left.split()

    def stop(its_method: str, path: str) -> None:
        if its_method == method and path.endswith(f"/{part}"):
            raise PlacementUnavailable(request=f"PUT {path}", status=503, detail="it is down")

    placement.adapter.before = stop
    near.driver.nodes["new"] = NODE
    with pytest.raises(PlacementUnavailable):
        near.cycle.sync()
    placement.adapter.before = lambda method, path: None
    near.restarted()
    far.driver.nodes["new"] = NODE
    sync_without(near, "new")
    sync(far, near)
    assert hosts(far) == {"cn": HOST, "stays": HOST, "new": FAR}
    assert contents(placement)["new"]["inventories"] == {"VCPU": (8, 0), "MEMORY_MB": (4096, 0)}
    assert_nothing_to_do(near, far)


def again(one: Instance) -> Instance:
    return Instance.get_by_uuid(one._context, one.uuid)


@pytest.fixture(params=CYCLE_TYPES)
def cycle_type(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Feed:
    """Gives a scripted driver a change feed, which returns ``changed``."""

    def __init__(self, publishing: Publishing) -> None:
        self.changed: set[str] = set()
        driver: Any = publishing.driver
        driver.capabilities = Capabilities(
            nested_providers=SUPPORTED,
            reshape=SUPPORTED,
            change_feed=SUPPORTED,
            programming=unsupported("there is nothing to program"),
            cleans_after_release=unsupported("there is nothing to clean"),
        )
        driver.changed_nodes = lambda since: (sorted(self.changed), "mark")
        publishing.restarted()


# A node of another host.


def test_node_listed_by_its_host_is_taken_over_only_after_its_release(
    near: Publishing, far: Publishing, cycle_type: str, placement: PlacementFixture
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    sync(near)
    before, revision = contents(placement), row(near).revision
    feed = Feed(far)
    far.driver.nodes |= {"cn": flat(VCPU=2), "new": NODE}
    feed.changed = {"cn", "new"}
    [problem] = CYCLE_TYPES[cycle_type](far.cycle).problems
    assert isinstance(problem, NodeTaken)
    assert problem.facts == {
        "node": "cn",
        "uuid": row(near).uuid,
        "instance": "scripted",
        "other": "scripted",
        "host": HOST,
        "remedy": "Configure only one of the two hosts to list the node. This host takes the node "
        f"over when {HOST} no longer lists the node, or when the service of {HOST} is down.",
    }
    report(far)
    assert hosts(near) == {"cn": HOST, "stays": HOST, "new": FAR}
    assert row(near).revision == revision
    assert {name: one for name, one in contents(placement).items() if name != "new"} == before
    assert recorded(far) == {"new"}

    before = contents(placement)
    sync_without(near, "cn")
    far.driver.nodes["cn"] = NODE
    feed.changed = {"cn"}
    assert not CYCLE_TYPES[cycle_type](far.cycle).problems
    for _ in range(2):
        assert hosts(far) == {"cn": FAR, "stays": HOST, "new": FAR}
        assert (again(one).host, again(one).node) == (FAR, "cn")
        assert noted(far.context) == taken(far.context)
        assert noted(far.context)[FAR, "cn"] == (2, 0, 0)
        assert recorded(far) == {"cn", "new"}
        assert contents(placement) == before
        sync(far, near)
    assert_nothing_to_do(near, far)


def test_damaged_records_move_with_their_node_and_are_used_after_a_repair(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    set_live = "UPDATE provider_records SET live = ? WHERE provider_uuid = ?"
    node = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    near.driver.nodes["cn"] = also(lambda tree: tree.reserve("gpu", "cleaning"))(node)
    sync(near)
    damaged = {
        uuid: encode(record.live)
        for uuid, record in stored(near.state_path).items()
        if record.live and record.live.name in {"cn", "gpu"}
    }
    for uuid in damaged:
        execute(near, set_live, "what", uuid)
    before = contents(placement)
    force_down(near)
    far.driver.nodes["cn"] = node

    problems = far.cycle.sync().problems

    assert row(far).host == FAR
    [problem] = problems
    assert isinstance(problem, StateError)
    assert f"host {FAR}" in str(problem)
    assert contents(placement) == before
    for uuid, document in damaged.items():
        execute(near, set_live, document, uuid)
    sync(far)
    assert contents(placement)["gpu"]["inventories"] == {"VGPU": (4, 0)}
    force_down(near, down=False)
    sync_without(near, "cn")
    assert recorded(near) == {"stays"}
    assert_nothing_to_do(far)


def test_record_of_a_child_that_is_left_after_a_takeover_deletes_nothing(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    node = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    near.driver.nodes["cn"] = node
    sync(near)
    [(uuid, record)] = [
        (uuid, record)
        for uuid, record in stored(near.state_path).items()
        if record.live and record.live.name == "gpu"
    ]
    force_down(near)
    far.driver.nodes["cn"] = node
    sync(far)
    lost = RowChanges(records={uuid: record})
    record_store(near.context, HOST, near.cycle.instance).write([lost])
    before = contents(placement)
    force_down(near, down=False)
    sync_without(near, "cn")
    for _ in range(2):
        sync(near)
    assert contents(placement) == before
    assert recorded(near) == {"stays"}


def test_child_below_a_root_of_another_instance_is_removed_when_its_node_is_gone(
    near: Publishing, placement: PlacementFixture
) -> None:
    def adds_a_child(tree: ProviderTree, node: str, _allocations: Allocations | None) -> None:
        if not tree.exists("fpga"):
            tree.new_child("fpga", node)
        tree.update_inventory("fpga", {"FPGA": {"total": 1}})

    before = contents(placement)
    with Publishing(placement, near.state_path, name="other") as other:
        other.driver.nodes["cn"] = adds_a_child
        sync(other)
        assert contents(placement)["fpga"]["parent"] == "cn"
        del other.driver.nodes["cn"]
        for _ in range(2):
            sync(other)
    assert contents(placement) == before


def test_disabled_service_does_not_mark_nodes_that_were_taken_over(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    force_down(near)
    far.driver.nodes["cn"] = NODE
    sync(far)
    service = Service.get_by_host_and_binary(near.context, HOST, AGENT_BINARY)
    service.forced_down, service.disabled = False, True
    service.save()

    sync_without(near, "cn")

    disabled = {name for name, one in contents(placement).items() if DISABLED in one["traits"]}
    assert disabled == {"stays"}


@pytest.mark.parametrize("down", ["silent", "forced", "never there"])
def test_node_of_a_down_host_is_taken_over(
    near: Publishing,
    far: Publishing,
    placement: PlacementFixture,
    down: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    near.cycle.drift()
    match down:
        case "silent":
            [service] = [Service.get_by_host_and_binary(near.context, HOST, AGENT_BINARY)]
            assert service.last_seen_up is not None
            service.last_seen_up = service.last_seen_up.replace(year=2001)
            service.save()
        case "forced":
            force_down(near)
        case "never there":
            Service.get_by_host_and_binary(near.context, HOST, AGENT_BINARY).destroy()
    before = everything()
    far.driver.nodes["cn"] = NODE
    sync(far)
    assert hosts(far) == {"cn": FAR, "stays": HOST}
    assert everything() == before
    assert again(one).host == FAR
    [told] = [one for one in caplog.records if row(far).uuid in one.getMessage()]
    assert (told.levelname, HOST in told.getMessage()) == ("WARNING", True)

    # The former host returns and does not know of the takeover.
    report(near)
    if down == "forced":
        force_down(near, down=False)
    near.driver.nodes["cn"] = flat(VCPU=2)
    revision = row(near).revision
    for cycle in (near.cycle.drift, near.cycle.sync, near.restarted().sync):
        outcome = cycle()
        assert row(near).revision == revision
        assert all(isinstance(each, NodeTaken) for each in outcome.problems)
        assert everything() == before
        assert hosts(near) == {"cn": FAR, "stays": HOST}
    assert [one.facts["host"] for one in outcome.problems] == [FAR]
    del near.driver.nodes["cn"]
    sync(near, far, near, far)
    assert everything() == before
    assert_nothing_to_do(near, far)


def test_node_of_another_instance_name_is_never_taken_over(
    near: Publishing, placement: PlacementFixture
) -> None:
    before = contents(placement)
    with Publishing(placement, near.state_path, name="other", host=FAR) as other:
        other.driver.nodes["cn"] = NODE
        for change in ("listed", "let go", "down"):
            if change == "let go":
                sync_without(near, "cn")
            if change == "down":
                force_down(near)
            problems = other.cycle.sync().problems
            assert any(isinstance(one, NodeTaken) for one in problems)
            assert hosts(near)["cn"] == HOST
            assert row(near).driver_instance == "scripted"
            assert contents(placement) == before
            assert not stored(other.state_path, "other", FAR)


def test_nodes_of_the_same_instance_name_on_another_host_are_no_orphans(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    far.driver.nodes["far"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 2}})
    far.driver.nodes["beyond"] = NODE
    sync(far)
    for one in (near, far):
        outcome = one.restarted().sync()
        assert not outcome.pending
        assert not outcome.problems
    # Each host reports a provider that has our instance trait and no record.
    placement.client.create_provider(CONSUMER, "lost", None)
    marks = [*everything()["stays"]["traits"]]
    generation = {one.name: one.generation for one in placement.client.list_providers()}["lost"]
    answer = placement.adapter.request(
        f"/resource_providers/{CONSUMER}/traits",
        "PUT",
        microversion="1.39",
        raise_exc=False,
        json={"resource_provider_generation": generation, "traits": marks},
    )
    assert answer.status_code == 200, answer.text
    for one in (near, far):
        assert [each.name for each in one.restarted().sync().pending] == ["lost"]
    assert everything().keys() == {"cn", "stays", "far", "gpu", "beyond", "lost"}


# Several hosts at once.


def sync_at_once(*every: Publishing) -> dict[str, CycleResult]:
    """Let all hosts list the node cn and sync at the same moment; return the results by host."""
    start = Barrier(len(every), timeout=60)

    def cycle(one: Publishing) -> CycleResult:
        one.driver.nodes["cn"] = NODE
        report(one)
        start.wait()
        return one.cycle.sync()

    with ThreadPoolExecutor(len(every)) as pool:
        outcomes = list(pool.map(cycle, every))
    return {one.host: outcome for one, outcome in zip(every, outcomes, strict=True)}


def test_takeover_by_two_hosts_at_once_has_one_winner(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    sync(near)
    sync_without(near, "cn")
    before = contents(placement)
    with publish(placement, near, THIRD) as third:
        outcomes = sync_at_once(far, third)

        winner = hosts(far)["cn"]
        [loser] = {FAR, THIRD} - {winner}
        assert not outcomes[winner].problems
        [problem] = outcomes[loser].problems
        assert isinstance(problem, NodeTaken)
        assert problem.facts["host"] == winner
        assert contents(placement) == before
        assert again(one).host == winner
        losing = far if loser == FAR else third
        assert recorded(losing) == set()
        assert not losing.cycle.sync().steps
        assert noted(far.context) == taken(far.context)


def test_takeover_lost_after_the_row_was_read_names_the_winner(
    near: Publishing, far: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(near)
    sync_without(near, "cn")
    with publish(placement, near, THIRD) as third:
        for one in (far, third):
            one.driver.nodes["cn"] = NODE
            report(one)
        read = ProviderRecordList.get_by_filters

        def late(context: Context, **filters: Any) -> ProviderRecordList:
            if "provider_uuid" in filters:
                monkeypatch.undo()
                sync(third)
            return read(context, **filters)

        monkeypatch.setattr(ProviderRecordList, "get_by_filters", late)
        [problem] = far.cycle.sync().problems
        assert isinstance(problem, NodeTaken)
        assert problem.facts["host"] == THIRD == hosts(far)["cn"]


def test_host_that_returns_during_a_takeover_loses_or_keeps_everything(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    sync(near)
    sync_without(near, "cn")
    before = contents(placement)
    sync_at_once(near, far)
    for each in (near, far, near, far):
        assert all(isinstance(problem, NodeTaken) for problem in each.cycle.sync().problems)
    assert contents(placement) == before
    assert again(one).host == hosts(near)["cn"]
    assert noted(near.context) == taken(near.context)


# Killed.


def test_takeover_by_a_host_killed_at_any_step_is_completed_by_the_next_cycle(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    where: str,
    draw: Draw,
) -> None:
    found = []
    with TakingOver(placement, placement_url[0], tmp_path) as taking_over:
        assert len(taking_over.boundaries) >= 4
        follows: dict[str, Callable[[], Any]] = {
            "it comes": lambda: taking_over.faults(near_first=False),
            "the other comes": lambda: taking_over.faults(near_first=True),
            "it goes back": taking_over.faults_back,
        }
        # Kill the host before its first write, and after each write.
        moments = (0, *range(1, len(taking_over.boundaries), 2))
        cases = list(product(moments, follows))
        # If another process stores the objects, draw from a third of the cases.
        for number, then in draw(cases[:: 1 if where == "here" else 3], 3):
            ended = taking_over.play(kill_at=number)
            assert ended.code == -signal.SIGKILL, (number, ended)
            faults = follows[then]()
            found += [(ended.boundaries[-1], then, faults)] if faults else []
    assert not found


# An instance with another name.


@pytest.mark.parametrize("new", [frozenset(), frozenset(["CUSTOM_WHARFINGER_RENAMED"])], ids=len)
def test_renamed_instance_gets_the_node_once_its_trait_replaces_the_old_one(
    near: Publishing, placement: PlacementFixture, new: frozenset[str]
) -> None:
    is_taken = bool(new)
    root = contents(placement)["cn"]["uuid"]
    placement.client.create_trait("CUSTOM_WHARFINGER_RENAMED")
    traits = placement.client.get_traits(root)
    rest = traits.traits - {"CUSTOM_WHARFINGER_SCRIPTED"} | new
    placement.client.set_traits(root, traits.resource_provider_generation, rest)
    with Publishing(placement, near.state_path, name="renamed") as renamed:
        renamed.driver.nodes["cn"] = NODE

        problems = renamed.cycle.sync().problems

        row = ComputeNode.get_by_uuid(renamed.context, root)
    if is_taken:
        assert not problems
        assert row.driver_instance == "renamed"
        assert "CUSTOM_WHARFINGER_RENAMED" in contents(placement)["cn"]["traits"]
    else:
        assert [type(one) for one in problems] == [NodeTaken]
        assert row.driver_instance == "scripted"
        assert "CUSTOM_WHARFINGER_RENAMED" not in contents(placement)["cn"]["traits"]


# Concurrent hosts.


def test_node_taken_over_during_the_former_hosts_listing_is_not_deleted(
    near: Publishing, far: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lists(refresh: bool = False) -> list[str]:
        monkeypatch.undo()
        far.driver.nodes["cn"] = NODE
        sync(far)
        return near.driver.get_available_nodes(refresh)

    sync_without(near, "cn")
    before = everything()
    monkeypatch.setattr(near.driver, "get_available_nodes", lists)

    sync(near)

    assert everything() == before
    assert noted(far.context).keys() == {(HOST, "stays"), (FAR, "cn")}


def test_node_that_cannot_be_described_after_a_takeover_keeps_its_row(
    near: Publishing, far: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(node: str) -> ComputeNode:
        raise OSError("no answer")

    sync_without(near, "cn")
    root = contents(near.placement)["cn"]["uuid"]
    row = ComputeNode.get_by_uuid(far.context, root)
    row.host = FAR
    row.save()  # the far host has the node, and no record of it
    far.driver.nodes["cn"] = NODE
    with monkeypatch.context() as failing:
        failing.setattr(far.driver, "get_available_resource", fails)
        assert far.restarted().sync().problems

    for _ in range(3):
        near.cycle.sync()

    assert contents(near.placement)["cn"]["uuid"] == root
    sync(far)
    assert (FAR, "cn") in noted(far.context)
