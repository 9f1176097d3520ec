"""Providers that stay reserved from the release of their allocation until the end of cleaning."""

from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.lab.cycles import Publishing, allocate, everything, execute
from tests.lab.drawing import Draw
from tests.lab.drivers import also, flat
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import (
    CleaningDriver,
    Crash,
    Figures,
    ReservingDriver,
    Steps,
    drives,
    figures,
    is_candidate,
    is_full,
    lose_records,
    makes,
    node,
    rows,
    summary,
)
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError, StateError
from wharfinger.objects import ComputeNode, ReservationList
from wharfinger.providers import ProviderTree
from wharfinger.reconcile.reserve_and_release import Reservations

CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))
OTHER = str(uuid5(NAMESPACE_OID, "other consumer"))
GOLD: Figures = {"CUSTOM_GOLD": (1, 0)}
CYCLE_TYPES = ["sync", "poll"]


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> CleaningDriver:
    """A driver that cleans, with two nodes of one provider each: metal is in use, spare is free."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes |= {"metal": node(GOLD), "spare": node(GOLD)}
    assert not publishing.cycle.sync().problems
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    return driver


def release_allocation(publishing: Publishing, consumer: str = CONSUMER) -> None:
    Consumers(publishing.client).release(
        consumer, Reservations(publishing.client, publishing.context)
    )


def phases(publishing: Publishing) -> list[str | None]:
    return [one.phase for one in ReservationList.get_by_filters(publishing.context)]


def run(publishing: Publishing, cycle_type: str) -> None:
    outcome = getattr(publishing.cycle, cycle_type)()
    assert not outcome.problems
    assert not outcome.foreign


def test_release_reserves_the_provider_before_the_allocation_is_deleted(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    metal, observer = summary(placement, "metal").uuid, placement.new_client()
    seen: list[tuple[str, bool]] = []
    client = placement.client

    def look(method: str, path: str) -> None:
        if method != "GET":
            placement.adapter.after = placement.adapter.before = lambda method, path: None
            seen.append((method, is_candidate(observer, metal, "CUSTOM_GOLD")))
            placement.adapter.after = placement.adapter.before = look

    assert is_candidate(client, summary(placement, "spare").uuid, "CUSTOM_GOLD")
    placement.adapter.after = placement.adapter.before = look
    placement.requests.clear()
    release_allocation(publishing)
    writes = [request.split("?")[0] for request in placement.requests.writes]
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    placement.adapter.after = placement.adapter.before = lambda method, path: None

    assert writes == [
        f"PUT /resource_providers/{metal}/inventories",
        "POST /allocations",
    ]
    assert len(seen) >= 4
    assert not any(is_free for _method, is_free in seen)
    assert not everything()["metal"]["allocations"]


@pytest.mark.parametrize("cycle_type", CYCLE_TYPES)
def test_released_provider_is_free_after_a_cycle_sees_the_end_of_its_cleaning(
    cycle_type: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    release_allocation(publishing)
    assert phases(publishing) == ["released"]
    assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 1)}
    for _ in range(2):
        driver.says("metal", "metal")  # its feed names the node, without a reason
        run(publishing, cycle_type)
    if cycle_type == "sync":
        publishing.restarted()
    assert phases(publishing) == ["released"]
    assert is_full(placement, "metal")

    for reason in ("cleaning", "maintenance"):
        driver.says("metal", "metal", reason)
        for _ in range(2):
            run(publishing, cycle_type)
            assert phases(publishing) == ["cleaning"]
            assert is_full(placement, "metal")
    if cycle_type == "sync":
        publishing.restarted()
    driver.says("metal", "metal")
    run(publishing, cycle_type)
    run(publishing, cycle_type)

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


@pytest.mark.parametrize("cycle_type", CYCLE_TYPES)
def test_cleaning_seen_before_the_release_does_not_end_the_reservation(
    cycle_type: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """The driver's snapshot is older than the release, so it shows an earlier cleaning."""
    driver.says("metal", "metal", "cleaning")
    driver.meanwhile = lambda: release_allocation(publishing)

    getattr(publishing.cycle, cycle_type)()
    assert phases(publishing) == ["released"]
    driver.says("metal", "metal")
    for _ in range(2):
        run(publishing, cycle_type)

    assert is_full(placement, "metal")
    assert phases(publishing) != []


def test_reservation_changed_during_a_cycle_does_not_keep_other_reservations_from_ending(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    allocate(placement, OTHER, spare={"CUSTOM_GOLD": 1})
    for consumer in (CONSUMER, OTHER):
        release_allocation(publishing, consumer)
    for reasons in (("cleaning",), ()):
        for name in ("metal", "spare"):
            driver.says(name, name, *reasons)
        if reasons:
            run(publishing, "sync")
    spare = summary(placement, "spare").uuid

    def change() -> None:
        [one] = ReservationList.get_by_filters(publishing.context, provider_uuid=spare)
        one.reason = "a fan is loud"
        one.save()

    struck = placement.adapter.once_before(lambda method, _path: method != "GET", change)
    run(publishing, "sync")
    assert struck

    assert {provider for provider, _holder in rows(publishing.context)} == {spare}


def test_drift_cycle_of_a_cleaning_changes_no_phase(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    release_allocation(publishing)
    driver.says("metal", "metal", "cleaning")
    publishing.cycle.drift()
    assert phases(publishing) == ["released"]
    run(publishing, "sync")
    assert phases(publishing) == ["cleaning"]
    driver.says("metal", "metal")
    for _ in range(2):
        publishing.cycle.drift()
        assert phases(publishing) == ["cleaning"]
        assert is_full(placement, "metal")
    run(publishing, "sync")
    assert figures(placement, "metal") == GOLD


def test_is_clean_that_returns_no_boolean_keeps_only_that_provider_reserved(
    driver: CleaningDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release_allocation(publishing)
    monkeypatch.setattr(driver, "is_clean", lambda uuid, since: "no")
    driver.nodes["new"] = flat(CUSTOM_GOLD=1)

    outcome = publishing.cycle.sync()

    [problem] = outcome.problems
    assert isinstance(problem, BackendError)
    assert "is_clean" in str(problem)
    assert figures(placement, "new") == GOLD
    assert is_full(placement, "metal")


def test_reservations_of_operator_and_cleaning_end_independently(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    metal = summary(placement, "metal")
    holds = Reservations(publishing.client, publishing.context)
    holds.reserve(metal, holder="ann", reason="why")
    release_allocation(publishing)
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    driver.says("metal", "metal")
    run(publishing, "sync")
    assert is_full(placement, "metal")
    assert [one.holder for one in rows(publishing.context).values()] == ["ann"]
    holds.release(metal, "ann")
    assert figures(placement, "metal") == GOLD


# Releases.


def test_release_twice_equals_release_once(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.requests.clear()
    release_allocation(publishing, OTHER)
    assert not placement.requests.writes, "a consumer without allocations gives nothing back"
    assert phases(publishing) == []
    for _ in range(2):
        release_allocation(publishing)
    assert phases(publishing) == ["released"]
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    release_allocation(publishing)
    assert phases(publishing) == ["cleaning"]


def test_release_without_cleaning_is_free_at_once(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    drives(publishing, ReservingDriver())
    publishing.driver.nodes["metal"] = node(GOLD)
    run(publishing, "sync")
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    placement.requests.clear()

    release_allocation(publishing)

    assert placement.requests.writes == ["POST /allocations"]
    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


# Crashes.


def test_release_that_crashes_at_any_step_makes_no_candidate_and_is_completed_by_a_repeat(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture, draw: Draw
) -> None:
    metal = summary(placement, "metal").uuid
    moments = Moments(publishing.state_path)
    publishing.restarted()
    start = moments.take()
    with Steps(placement) as steps:
        release_allocation(publishing)
    assert len(steps.passed) == 10
    deletes = steps.passed.index("before POST /allocations")
    for number in draw(range(len(steps.passed)), 2, keep=[deletes]):
        step = steps.passed[number]
        moments.go_back(start)
        publishing.restarted()
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            release_allocation(publishing)
        assert not is_candidate(placement.client, metal, "CUSTOM_GOLD"), step

        publishing.restarted()
        driver.says("metal", "metal")
        for _ in range(2):
            run(publishing, "sync")
            assert not is_candidate(placement.client, metal, "CUSTOM_GOLD"), step
        is_deleted = not everything()["metal"]["allocations"]
        release_allocation(publishing)

        assert not everything()["metal"]["allocations"], step
        assert is_deleted == (number > deletes)
        assert phases(publishing) == ["released"], step
        driver.says("metal", "metal", "cleaning")
        run(publishing, "sync")
        driver.says("metal", "metal")
        run(publishing, "sync")
        assert figures(placement, "metal") == GOLD, step


@pytest.mark.parametrize("cycle_type", ["sync", "drift", "poll"])
def test_cycle_between_any_two_steps_of_a_release_makes_no_candidate(
    cycle_type: str,
    driver: CleaningDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    draw: Draw,
) -> None:
    metal = summary(placement, "metal").uuid
    moments = Moments(publishing.state_path)
    publishing.restarted()
    start = moments.take()

    def release_with_a_cycle_at(number: int) -> list[str]:
        moments.go_back(start)
        publishing.restarted()
        driver.says("metal", "metal")
        with Steps(placement, act_at=number, act=getattr(publishing.cycle, cycle_type)) as steps:
            release_allocation(publishing)
        return steps.passed

    count = len(release_with_a_cycle_at(10**9))
    assert count >= 8
    for number in draw(range(count), 2):
        step = release_with_a_cycle_at(number)[number]
        assert not is_candidate(placement.client, metal, "CUSTOM_GOLD"), step
        assert phases(publishing) == ["released"], step
        run(publishing, "sync")
        assert is_full(placement, "metal"), step


def test_release_of_a_clean_provider_is_free_after_a_drift_cycle_and_a_poll(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.clean.add(summary(placement, "metal").uuid)
    release_allocation(publishing)

    run(publishing, "drift")  # this cycle records the release
    assert is_full(placement, "metal")
    run(publishing, "poll")  # this snapshot is later than the release

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD
    placement.requests.clear()
    run(publishing, "poll")
    assert placement.requests.seen == []


def test_released_node_that_a_poll_cannot_describe_is_free_after_a_drift_cycle_and_a_poll(
    driver: CleaningDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(nodename: str) -> ComputeNode:
        raise TimeoutError(nodename)

    driver.clean.add(summary(placement, "metal").uuid)
    release_allocation(publishing)
    run(publishing, "drift")
    with monkeypatch.context() as patch:
        patch.setattr(driver, "get_available_resource", fail)
        assert publishing.cycle.poll().problems
    assert is_full(placement, "metal")

    run(publishing, "drift")
    run(publishing, "poll")

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


def test_poll_of_another_node_does_not_keep_a_clean_provider_reserved(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.clean.add(summary(placement, "metal").uuid)
    release_allocation(publishing)
    driver.says("spare", "spare", "cleaning")
    run(publishing, "poll")
    driver.says("metal", "metal")

    for cycle_type in ("poll", "poll", "drift", "sync"):
        run(publishing, cycle_type)

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


@pytest.mark.parametrize("is_read", [False, True])
def test_poll_of_all_nodes_that_share_a_provider_frees_a_clean_provider(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture, *, is_read: bool
) -> None:
    """The poll reads Placement, or uses the records."""

    def shares(tree: ProviderTree) -> None:
        tree.update_traits("spare", ["MISC_SHARES_VIA_AGGREGATE"])

    driver.nodes["spare"] = also(shares)(node(GOLD))
    run(publishing, "sync")
    release_allocation(publishing)
    run(publishing, "drift")
    run(publishing, "poll")
    assert phases(publishing) == ["released"]
    driver.clean.add(summary(placement, "metal").uuid)
    if is_read:
        uuid_ = summary(placement, "spare").uuid
        execute(
            publishing,
            "UPDATE provider_records SET intended = applied, revision = revision + 1 "
            "WHERE provider_uuid = ?",
            uuid_,
        )
    placement.requests.clear()
    driver.says("spare", "spare", "burns")

    run(publishing, "poll")

    lists = [one for one in placement.requests.seen if one.startswith("GET /resource_providers?")]
    assert bool(lists) == is_read
    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


# A release while the node moves to another host.


@pytest.mark.parametrize("gone", ["another name", "all of it"])
def test_release_during_a_takeover_reserves_the_provider_to_clean(
    gone: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    row = ComputeNode.get_by_uuid(publishing.context, summary(placement, "metal").uuid)
    if gone == "all of it":
        row.host = "far-host"
    if gone == "another name":
        row.driver_instance = "renamed"
    row.save()
    if gone == "all of it":
        lose_records(publishing)

    release_allocation(publishing)

    assert phases(publishing) == ["released"]
    assert is_full(placement, "metal")


def test_release_of_providers_of_several_owners_reserves_only_those_that_are_cleaned(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """A provider that its driver does not clean would stay reserved forever."""
    makes(placement, "nobodys", DISK_GB=(10, 0))
    with Publishing(placement, publishing.state_path, owner="OWNER_CYBORG", name="other") as other:
        other.driver.nodes["spare"] = with_fpga
        assert not other.cycle.sync().problems
        allocate(
            placement, OTHER, spare={"CUSTOM_GOLD": 1}, fpga={"FPGA": 1}, nobodys={"DISK_GB": 5}
        )

        release_allocation(publishing, OTHER)

        assert not placement.client.get_allocations(OTHER)["allocations"]
        assert figures(placement, "fpga") == {"FPGA": (2, 0)}
        assert figures(placement, "nobodys") == {"DISK_GB": (10, 0)}
        assert is_full(placement, "spare")
        assert phases(publishing) == ["released"]


def test_release_of_several_providers_with_a_damaged_record_changes_nothing(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.nodes["metal"] = node(GOLD, a={"VGPU": (4, 0)}, b={"VGPU": (4, 0)})
    assert not publishing.restarted().sync().problems
    names = ("metal", "b", "a")
    allocate(placement, OTHER, a={"VGPU": 1}, b={"VGPU": 1})
    damaged = summary(placement, "a").uuid
    sql = "UPDATE provider_records SET live = 'what' WHERE provider_uuid = ?"
    execute(publishing, sql, damaged)
    before = everything()
    reservations = Reservations(publishing.client, publishing.context)

    with pytest.raises(StateError, match=damaged):
        reservations.before_release(OTHER, [summary(placement, one).uuid for one in names])

    assert not phases(publishing)
    assert everything() == before


def test_provider_that_two_consumers_release_is_free_after_the_cleaning_of_the_second(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.nodes["shared"] = node({"CUSTOM_GOLD": (2, 0)})
    run(publishing, "sync")
    third = str(uuid5(NAMESPACE_OID, "third"))
    for consumer in (OTHER, third):
        allocate(placement, consumer, shared={"CUSTOM_GOLD": 1})
    release_allocation(publishing, OTHER)
    driver.says("shared", "shared", "cleaning")
    run(publishing, "sync")
    release_allocation(publishing, third)
    assert phases(publishing) == ["cleaning", "released"]
    for reasons in ((), ("cleaning",)):  # the first cleaning ends, and the second begins
        driver.says("shared", "shared", *reasons)
        run(publishing, "sync")
        assert is_full(placement, "shared")
    driver.says("shared", "shared")
    run(publishing, "sync")

    assert phases(publishing) == []
    assert figures(placement, "shared") == {"CUSTOM_GOLD": (2, 0)}


def with_fpga(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    """Edit an FPGA below a node that another driver instance publishes."""
    if not tree.exists("fpga"):
        tree.new_child("fpga", name)
    tree.update_inventory("fpga", {"FPGA": {"total": 2}})
