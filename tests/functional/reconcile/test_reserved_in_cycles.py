"""Reservations of drivers, operators and jobs fill a provider until all of them have ended."""

from collections.abc import Callable

import pytest

from tests.lab.cycles import Publishing, allocate, contents, stored
from tests.lab.drivers import Edit, does_not_answer
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import (
    Figures,
    ReservingDriver,
    drives,
    figures,
    makes,
    node,
    overlaid,
    rows,
    summary,
    writes,
)
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger.reconcile.reserve_and_release import Reservations

CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
OWN: dict[str, Figures] = {
    "cn": {"VCPU": (8, 1)},
    "gpu": {"VGPU": (4, 1), "FPGA": (2, 0)},
    "bare": {},
    "card": {"FPGA": (3, 2)},
}
FULL: dict[str, Figures] = {
    name: {kind: (total, total) for kind, (total, _) in own.items()} for name, own in OWN.items()
}
HOST: Edit = node(OWN["cn"], gpu=OWN["gpu"], bare=OWN["bare"])
NODES = {"cn": "cn", "gpu": "cn", "bare": "cn", "card": "card"}


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> ReservingDriver:
    """A driver that has published the inventories of OWN."""
    driver = ReservingDriver()
    drives(publishing, driver)
    makes(placement, "card", **OWN["card"])
    driver.nodes |= {"cn": HOST, "card": overlaid}
    assert not publishing.cycle.sync().problems
    assert all(figures(placement, name) == own for name, own in OWN.items())
    return driver


def hold(publishing: Publishing, placement: PlacementFixture, name: str, holder: str) -> None:
    """Store a reservation and write it to Placement."""
    Reservations(publishing.client, publishing.context).reserve(
        summary(placement, name), holder=holder, reason=f"for {holder}"
    )


def release(publishing: Publishing, placement: PlacementFixture, name: str, holder: str) -> None:
    Reservations(publishing.client, publishing.context).release(summary(placement, name), holder)


# Holders.


def test_provider_is_free_after_the_driver_operators_and_jobs_released_it_in_any_order(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    allocate(placement, CONSUMER, cn={"VCPU": 2}, gpu={"VGPU": 1}, card={"FPGA": 1})
    before = contents(placement)
    full = {name: found | {"inventories": FULL[name]} for name, found in before.items()}
    for order in (("cleaning", "ann", "job"), ("ann", "job", "cleaning")):
        for name, at in NODES.items():
            driver.says(at, name, "cleaning", "maintenance")
        publishing.cycle.sync()
        for name in NODES:
            hold(publishing, placement, name, "ann")
            hold(publishing, placement, name, "job")
        for ending in order:
            assert contents(placement) == full
            for name, at in NODES.items():
                if ending == "cleaning":
                    driver.says(at, name, "maintenance")
                else:
                    release(publishing, placement, name, ending)
            assert not publishing.cycle.sync().foreign
            if ending == "cleaning":
                assert contents(placement) == full, "the maintenance goes on"
                for name, at in NODES.items():
                    driver.says(at, name)
                publishing.cycle.sync()
        assert contents(placement) == before
    assert not any(record.own_reserved for record in stored(publishing.state_path).values())


def test_unchanged_cycle_with_reservations_takes_one_request_and_no_write(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    for name in OWN:
        hold(publishing, placement, name, "ann")
    driver.says("cn", "gpu", "cleaning")
    writes(placement, "card", FPGA=(3, 3))
    publishing.cycle.sync()
    for cycle in (publishing.cycle.drift, publishing.cycle.sync, publishing.restarted().sync):
        placement.requests.clear()
        assert not cycle().steps
        assert len(placement.requests) == 1
    placement.requests.clear()
    publishing.cycle.poll()
    assert not len(placement.requests)


@pytest.mark.parametrize("cycle_type", ["sync", "drift"])
def test_cycle_writes_stored_reservations_and_ends_deleted_ones(
    cycle_type: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """The process that stored or deleted the reservation died before its write to Placement."""
    hold(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()
    writes(placement, "gpu", **OWN["gpu"])
    getattr(publishing.cycle, cycle_type)()
    assert figures(placement, "gpu") == FULL["gpu"]

    [row] = rows(publishing.context).values()
    row.destroy()
    getattr(publishing.cycle, cycle_type)()

    assert figures(placement, "gpu") == OWN["gpu"]


# Reservations during a driver's snapshot, which may take long.


@pytest.mark.parametrize("cycle_type", ["sync", "poll"])
@pytest.mark.parametrize("name", ["gpu", "card"])
def test_reservation_during_a_snapshot_outlasts_the_drivers_reason(
    cycle_type: str,
    name: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    driver.says(NODES[name], name, "cleaning")
    publishing.cycle.sync()
    driver.says(NODES[name], name)
    driver.meanwhile = lambda: hold(publishing, placement, name, "ann")

    outcome = getattr(publishing.cycle, cycle_type)()

    assert not outcome.problems
    assert not outcome.foreign
    assert figures(placement, name) == FULL[name]
    release(publishing, placement, name, "ann")
    assert not publishing.cycle.sync().foreign
    assert figures(placement, name) == OWN[name]


# Foreign reservations.


@pytest.mark.parametrize("cycle_type", ["sync", "drift"])
def test_foreign_reservation_is_reported_in_each_cycle_and_kept(
    cycle_type: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    writes(placement, "gpu", **FULL["gpu"])
    for cycle in (publishing.cycle, publishing.cycle, publishing.restarted()):
        outcome = getattr(cycle, cycle_type)()
        assert not outcome.steps
        [foreign] = outcome.foreign
        assert (foreign.name, set(foreign.classes)) == ("gpu", set(OWN["gpu"]))
    assert figures(placement, "gpu") == FULL["gpu"]


# Other failures.

Trouble = Callable[[ReservingDriver, Publishing], None]


def fails_for_the_node(driver: ReservingDriver, publishing: Publishing) -> None:
    driver.nodes["cn"] = does_not_answer


def is_absent(driver: ReservingDriver, publishing: Publishing) -> None:
    publishing.removal_delay = 3600.0
    publishing.restarted()
    del driver.nodes["cn"]


def is_disabled(driver: ReservingDriver, publishing: Publishing) -> None:
    Service(publishing.context, host="test-host", binary="wharfinger-agent", disabled=True).create()


def has_a_neighbour_that_fails(driver: ReservingDriver, publishing: Publishing) -> None:
    driver.nodes["other"] = does_not_answer


TROUBLES = [fails_for_the_node, is_absent, is_disabled, has_a_neighbour_that_fails]


@pytest.mark.parametrize(
    ("trouble", "cycle_type"), zip(TROUBLES, ["sync", "drift", "sync", "drift"], strict=True)
)
def test_stored_reservation_survives_failures_and_restarts(
    trouble: Trouble,
    cycle_type: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    hold(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()
    trouble(driver, publishing)
    getattr(publishing.cycle, cycle_type)()
    assert figures(placement, "gpu") == FULL["gpu"]
    publishing.restarted().sync()
    assert figures(placement, "gpu") == FULL["gpu"]
    writes(placement, "gpu", **{kind: (total, 0) for kind, (total, _) in OWN["gpu"].items()})
    publishing.cycle.drift()
    assert figures(placement, "gpu") == FULL["gpu"], "a drift cycle repairs the figures"
    assert not publishing.cycle.drift().steps

    driver.nodes["cn"] = HOST
    publishing.cycle.sync()
    assert figures(placement, "gpu") == FULL["gpu"]
    release(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()

    assert figures(placement, "gpu") == OWN["gpu"]


def test_stored_reservation_survives_a_failed_listing(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    hold(publishing, placement, "gpu", "ann")
    driver.fails = True
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert figures(placement, "gpu") == FULL["gpu"]
    publishing.cycle.drift()
    assert figures(placement, "gpu") == FULL["gpu"]
    driver.fails = False
    publishing.cycle.sync()
    assert figures(placement, "gpu") == FULL["gpu"]


def test_removed_provider_returns_with_its_reservation(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """The provider is at no moment free."""
    hold(publishing, placement, "gpu", "ann")
    driver.nodes["cn"] = node(OWN["cn"], bare={})
    for _ in range(2):
        publishing.restarted().sync()
    assert "gpu" not in contents(placement)
    free: list[Figures] = []

    def look(method: str, path: str) -> None:
        found = contents(placement)
        if "gpu" in found and any(a != b for a, b in found["gpu"]["inventories"].values()):
            free.append(found["gpu"]["inventories"])

    driver.nodes["cn"] = HOST
    placement.adapter.after = look
    publishing.cycle.sync()

    assert figures(placement, "gpu") == FULL["gpu"]
    assert not free


# Start of a reservation.


def test_start_time_of_each_reason_survives_restarts(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    gpu = summary(placement, "gpu").uuid

    def since() -> dict[str, float]:
        return dict(stored(publishing.state_path)[gpu].reserved_since)

    driver.says("cn", "gpu", "cleaning")
    publishing.cycle.sync()
    first = since()
    assert first.keys() == {"cleaning"}
    publishing.restarted().sync()
    publishing.cycle.drift()
    assert since() == first
    driver.says("cn", "gpu", "maintenance", "cleaning")
    publishing.restarted().sync()
    both = since()
    assert both["cleaning"] == first["cleaning"] < both["maintenance"]
    driver.nodes["cn"] = does_not_answer
    publishing.cycle.sync()
    assert since() == both
    driver.nodes["cn"] = HOST
    driver.says("cn", "gpu", "maintenance")
    publishing.cycle.poll()
    assert since() == {"maintenance": both["maintenance"]}
    driver.says("cn", "gpu", "cleaning")
    publishing.cycle.sync()
    assert since()["cleaning"] > both["maintenance"]
    driver.says("cn", "gpu")
    publishing.cycle.sync()
    assert since() == {}
