"""Nodes that move to another host: it takes them over, with all that is known of them."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.functional.tracker.places import ANYWHERE
from tests.lab.claiming import instance, migration, noted, taken
from tests.lab.cycles import HOST, Publishing, allocate, contents, everything, stored
from tests.lab.drivers import Edit, also, does_not_answer, flat, with_children
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.taking_over import TakingOver
from wharfinger.driver import SUPPORTED, Capabilities, unsupported
from wharfinger.exceptions import NodeTaken
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Instance,
    Migration,
    Reservation,
    ReservationList,
    Service,
)
from wharfinger.placement.holds import Holds
from wharfinger.providers import ProviderTree
from wharfinger.tracker import services
from wharfinger.tracker.cycle import DriverCycle, Outcome
from wharfinger.tracker.handover import Handover

pytestmark = ANYWHERE

FAR, THIRD = "far-host", "third-host"
NODE: Edit = flat(VCPU=8, MEMORY_MB=4096)
CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"

Pace = Callable[[DriverCycle], Outcome]
PACES: dict[str, Pace] = {
    "sync": DriverCycle.sync,
    "drift": DriverCycle.drift,
    "poll": DriverCycle.poll,
}


def publish(placement: PlacementFixture, publishing: Publishing, host: str) -> Publishing:
    """The same driver instance on another host, with its objects in the same place."""
    return Publishing(placement, publishing.state_path, host=host)


@pytest.fixture
def near(publishing: Publishing) -> Publishing:
    """What has published two nodes, on a host that is up."""
    publishing.driver.nodes |= {"cn": NODE, "stays": NODE}
    sync(publishing)
    return publishing


@pytest.fixture
def far(near: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    with publish(placement, near, FAR) as fixture:
        yield fixture


def sync(*every: Publishing) -> None:
    """A cycle of each, which leaves nothing to tell, and its report."""
    for one in every:
        outcome = one.cycle.sync()
        assert not outcome.problems, outcome.problems
        report(one)


def report(one: Publishing) -> None:
    services.report(one.context, one.host, {"OWNER_NOVA"}, complete=True)


def let_go(one: Publishing, *names: str) -> None:
    """Have a complete listing lack nodes."""
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
    service = Service.get_by_host_and_binary(one.context, one.host, services.BINARY)
    service.forced_down = down
    service.save()


def known(one: Publishing) -> set[str]:
    """Of what this instance, on this host, remembers something, by name."""
    return {
        record.applied.name
        for record in stored(one.state_path, host=one.host).values()
        if record.applied
    }


def settled(*every: Publishing) -> None:
    """See that nothing more is to be done, or told."""
    for one in every:
        plan = one.restarted().plan()
        assert not plan.steps
        assert not plan.pending
        assert not plan.problems


# What another host has let go.


def test_a_node_that_its_host_lists_no_more_is_taken_over_by_the_one_that_does(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    before, uuid = everything(), row(near).uuid
    let_go(near, "cn")
    far.driver.nodes["cn"] = NODE
    sync(far)

    assert hosts(far) == {"cn": FAR, "stays": HOST}
    assert row(far).uuid == uuid
    assert known(far) == {"cn"}
    # It was never reserved as absent, and nothing of it was made anew.
    assert everything() == before
    for _ in range(3):
        sync(near, far)
    assert known(near) == {"stays"}
    assert everything() == before
    assert hosts(far) == {"cn": FAR, "stays": HOST}
    settled(near, far)


def test_a_tree_is_taken_over_with_its_children_and_what_is_allocated(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    node = with_children({"VCPU": 8}, {"gpu-0": {"VGPU": 2}, "gpu-1": {"VGPU": 4}})
    near.driver.nodes["cn"] = node
    sync(near)
    use: dict[str, Any] = {"gpu-0": {"VGPU": 1}, "cn": {"VCPU": 2}}
    allocate(placement, CONSUMER, **use)
    before = everything()
    let_go(near, "cn")
    far.driver.nodes["cn"] = node
    sync(far, near, far, near)
    assert everything() == before
    assert known(far) == {"cn", "gpu-0", "gpu-1"}
    assert known(near) == {"stays"}

    far.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu-0": {"VGPU": 2}})
    sync(far, far)
    assert everything().keys() == {"cn", "gpu-0", "stays"}, "it is this host's to remove"


def test_the_figures_to_restore_come_with_a_node(
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
    near.driver.nodes["cn"] = also(own, reserve)(NODE)
    sync(near)
    reserved = contents(placement)
    assert reserved["cn"]["inventories"] == {"VCPU": (8, 8), "MEMORY_MB": (4096, 4096)}

    let_go(near, "cn")
    far.driver.nodes["cn"] = also(own, reserve)(NODE)
    sync(far, near)
    assert contents(placement) == reserved
    [record] = stored(far.state_path, host=FAR).values()
    assert record.own_reserved == {"VCPU": 1, "MEMORY_MB": 0}
    assert record.reservations == ("cleaning",)

    far.driver.nodes["cn"] = also(own)(NODE)
    sync(far)
    assert contents(placement) == free


def test_a_stored_reservation_holds_a_node_wherever_it_goes(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    free = contents(placement)
    client = placement.new_client()
    [summary] = client.list_providers(name="cn")
    Holds(client, near.context).reserve(summary, reason="operator", holder="people")
    sync(near)
    reserved = contents(placement)
    assert reserved["cn"]["inventories"] == {"VCPU": (8, 8), "MEMORY_MB": (4096, 4096)}

    let_go(near, "cn")
    far.driver.nodes["cn"] = NODE
    sync(far, near, far)
    assert contents(placement) == reserved
    [held] = ReservationList.get_by_filters(far.context)
    assert isinstance(held, Reservation)
    assert (held.provider_uuid, held.holder) == (row(far).uuid, "people")
    held.destroy()
    sync(near, far)
    assert contents(placement) == free


def test_instances_and_moves_come_with_their_node(near: Publishing, far: Publishing) -> None:
    here, there = (HOST, "cn"), (HOST, "stays")
    context = near.context
    sits, comes, goes, other = (
        instance(context, vcpus, place=place)
        for vcpus, place in ((1, here), (2, there), (3, here), (4, there))
    )
    moves = [
        migration(context, comes, there, dest_compute=HOST, dest_node="cn"),
        migration(context, goes, here, dest_compute=HOST, dest_node="stays"),
    ]
    ended = migration(context, sits, here, status="failed", dest_compute=HOST, dest_node="stays")
    sync(near)
    counted = {node: amounts for (_, node), amounts in noted(context).items()}
    assert counted == {"cn": (6, 0, 0), "stays": (9, 0, 0)}

    let_go(near, "cn")
    far.driver.nodes["cn"] = NODE
    for _ in range(2):
        sync(far, near)
        assert {node: amounts for (_, node), amounts in noted(context).items()} == counted
        assert noted(context) == taken(context)
    assert {one.uuid: (one.host, one.node) for one in map(again, (sits, comes, goes, other))} == {
        sits.uuid: (FAR, "cn"),
        comes.uuid: there,
        goes.uuid: (FAR, "cn"),
        other.uuid: there,
    }
    arriving, leaving = (Migration.get_by_uuid(context, move.uuid) for move in moves)
    assert (arriving.source_compute, arriving.dest_compute) == (HOST, FAR)
    assert (leaving.source_compute, leaving.dest_compute) == (FAR, HOST)
    assert Migration.get_by_uuid(context, ended.uuid).source_compute == HOST, "that is over"


def again(one: Instance) -> Instance:
    return Instance.get_by_uuid(one._context, one.uuid)


def test_what_its_host_lets_go_while_another_one_lists_it_is_taken_over_at_any_pace(
    near: Publishing, far: Publishing, pace: str, placement: PlacementFixture
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    sync(near)
    feed = Feed(far)
    far.driver.nodes["cn"] = NODE
    [problem] = far.cycle.sync().problems
    assert isinstance(problem, NodeTaken)
    report(far)
    before = contents(placement)
    let_go(near, "cn")

    feed.changed = {"cn"}
    assert not PACES[pace](far.cycle).problems
    for _ in range(2):
        assert hosts(far) == {"cn": FAR, "stays": HOST}
        assert (again(one).host, again(one).node) == (FAR, "cn")
        assert noted(far.context) == taken(far.context)
        assert noted(far.context)[FAR, "cn"] == (2, 0, 0)
        assert known(far) == {"cn"}
        assert contents(placement) == before
        sync(far, near)
    settled(near, far)


@pytest.fixture(params=PACES)
def pace(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Feed:
    """Gives a scripted driver a change feed."""

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


# What is another host's.


def test_a_node_that_its_host_still_lists_is_left_to_it(
    near: Publishing, far: Publishing, pace: str, placement: PlacementFixture
) -> None:
    before, revision = contents(placement), row(near).revision
    feed = Feed(far)
    far.driver.nodes |= {"cn": flat(VCPU=2), "new": NODE}
    feed.changed = {"cn", "new"}
    [problem] = PACES[pace](far.cycle).problems
    assert isinstance(problem, NodeTaken)
    assert problem.facts == {
        "node": "cn",
        "uuid": row(near).uuid,
        "instance": "scripted",
        "other": "scripted",
        "host": HOST,
    }
    assert hosts(near) == {"cn": HOST, "stays": HOST, "new": FAR}
    assert row(near).revision == revision
    assert {name: one for name, one in contents(placement).items() if name != "new"} == before
    assert known(far) == {"new"}
    sync(near)


def test_a_host_that_lists_again_what_another_has_taken_over_leaves_it_to_that(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    let_go(near, "cn")
    far.driver.nodes["cn"] = NODE
    sync(far)
    before, revision = contents(placement), row(near).revision
    near.driver.nodes["cn"] = flat(VCPU=2)
    for cycle in (near.cycle.sync, near.cycle.drift, near.restarted().sync):
        for problem in cycle().problems:
            assert isinstance(problem, NodeTaken)
            assert problem.facts["host"] == FAR
        assert contents(placement) == before
        assert (row(near).host, row(near).revision) == (FAR, revision)
    [_told] = near.cycle.sync().problems
    sync(far)
    del near.driver.nodes["cn"]
    sync(near, far, near)
    assert contents(placement) == before
    settled(near, far)


def test_a_plan_takes_nothing_over(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    let_go(near, "cn")
    far.driver.nodes["cn"] = NODE
    before, revision = contents(placement), row(near).revision
    far.cycle.plan()
    assert (row(near).host, row(near).revision) == (HOST, revision)
    assert contents(placement) == before
    assert known(far) == set()


@pytest.mark.parametrize("down", ["silent", "forced", "never there"])
def test_what_a_host_that_is_down_had_is_taken_over(
    near: Publishing, far: Publishing, placement: PlacementFixture, down: str
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    near.cycle.drift()
    match down:
        case "silent":
            [service] = [Service.get_by_host_and_binary(near.context, HOST, services.BINARY)]
            assert service.last_seen_up is not None
            service.last_seen_up = service.last_seen_up.replace(year=2001)
            service.save()
        case "forced":
            force_down(near)
        case "never there":
            Service.get_by_host_and_binary(near.context, HOST, services.BINARY).destroy()
    before = everything()
    far.driver.nodes["cn"] = NODE
    sync(far)
    assert hosts(far) == {"cn": FAR, "stays": HOST}
    assert everything() == before
    assert again(one).host == FAR

    # It comes back, and knows nothing of that.
    report(near)
    if down == "forced":
        force_down(near, down=False)
    for cycle in (near.cycle.drift, near.cycle.sync, near.restarted().sync):
        outcome = cycle()
        assert all(isinstance(each, NodeTaken) for each in outcome.problems)
        assert everything() == before
        assert hosts(near) == {"cn": FAR, "stays": HOST}
    assert outcome.problems
    del near.driver.nodes["cn"]
    sync(near, far, near, far)
    assert everything() == before
    settled(near, far)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_goes_to_and_fro_with_all_that_is_known_of_it(
    near: Publishing, far: Publishing, placement: PlacementFixture, restarted: bool
) -> None:
    """Each time from a host that is down, to one that has known an earlier state of it."""
    one = instance(near.context, 1, place=(HOST, "cn"))
    near.cycle.drift()
    far.driver.nodes["cn"] = NODE
    both = (near, far)
    for number in range(4):
        before, after = both[number % 2], both[1 - number % 2]
        force_down(before)
        outcome = (after.restarted() if restarted else after.cycle).sync()
        assert not outcome.problems, (number, outcome.problems)
        report(after)
        force_down(after, down=False)
        assert hosts(after) == {"cn": after.host, "stays": HOST}
        assert again(one).host == after.host, number
        assert noted(after.context) == taken(after.context)
        # Known to the one that has it alone: whoever gets it next has to be told.
        grown = with_children({"VCPU": 8, "MEMORY_MB": 4096}, {f"gpu-{number}": {"VGPU": 2}})
        after.driver.nodes["cn"] = grown
        assert not after.cycle.sync().problems
        before.driver.nodes["cn"] = grown
    # What was published before it went has come along each time: it goes.
    last = both[0]
    force_down(both[0], down=False)
    del both[1].driver.nodes["cn"]
    for _ in range(2):
        for each in both:
            each.cycle.sync()
            report(each)
    assert contents(placement).keys() == {"cn", "stays", "gpu-3"}
    assert hosts(last)["cn"] in {HOST, FAR}


def test_a_node_of_an_instance_of_another_name_is_never_taken_over(
    near: Publishing, placement: PlacementFixture
) -> None:
    before = contents(placement)
    with Publishing(placement, near.state_path, name="other", host=FAR) as other:
        other.driver.nodes["cn"] = NODE
        for change in ("listed", "let go", "down"):
            if change == "let go":
                let_go(near, "cn")
            if change == "down":
                force_down(near)
            problems = other.cycle.sync().problems
            assert any(isinstance(one, NodeTaken) for one in problems)
            assert hosts(near)["cn"] == HOST
            assert row(near).driver_instance == "scripted"
            assert contents(placement) == before
            assert not stored(other.state_path, "other", FAR)


def test_a_namesake_s_nodes_are_no_orphans(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    far.driver.nodes["far"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 2}})
    far.driver.nodes["beyond"] = NODE
    sync(far)
    for one in (near, far):
        outcome = one.restarted().sync()
        assert not outcome.pending
        assert not outcome.problems
    # What has a mark, and is nobody's, is told by each.
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


# Several at once.


@pytest.mark.parametrize("attempt", range(5))
def test_of_two_that_take_over_a_node_at_once_one_does(
    near: Publishing, far: Publishing, placement: PlacementFixture, attempt: int
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    sync(near)
    let_go(near, "cn")
    before = contents(placement)
    with publish(placement, near, THIRD) as third:
        start = Barrier(2, timeout=60)

        def cycle(one: Publishing) -> Outcome:
            one.driver.nodes["cn"] = NODE
            report(one)
            start.wait()
            return one.cycle.sync()

        with ThreadPoolExecutor(2) as pool:
            outcomes = dict(zip((FAR, THIRD), pool.map(cycle, (far, third)), strict=True))

        winner = hosts(far)["cn"]
        [loser] = {FAR, THIRD} - {winner}
        assert not outcomes[winner].problems
        [problem] = outcomes[loser].problems
        assert isinstance(problem, NodeTaken)
        assert problem.facts["host"] == winner
        assert contents(placement) == before
        assert again(one).host == winner
        losing = far if loser == FAR else third
        assert known(losing) == set()
        assert not losing.cycle.sync().steps
        assert noted(far.context) == taken(far.context)


def test_who_was_faster_is_named_though_the_row_was_read_before(
    near: Publishing, far: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(near)
    let_go(near, "cn")
    with publish(placement, near, THIRD) as third:
        for one in (far, third):
            one.driver.nodes["cn"] = NODE
            report(one)
        ask = Handover._absent

        def late(handover: Handover, rows: Iterable[ComputeNode]) -> frozenset[str]:
            monkeypatch.undo()
            sync(third)
            return ask(handover, rows)

        monkeypatch.setattr(Handover, "_absent", late)
        [problem] = far.cycle.sync().problems
        assert isinstance(problem, NodeTaken)
        assert problem.facts["host"] == THIRD == hosts(far)["cn"]


@pytest.mark.parametrize("attempt", range(3))
def test_a_host_that_comes_back_while_another_takes_over_loses_or_keeps_all(
    near: Publishing, far: Publishing, placement: PlacementFixture, attempt: int
) -> None:
    one = instance(near.context, 2, place=(HOST, "cn"))
    sync(near)
    let_go(near, "cn")
    before = contents(placement)
    start = Barrier(2, timeout=60)

    def cycle(each: Publishing) -> Outcome:
        each.driver.nodes["cn"] = NODE
        report(each)
        start.wait()
        return each.cycle.sync()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(cycle, (near, far)))
    for each in (near, far, near, far):
        assert all(isinstance(problem, NodeTaken) for problem in each.cycle.sync().problems)
    assert contents(placement) == before
    assert again(one).host == hosts(near)["cn"]
    assert noted(near.context) == taken(near.context)


# Killed.


@pytest.mark.parametrize("then", ["it comes", "the other comes", "it goes back"])
def test_a_host_that_dies_between_any_two_steps_of_it_leaves_what_the_next_cycle_completes(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    then: str,
) -> None:
    found = []
    with TakingOver(placement, placement_url[0], tmp_path) as taking_over:
        # Before its first write, and after each.
        for number in (0, *range(1, len(taking_over.boundaries), 2)):
            ended = taking_over.play(kill_at=number)
            assert ended.code == -signal.SIGKILL, (number, ended)
            if then == "it goes back":
                faults = taking_over.faults_back()
            else:
                faults = taking_over.faults(near_first=then == "the other comes")
            found += [(ended.boundaries[-1], faults)] if faults else []
        assert len(taking_over.boundaries) >= 10
        assert any("instance" in one.lower() for one in taking_over.boundaries)
    assert not found


# A driver that fails halfway.


def test_a_driver_that_fails_halfway_through_its_nodes_loses_none(
    near: Publishing, placement: PlacementFixture
) -> None:
    near.driver.nodes = {f"cn-{number}": NODE for number in range(6)} | {"cn": NODE}
    near.allow_mass_removal = True
    near.restarted()
    near.cycle.sync()
    before = contents(placement)
    grown = flat(VCPU=16, MEMORY_MB=4096)
    for name in ("cn-1", "cn-3", "cn"):
        near.driver.nodes[name] = grown
    for name in ("cn-2", "cn-4"):
        near.driver.nodes[name] = does_not_answer
    for _ in range(3):
        outcome = near.cycle.sync()
        assert {str(one).count("no answer") for one in outcome.problems} == {1}
        assert len(outcome.problems) == 2
        now = contents(placement)
        assert now.keys() >= before.keys() - {"stays"}
        for name in ("cn-0", "cn-2", "cn-4", "cn-5"):
            assert now[name] == before[name]
        for name in ("cn-1", "cn-3", "cn"):
            assert now[name]["inventories"]["VCPU"] == (16, 0)
    assert {one.hypervisor_hostname: one.vcpus for one in all_rows(near)} == {
        **{f"cn-{number}": 8 for number in (0, 2, 4, 5)},
        **dict.fromkeys(("cn-1", "cn-3", "cn"), 16),
    }


def test_one_of_several_nodes_that_come_may_fail(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    before = contents(placement)
    let_go(near, "cn", "stays")
    far.driver.nodes = {"cn": does_not_answer, "stays": NODE}
    [problem] = far.cycle.sync().problems
    assert "no answer" in str(problem)
    assert hosts(far)["stays"] == FAR
    assert contents(placement) == before
    far.driver.nodes["cn"] = NODE
    sync(far)
    assert hosts(far) == {"cn": FAR, "stays": FAR}
    assert contents(placement) == before


def all_rows(one: Publishing) -> list[ComputeNode]:
    return list(ComputeNodeList.get_by_filters(one.context))


# An instance that was given another name.


@pytest.mark.parametrize("is_taken", [False, True], ids=["marked", "mark taken"])
def test_an_instance_under_a_new_name_has_the_node_when_the_old_mark_is_gone(
    near: Publishing, placement: PlacementFixture, is_taken: bool
) -> None:
    root = contents(placement)["cn"]["uuid"]
    if is_taken:
        traits = placement.client.get_traits(root)
        rest = traits.traits - {"CUSTOM_WHARFINGER_SCRIPTED"}
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


# While one host is at work, another one is too.


def test_a_node_that_is_taken_over_while_the_former_host_lists_is_not_deleted(
    near: Publishing, far: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lists(refresh: bool = False) -> list[str]:
        monkeypatch.undo()
        far.driver.nodes["cn"] = NODE
        sync(far)
        return near.driver.get_available_nodes(refresh)

    let_go(near, "cn")
    before = everything()
    monkeypatch.setattr(near.driver, "get_available_nodes", lists)

    sync(near)

    assert everything() == before
    assert noted(far.context).keys() == {(HOST, "stays"), (FAR, "cn")}


def test_a_host_that_is_at_work_is_up_however_long_it_takes(
    near: Publishing, far: Publishing
) -> None:
    long_ago = Service.get_by_host_and_binary(near.context, HOST, services.BINARY).report_count
    near.cycle._beaten -= 3600.0

    near.cycle.drift()
    near.cycle.drift()

    service = Service.get_by_host_and_binary(near.context, HOST, services.BINARY)
    assert service.report_count == long_ago + 1


def test_a_node_that_cannot_be_described_after_a_takeover_keeps_its_row(
    near: Publishing, far: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(node: str) -> ComputeNode:
        raise OSError("no answer")

    let_go(near, "cn")
    root = contents(near.placement)["cn"]["uuid"]
    row = ComputeNode.get_by_uuid(far.context, root)
    row.host = FAR
    row.save()  # and killed before it had inherited anything
    far.driver.nodes["cn"] = NODE
    with monkeypatch.context() as failing:
        failing.setattr(far.driver, "get_available_resource", fails)
        assert far.restarted().sync().problems

    for _ in range(3):
        near.cycle.sync()

    assert contents(near.placement)["cn"]["uuid"] == root
    sync(far)
    assert (FAR, "cn") in noted(far.context)
