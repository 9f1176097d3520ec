"""SIGKILL at any moment to the agent or an instance: nothing is lost, and no process is left."""

from pathlib import Path

from tests.lab.drawing import Draw
from tests.lab.killed_agent import KilledAgent
from tests.lab.placement import PlacementFixture, Requests

#: Kills after which all has to agree.
_ROUND = 5


def test_agent_killed_in_part_or_whole_loses_and_leaves_nothing(
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    draw: Draw,
) -> None:
    with KilledAgent(placement, placement_url, tmp_path) as killed:
        found: dict[int, list[str]] = {}
        numbers = draw(range(200), 2)
        for count, number in enumerate(numbers, start=1):
            faults = killed.kill_something(number)
            if count % _ROUND == 0 or count == len(numbers):
                faults += killed.settle()
            if faults:
                found[number] = faults
    assert not found
