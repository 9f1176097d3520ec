"""Claims and moves whose requests Placement refuses, does not answer, or carries out later."""

from collections.abc import Callable
from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure, ConnectTimeout

from tests.functional.scheduling.hosts import AGGREGATE
from tests.lab.allocating import PROJECT, USER, Desk, faults, flavor, held
from tests.lab.claimants import (
    Posts,
    Rehearsal,
    anew,
    nothing_is_left,
    settled,
    there_are,
    unknown,
    warm,
)
from tests.lab.claiming import noted, taken
from tests.lab.cycles import Publishing, allocate, everything
from tests.lab.drivers import Edit, also, flat
from tests.lab.histories import A_WHILE, age, on
from tests.lab.reserving import is_full, rows
from tests.lab.samples import uuid
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    AllocationRefused,
    Conflict,
    InvalidName,
    NoCandidates,
    ObjectNotFound,
    PlacementUnavailable,
)
from wharfinger.objects import Migration, MigrationList
from wharfinger.providers import ProviderTree

ONE = uuid("an instance")
SMALL, LARGE = flavor("small"), flavor("large", 2)


def only_move(publishing: Publishing) -> Migration:
    [found] = MigrationList.get_by_filters(publishing.context)
    return found


def die_at(publishing: Publishing, name: str, act: Callable[[], object]) -> None:
    """Let an act die at its first boundary of this name."""
    Rehearsal(publishing.placement, publishing.state_path, act).die_at(name)


# Resources of other programs and flavors.


def test_consumer_that_is_no_instance_is_neither_claimed_nor_released(
    desk: Desk, publishing: Publishing
) -> None:
    allocate(publishing.placement, ONE, "1.39", **{"cn-0": {"VCPU": 1}})
    before = everything()
    with pytest.raises(AllocationRefused, match="not an instance of Wharfinger has"):
        desk.claim(SMALL, uuid=ONE)
    with pytest.raises(ObjectNotFound):
        desk.claims.release(ONE)

    assert (there_are(publishing.context), everything()) == ([], before)
    assert set(noted(publishing.context).values()) == {(0, 0, 0)}


def test_interrupted_claim_continues_only_with_the_allocation_of_its_flavor(
    desk: Desk, publishing: Publishing
) -> None:
    warm(desk)
    die_at(publishing, "before POST /allocations", lambda: desk.claim(SMALL, uuid=ONE))
    allocate(publishing.placement, ONE, "1.39", **{"cn-0": {"VCPU": 2}})
    with (
        anew(publishing) as late,
        pytest.raises(AllocationRefused, match="do not match its flavor"),
    ):
        late.claim(SMALL, uuid=ONE)
    assert held() == {ONE: {"cn-0": {"VCPU": 2}}}
    assert set(noted(publishing.context).values()) == {(0, 0, 0)}


def test_interrupted_claim_of_a_shared_provider_that_is_also_a_node_continues(
    desk: Desk, publishing: Publishing
) -> None:
    def shares(tree: ProviderTree) -> None:
        tree.update_inventory("pool", {"DISK_GB": {"total": 20}})
        tree.update_traits("pool", ["MISC_SHARES_VIA_AGGREGATE"])
        tree.update_aggregates("pool", [AGGREGATE])

    def has_shared(tree: ProviderTree) -> None:
        tree.update_aggregates("cn-1", [AGGREGATE])

    publishing.driver.nodes["cn-1"] = also(has_shared)(flat(VCPU=2))
    publishing.driver.nodes["pool"] = also(shares)(flat(VCPU=2))
    assert not publishing.cycle.sync().problems
    disk = flavor("disk", **{"resources:DISK_GB": "15"})

    def claim() -> None:
        desk.claim(disk, uuid=ONE, suits=on("cn-1"))

    die_at(publishing, "after POST /allocations", claim)
    with anew(publishing) as late:
        assert late.claim(disk, uuid=ONE).instance.node == "cn-1"

    assert held() == {ONE: {"cn-1": {"VCPU": 1}, "pool": {"DISK_GB": 15}}}
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


# Missing answers.


def is_slow(_body: object) -> None:
    raise ConnectTimeout("no answer")


@pytest.mark.parametrize("then", ["claimed again", "released"])
def test_claim_that_placement_carries_out_late_is_kept_or_released(
    desk: Desk, publishing: Publishing, then: str
) -> None:
    with Desk(desk.client, desk.context, down_time=A_WHILE) as patient:
        with Posts(publishing.placement) as posts, pytest.raises(PlacementUnavailable):
            posts.before = is_slow
            patient.claim(SMALL, uuid=ONE)
        assert there_are(publishing.context) == [ONE]
        with pytest.raises(AllocationRefused, match="another process is claiming the instance"):
            patient.claims.release(ONE)  # Placement could carry out the claim after the release

        desk.client.set_allocations(posts.bodies[0])  # now Placement carries out the claim

        assert unknown(publishing.context) == set()
        if then == "claimed again":
            patient.claim(SMALL, uuid=ONE)
        age(publishing.state_path)
        if then == "released":
            patient.claims.release(ONE)

    expected = [ONE] if then == "claimed again" else []
    assert [*held()] == there_are(publishing.context) == expected
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


def test_claim_that_placement_carries_out_while_it_is_repeated_is_kept(
    desk: Desk, publishing: Publishing
) -> None:
    for _ in range(3):  # one VCPU is left free
        desk.claim(SMALL)
    with Posts(publishing.placement) as posts, pytest.raises(PlacementUnavailable):
        posts.before = is_slow
        desk.claim(SMALL, uuid=ONE)

    publishing.placement.adapter.once_before(
        lambda _method, path: path.startswith("/allocation_candidates"),
        lambda: desk.client.set_allocations(posts.bodies[0]),
    )
    with pytest.raises(NoCandidates):
        desk.claim(SMALL, uuid=ONE)

    assert unknown(publishing.context) == set()
    assert ONE in held()


@pytest.mark.parametrize("given", [None, ONE])
def test_claim_that_fails_before_its_allocation_request_leaves_no_instance(
    desk: Desk, publishing: Publishing, given: str | None
) -> None:
    def is_away(_method: str, path: str) -> None:
        if not path.startswith(f"/allocations/{ONE}") or publishing.placement.requests.seen:
            raise ConnectFailure("refused")

    publishing.placement.requests.clear()
    publishing.placement.adapter.before = is_away
    with pytest.raises(PlacementUnavailable):
        desk.claim(SMALL, uuid=given)

    assert len(publishing.placement.requests) == (given is not None), "it had nothing"
    assert there_are(publishing.context) == []


@pytest.mark.parametrize("then", ["claimed again", "released"])
def test_refused_claim_without_an_answer_about_its_allocation_can_be_repeated(
    desk: Desk, publishing: Publishing, then: str
) -> None:
    adapter = publishing.placement.adapter

    def stops(method: str, path: str) -> None:
        if method == "POST" and path == "/allocations":
            asked.append(path)
            raise Conflict(request=f"{method} {path}", status=409, code="", detail="taken")
        if asked and path.startswith("/allocations/"):
            raise ConnectFailure("refused")

    asked: list[str] = []
    warm(desk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "before", stops)
        with pytest.raises(NoCandidates):
            desk.claim(SMALL)

    [one] = there_are(publishing.context)
    if then == "claimed again":
        desk.claim(SMALL, uuid=one)
    else:
        desk.claims.release(one)

    expected = [one] if then == "claimed again" else []
    assert [*held()] == there_are(publishing.context) == expected
    assert noted(publishing.context) == taken(publishing.context)


# Inventories whose max_unit changes during a move.


def units(total: int) -> Edit:
    """Return an edit of a node with this number of VCPUs; one instance may use all of them."""

    def edit(tree: ProviderTree, node: str, _allocations: Allocations | None) -> None:
        tree.update_inventory(node, {"VCPU": {"total": total, "max_unit": total}})

    return edit


def shrink(publishing: Publishing, node: str) -> None:
    """Publish the node with one VCPU; its allocations stay."""
    publishing.driver.nodes[node] = units(1)
    assert not publishing.cycle.sync().problems


@pytest.fixture
def large(metal: Desk) -> Desk:
    """A desk whose driver cleans, with an instance that uses all of cn-0."""
    metal.claim(LARGE, uuid=ONE, suits=on("cn-0"))
    return metal


def confirmed(desk: Desk, publishing: Publishing) -> bool:
    """Confirm the instance's move; return whether it is confirmed, and assert no faults."""
    move, _ = desk.moves.confirm(ONE)
    assert held() == {ONE: {"cn-1": {"VCPU": 1}}}
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)
    return move.status == "confirmed"


@pytest.mark.parametrize("then", ["confirmed", "reverted"])
def test_move_whose_revert_placement_refuses_can_be_confirmed_or_reverted_later(
    large: Desk, publishing: Publishing, then: str
) -> None:
    move = large.moves.start(ONE, SMALL, suits=on("cn-1"))
    shrink(publishing, "cn-0")
    for _ in range(2):
        with pytest.raises(AllocationRefused, match="Placement refuses the former allocations"):
            large.moves.revert(ONE)
        assert only_move(publishing).status == "finished"
        assert large.moves.interrupted() == []
        assert held() == {move.uuid: {"cn-0": {"VCPU": 2}}, ONE: {"cn-1": {"VCPU": 1}}}
        # No provider was released, and none waits for cleaning.
        assert rows(publishing.context) == {}
        assert not is_full(publishing.placement, "cn-1")
    if then == "confirmed":
        assert confirmed(large, publishing)
        return
    publishing.driver.nodes["cn-0"] = flat(VCPU=2)
    assert not publishing.cycle.sync().problems
    assert large.moves.revert(ONE)[0].status == "reverted"
    assert held() == {ONE: {"cn-0": {"VCPU": 2}}}
    assert is_full(publishing.placement, "cn-1")
    assert settled(publishing) == []


def test_start_whose_source_allocation_placement_refuses_is_refused_at_once(
    large: Desk, publishing: Publishing
) -> None:
    shrink(publishing, "cn-0")
    before = everything()
    with (
        Posts(publishing.placement) as posts,
        pytest.raises(
            AllocationRefused,
            match="present allocations of the instance cannot be kept for the move",
        ),
    ):
        large.moves.start(ONE, SMALL, suits=on("cn-1"))

    assert len(posts.bodies) == 1, "no other candidate would do"
    assert everything() == before
    assert only_move(publishing).status == "failed"
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("by", ["recover", "revert"])
@pytest.mark.parametrize("died", ["before", "after"])
def test_start_that_died_is_undone_or_can_be_confirmed_after_changed_unit_limits(
    large: Desk, publishing: Publishing, died: str, by: str
) -> None:
    name = f"{died} POST /allocations"
    die_at(publishing, name, lambda: large.moves.start(ONE, SMALL, suits=on("cn-1")))
    shrink(publishing, "cn-0")
    with anew(publishing) as late:
        [left] = late.moves.interrupted()

        def end() -> Migration:
            return (late.moves.recover(left) if by == "recover" else late.moves.revert(ONE))[0]

        if died == "before":
            assert end().status == "failed"
            assert held() == {ONE: {"cn-0": {"VCPU": 2}}}
            assert settled(publishing) == []
        else:
            with pytest.raises(AllocationRefused, match="Confirm the move"):
                end()
        assert late.moves.interrupted() == []
        assert noted(publishing.context) == taken(publishing.context)
        assert died == "before" or confirmed(late, publishing)


# Projects, users and uuids.


def test_claim_without_project_or_user_is_refused(desk: Desk, publishing: Publishing) -> None:
    publishing.placement.requests.clear()
    for field in ("project_id", "user_id"):
        for value in ("", "x" * 256):
            whose: dict[str, Any] = {"project_id": PROJECT, "user_id": USER, field: value}
            with pytest.raises(AllocationRefused, match=field):
                desk.claims.claim(SMALL, **whose)
    assert publishing.placement.requests.writes == []
    assert there_are(publishing.context) == []


def test_uuid_in_any_form_names_the_same_instance(desk: Desk, publishing: Publishing) -> None:
    for written in (ONE.upper(), ONE.replace("-", ""), f"{{{ONE}}}", f"urn:uuid:{ONE}"):
        assert desk.claim(SMALL, uuid=written).instance.uuid == ONE
        assert [*held()] == there_are(publishing.context) == [ONE]
    for end in (desk.moves.revert, desk.moves.confirm):
        assert desk.moves.start(written, LARGE).instance_uuid == ONE
        end(written)
    assert [*held()] == [ONE]
    assert faults(publishing.context) == []

    desk.claims.release(written)
    assert nothing_is_left(publishing.context)


def test_invalid_uuid_is_refused(desk: Desk, publishing: Publishing) -> None:
    acts: list[Callable[[str], Any]] = [
        lambda one: desk.claim(SMALL, uuid=one),
        desk.claims.release,
        desk.moves.start,
        desk.moves.confirm,
        desk.moves.revert,
    ]
    publishing.placement.requests.clear()
    for act in acts:
        with pytest.raises((InvalidName, ObjectNotFound), match="an instance"):
            act("an instance")
    assert publishing.placement.requests.seen == []
    assert there_are(publishing.context) == []
