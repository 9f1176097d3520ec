"""What Placement refuses, does not answer or does later; and uuids and names that nobody knows."""

from collections.abc import Callable
from typing import Any

import pytest
from keystoneauth1.exceptions import ConnectFailure, ConnectTimeout

from tests.functional.scheduling.hosts import AGGREGATE
from tests.lab.allocating import PROJECT, USER, Desk, faults, flavor, held
from tests.lab.claimants import Boundaries, Posts, anew, settled, unknown, warm
from tests.lab.claiming import noted, taken
from tests.lab.cycles import Publishing, allocate, everything
from tests.lab.drivers import Edit, also, flat
from tests.lab.histories import A_WHILE, age, on
from tests.lab.moments import Moments
from tests.lab.reserving import CleaningDriver, Crash, drives, is_full, rows
from tests.lab.samples import uuid
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    AllocationRefused,
    InvalidName,
    InvalidRequest,
    ObjectNotFound,
    PlacementUnavailable,
)
from wharfinger.objects import InstanceList, Migration, MigrationList
from wharfinger.providers import ProviderTree

ONE = uuid("an instance")
SMALL, LARGE = flavor("small"), flavor("large", 2)


def there_are(publishing: Publishing) -> list[str]:
    return [one.uuid for one in InstanceList.get_by_filters(publishing.context)]


def only_move(publishing: Publishing) -> Migration:
    [found] = MigrationList.get_by_filters(publishing.context)
    return found


def die_at(publishing: Publishing, name: str, act: Callable[[], object]) -> None:
    """Have an act come to its first boundary of that name, and no further."""
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        act()
    moments.go_back(beginning)
    number = whole.passed.index(name)
    with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
        act()


# What is somebody else's.


def test_what_another_consumer_has_is_neither_claimed_nor_released(
    desk: Desk, publishing: Publishing
) -> None:
    for vcpus in (1, 2):
        allocate(publishing.placement, ONE, "1.39", **{"cn-0": {"VCPU": vcpus}})
        before = everything()
        with pytest.raises(AllocationRefused, match="something else has allocations by that uuid"):
            desk.claim(SMALL, uuid=ONE)
        with pytest.raises(ObjectNotFound):
            desk.claims.release(ONE)

        assert (there_are(publishing), everything()) == ([], before)
        publishing.client.delete_allocations(ONE)
    assert set(noted(publishing.context).values()) == {(0, 0, 0)}


def test_a_claim_that_was_cut_short_goes_on_only_with_what_its_flavor_asks_for(
    desk: Desk, publishing: Publishing
) -> None:
    warm(desk)
    die_at(publishing, "before POST /allocations", lambda: desk.claim(SMALL, uuid=ONE))
    allocate(publishing.placement, ONE, "1.39", **{"cn-0": {"VCPU": 2}})
    with anew(publishing) as late, pytest.raises(AllocationRefused, match="not what its flavor"):
        late.claim(SMALL, uuid=ONE)
    assert held() == {ONE: {"cn-0": {"VCPU": 2}}}
    assert set(noted(publishing.context).values()) == {(0, 0, 0)}


# What is not answered.


@pytest.mark.parametrize("then", ["claimed again", "released"])
def test_a_claim_that_is_carried_out_when_nobody_waits_for_it_any_more_is_known(
    desk: Desk, publishing: Publishing, then: str
) -> None:
    def is_slow(_body: object) -> None:
        raise ConnectTimeout("no answer")

    with Desk(desk.client, desk.context, down_time=A_WHILE) as patient:
        with Posts(publishing.placement) as posts, pytest.raises(PlacementUnavailable):
            posts.before = is_slow
            patient.claim(SMALL, uuid=ONE)
        assert there_are(publishing) == [ONE]
        with pytest.raises(AllocationRefused, match="it is being claimed"):
            patient.claims.release(ONE)  # after which it could still be carried out

        desk.client.set_allocations(posts.bodies[0])  # now it is

        assert unknown(publishing.context) == set()
        if then == "claimed again":
            patient.claim(SMALL, uuid=ONE)
        age(publishing.state_path)
        if then == "released":
            patient.claims.release(ONE)

    assert [*held()] == there_are(publishing) == ([ONE] if then == "claimed again" else [])
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("given", [None, ONE])
def test_a_claim_that_could_ask_for_nothing_leaves_no_instance(
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
    assert there_are(publishing) == []


# Units that have changed since.


def units(total: int) -> Edit:
    """A node of that many CPUs, of which nobody is given more at a time."""

    def edit(tree: ProviderTree, node: str, _allocations: Allocations | None) -> None:
        tree.update_inventory(node, {"VCPU": {"total": total, "max_unit": total}})

    return edit


def shrink(publishing: Publishing, node: str) -> None:
    """Have a node be of one CPU, of which as many as before are had."""
    publishing.driver.nodes[node] = units(1)
    assert not publishing.cycle.sync().problems


@pytest.fixture
def large(desk: Desk, publishing: Publishing) -> Desk:
    """Where an instance has all of cn-0; what it leaves is cleaned."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes |= {"cn-0": flat(VCPU=2), "cn-1": flat(VCPU=2)}
    assert not publishing.cycle.sync().problems
    desk.claim(LARGE, uuid=ONE, suits=on("cn-0"))
    return desk


def confirmed(desk: Desk, publishing: Publishing) -> bool:
    """Whether its move can be confirmed, and nothing is amiss then."""
    move, _ = desk.moves.confirm(ONE)
    assert held() == {ONE: {"cn-1": {"VCPU": 1}}}
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)
    return move.status == "confirmed"


def test_a_move_that_placement_does_not_revert_can_be_confirmed(
    large: Desk, publishing: Publishing
) -> None:
    move = large.moves.start(ONE, SMALL, suits=on("cn-1"))
    shrink(publishing, "cn-0")
    for _ in range(2):
        with pytest.raises(AllocationRefused, match="it cannot have what it had before"):
            large.moves.revert(ONE)
        assert only_move(publishing).status == "finished"
        assert large.moves.left() == []
        assert held() == {move.uuid: {"cn-0": {"VCPU": 2}}, ONE: {"cn-1": {"VCPU": 1}}}
        # Nothing was given back, and nothing waits to be cleaned.
        assert rows(publishing.context) == {}
        assert not is_full(publishing.placement, "cn-1")

    assert confirmed(large, publishing)


def test_a_move_that_placement_has_not_reverted_is_when_it_does(
    large: Desk, publishing: Publishing
) -> None:
    large.moves.start(ONE, SMALL, suits=on("cn-1"))
    shrink(publishing, "cn-0")
    with pytest.raises(AllocationRefused):
        large.moves.revert(ONE)
    publishing.driver.nodes["cn-0"] = flat(VCPU=2)
    assert not publishing.cycle.sync().problems

    assert large.moves.revert(ONE)[0].status == "reverted"
    assert held() == {ONE: {"cn-0": {"VCPU": 2}}}
    assert is_full(publishing.placement, "cn-1")
    assert settled(publishing) == []


def test_what_an_instance_has_that_placement_does_not_let_its_move_have_is_named(
    large: Desk, publishing: Publishing
) -> None:
    shrink(publishing, "cn-0")
    before = everything()
    with (
        Posts(publishing.placement) as posts,
        pytest.raises(AllocationRefused, match="what it has cannot be held for the move"),
    ):
        large.moves.start(ONE, SMALL, suits=on("cn-1"))

    assert len(posts.bodies) == 1, "no other candidate would do"
    assert everything() == before
    assert only_move(publishing).status == "failed"
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("by", ["recover", "revert"])
def test_a_start_that_died_before_it_was_asked_for_is_undone_though_units_have_changed(
    large: Desk, publishing: Publishing, by: str
) -> None:
    start = "before POST /allocations"
    die_at(publishing, start, lambda: large.moves.start(ONE, SMALL, suits=on("cn-1")))
    shrink(publishing, "cn-0")
    with anew(publishing) as late:
        [left] = late.moves.left()
        ended, _ = late.moves.recover(left) if by == "recover" else late.moves.revert(ONE)
        assert ended.status == "failed"
        assert late.moves.left() == []
    assert held() == {ONE: {"cn-0": {"VCPU": 2}}}
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("by", ["recover", "revert"])
def test_a_start_that_died_when_it_had_got_it_can_be_confirmed_though_units_have_changed(
    large: Desk, publishing: Publishing, by: str
) -> None:
    start = "after POST /allocations"
    die_at(publishing, start, lambda: large.moves.start(ONE, SMALL, suits=on("cn-1")))
    shrink(publishing, "cn-0")
    with anew(publishing) as late:
        [left] = late.moves.left()
        with pytest.raises(AllocationRefused, match="Confirm its move"):
            late.moves.recover(left) if by == "recover" else late.moves.revert(ONE)
        assert late.moves.left() == []
        assert noted(publishing.context) == taken(publishing.context)
        assert confirmed(late, publishing)


# Names that nobody knows.


@pytest.mark.parametrize(
    "extra_specs",
    [{"trait:CUSTOM_NOPE": "required"}, {"resources:CUSTOM_NOPE": "1"}],
    ids=["trait", "class"],
)
def test_a_flavor_that_placement_refuses_is_named(
    desk: Desk, publishing: Publishing, extra_specs: dict[str, str]
) -> None:
    wrong = flavor("wrong", **extra_specs)
    with pytest.raises(InvalidRequest, match=r"flavor wrong.*CUSTOM_NOPE"):
        desk.claim(wrong, uuid=ONE)
    assert there_are(publishing) == []

    desk.claim(SMALL, uuid=ONE)
    before = held()
    with pytest.raises(InvalidRequest, match=r"flavor wrong.*CUSTOM_NOPE"):
        desk.moves.start(ONE, wrong)
    assert held() == before
    assert only_move(publishing).status == "failed"
    assert faults(publishing.context) == []


@pytest.mark.parametrize("field", ["project_id", "user_id"])
@pytest.mark.parametrize("value", ["", "x" * 256], ids=["empty", "too long"])
def test_whose_an_instance_is_has_to_be_said(
    desk: Desk, publishing: Publishing, field: str, value: str
) -> None:
    whose: dict[str, Any] = {"project_id": PROJECT, "user_id": USER, field: value}
    publishing.placement.requests.clear()
    with pytest.raises(AllocationRefused, match=field):
        desk.claims.claim(SMALL, **whose)
    assert publishing.placement.requests.writes == []
    assert there_are(publishing) == []


# Uuids.


@pytest.mark.parametrize(
    "written",
    [ONE.upper(), ONE.replace("-", ""), f"{{{ONE}}}", f"urn:uuid:{ONE}"],
    ids=["capitals", "no dashes", "braces", "urn"],
)
def test_a_uuid_is_the_same_however_it_is_written(
    desk: Desk, publishing: Publishing, written: str
) -> None:
    for _ in range(2):
        claimed = desk.claim(SMALL, uuid=written)
        assert claimed.instance.uuid == ONE
        assert [*held()] == there_are(publishing) == [ONE]
    move = desk.moves.start(written, LARGE)
    desk.moves.revert(written)
    again = desk.moves.start(written, LARGE)
    desk.moves.confirm(written)
    assert {move.instance_uuid, again.instance_uuid} == {ONE}
    assert [*held()] == [ONE]
    assert faults(publishing.context) == []

    desk.claims.release(written)
    assert (held(), there_are(publishing)) == ({}, [])


def test_what_is_no_uuid_is_refused(desk: Desk, publishing: Publishing) -> None:
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
    assert there_are(publishing) == []


# Trees.


@pytest.mark.parametrize("sharing", ["pool", "disk"])
def test_a_claim_that_was_cut_short_goes_on_though_what_it_shares_is_published_as_a_node(
    sharing: str, desk: Desk, publishing: Publishing
) -> None:
    def shares(tree: ProviderTree) -> None:
        if not tree.exists(sharing):
            tree.new_child(sharing, "pool")
        tree.update_inventory(sharing, {"DISK_GB": {"total": 20}})
        tree.update_traits(sharing, ["MISC_SHARES_VIA_AGGREGATE"])
        tree.update_aggregates(sharing, [AGGREGATE])

    def has_shared(tree: ProviderTree) -> None:
        tree.update_aggregates("cn-1", [AGGREGATE])

    publishing.driver.nodes["cn-1"] = also(has_shared)(flat(VCPU=2))
    # It could be the node, too: of trees that could not, Placement 16 fails for shared children.
    publishing.driver.nodes["pool"] = also(shares)(flat(VCPU=2))
    assert not publishing.cycle.sync().problems
    disk = flavor("disk", **{"resources:DISK_GB": "15"})

    def claim() -> None:
        desk.claim(disk, uuid=ONE, suits=on("cn-1"))

    die_at(publishing, "after POST /allocations", claim)
    with anew(publishing) as late:
        assert late.claim(disk, uuid=ONE).instance.node == "cn-1"

    assert held() == {ONE: {"cn-1": {"VCPU": 1}, sharing: {"DISK_GB": 15}}}
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)
