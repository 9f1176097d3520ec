"""A resource class that its driver gives up while it is allocated, of a provider it reserves."""

from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.lab.cycles import Publishing, allocate
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import Figures, ReservingDriver, drives, figures, is_full, node
from wharfinger.exceptions import InventoryInUse

CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))
GOLD: Figures = {"CUSTOM_GOLD": (1, 0)}
SILVER: Figures = {"CUSTOM_SILVER": (1, 0)}


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> ReservingDriver:
    """One whose node is in use, and from now on of another class, and cleaned."""
    driver = ReservingDriver()
    drives(publishing, driver)
    driver.nodes["metal"] = node(GOLD)
    assert not publishing.cycle.sync().problems
    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    driver.nodes["metal"] = node(SILVER)
    driver.says("metal", "metal", "cleaning")
    return driver


def in_use(publishing: Publishing, pace: str = "sync") -> int:
    """Run a cycle that tells that the class is in use; return how many steps it took."""
    outcome = getattr(publishing.cycle, pace)()
    assert [type(one) for one in outcome.problems] == [InventoryInUse]
    assert not outcome.foreign
    return len(outcome.steps)


@pytest.mark.parametrize("pace", ["sync", "poll"])
def test_it_stays_and_is_reserved(
    pace: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    assert in_use(publishing, pace) == 1
    assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 1)}

    for again in ("drift", "sync"):
        assert in_use(publishing, again) == 0
        assert is_full(placement, "metal")


def test_it_goes_when_it_is_in_use_no_more(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    in_use(publishing)
    placement.client.delete_allocations(CONSUMER)

    assert not publishing.cycle.sync().problems
    assert figures(placement, "metal") == {"CUSTOM_SILVER": (1, 1)}
    driver.says("metal", "metal")
    assert not publishing.cycle.sync().problems
    assert figures(placement, "metal") == SILVER


def test_it_is_free_again_when_its_driver_has_it_back_after_a_restart_too(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    in_use(publishing)
    in_use(publishing)
    publishing.restarted()
    driver.nodes["metal"] = node(GOLD)
    assert not publishing.cycle.sync().problems
    assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 1)}

    driver.says("metal", "metal")
    outcome = publishing.cycle.sync()
    assert not outcome.problems
    assert not outcome.foreign
    assert figures(placement, "metal") == GOLD


def test_what_is_not_reserved_stays_as_it_is(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.says("metal", "metal")
    assert in_use(publishing) == 0
    assert figures(placement, "metal") == GOLD
