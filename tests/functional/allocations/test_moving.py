"""Moves: what is written of them at both ends, who has what in between, and how they end."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.lab.allocating import PROJECT, USER, Desk, faults, flavor, held
from tests.lab.claimants import Boundaries, Posts
from tests.lab.claiming import noted, taken
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drivers import flat
from tests.lab.histories import A_WHILE, CLEANED, FLAVORS, Quay, State, on, states
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import is_full, summary
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    AllocationRefused,
    ConcurrentSave,
    ConcurrentUpdate,
    NoCandidates,
    ObjectNotFound,
)
from wharfinger.objects import Instance, Migration, MigrationList
from wharfinger.placement.holds import Holds

ONE, OTHER = uuid("an instance"), uuid("another instance")
SMALL, LARGE = FLAVORS["small"], FLAVORS["large"]
#: What two who decide at the same time are told, but for one of them.
TOO_LATE = (AllocationRefused, ConcurrentSave, ConcurrentUpdate)


def node_of(desk: Desk, of: str = ONE) -> str:
    return str(Instance.get_by_uuid(desk.context, of).node)


def other_than(name: str) -> str:
    return {"cn-0": "cn-1", "cn-1": "cn-0"}[name]


def only_move(desk: Desk) -> Migration:
    [found] = MigrationList.get_by_filters(desk.context)
    return found


def usage(desk: Desk) -> dict[str, int]:
    """CPUs that rows say are taken, by node; and it is what instances and moves have."""
    found = noted(desk.context)
    assert found == taken(desk.context)
    return {name: vcpus for (_, name), (vcpus, _, _) in found.items()}


def paths(publishing: Publishing) -> list[str]:
    """What was asked for, without queries, since it was last asked."""
    seen = [one.partition("?")[0] for one in publishing.placement.requests.seen]
    publishing.placement.requests.clear()
    return seen


@pytest.fixture
def placed(desk: Desk) -> str:
    """On which node a small instance is."""
    desk.claim(SMALL, uuid=ONE)
    return node_of(desk)


# What is written.


def test_a_start_gives_the_move_what_was_had_and_the_instance_what_is_to_be(
    desk: Desk, placed: str, publishing: Publishing
) -> None:
    there = other_than(placed)
    generation = publishing.client.get_allocations(ONE)["consumer_generation"]
    with Posts(publishing.placement) as posts:
        move = desk.moves.start(ONE, LARGE, suits=on(there))

    whose = {"project_id": PROJECT, "user_id": USER}
    source, destination = (summary(publishing.placement, name).uuid for name in (placed, there))
    assert posts.bodies == [
        {
            move.uuid: {
                "allocations": {source: {"resources": {"VCPU": 1}}},
                "consumer_generation": None,
                "consumer_type": "MIGRATION",
                **whose,
            },
            ONE: {
                "allocations": {destination: {"resources": {"VCPU": 2}}},
                "consumer_generation": generation,
                "consumer_type": "INSTANCE",
                **whose,
            },
        }
    ]
    assert held() == {move.uuid: {placed: {"VCPU": 1}}, ONE: {there: {"VCPU": 2}}}
    assert faults(publishing.context) == []


@pytest.mark.parametrize("kind", ["resize", "migration"])
def test_a_move_says_where_it_comes_from_and_goes_to_and_with_what(
    desk: Desk, placed: str, kind: str
) -> None:
    there = other_than(placed)
    wanted = LARGE if kind == "resize" else None
    given = desk.moves.start(ONE, wanted, suits=on(there))

    move = only_move(desk)
    assert (move.uuid, move.status, move.migration_type) == (given.uuid, "finished", kind)
    assert (move.source_compute, move.source_node) == (HOST, placed)
    assert (move.dest_compute, move.dest_node) == (HOST, there)
    names = (move.old_flavor.name, move.new_flavor.name)
    assert names == ("small", "large" if wanted else "small")
    assert node_of(desk) == placed
    assert usage(desk) == {placed: 1, there: 2 if wanted else 1}
    assert faults(desk.context) == []


def test_a_confirmed_move_leaves_the_instance_where_it_went(desk: Desk, placed: str) -> None:
    there = other_than(placed)
    desk.moves.start(ONE, LARGE, suits=on(there))
    move, reserved = desk.moves.confirm(ONE)

    assert (move.status, reserved) == ("confirmed", ())
    assert only_move(desk).status == "confirmed"
    one = Instance.get_by_uuid(desk.context, ONE)
    assert (one.host, one.node, one.flavor.name) == (HOST, there, "large")
    assert held() == {ONE: {there: {"VCPU": 2}}}
    assert usage(desk) == {placed: 0, there: 2}
    assert faults(desk.context) == []


def test_a_reverted_move_leaves_the_instance_where_it_was(desk: Desk, placed: str) -> None:
    there = other_than(placed)
    desk.moves.start(ONE, LARGE, suits=on(there))
    move, reserved = desk.moves.revert(ONE)

    assert (move.status, reserved) == ("reverted", ())
    assert only_move(desk).status == "reverted"
    one = Instance.get_by_uuid(desk.context, ONE)
    assert (one.host, one.node, one.flavor.name) == (HOST, placed, "small")
    assert held() == {ONE: {placed: {"VCPU": 1}}}
    assert usage(desk) == {placed: 1, there: 0}
    assert faults(desk.context) == []


def test_a_move_is_a_handful_of_requests(desk: Desk, placed: str, publishing: Publishing) -> None:
    there = other_than(placed)
    source, destination = (
        f"/resource_providers?uuid={summary(publishing.placement, name).uuid}"
        for name in (placed, there)
    )
    paths(publishing)
    begun = desk.moves.start(ONE, suits=on(there)).uuid
    assert paths(publishing) == [
        f"GET /allocations/{ONE}",
        "GET /allocation_candidates",
        "POST /allocations",
    ]
    desk.moves.revert(ONE)
    assert publishing.placement.requests.seen == [
        f"GET /allocations/{begun}",
        f"GET /allocations/{ONE}",
        f"GET {destination}",
        "POST /allocations",
    ]
    begun = desk.moves.start(ONE, suits=on(there)).uuid
    paths(publishing)
    desk.moves.confirm(ONE)
    assert publishing.placement.requests.seen == [
        f"GET /allocations/{ONE}",
        f"GET /allocations/{begun}",
        f"GET {source}",
        "POST /allocations",
    ]
    assert faults(desk.context) == []


# Where to.


@pytest.fixture
def alone(desk: Desk, publishing: Publishing) -> Desk:
    """One node, of three CPUs, and a small instance on it."""
    del publishing.driver.nodes["cn-1"]
    publishing.driver.nodes["cn-0"] = flat(VCPU=3)
    for _ in range(3):
        assert not publishing.cycle.sync().problems
    desk.claim(SMALL, uuid=ONE)
    return desk


@pytest.mark.parametrize("ending", ["confirmed", "reverted"])
def test_a_resize_on_the_same_provider_has_both_until_it_ends(alone: Desk, ending: str) -> None:
    move = alone.moves.start(ONE, LARGE)
    assert held() == {move.uuid: {"cn-0": {"VCPU": 1}}, ONE: {"cn-0": {"VCPU": 2}}}
    assert usage(alone) == {"cn-0": 3}
    assert (move.source_node, move.dest_node) == ("cn-0", "cn-0")

    vcpus = 2 if ending == "confirmed" else 1
    end = alone.moves.confirm if ending == "confirmed" else alone.moves.revert
    assert end(ONE)[0].status == ending
    assert held() == {ONE: {"cn-0": {"VCPU": vcpus}}}
    assert usage(alone) == {"cn-0": vcpus}
    assert faults(alone.context) == []


def test_a_resize_on_the_same_provider_needs_room_for_both(alone: Desk) -> None:
    with pytest.raises(NoCandidates):
        alone.moves.start(ONE, flavor("huge", 3))
    assert held() == {ONE: {"cn-0": {"VCPU": 1}}}
    assert usage(alone) == {"cn-0": 1}
    assert only_move(alone).status == "failed"
    assert faults(alone.context) == []


def test_a_migration_is_never_to_where_the_instance_is(alone: Desk) -> None:
    with pytest.raises(NoCandidates):
        alone.moves.start(ONE)
    assert held() == {ONE: {"cn-0": {"VCPU": 1}}}
    assert only_move(alone).status == "failed"
    assert faults(alone.context) == []


def test_a_migration_goes_where_there_is_room_and_the_instance_is_not(
    desk: Desk, placed: str
) -> None:
    assert desk.moves.start(ONE).dest_node == other_than(placed)
    assert faults(desk.context) == []


@pytest.mark.parametrize("wanted", [None, LARGE], ids=["migration", "resize"])
def test_where_the_destination_is_full_all_is_as_before(
    desk: Desk, placed: str, wanted: Any
) -> None:
    there = other_than(placed)
    desk.claim(LARGE, uuid=OTHER, suits=on(there))
    before = Instance.get_by_uuid(desk.context, ONE)
    with pytest.raises(NoCandidates) as caught:
        desk.moves.start(ONE, wanted, suits=on(there))

    assert "candidate explain" in caught.value.remedy
    assert held() == {ONE: {placed: {"VCPU": 1}}, OTHER: {there: {"VCPU": 2}}}
    assert Instance.get_by_uuid(desk.context, ONE).revision == before.revision
    assert only_move(desk).status == "failed"
    assert usage(desk) == {placed: 1, there: 2}
    assert faults(desk.context) == []


def test_after_a_move_that_failed_there_may_be_another(desk: Desk, placed: str) -> None:
    with pytest.raises(NoCandidates):
        desk.moves.start(ONE, flavor("huge", 9))
    desk.moves.start(ONE)
    desk.moves.confirm(ONE)
    desk.moves.start(ONE)
    desk.moves.revert(ONE)
    assert held() == {ONE: {other_than(placed): {"VCPU": 1}}}
    statuses = [one.status for one in MigrationList.get_by_filters(desk.context)]
    assert statuses == ["failed", "confirmed", "reverted"]
    assert faults(desk.context) == []


# What cannot be moved.


def test_an_instance_is_not_resized_to_the_flavor_that_it_has(desk: Desk, placed: str) -> None:
    with pytest.raises(AllocationRefused, match="it has flavor small"):
        desk.moves.start(ONE, flavor("small"))
    assert held() == {ONE: {placed: {"VCPU": 1}}}
    assert not list(MigrationList.get_by_filters(desk.context))


def test_what_has_no_allocation_or_is_no_instance_is_not_moved(desk: Desk, placed: str) -> None:
    for act in (desk.moves.start, desk.moves.confirm, desk.moves.revert):
        with pytest.raises(ObjectNotFound):
            act(OTHER)
    desk.client.delete_allocations(ONE)
    with pytest.raises(AllocationRefused, match="no allocation"):
        desk.moves.start(ONE)
    for act in (desk.moves.confirm, desk.moves.revert):
        with pytest.raises(AllocationRefused, match="no move"):
            act(ONE)
    assert not list(MigrationList.get_by_filters(desk.context))
    assert usage(desk) == {placed: 1, other_than(placed): 0}


# What is reserved, and what has shrunk.


@pytest.mark.parametrize("ending", ["confirmed", "reverted"])
@pytest.mark.parametrize("when", ["before it", "in mid-move"])
def test_an_instance_moves_from_a_node_that_is_fully_reserved(
    desk: Desk, placed: str, publishing: Publishing, when: str, ending: str
) -> None:
    there = other_than(placed)
    holds = Holds(publishing.client, publishing.context)

    def reserve() -> None:
        holds.reserve(summary(publishing.placement, placed), holder="operator", reason="why")

    if when == "before it":
        reserve()
    desk.moves.start(ONE)
    if when == "in mid-move":
        reserve()
    end = desk.moves.confirm if ending == "confirmed" else desk.moves.revert
    assert end(ONE)[0].status == ending

    assert held() == {ONE: {there if ending == "confirmed" else placed: {"VCPU": 1}}}
    assert is_full(publishing.placement, placed)
    holds.release(summary(publishing.placement, placed), "operator")
    assert not is_full(publishing.placement, placed)
    assert faults(publishing.context) == []


def test_a_move_is_reverted_to_a_node_that_has_less_by_now_than_is_had_of_it(
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


# Two owners, and what is cleaned.


@pytest.fixture
def quay(placement: PlacementFixture, tmp_path: Path) -> Iterator[Quay]:
    with Quay(placement, tmp_path / "state") as fixture:
        yield fixture


@pytest.mark.parametrize(
    ("before", "after"),
    [("novas", "cyborgs"), ("cyborgs", "novas"), ("both", "small"), ("small", "both")],
)
def test_an_instance_goes_from_one_owner_s_vgpu_to_another_s_in_its_tree_and_back(
    quay: Quay, before: str, after: str
) -> None:
    desk = quay.desk()
    desk.claim(FLAVORS[before], uuid=ONE, suits=on("cn-0"))
    for flavors in ((before, after), (after, before)):
        desk.moves.start(ONE, FLAVORS[flavors[1]], suits=on("cn-0"))
        assert states(quay.context) == {ONE: State(*flavors)}
        desk.moves.revert(ONE)
        assert states(quay.context) == {ONE: State(flavors[0])}
        desk.moves.start(ONE, FLAVORS[flavors[1]], suits=on("cn-0"))
        desk.moves.confirm(ONE)
        assert states(quay.context) == {ONE: State(flavors[1])}
        assert faults(quay.context) == []
    quay.cycle()
    assert usage(desk)["cn-0"] == 1


@pytest.mark.parametrize("ending", ["confirm", "revert"])
def test_a_move_does_not_end_where_somebody_has_deleted_what_is_to_be_kept(
    quay: Quay, ending: str
) -> None:
    """On one node, too, where only the owner tells one end from the other."""
    desk = quay.desk()
    desk.claim(FLAVORS["novas"], uuid=ONE, suits=on("cn-0"))
    move = desk.moves.start(ONE, FLAVORS["cyborgs"], suits=on("cn-0"))
    desk.client.delete_allocations(ONE if ending == "confirm" else move.uuid)  # by hand
    before = held()
    with pytest.raises(AllocationRefused, match="has gone from Placement"):
        getattr(desk.moves, ending)(ONE)

    assert held() == before
    other = desk.moves.revert if ending == "confirm" else desk.moves.confirm
    other(ONE)
    kept = "novas" if ending == "confirm" else "cyborgs"
    assert states(quay.context) == {ONE: State(kept)}
    assert faults(quay.context) == []


def writes_of(quay: Quay, act: Callable[[], object]) -> list[str]:
    """What something writes to Placement, with providers by name."""
    names = {one["uuid"]: name for name, one in everything().items()}
    quay.placement.requests.clear()
    act()
    return [
        f"{method} {names.get(path.split('/')[2], '')}{path[path.rindex('/') :]}"
        if path.endswith("/inventories")
        else f"{method} {path}"
        for method, _, path in (one.partition(" ") for one in quay.placement.requests.writes)
    ]


def reservations(quay: Quay) -> set[str]:
    """The providers of which nothing can be had."""
    return {name for name in everything() if is_full(quay.placement, name)}


def test_what_is_cleaned_is_reserved_before_a_confirmed_move_gives_it_back(quay: Quay) -> None:
    desk = quay.desk()
    desk.claim(FLAVORS["novas"], uuid=ONE, suits=on(CLEANED))
    desk.moves.start(ONE, SMALL, suits=on("cn-0"))

    written = writes_of(quay, lambda: desk.moves.confirm(ONE))

    assert set(written[:-1]) == {"PUT metal/inventories", "PUT metal-nova/inventories"}
    assert written[-1] == "POST /allocations"
    assert reservations(quay) == {"metal", "metal-nova"}
    assert states(quay.context) == {ONE: State("small")}
    quay.cycle()
    assert reservations(quay) == {"metal", "metal-nova"}
    quay.clean()
    assert reservations(quay) == set()
    assert faults(quay.context) == []


def test_what_is_cleaned_is_reserved_before_a_reverted_move_gives_it_back(quay: Quay) -> None:
    desk = quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on("cn-0"))
    desk.moves.start(ONE, FLAVORS["novas"], suits=on(CLEANED))

    written = writes_of(quay, lambda: desk.moves.revert(ONE))

    assert set(written[:-1]) == {"PUT metal/inventories", "PUT metal-nova/inventories"}
    assert written[-1] == "POST /allocations"
    assert reservations(quay) == {"metal", "metal-nova"}
    assert states(quay.context) == {ONE: State("small")}
    quay.clean()
    assert reservations(quay) == set()
    assert faults(quay.context) == []


@pytest.mark.parametrize(
    ("before", "after", "ending"),
    [("novas", "small", "confirmed"), ("small", "novas", "reverted")],
)
def test_what_the_instance_keeps_is_not_cleaned(
    quay: Quay, before: str, after: str, ending: str
) -> None:
    desk = quay.desk()
    desk.claim(FLAVORS[before], uuid=ONE, suits=on(CLEANED))
    desk.moves.start(ONE, FLAVORS[after], suits=on(CLEANED))
    end = desk.moves.confirm if ending == "confirmed" else desk.moves.revert

    move, reserved = end(ONE)

    assert (move.status, len(reserved)) == (ending, 1)
    assert reservations(quay) == {"metal-nova"}
    assert states(quay.context) == {ONE: State("small")}
    quay.clean()
    assert reservations(quay) == set()
    assert faults(quay.context) == []


def test_what_is_cleaned_after_a_move_is_not_had_until_it_is_clean(quay: Quay) -> None:
    desk = quay.desk()
    desk.claim(SMALL, uuid=ONE, suits=on(CLEANED))
    desk.moves.start(ONE, suits=on("cn-0"))
    desk.claim(SMALL, uuid=OTHER, suits=on(CLEANED))
    desk.claims.release(OTHER)
    desk.moves.confirm(ONE)
    with pytest.raises(NoCandidates):
        desk.claim(SMALL, uuid=OTHER, suits=on(CLEANED))
    quay.clean()
    assert reservations(quay) == set()
    desk.claim(SMALL, uuid=OTHER, suits=on(CLEANED))
    assert faults(quay.context) == []


# Again, and the other way.


@pytest.mark.parametrize("ending", ["confirm", "revert"])
def test_a_move_ends_once_and_not_the_other_way(
    desk: Desk, placed: str, publishing: Publishing, ending: str
) -> None:
    there = other_than(placed)
    desk.moves.start(ONE)
    end, other = desk.moves.confirm, desk.moves.revert
    if ending == "revert":
        end, other = other, end
    first, _ = end(ONE)
    has, revision = held(), only_move(desk).revision
    publishing.placement.requests.clear()
    for _ in range(2):
        again, reserved = end(ONE)
        assert (again.uuid, again.status, reserved) == (first.uuid, first.status, ())
        with pytest.raises(AllocationRefused, match=f"the last, {first.uuid}, is {first.status}"):
            other(ONE)

    assert publishing.placement.requests.writes == []
    assert held() == has == {ONE: {there if ending == "confirm" else placed: {"VCPU": 1}}}
    assert only_move(desk).revision == revision
    assert faults(desk.context) == []


def test_a_second_move_waits_for_the_first(desk: Desk, placed: str) -> None:
    first = desk.moves.start(ONE)
    for wanted in (None, LARGE):
        with pytest.raises(AllocationRefused, match=f"migration {first.uuid}, which is finished"):
            desk.moves.start(ONE, wanted)
    others = {one.status for one in MigrationList.get_by_filters(desk.context)} - {"finished"}
    assert others <= {"failed"}
    assert held() == {
        first.uuid: {placed: {"VCPU": 1}},
        ONE: {other_than(placed): {"VCPU": 1}},
    }
    assert desk.moves.confirm(ONE)[0].uuid == first.uuid
    assert faults(desk.context) == []


def test_an_instance_that_goes_in_mid_move_leaves_nothing(desk: Desk, placed: str) -> None:
    desk.moves.start(ONE, LARGE, suits=on(other_than(placed)))
    assert desk.claims.release(ONE) == ()
    assert held() == {}
    assert not only_move(desk).is_in_progress
    assert usage(desk) == {"cn-0": 0, "cn-1": 0}
    assert faults(desk.context) == []
    for act in (desk.moves.confirm, desk.moves.revert, desk.claims.release):
        with pytest.raises(ObjectNotFound):
            act(ONE)


def test_an_instance_that_goes_in_mid_move_has_both_its_ends_cleaned(quay: Quay) -> None:
    desk = quay.desk()
    desk.claim(FLAVORS["novas"], uuid=ONE, suits=on(CLEANED))
    desk.moves.start(ONE, FLAVORS["both"], suits=on(CLEANED))
    desk.claims.release(ONE)
    assert held() == {}
    assert reservations(quay) == {"metal", "metal-nova"}
    quay.clean()
    assert reservations(quay) == set()
    assert faults(quay.context) == []


# Two at the same time.


@pytest.fixture
def patient(desk: Desk) -> Iterator[Desk]:
    """Where nobody is thought to be dead who is at work."""
    with Desk(desk.client, desk.context, down_time=A_WHILE) as fixture:
        yield fixture


Act = Callable[[Desk], object]
ACTS: dict[str, Act] = {
    "start": lambda desk: desk.moves.start(ONE),
    "resize": lambda desk: desk.moves.start(ONE, LARGE),
    "confirm": lambda desk: desk.moves.confirm(ONE),
    "revert": lambda desk: desk.moves.revert(ONE),
}


def attempt(desk: Desk, act: str) -> str:
    """Do it; says what it did, or that it came too late."""
    try:
        ACTS[act](desk)
    except TOO_LATE:
        return "too late"
    return act


def outcome(desk: Desk, source: str) -> str:
    """What one move has come to: "start" while it waits, or how it ended; nothing is amiss.

    "too late" where there is none: of those that begin at once, each may find another.
    """
    assert faults(desk.context) == []
    assert usage(desk)
    moves = [one for one in MigrationList.get_by_filters(desk.context) if one.status != "failed"]
    if not moves:
        assert held() == {ONE: {source: {"VCPU": 1}}}
        return "too late"
    [move] = moves
    amounts = {"VCPU": move.new_flavor.vcpus}
    had, has = {source: {"VCPU": 1}}, {other_than(source): amounts}
    if move.is_in_progress:
        assert move.status == "finished"
        assert held() == {move.uuid: had, ONE: has}
        return "start"
    assert held() == {ONE: has if move.status == "confirmed" else had}
    assert node_of(desk) == (other_than(source) if move.status == "confirmed" else source)
    return {"confirmed": "confirm", "reverted": "revert"}[move.status]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("confirm", "revert"),
        ("revert", "confirm"),
        ("confirm", "confirm"),
        ("revert", "revert"),
        ("start", "start"),
        ("start", "confirm"),
        ("start", "revert"),
    ],
)
def test_of_two_that_decide_at_every_step_of_each_other_one_does(
    patient: Desk, placed: str, publishing: Publishing, first: str, second: str
) -> None:
    desk = patient
    if first != "start":
        desk.moves.start(ONE)
    moments = Moments(publishing.state_path)
    beginning = moments.take()

    def run(act_at: int | None) -> tuple[set[str], str, int]:
        """What they say that they did, what has come of it, and how many steps there were."""
        moments.go_back(beginning)
        said: list[str] = []
        with Boundaries(
            publishing.placement,
            reads=True,
            act_at=act_at,
            act=lambda: said.append(attempt(desk, second)),
        ) as steps:
            said.append(attempt(desk, first))
        return set(said), outcome(desk, placed), len(steps.passed)

    _, _, count = run(None)
    for number in range(count):
        said, came, _ = run(number)
        done = said - {"too late"}
        assert came in done, number
        # Whoever did not do it was told so; a start that has ended may be confirmed at once.
        assert done == {came} or (first == "start" and done <= {"start", second}), number


@pytest.mark.parametrize(
    ("acts", "many"), [(("confirm", "revert"), 8), (("start", "resize"), 8)], ids=["end", "start"]
)
def test_of_many_threads_that_decide_at_once_one_does(
    patient: Desk, placed: str, acts: tuple[str, str], many: int
) -> None:
    desk = patient
    if "start" not in acts:
        desk.moves.start(ONE)
    together = Barrier(many)

    def run(number: int) -> str:
        together.wait()
        return attempt(desk, acts[number % 2])

    with ThreadPoolExecutor(many) as pool:
        said = list(pool.map(run, range(many)))
    came = outcome(desk, placed)
    done = [one for one in said if one != "too late"]
    if "start" in acts:
        assert len(done) == (came == "start")
    else:
        assert set(done) == {came}
