"""What is held, by drivers and by others, is full in Placement until nobody holds it."""

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
    is_full,
    lose_records,
    makes,
    node,
    overlaid,
    rows,
    summary,
    writes,
)
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger.placement.holds import Holds
from wharfinger.providers import Inventory

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
    """One that has published all of OWN."""
    driver = ReservingDriver()
    drives(publishing, driver)
    makes(placement, "card", **OWN["card"])
    driver.nodes |= {"cn": HOST, "card": overlaid}
    assert not publishing.cycle.sync().problems
    assert all(figures(placement, name) == own for name, own in OWN.items())
    return driver


def hold(publishing: Publishing, placement: PlacementFixture, name: str, holder: str) -> None:
    """Somebody takes a provider; what has become of that in Placement is not looked at."""
    Holds(publishing.client, publishing.context).reserve(
        summary(placement, name), holder=holder, reason=f"for {holder}"
    )


def release(publishing: Publishing, placement: PlacementFixture, name: str, holder: str) -> None:
    Holds(publishing.client, publishing.context).release(summary(placement, name), holder)


# Holders.


@pytest.mark.parametrize("name", OWN)
def test_it_is_free_when_drivers_operators_and_jobs_have_all_ended_in_any_order(
    name: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    allocate(placement, CONSUMER, cn={"VCPU": 2}, gpu={"VGPU": 1}, card={"FPGA": 1})
    at = NODES[name]
    for order in (("cleaning", "ann", "job"), ("ann", "job", "cleaning")):
        driver.says(at, name, "cleaning", "maintenance")
        publishing.cycle.sync()
        hold(publishing, placement, name, "ann")
        hold(publishing, placement, name, "job")
        for ending in order:
            assert figures(placement, name) == FULL[name]
            if ending == "cleaning":
                driver.says(at, name, "maintenance")
                publishing.cycle.sync()
                assert figures(placement, name) == FULL[name]
                driver.says(at, name)
            else:
                release(publishing, placement, name, ending)
            outcome = publishing.cycle.sync()
            assert not outcome.foreign
        assert figures(placement, name) == OWN[name]
    assert not any(record.own_reserved for record in stored(publishing.state_path).values())


def test_what_is_held_says_so_nowhere_but_in_its_inventory(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    before = contents(placement)
    hold(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()
    after = contents(placement)
    assert after["gpu"].pop("inventories") != before["gpu"].pop("inventories")
    assert after == before


def test_an_unchanged_world_with_reservations_takes_one_request_and_no_write(
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


@pytest.mark.parametrize("pace", ["sync", "drift"])
def test_what_was_only_stored_is_written_and_what_was_only_ended_is_given_back(
    pace: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """Whoever began it died in between."""
    hold(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()
    writes(placement, "gpu", **OWN["gpu"])
    getattr(publishing.cycle, pace)()
    assert figures(placement, "gpu") == FULL["gpu"]

    [row] = rows(publishing.context).values()
    row.destroy()
    getattr(publishing.cycle, pace)()

    assert figures(placement, "gpu") == OWN["gpu"]


# While a driver takes its snapshot, which may take long.


@pytest.mark.parametrize("pace", ["sync", "poll"])
@pytest.mark.parametrize("name", OWN)
def test_who_reserves_while_a_driver_looks_has_it_though_its_reason_has_just_ended(
    pace: str,
    name: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    driver.says(NODES[name], name, "cleaning")
    publishing.cycle.sync()
    driver.says(NODES[name], name)
    driver.meanwhile = lambda: hold(publishing, placement, name, "ann")

    outcome = getattr(publishing.cycle, pace)()

    assert not outcome.problems
    assert figures(placement, name) == FULL[name]


@pytest.mark.parametrize("pace", ["sync", "poll"])
def test_who_reserves_while_a_driver_looks_is_nobody_else(
    pace: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.says("cn", "gpu", "cleaning")
    driver.meanwhile = lambda: hold(publishing, placement, "gpu", "ann")
    assert not getattr(publishing.cycle, pace)().foreign
    release(publishing, placement, "gpu", "ann")
    driver.says("cn", "gpu")
    assert not publishing.cycle.sync().foreign
    assert figures(placement, "gpu") == OWN["gpu"]


# Own figures.


@pytest.mark.parametrize("by", ["driver", "operator"])
def test_an_owner_s_new_figure_comes_back_and_not_the_old_one(
    by: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    if by == "driver":
        driver.says("card", "card", "cleaning")
    else:
        hold(publishing, placement, "card", "ann")
    publishing.cycle.sync()
    for theirs in ((5, 4), (5, 0), (7, 3)):
        writes(placement, "card", FPGA=theirs)
        publishing.cycle.drift()
        assert is_full(placement, "card")
    publishing.restarted()

    if by == "driver":
        driver.says("card", "card")
    else:
        release(publishing, placement, "card", "ann")
    publishing.cycle.sync()

    assert figures(placement, "card") == {"FPGA": (7, 3)}


def test_what_the_driver_says_meanwhile_comes_back(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    hold(publishing, placement, "gpu", "ann")
    driver.nodes["cn"] = node(OWN["cn"], gpu={"VGPU": (6, 2), "PGPU": (1, 0)}, bare={})
    publishing.cycle.sync()
    assert figures(placement, "gpu") == {"VGPU": (6, 6), "PGPU": (1, 1)}

    release(publishing, placement, "gpu", "ann")

    assert figures(placement, "gpu") == {"VGPU": (6, 2), "PGPU": (1, 0)}


@pytest.mark.parametrize("name", ["gpu", "card"])
@pytest.mark.parametrize("is_released_by", ["cycle", "operator"])
def test_figures_survive_a_loss_of_all_that_is_remembered(
    name: str,
    is_released_by: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    hold(publishing, placement, name, "ann")
    publishing.cycle.sync()
    lose_records(publishing)
    outcome = publishing.cycle.sync()
    assert not outcome.problems
    assert not outcome.foreign
    assert figures(placement, name) == FULL[name]

    if is_released_by == "cycle":
        [row] = rows(publishing.context).values()
        row.destroy()
        publishing.cycle.sync()
    else:
        release(publishing, placement, name, "ann")

    assert figures(placement, name) == OWN[name]


def test_what_a_driver_reserved_is_foreign_once_that_is_forgotten(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """It may be anybody's: kept, and told."""
    driver.says("cn", "gpu", "cleaning")
    publishing.cycle.sync()
    lose_records(publishing)
    driver.says("cn", "gpu")

    for _ in range(2):
        [foreign] = publishing.cycle.sync().foreign
        assert (foreign.name, set(foreign.classes)) == ("gpu", {"VGPU", "FPGA"})

    assert figures(placement, "gpu") == FULL["gpu"]


# Foreign ones.


@pytest.mark.parametrize("name", ["cn", "gpu", "card"])
@pytest.mark.parametrize("pace", ["sync", "drift"])
def test_somebody_else_s_reservation_is_told_in_each_cycle_and_kept(
    name: str,
    pace: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    writes(placement, name, **FULL[name])
    for _ in range(3):
        outcome = getattr(publishing.cycle, pace)()
        assert not outcome.steps
        [foreign] = outcome.foreign
        assert (foreign.name, set(foreign.classes)) == (name, set(OWN[name]))
    assert getattr(publishing.restarted(), pace)().foreign
    assert figures(placement, name) == FULL[name]


@pytest.mark.parametrize("name", ["cn", "gpu", "card"])
def test_it_ends_when_they_lower_it(
    name: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    writes(placement, name, **FULL[name])
    publishing.cycle.drift()
    lowered = {kind: (total, 1) for kind, (total, _) in OWN[name].items()}
    writes(placement, name, **lowered)

    assert not publishing.cycle.drift().foreign

    assert figures(placement, name) == (lowered if name == "card" else OWN[name])
    assert not publishing.cycle.sync().steps


@pytest.mark.parametrize("name", ["gpu", "card"])
@pytest.mark.parametrize("by", ["driver", "operator"])
def test_our_own_over_a_foreign_one_leaves_it(
    name: str,
    by: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    theirs = {**OWN[name], "FPGA": FULL[name]["FPGA"]}
    writes(placement, name, **theirs)
    if by == "driver":
        driver.says(NODES[name], name, "cleaning")
    else:
        hold(publishing, placement, name, "ann")
    [foreign] = publishing.cycle.sync().foreign
    assert foreign.classes == {"FPGA"}
    assert figures(placement, name) == FULL[name]
    publishing.restarted()

    if by == "driver":
        driver.says(NODES[name], name)
    else:
        release(publishing, placement, name, "ann")
    [foreign] = publishing.cycle.sync().foreign

    assert foreign.classes == {"FPGA"}
    assert figures(placement, name) == theirs


def test_others_class_on_our_provider_is_foreign_alone(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.client.create_resource_class("CUSTOM_THEIRS")
    writes(placement, "gpu", **OWN["gpu"], CUSTOM_THEIRS=(9, 9))
    for reasons in ((), ("cleaning",), ()):
        driver.says("cn", "gpu", *reasons)
        [foreign] = publishing.cycle.sync().foreign
        assert (foreign.name, set(foreign.classes)) == ("gpu", {"CUSTOM_THEIRS"})
        assert is_full(placement, "gpu") == bool(reasons)

    assert figures(placement, "gpu") == {**OWN["gpu"], "CUSTOM_THEIRS": (9, 9)}


def test_a_driver_that_says_itself_that_all_is_taken_is_nobody_else(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.nodes["cn"] = node(OWN["cn"], gpu=FULL["gpu"], bare={})
    for _ in range(2):
        assert not publishing.cycle.sync().foreign
        assert not publishing.restarted().drift().foreign
    driver.nodes["cn"] = HOST
    assert not publishing.cycle.sync().foreign
    assert figures(placement, "gpu") == OWN["gpu"]


def test_a_foreign_reservation_of_what_is_adopted_is_kept(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    makes(placement, "old", FPGA=(3, 3), VGPU=(2, 1))
    publishing.driver.nodes["old"] = node({"FPGA": (3, 0), "VGPU": (2, 0)})

    for _ in range(2):
        outcome = publishing.cycle.sync()
        assert not outcome.problems
        [foreign] = outcome.foreign
        assert foreign.classes == {"FPGA"}

    assert figures(placement, "old") == {"FPGA": (3, 3), "VGPU": (2, 0)}


# Whatever else goes wrong.

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


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("pace", ["sync", "drift"])
def test_a_stored_reservation_survives_trouble_and_restarts(
    trouble: Trouble,
    pace: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    hold(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()
    trouble(driver, publishing)
    for _ in range(2):
        getattr(publishing.cycle, pace)()
        assert figures(placement, "gpu") == FULL["gpu"]
        publishing.restarted().sync()
        assert figures(placement, "gpu") == FULL["gpu"]

    driver.nodes["cn"] = HOST
    publishing.cycle.sync()
    assert figures(placement, "gpu") == FULL["gpu"]
    release(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()

    assert figures(placement, "gpu") == OWN["gpu"]


def test_a_stored_reservation_survives_a_listing_that_fails(
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


@pytest.mark.parametrize("trouble", [None, *TROUBLES])
@pytest.mark.parametrize("name", ["gpu", "cn"])
def test_somebody_else_s_rewrite_is_made_good_by_one_drift_cycle(
    name: str,
    trouble: Trouble | None,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    hold(publishing, placement, name, "ann")
    publishing.cycle.sync()
    if trouble is not None:
        trouble(driver, publishing)
        publishing.cycle.sync()
    writes(placement, name, **{kind: (total, 0) for kind, (total, _) in OWN[name].items()})

    publishing.cycle.drift()

    assert figures(placement, name) == FULL[name]
    assert not publishing.cycle.drift().steps


@pytest.mark.parametrize("by", ["driver", "operator", "both"])
def test_cyborg_rewrites_what_it_publishes_again_and_again(
    by: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    if by != "operator":
        driver.says("card", "card", "programming")
    if by != "driver":
        hold(publishing, placement, "card", "ann")
    for _ in range(3):
        publishing.cycle.drift()
        publishing.cycle.sync()
        assert figures(placement, "card") == FULL["card"]
        writes(placement, "card", FPGA=(3, 0))
    publishing.cycle.drift()
    assert figures(placement, "card") == FULL["card"]

    if by != "operator":
        driver.says("card", "card")
    if by != "driver":
        release(publishing, placement, "card", "ann")
    publishing.cycle.sync()

    assert figures(placement, "card") == {"FPGA": (3, 0)}


def test_what_is_gone_with_allocations_and_held_is_kept_and_comes_back_held(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    allocate(placement, CONSUMER, gpu={"VGPU": 1})
    hold(publishing, placement, "gpu", "ann")
    driver.nodes["cn"] = node(OWN["cn"], bare={})
    for _ in range(3):
        publishing.restarted().sync()
        assert figures(placement, "gpu") == FULL["gpu"]
    driver.nodes["cn"] = HOST
    publishing.cycle.sync()
    assert figures(placement, "gpu") == FULL["gpu"]
    release(publishing, placement, "gpu", "ann")
    publishing.cycle.sync()
    assert figures(placement, "gpu") == OWN["gpu"]


def test_what_was_gone_and_removed_comes_back_held(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    """A provider with nothing reserved is never there, not for a moment."""
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


# Since when.


def test_since_when_is_known_by_reason_and_through_restarts(
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


def test_a_reason_outlasts_somebody_else_s_rewrite(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    card = summary(placement, "card").uuid
    driver.says("card", "card", "cleaning")
    publishing.cycle.sync()
    before = publishing.memory.get(card).reserved_since
    writes(placement, "card", FPGA=(3, 0))
    publishing.cycle.drift()
    assert publishing.memory.get(card).reserved_since == before
    assert publishing.memory.get(card).own_reserved == {"FPGA": 0}


def test_no_amount_but_reserved_is_ever_changed_by_a_reservation(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    card = summary(placement, "card")
    theirs = {"FPGA": Inventory(total=6, reserved=2, allocation_ratio=2.0, max_unit=3, step_size=3)}
    generation = placement.client.get_inventories(card.uuid).resource_provider_generation
    placement.client.set_inventories(card.uuid, generation, theirs)
    hold(publishing, placement, "card", "ann")
    publishing.cycle.sync()
    release(publishing, placement, "card", "ann")
    publishing.cycle.sync()
    assert placement.client.get_inventories(card.uuid).inventories == theirs
