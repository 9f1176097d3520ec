"""A driver's reservation is written even if other facts of the provider cannot be written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest
from placement import db_api
from sqlalchemy import text

from tests.lab.cycles import Publishing, allocate
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
from wharfinger.exceptions import (
    InventoryInUse,
    PlacementUnavailable,
    UnexpectedAnswer,
    UnknownTrait,
)
from wharfinger.providers import ProviderTree

CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))
GOLD: Figures = {"CUSTOM_GOLD": (1, 0)}
SILVER: Figures = {"CUSTOM_SILVER": (1, 0)}
NEWER = "HW_CPU_X86_AVX512VNNI"
HIDDEN = "HW_HIDDEN"
MACHINE = "0b6f7c62-54d0-4c57-9a51-3f6d2c1e8a90"


@pytest.fixture
def driver(publishing: Publishing) -> ReservingDriver:
    """A driver that has published the node metal."""
    driver = ReservingDriver()
    drives(publishing, driver)
    driver.nodes["metal"] = node(GOLD)
    assert not publishing.cycle.sync().problems
    return driver


@contextmanager
def unknown(trait: str) -> Iterator[None]:
    """Let Placement not know this trait, as a Placement with an older os-traits."""
    # The row stays, since a new trait would get its id.
    rename = text("UPDATE traits SET name = :after WHERE name = :before")
    with db_api.get_placement_engine().begin() as connection:
        renamed = connection.execute(rename, {"before": trait, "after": HIDDEN})
        assert renamed.rowcount == 1
    try:
        yield
    finally:
        with db_api.get_placement_engine().begin() as connection:
            connection.execute(rename, {"before": HIDDEN, "after": trait})


def has_newer(tree: ProviderTree) -> None:
    tree.add_traits("metal", NEWER)


def test_provider_with_an_unknown_trait_is_reserved(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.nodes["metal"] = also(has_newer)(node(GOLD))
    driver.says("metal", "metal", "cleaning")
    with unknown(NEWER):
        outcome = publishing.cycle.poll()
        assert [type(one) for one in outcome.problems] == [UnknownTrait]
        assert [step.name for step in outcome.steps] == ["metal"]
        assert is_full(placement, "metal")
        driver.nodes["metal"] = node(GOLD)
        driver.says("metal", "metal")
        assert not publishing.cycle.sync().problems
    assert figures(placement, "metal") == GOLD


def test_adopted_provider_that_cannot_be_tagged_is_not_reserved(
    placement: PlacementFixture, tmp_path: Path
) -> None:
    makes(placement, MACHINE, CUSTOM_GOLD=(1, 0))

    with Publishing(placement, tmp_path / "state", adopts_matching=True) as publishing:
        driver = ReservingDriver()
        drives(publishing, driver)
        driver.nodes[MACHINE] = also(lambda tree: tree.add_traits(MACHINE, NEWER))(node(GOLD))
        driver.says(MACHINE, MACHINE, "cleaning")
        with unknown(NEWER):
            assert [type(one) for one in publishing.cycle.sync().problems] == [UnknownTrait]

    assert figures(placement, MACHINE) == GOLD


def test_poll_after_a_lost_answer_reads_what_was_written(
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
    assert not is_full(placement, "metal")  # Placement has carried out the request
    driver.says("metal", "metal", "cleaning")

    assert not publishing.cycle.poll().problems
    assert is_full(placement, "metal")


def test_poll_after_a_server_error_tries_again(
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


def test_class_in_use_that_its_driver_drops_stays_reserved_until_it_is_free(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    def assert_class_in_use(cycle_type: str, steps: int = 0) -> None:
        outcome = getattr(publishing.cycle, cycle_type)()
        assert [type(one) for one in outcome.problems] == [InventoryInUse]
        assert not outcome.foreign
        assert len(outcome.steps) == steps

    allocate(placement, CONSUMER, metal={"CUSTOM_GOLD": 1})
    driver.nodes["metal"] = node(SILVER)
    assert_class_in_use("sync")
    assert figures(placement, "metal") == GOLD
    driver.says("metal", "metal", "cleaning")
    assert_class_in_use("poll", steps=1)
    for cycle_type in ("drift", "sync"):
        assert_class_in_use(cycle_type)
        assert figures(placement, "metal") == {"CUSTOM_GOLD": (1, 1)}

    publishing.restarted()
    driver.nodes["metal"] = node(GOLD)
    for reasons, expected in ((("cleaning",), (1, 1)), ((), (1, 0)), (("cleaning",), (1, 1))):
        driver.says("metal", "metal", *reasons)
        outcome = publishing.cycle.sync()
        assert (outcome.problems, outcome.foreign) == ((), ())
        assert figures(placement, "metal") == {"CUSTOM_GOLD": expected}

    driver.nodes["metal"] = node(SILVER)
    assert_class_in_use("sync")
    placement.client.delete_allocations(CONSUMER)
    assert not publishing.cycle.sync().problems
    assert figures(placement, "metal") == {"CUSTOM_SILVER": (1, 1)}
