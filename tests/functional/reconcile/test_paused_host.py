"""A host that pauses during a cycle and goes on after another host has taken its node."""

from pathlib import Path

from tests.lab.cycles import HOST
from tests.lab.drawing import Draw
from tests.lab.pausing import Pausing
from tests.lab.placement import PlacementFixture, Requests


def test_host_paused_at_any_point_does_not_change_the_node_of_its_new_host(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    draw: Draw,
) -> None:
    with Pausing(placement, placement_url[0], tmp_path) as pausing:
        for stage in ("get_available", "GET", "update_provider_tree", "write", "PUT", "DELETE"):
            assert any(stage in point for point in pausing.points), stage
        found = {
            pausing.points[number]: faults
            for number in draw(range(len(pausing.points)), 2)
            if (faults := pausing.faults(number))
        }
    assert not found


def test_process_paused_after_its_listing_does_not_overwrite_its_successor(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    draw: Draw,
) -> None:
    """The successor uses another state_path, so the lock of the instance stops neither process."""
    with Pausing(placement, placement_url[0], tmp_path, taker=HOST) as pausing:
        listed = pausing.points.index("after get_available_nodes")
        found = {
            pausing.points[number]: faults
            for number in draw(range(listed, len(pausing.points)), 1)
            if (faults := pausing.overwritten(number))
        }
    assert not found
