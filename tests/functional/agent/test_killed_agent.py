"""SIGKILL to the agent or an instance at any moment loses nothing and leaves no process."""

from pathlib import Path

from tests.lab.drawing import Draw
from tests.lab.killed_agent import KilledAgent
from tests.lab.placement import PlacementFixture, Requests

#: Number of kills after which the test checks that all stores agree.
_ROUND = 5


def test_kill_of_the_agent_or_an_instance_loses_nothing_and_leaves_no_process(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    draw: Draw,
) -> None:
    with KilledAgent(placement, placement_url, tmp_path) as killed:
        found: dict[int, list[str]] = {}
        numbers = draw(range(200), 1)
        for count, number in enumerate(numbers, start=1):
            faults = killed.kill_something(number)
            if count % _ROUND == 0 or count == len(numbers):
                faults += killed.settle()
            if faults:
                found[number] = faults
    assert not found
