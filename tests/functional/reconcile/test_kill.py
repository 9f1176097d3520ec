"""A process that is killed at any write leaves a state that the next sync completes."""

import signal
from itertools import product
from pathlib import Path

import pytest

from tests.lab.drawing import Draw
from tests.lab.killing import Killing
from tests.lab.objects import asking
from tests.lab.placement import PlacementFixture, Requests

#: The killed process writes the objects itself ("here"), or another process does ("elsewhere").
pytestmark = pytest.mark.parametrize(
    "where",
    ["here", pytest.param("elsewhere", marks=pytest.mark.drawn(1, of="module"))],
    indirect=True,
    scope="module",
)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("act", ["created", "changed", "shrunk", "fleet changed"])
def test_sync_killed_at_any_boundary_is_completed_or_undone_by_the_next(
    act: str,
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    draw: Draw,
) -> None:
    found = []
    with Killing(placement, placement_url[0], tmp_path, act) as killing:
        count = len(killing.boundaries)
        assert count >= 12
        # The process writes in one thread: each write ends before the next one begins.
        moments = [one.rpartition(": ")[2].partition(" #")[0] for one in killing.boundaries]
        if act.startswith("fleet"):
            # Leave out the last boundaries: their number differs from run to run.
            numbers = list(range(0, count * 9 // 10, 3))
        else:
            assert set(moments[::2]) == {"to be sent", "to be saved"}
            assert set(moments[1::2]) == {"answered", "saved"}
            # Kill at the first boundary and after each write. Other moments leave the same state.
            numbers = [0, *range(1, count, 2 if asking() is None else 6)]
        # With ``back``, the nodes change back before the next sync.
        for number, back in draw(list(product(numbers, {False, act == "changed"})), 2):
            ended = killing.play(kill_at=number)
            assert ended.code == -signal.SIGKILL, (number, ended)
            faults = killing.faults(back=back)
            found += [(ended.boundaries[-1], back, faults)] if faults else []
    assert not found
