"""What a driver reserves is reserved, whatever else of the provider cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from placement import db_api
from sqlalchemy import text

from tests.lab.cycles import Publishing
from tests.lab.drivers import also
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import (
    Figures,
    ReservingDriver,
    drives,
    figures,
    is_full,
    makes,
    node,
)
from wharfinger.exceptions import PlacementUnavailable, UnexpectedAnswer, UnknownTrait
from wharfinger.providers import ProviderTree

GOLD: Figures = {"CUSTOM_GOLD": (1, 0)}
NEWER = "HW_CPU_X86_AVX512VNNI"


@pytest.fixture
def driver(publishing: Publishing) -> ReservingDriver:
    """One whose node has been published."""
    driver = ReservingDriver()
    drives(publishing, driver)
    driver.nodes["metal"] = node(GOLD)
    assert not publishing.cycle.sync().problems
    return driver


@contextmanager
def unknown(trait: str) -> Iterator[None]:
    """A Placement whose os-traits is older than this trait."""
    with db_api.get_placement_engine().begin() as connection:
        connection.execute(text("DELETE FROM traits WHERE name = :name"), {"name": trait})
    try:
        yield
    finally:
        with db_api.get_placement_engine().begin() as connection:
            connection.execute(text("INSERT INTO traits (name) VALUES (:name)"), {"name": trait})


def has_newer(tree: ProviderTree) -> None:
    tree.add_traits("metal", NEWER)


@pytest.mark.parametrize("pace", ["poll", "sync"])
def test_a_trait_that_placement_does_not_know_keeps_no_provider_free(
    pace: str, driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.nodes["metal"] = also(has_newer)(node(GOLD))
    driver.says("metal", "metal", "cleaning")
    with unknown(NEWER):
        outcome = getattr(publishing.cycle, pace)()
        assert [type(one) for one in outcome.problems] == [UnknownTrait]
        assert [step.name for step in outcome.steps] == ["metal"]
        assert is_full(placement, "metal")
        driver.nodes["metal"] = node(GOLD)
        driver.says("metal", "metal")
        assert not publishing.cycle.sync().problems
    assert figures(placement, "metal") == GOLD


def test_a_provider_that_is_not_tagged_yet_is_not_written_for_it(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.client.create_resource_class("CUSTOM_GOLD")
    makes(placement, "metal", CUSTOM_GOLD=(1, 0))
    driver = ReservingDriver()
    drives(publishing, driver)
    driver.nodes["metal"] = also(has_newer)(node(GOLD))
    driver.says("metal", "metal", "cleaning")
    with unknown(NEWER):
        assert [type(one) for one in publishing.cycle.sync().problems] == [UnknownTrait]
    assert figures(placement, "metal") == GOLD


def test_a_poll_does_not_believe_in_a_write_whose_answer_was_lost(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    def lose(method: str, path: str) -> None:
        if method != "GET":
            placement.adapter.after = lambda method, path: None
            raise PlacementUnavailable(request=f"{method} {path}", status=0, code="", detail="lost")

    driver.says("metal", "metal", "cleaning")
    assert not publishing.cycle.poll().problems
    driver.says("metal", "metal")
    placement.adapter.after = lose
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.poll()
    assert not is_full(placement, "metal")  # it was carried out
    driver.says("metal", "metal", "cleaning")

    assert not publishing.cycle.poll().problems
    assert is_full(placement, "metal")


def test_a_server_error_is_tried_again_by_the_next_poll(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    def fail(method: str, path: str) -> None:
        if method != "GET":
            raise UnexpectedAnswer(request=f"{method} {path}", status=500, code="", detail="")

    driver.says("metal", "metal", "cleaning")
    placement.adapter.before = fail
    assert [type(one) for one in publishing.cycle.poll().problems] == [UnexpectedAnswer]
    assert not is_full(placement, "metal")
    placement.adapter.before = lambda method, path: None

    assert not publishing.cycle.poll().problems
    assert is_full(placement, "metal")
