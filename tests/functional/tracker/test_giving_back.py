"""What a consumer gives back is reserved first, and free again when it has been cleaned."""

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.lab.cycles import Publishing, allocate, everything
from tests.lab.drivers import flat
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
    makes,
    node,
    rows,
    summary,
)
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError
from wharfinger.objects import ReservationList
from wharfinger.placement.holds import Holds
from wharfinger.providers import ProviderTree

CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))
OTHER = str(uuid5(NAMESPACE_OID, "other consumer"))
GOLD: Figures = {"CUSTOM_GOLD": (1, 0)}
PACES = ["sync", "poll"]


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> CleaningDriver:
    """One with two nodes of one provider each, of which the first is in use."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes |= {"metal": node(GOLD), "spare": node(GOLD)}
    assert not publishing.cycle.sync().problems
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    return driver


def give_back(publishing: Publishing, consumer: str = CONSUMER) -> None:
    Holds(publishing.client, publishing.context).give_back(consumer)


def phases(publishing: Publishing) -> list[str | None]:
    return [one.phase for one in ReservationList.get_by_filters(publishing.context)]


def run(publishing: Publishing, pace: str) -> None:
    outcome = getattr(publishing.cycle, pace)()
    assert not outcome.problems
    assert not outcome.foreign


def test_it_is_reserved_before_its_allocation_goes_and_never_to_be_had_in_between(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    metal, looker = summary(placement, "metal").uuid, placement.new_client()
    seen: list[tuple[str, bool]] = []
    client = placement.client

    def look(method: str, path: str) -> None:
        if method != "GET":
            placement.adapter.after = placement.adapter.before = lambda method, path: None
            seen.append((method, is_candidate(looker, metal, "CUSTOM_GOLD")))
            placement.adapter.after = placement.adapter.before = look

    assert is_candidate(client, summary(placement, "spare").uuid, "CUSTOM_GOLD")
    placement.adapter.after = placement.adapter.before = look
    placement.requests.clear()
    give_back(publishing)
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


@pytest.mark.parametrize("pace", PACES)
def test_it_is_free_when_its_cleaning_was_seen_and_seen_to_have_ended(
    pace: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
    assert phases(publishing) == ["released"]
    assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 1)}
    run(publishing, pace)
    assert phases(publishing) == ["released"]

    driver.says("metal", "metal", "cleaning")
    run(publishing, pace)
    run(publishing, pace)
    assert phases(publishing) == ["cleaning"]
    assert is_full(placement, "metal")
    driver.says("metal", "metal")
    run(publishing, pace)
    run(publishing, pace)

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


@pytest.mark.parametrize("pace", PACES)
def test_what_was_seen_before_it_was_given_back_counts_for_nothing(
    pace: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """The cleaning of which the snapshot tells was another one."""
    driver.says("metal", "metal", "cleaning")
    driver.meanwhile = lambda: give_back(publishing)

    getattr(publishing.cycle, pace)()
    assert phases(publishing) == ["released"]
    driver.says("metal", "metal")
    for _ in range(2):
        run(publishing, pace)

    assert is_full(placement, "metal")
    assert phases(publishing) != []


def test_a_drift_cycle_judges_nothing(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
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


@pytest.mark.parametrize("pace", PACES)
def test_it_stays_reserved_while_no_cleaning_was_seen(
    pace: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
    for _ in range(4):
        driver.says("metal", "metal")  # its feed names it, and there is nothing to tell
        run(publishing, pace)
    publishing.restarted()
    run(publishing, "sync")
    assert phases(publishing) == ["released"]
    assert is_full(placement, "metal")


@pytest.mark.parametrize("pace", PACES)
def test_its_driver_may_state_that_none_will_come(
    pace: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
    metal = summary(placement, "metal").uuid
    [row] = rows(publishing.context).values()
    driver.says("metal", "metal")
    run(publishing, pace)
    driver.clean.add(metal)
    driver.says("metal", "metal")
    run(publishing, pace)
    driver.says("metal", "metal")
    run(publishing, pace)

    assert set(driver.asked) == {(metal, row.since)}
    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


def test_a_driver_that_cannot_say_leaves_that_one_reserved_and_the_others_alone(
    driver: CleaningDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(uuid: str, since: object) -> bool:
        raise OSError("no answer")

    give_back(publishing)
    monkeypatch.setattr(driver, "is_clean", fails)
    driver.nodes["new"] = flat(CUSTOM_GOLD=1)

    outcome = publishing.cycle.sync()

    [problem] = outcome.problems
    assert isinstance(problem, BackendError)
    assert "is_clean" in str(problem)
    assert figures(placement, "new") == GOLD
    assert is_full(placement, "metal")


def test_a_maintenance_that_follows_on_the_cleaning_is_waited_for(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    driver.says("metal", "metal", "maintenance")
    run(publishing, "sync")
    assert is_full(placement, "metal")
    driver.says("metal", "metal")
    run(publishing, "sync")
    assert figures(placement, "metal") == GOLD


def test_an_operator_s_hold_outlasts_the_cleaning_and_the_other_way_round(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    metal = summary(placement, "metal")
    holds = Holds(publishing.client, publishing.context)
    holds.reserve(metal, holder="ann", reason="why")
    give_back(publishing)
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    driver.says("metal", "metal")
    run(publishing, "sync")
    assert is_full(placement, "metal")
    assert [one.holder for one in rows(publishing.context).values()] == ["ann"]
    holds.release(metal, "ann")
    assert figures(placement, "metal") == GOLD


def test_an_operator_may_end_the_wait(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
    [row] = rows(publishing.context).values()
    Holds(publishing.client, publishing.context).release(summary(placement, "metal"), row.holder)
    assert figures(placement, "metal") == GOLD
    run(publishing, "sync")
    assert figures(placement, "metal") == GOLD


def test_it_survives_a_restart_in_each_phase(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    give_back(publishing)
    publishing.restarted()
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    publishing.restarted()
    assert phases(publishing) == ["cleaning"]
    run(publishing, "sync")
    assert is_full(placement, "metal")
    driver.says("metal", "metal")
    publishing.restarted()
    run(publishing, "sync")
    assert figures(placement, "metal") == GOLD


# What is given back.


def test_a_consumer_without_allocations_gives_nothing_back(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.requests.clear()
    give_back(publishing, OTHER)
    assert not placement.requests.writes
    assert phases(publishing) == []


def test_giving_back_twice_is_giving_back_once(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    for _ in range(2):
        give_back(publishing)
    assert phases(publishing) == ["released"]
    driver.says("metal", "metal", "cleaning")
    run(publishing, "sync")
    give_back(publishing)
    assert phases(publishing) == ["cleaning"]


def test_two_consumers_of_one_provider_each_have_it_cleaned(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.nodes["shared"] = node({"CUSTOM_GOLD": (2, 0)})
    run(publishing, "sync")
    for consumer in (OTHER, str(uuid5(NAMESPACE_OID, "third"))):
        allocate(placement, consumer, shared={"CUSTOM_GOLD": 1})
    give_back(publishing, OTHER)
    driver.says("shared", "shared", "cleaning")
    run(publishing, "sync")
    give_back(publishing, str(uuid5(NAMESPACE_OID, "third")))
    driver.says("shared", "shared")
    run(publishing, "sync")

    assert phases(publishing) == ["released"]
    assert is_full(placement, "shared")


def test_what_is_not_cleaned_is_free_at_once(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    drives(publishing, ReservingDriver())
    publishing.driver.nodes["metal"] = node(GOLD)
    run(publishing, "sync")
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    placement.requests.clear()

    give_back(publishing)

    assert placement.requests.writes == ["POST /allocations"]
    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD


@pytest.fixture
def beside(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> Iterator[Publishing]:
    """Another instance of the same service, which cleans nothing, with a child below spare."""

    def add_child(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        if not tree.exists("fpga"):
            tree.new_child("fpga", name)
        tree.update_inventory("fpga", {"FPGA": {"total": 2}})

    with ExitStack() as stack:
        other = Publishing(placement, publishing.state_path, owner="OWNER_CYBORG", name="fpgas")
        stack.enter_context(other)
        other.driver.nodes["spare"] = add_child
        assert not other.cycle.sync().problems
        del driver.nodes["metal"]
        placement.client.delete_allocations(CONSUMER)
        for _ in range(3):
            publishing.restarted().sync()
        assert "metal" not in everything()
        yield other


def test_of_several_providers_those_are_reserved_that_are_cleaned(
    beside: Publishing,
    driver: CleaningDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    """The others are another owner's, and nobody's; the instance knows the first of these two."""
    makes(placement, "nobodys", DISK_GB=(10, 0))
    for _ in range(2):
        publishing.cycle.sync()
    assert summary(placement, "fpga").uuid in publishing.memory.records
    allocate(placement, OTHER, spare={"CUSTOM_GOLD": 1}, fpga={"FPGA": 1}, nobodys={"DISK_GB": 5})

    give_back(publishing, OTHER)

    assert not any(one["allocations"] for one in everything().values())
    assert figures(placement, "spare") == {"CUSTOM_GOLD": (1, 1)}
    assert figures(placement, "fpga") == {"FPGA": (2, 0)}
    assert figures(placement, "nobodys") == {"DISK_GB": (10, 0)}
    [row] = rows(publishing.context).values()
    assert row.provider_uuid == summary(placement, "spare").uuid
    for cycle in (beside.cycle, publishing.cycle):
        assert not cycle.sync().problems
    driver.says("spare", "spare", "cleaning")
    run(publishing, "sync")
    beside.cycle.sync()
    driver.says("spare", "spare")
    beside.cycle.sync()
    assert is_full(placement, "spare")
    run(publishing, "sync")
    assert figures(placement, "spare") == GOLD


def test_another_instance_s_cycles_end_no_hold(
    beside: Publishing,
    driver: CleaningDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    allocate(placement, OTHER, spare={"CUSTOM_GOLD": 1})
    give_back(publishing, OTHER)
    for pace in ("sync", "drift", "sync"):
        outcome = getattr(beside.cycle, pace)()
        assert not outcome.problems
        assert is_full(placement, "spare")
    assert phases(publishing) == ["released"]


# Crashes.


def test_a_crash_at_any_step_leaves_nothing_to_be_had_and_the_repeat_completes_it(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    metal = summary(placement, "metal").uuid
    moments = Moments(publishing.state_path)
    publishing.restarted()
    start = moments.take()
    with Steps(placement) as steps:
        give_back(publishing)
    assert len(steps.passed) == 8
    for number, step in enumerate(steps.passed):
        moments.go_back(start)
        publishing.restarted()
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            give_back(publishing)
        assert not is_candidate(placement.client, metal, "CUSTOM_GOLD"), step

        publishing.restarted()
        driver.says("metal", "metal")
        for _ in range(3):
            run(publishing, "sync")
            assert not is_candidate(placement.client, metal, "CUSTOM_GOLD"), step
        is_deleted = not everything()["metal"]["allocations"]
        give_back(publishing)

        assert not everything()["metal"]["allocations"], step
        assert is_deleted == (number > steps.passed.index("before POST /allocations"))
        assert phases(publishing) == ["released"], step
        driver.says("metal", "metal", "cleaning")
        run(publishing, "sync")
        driver.says("metal", "metal")
        run(publishing, "sync")
        assert figures(placement, "metal") == GOLD, step


@pytest.mark.parametrize("pace", ["sync", "drift", "poll"])
def test_a_cycle_that_comes_between_any_two_steps_spoils_nothing(
    pace: str, driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    metal = summary(placement, "metal").uuid
    moments = Moments(publishing.state_path)
    publishing.restarted()
    start = moments.take()
    number = 0
    while True:
        moments.go_back(start)
        publishing.restarted()
        driver.says("metal", "metal")
        with Steps(placement, act_at=number, act=getattr(publishing.cycle, pace)) as steps:
            give_back(publishing)
        if len(steps.passed) <= number:
            break
        step = steps.passed[number]
        assert not is_candidate(placement.client, metal, "CUSTOM_GOLD"), step
        assert phases(publishing) == ["released"], step
        run(publishing, "sync")
        assert is_full(placement, "metal"), step
        number += 1
    assert number >= 8


def test_what_was_about_to_be_given_back_waits_for_that(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """Cleaning that is seen meanwhile is not what it waits for."""
    with Steps(placement, crash_at=4) as steps, pytest.raises(Crash):
        give_back(publishing)
    assert steps.passed[-1] == "before POST /allocations"
    for reasons in ((), ("cleaning",), ()):
        driver.says("metal", "metal", *reasons)
        run(publishing, "sync")
        assert phases(publishing) == ["releasing"]
        assert is_full(placement, "metal")

    placement.client.delete_allocations(CONSUMER)  # somebody else has done it
    run(publishing, "sync")
    assert phases(publishing) == ["released"]


def test_what_is_clean_already_is_free_after_a_drift_cycle_and_a_poll(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.clean.add(summary(placement, "metal").uuid)
    give_back(publishing)

    run(publishing, "drift")  # it sees that something was given back
    assert is_full(placement, "metal")
    run(publishing, "poll")  # its look at the backend comes after that

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD
    placement.requests.clear()
    run(publishing, "poll")
    assert placement.requests.seen == []


def test_it_is_free_though_a_poll_for_another_node_came_before_the_one_that_sees_it_clean(
    driver: CleaningDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.clean.add(summary(placement, "metal").uuid)
    give_back(publishing)
    driver.says("spare", "spare", "cleaning")
    run(publishing, "poll")
    driver.says("metal", "metal")

    for pace in ("poll", "poll", "drift", "sync"):
        run(publishing, pace)

    assert phases(publishing) == []
    assert figures(placement, "metal") == GOLD
