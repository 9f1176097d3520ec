"""Promises about the removal of providers from Placement."""

from pathlib import Path

import pytest

from tests.lab.clocks import Clock
from tests.lab.cycles import Publishing, contents
from tests.lab.drivers import flat
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import PartialListing

DAY = 24 * 3600.0
DELAY = 60.0


def test_node_that_a_partial_listing_lacks_is_kept_and_reported(
    placement: PlacementFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that its driver still has is never removed, whatever its listings lack."""
    clock = Clock()
    with Publishing(placement, tmp_path, removal_delay=DELAY, read_uptime=clock) as fleet:
        nodes = {f"node-{number}": flat(CUSTOM_GOLD=1) for number in range(10)}
        fleet.driver.nodes |= nodes
        fleet.cycle.sync()
        published = contents(placement)
        monkeypatch.setattr(fleet.driver, "node_is_available", nodes.__contains__)

        for lost in ("node-1", "node-4", "node-7"):
            del fleet.driver.nodes[lost]
        fleet.cycle.sync()
        clock.later(DAY)
        outcome = fleet.cycle.sync()

        assert contents(placement) == published
        [problem] = outcome.problems
        assert isinstance(problem, PartialListing)
        assert problem.names == ("node-1", "node-4", "node-7")

        del nodes["node-4"]
        fleet.cycle.sync()

        assert published.keys() - contents(placement).keys() == {"node-4"}


def test_node_that_was_absent_in_another_boot_is_not_removed_at_once(
    placement: PlacementFixture, tmp_path: Path
) -> None:
    """The removal delay is counted within one boot: no other clock or old record shortens it."""
    clock = Clock()
    with Publishing(placement, tmp_path, removal_delay=DELAY, read_uptime=clock) as fleet:
        fleet.driver.nodes |= {"node-1": flat(CUSTOM_GOLD=1), "node-2": flat(CUSTOM_GOLD=1)}
        fleet.cycle.sync()
        del fleet.driver.nodes["node-1"]
        fleet.cycle.sync()

        clock.reboot(seconds=clock.seconds + DAY)
        fleet.restarted().sync()
        clock.later(DELAY - 1)
        fleet.cycle.sync()
        assert set(contents(placement)) == {"node-1", "node-2"}

        clock.later(1)
        fleet.cycle.sync()
        assert set(contents(placement)) == {"node-2"}
