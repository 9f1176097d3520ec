"""Moves: what they write at source and destination, the allocations, and how they end."""

from collections.abc import Callable

import pytest

from tests.lab.allocating import PROJECT, USER, Desk, faults, flavor, held
from tests.lab.claimants import Posts, reserved
from tests.lab.claiming import migration, noted, taken
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drawing import Draw
from tests.lab.drivers import flat
from tests.lab.histories import CLEANED, FLAVORS, Quay, State, on, states
from tests.lab.moments import Moments
from tests.lab.reserving import is_full, summary
from tests.lab.samples import uuid
from wharfinger.exceptions import AllocationRefused, NoCandidates, ObjectNotFound
from wharfinger.objects import Instance, Migration, MigrationList
from wharfinger.reconcile.reserve_and_release import Reservations

ONE, OTHER = uuid("an instance"), uuid("another instance")
SMALL, LARGE = FLAVORS["small"], FLAVORS["large"]
ENDINGS = pytest.mark.parametrize("ending", ["confirm", "revert"])
ENDED = {"confirm": "confirmed", "revert": "reverted"}


def other_than(name: str) -> str:
    return {"cn-0": "cn-1", "cn-1": "cn-0"}[name]


def only_move(desk: Desk) -> Migration:
    [found] = MigrationList.get_by_filters(desk.context)
    return found


def usage(desk: Desk) -> dict[str, int]:
    """Return the used VCPUs in each node's row; assert that instances and moves use as many."""
    found = noted(desk.context)
    assert found == taken(desk.context)
    return {name: vcpus for (_, name), (vcpus, _, _) in found.items()}


@pytest.fixture
def placed(desk: Desk) -> str:
    """The name of the node of a small instance."""
    return str(desk.claim(SMALL, uuid=ONE).instance.node)


# Writes of a move.


@pytest.mark.parametrize("kind", ["resize", "migration"])
def test_start_gives_the_former_allocation_to_the_move_and_the_new_one_to_the_instance(
    desk: Desk, placed: str, publishing: Publishing, kind: str
) -> None:
    there, vcpus = other_than(placed), 2 if kind == "resize" else 1
    generation = publishing.client.get_allocations(ONE)["consumer_generation"]
    with Posts(publishing.placement) as posts:
        given = desk.moves.start(ONE, LARGE if kind == "resize" else None, suits=on(there))

    whose = {"project_id": PROJECT, "user_id": USER}
    source, destination = (summary(publishing.placement, name).uuid for name in (placed, there))
    assert posts.bodies == [
        {
            given.uuid: {
                "allocations": {source: {"resources": {"VCPU": 1}}},
                "consumer_generation": None,
                "consumer_type": "MIGRATION",
                **whose,
            },
            ONE: {
                "allocations": {destination: {"resources": {"VCPU": vcpus}}},
                "consumer_generation": generation,
                "consumer_type": "INSTANCE",
                **whose,
            },
        }
    ]
    assert held() == {given.uuid: {placed: {"VCPU": 1}}, ONE: {there: {"VCPU": vcpus}}}
    move = only_move(desk)
    assert (move.uuid, move.status, move.migration_type) == (given.uuid, "finished", kind)
    assert (move.source_compute, move.source_node) == (HOST, placed)
    assert (move.dest_compute, move.dest_node) == (HOST, there)
    names = (move.old_flavor.name, move.new_flavor.name)
    assert names == ("small", "large" if kind == "resize" else "small")
    assert Instance.get_by_uuid(desk.context, ONE).node == placed
    assert usage(desk) == {placed: 1, there: vcpus}
    assert faults(publishing.context) == []


@ENDINGS
def test_ended_move_leaves_allocations_only_at_the_source_or_at_the_destination(
    desk: Desk, placed: str, publishing: Publishing, ending: str
) -> None:
    there = other_than(placed)
    node, vcpus, name = (there, 2, "large") if ending == "confirm" else (placed, 1, "small")
    requests = publishing.placement.requests
    requests.clear()
    begun = desk.moves.start(ONE, LARGE, suits=on(there)).uuid
    assert [one.partition("?")[0] for one in requests.seen] == [
        f"GET /allocations/{ONE}",
        "GET /allocation_candidates",
        "POST /allocations",
    ]
    end, other = desk.moves.confirm, desk.moves.revert
    if ending == "revert":
        end, other = other, end
    left = summary(publishing.placement, other_than(node)).uuid
    requests.clear()

    move, given_back = end(ONE)

    assert sorted(requests.seen) == [
        *sorted(f"GET /allocations/{one}" for one in (ONE, begun)),
        f"GET /resource_providers?uuid={left}",
        "POST /allocations",
    ]
    assert (move.uuid, move.status, given_back) == (begun, ENDED[ending], ())
    assert only_move(desk).status == move.status
    one = Instance.get_by_uuid(desk.context, ONE)
    assert (one.host, one.node, one.flavor.name) == (HOST, node, name)
    assert held() == {ONE: {node: {"VCPU": vcpus}}}
    assert usage(desk) == {node: vcpus, other_than(node): 0}
    assert faults(desk.context) == []

    revision = only_move(desk).revision
    requests.clear()
    for _ in range(2):
        again, given_back = end(ONE)
        assert (again.uuid, again.status, given_back) == (begun, move.status, ())
        with pytest.raises(AllocationRefused, match=f"last move, {begun}, is {move.status}"):
            other(ONE)
    assert requests.writes == []
    assert held() == {ONE: {node: {"VCPU": vcpus}}}
    assert only_move(desk).revision == revision


# Destinations.


@pytest.fixture
def one_node(desk: Desk, publishing: Publishing) -> Desk:
    """A desk with one node of three VCPUs, and a small instance on it."""
    del publishing.driver.nodes["cn-1"]
    publishing.driver.nodes["cn-0"] = flat(VCPU=3)
    for _ in range(3):
        assert not publishing.cycle.sync().problems
    desk.claim(SMALL, uuid=ONE)
    return desk


def test_resize_on_the_same_node_keeps_both_allocations_until_it_ends(one_node: Desk) -> None:
    # Both allocations must fit on the node, and a migration must change the node.
    for wanted in (flavor("huge", 3), None):
        with pytest.raises(NoCandidates):
            one_node.moves.start(ONE, wanted)
        assert held() == {ONE: {"cn-0": {"VCPU": 1}}}
        assert usage(one_node) == {"cn-0": 1}
    for ending, vcpus in (("revert", 1), ("confirm", 2)):
        move = one_node.moves.start(ONE, LARGE)
        assert held() == {move.uuid: {"cn-0": {"VCPU": 1}}, ONE: {"cn-0": {"VCPU": 2}}}
        assert usage(one_node) == {"cn-0": 3}
        assert (move.source_node, move.dest_node) == ("cn-0", "cn-0")
        assert getattr(one_node.moves, ending)(ONE)[0].status == ENDED[ending]
        assert held() == {ONE: {"cn-0": {"VCPU": vcpus}}}
        assert usage(one_node) == {"cn-0": vcpus}
        assert faults(one_node.context) == []
    statuses = [one.status for one in MigrationList.get_by_filters(one_node.context)]
    assert statuses == ["failed", "failed", "reverted", "confirmed"]


def test_move_to_a_full_node_changes_nothing_and_another_may_follow(
    desk: Desk, placed: str
) -> None:
    there = other_than(placed)
    desk.claim(LARGE, uuid=OTHER, suits=on(there))
    before = Instance.get_by_uuid(desk.context, ONE)
    for wanted in (None, LARGE):
        with pytest.raises(NoCandidates) as caught:
            desk.moves.start(ONE, wanted, suits=on(there))
        assert "candidate explain" in caught.value.remedy
    assert held() == {ONE: {placed: {"VCPU": 1}}, OTHER: {there: {"VCPU": 2}}}
    assert Instance.get_by_uuid(desk.context, ONE).revision == before.revision
    assert usage(desk) == {placed: 1, there: 2}
    desk.claims.release(OTHER)

    first = desk.moves.start(ONE)
    assert first.dest_node == there
    for wanted in (None, LARGE):
        with pytest.raises(
            AllocationRefused,
            match=rf"migration {first.uuid} \(finished\) of the instance is neither",
        ):
            desk.moves.start(ONE, wanted)
    assert held() == {first.uuid: {placed: {"VCPU": 1}}, ONE: {there: {"VCPU": 1}}}
    assert desk.moves.confirm(ONE)[0].uuid == first.uuid
    assert faults(desk.context) == []


# Refused moves.


def test_move_without_a_change_or_of_an_instance_without_allocation_is_refused(
    desk: Desk, placed: str
) -> None:
    with pytest.raises(AllocationRefused, match="since it already has flavor small"):
        desk.moves.start(ONE, flavor("small"))
    for act in (desk.moves.start, desk.moves.confirm, desk.moves.revert):
        with pytest.raises(ObjectNotFound):
            act(OTHER)
    assert held() == {ONE: {placed: {"VCPU": 1}}}
    desk.client.delete_allocations(ONE)
    with pytest.raises(AllocationRefused, match="no allocation"):
        desk.moves.start(ONE)
    for act in (desk.moves.confirm, desk.moves.revert):
        with pytest.raises(AllocationRefused, match="no move"):
            act(ONE)
    assert not list(MigrationList.get_by_filters(desk.context))
    assert usage(desk) == {placed: 1, other_than(placed): 0}


@ENDINGS
@pytest.mark.parametrize("kind", ["live-migration", "evacuation"])
def test_move_that_another_service_has_started_is_not_ended(
    desk: Desk, placed: str, kind: str, ending: str
) -> None:
    migration(desk.context, Instance.get_by_uuid(desk.context, ONE), (HOST, placed), kind=kind)

    with pytest.raises(AllocationRefused, match=rf"a move of the instance \({kind}\) is in prog"):
        getattr(desk.moves, ending)(ONE)

    assert only_move(desk).status == "accepted"


# Reserved and smaller providers.


@pytest.mark.parametrize(("when", "ending"), [("before", "confirm"), ("in mid-move", "revert")])
def test_instance_moves_from_a_node_that_is_fully_reserved(
    desk: Desk, placed: str, publishing: Publishing, when: str, ending: str
) -> None:
    holds = Reservations(publishing.client, publishing.context)

    def reserve() -> None:
        holds.reserve(summary(publishing.placement, placed), holder="operator", reason="why")

    if when == "before":
        reserve()
    desk.moves.start(ONE)
    if when == "in mid-move":
        reserve()
    assert getattr(desk.moves, ending)(ONE)[0].status == ENDED[ending]

    node = other_than(placed) if ending == "confirm" else placed
    assert held() == {ONE: {node: {"VCPU": 1}}}
    assert is_full(publishing.placement, placed)
    holds.release(summary(publishing.placement, placed), "operator")
    assert not is_full(publishing.placement, placed)
    assert faults(publishing.context) == []


def test_revert_to_a_node_with_less_inventory_than_allocated_succeeds(
    desk: Desk, placed: str, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=OTHER, suits=on(placed))
    desk.moves.start(ONE, LARGE, suits=on(other_than(placed)))
    publishing.driver.nodes[placed] = flat(VCPU=1)
    assert not publishing.cycle.sync().problems

    assert desk.moves.revert(ONE)[0].status == "reverted"

    assert held() == {ONE: {placed: {"VCPU": 1}}, OTHER: {placed: {"VCPU": 1}}}
    assert usage(desk) == {placed: 2, other_than(placed): 0}
    assert faults(publishing.context) == []


# Two owners, and cleaned providers.


@ENDINGS
def test_move_between_owners_on_one_node_ends_only_if_the_allocation_to_keep_exists(
    quay: Quay, ending: str
) -> None:
    """On one node, only the owner tells source and destination apart."""
    desk = quay.desk()
    desk.claim(FLAVORS["novas"], uuid=ONE, suits=on("cn-0"))
    desk.moves.start(ONE, FLAVORS["cyborgs"], suits=on("cn-0"))
    assert states(quay.context) == {ONE: State("novas", "cyborgs")}
    getattr(desk.moves, ending)(ONE)
    was, wanted = ("cyborgs", "novas") if ending == "confirm" else ("novas", "cyborgs")
    assert states(quay.context) == {ONE: State(was)}
    assert usage(desk)["cn-0"] == 1

    move = desk.moves.start(ONE, FLAVORS[wanted], suits=on("cn-0"))
    desk.client.delete_allocations(
        ONE if ending == "confirm" else move.uuid
    )  # as an operator may do
    before = held()
    with pytest.raises(AllocationRefused, match="no longer in Placement"):
        getattr(desk.moves, ending)(ONE)

    assert held() == before
    other = desk.moves.revert if ending == "confirm" else desk.moves.confirm
    other(ONE)
    assert states(quay.context) == {ONE: State(was if ending == "confirm" else wanted)}
    assert faults(quay.context) == []


def writes_of(quay: Quay, act: Callable[[], object]) -> list[str]:
    """Perform an act; return its writes to Placement, with provider names in place of uuids."""
    names = {one["uuid"]: name for name, one in everything().items()}
    quay.placement.requests.clear()
    act()
    return [
        f"{method} {names.get(path.split('/')[2], '')}{path[path.rindex('/') :]}"
        if path.endswith("/inventories")
        else f"{method} {path}"
        for method, _, path in (one.partition(" ") for one in quay.placement.requests.writes)
    ]


#: Flavor and node before and after the move, how it ends, and the providers that it releases.
CLEANINGS = (
    ("novas", CLEANED, "small", "cn-0", "confirm", {"metal", "metal-nova"}),
    ("small", "cn-0", "novas", CLEANED, "revert", {"metal", "metal-nova"}),
    ("novas", CLEANED, "small", CLEANED, "confirm", {"metal-nova"}),
    ("small", CLEANED, "novas", CLEANED, "revert", {"metal-nova"}),
)


def test_ended_move_reserves_and_cleans_only_the_released_providers(quay: Quay, draw: Draw) -> None:
    moments = Moments(quay.state_path)
    beginning = moments.take()
    for before, source, after, destination, ending, given_back in draw(CLEANINGS, 2):
        moments.go_back(beginning)
        quay.restart()
        desk = quay.desk()
        desk.claim(FLAVORS[before], uuid=ONE, suits=on(source))
        desk.moves.start(ONE, FLAVORS[after], suits=on(destination))

        written = writes_of(quay, lambda: getattr(desk.moves, ending)(ONE))  # noqa: B023

        assert {*written[:-1]} == {f"PUT {name}/inventories" for name in given_back}
        assert written[-1] == "POST /allocations"
        assert reserved(quay.placement) == given_back
        quay.cycle()
        assert reserved(quay.placement) == given_back
        quay.clean()
        assert reserved(quay.placement) == set()
        assert states(quay.context) == {ONE: State("small")}
        assert faults(quay.context) == []
