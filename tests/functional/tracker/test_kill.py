"""A process that is killed at any moment leaves behind what the next one completes."""

import random
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.functional.tracker.places import ANYWHERE
from tests.lab.cycles import contents
from tests.lab.killing import CONSUMER, Killing
from tests.lab.objects import asking
from tests.lab.placement import PlacementFixture, Requests
from wharfinger.placement import survey

pytestmark = ANYWHERE

#: At how many of its boundaries a fleet's process is killed, and what chooses them.
SAMPLE, SEED = 6, 1606

Record = Callable[[str, object], None]


def killed(
    killing: Killing, numbers: Iterable[int], *, back: bool = False
) -> list[tuple[str, list[str]]]:
    """The boundary of each kill, and what was wrong after it."""
    found = []
    for number in numbers:
        ended = killing.play(kill_at=number)
        assert ended.code == -signal.SIGKILL, (number, ended)
        found.append((ended.boundaries[-1], killing.faults(back=back)))
    return found


def moment(boundary: str) -> str:
    return boundary.rpartition(": ")[2].partition(" #")[0]


def between(killing: Killing) -> list[int]:
    """The beginning, and the end of each write.

    Between that and the next one's beginning nothing is written, where one thread does all: either
    is the same to whoever comes later. One act is played with all of them, once.
    """
    return [0, *range(1, len(killing.boundaries), 2)]


def some(killing: Killing) -> list[int]:
    """All of those; each third where another process keeps the objects, as it does for all."""
    return between(killing)[:: 1 if asking() is None else 3]


@pytest.mark.parametrize("act", ["created", "changed", "shrunk"])
def test_a_sync_killed_at_any_boundary_is_completed_by_the_next(
    act: str,
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    record_testsuite_property: Record,
) -> None:
    with Killing(placement, placement_url[0], tmp_path, act) as killing:
        every = act == "changed" and asking() is None
        numbers = range(len(killing.boundaries)) if every else some(killing)
        found = killed(killing, numbers)

    record_testsuite_property(f"boundaries of a world {act}", len(killing.boundaries))
    assert len(killing.boundaries) > 20
    # What is begun is done before anything else is.
    befores, afters = (map(moment, killing.boundaries[start::2]) for start in (0, 1))
    assert set(befores) == {"to be sent", "to be saved"}
    assert set(afters) == {"answered", "saved"}
    assert [name for name, _ in found] == [killing.boundaries[number] for number in numbers]
    assert not [(boundary, faults) for boundary, faults in found if faults]


def test_a_change_killed_at_any_boundary_is_taken_back_when_the_world_has_changed_back(
    placement: PlacementFixture, placement_url: tuple[str, Requests], tmp_path: Path
) -> None:
    with Killing(placement, placement_url[0], tmp_path, "changed") as killing:
        found = killed(killing, some(killing), back=True)

    assert len(found) > 4
    assert not [(boundary, faults) for boundary, faults in found if faults]


def test_what_is_compared_is_what_placement_tells(
    placement: PlacementFixture, placement_url: tuple[str, Requests], tmp_path: Path
) -> None:
    with Killing(placement, placement_url[0], tmp_path, "changed") as killing:
        client = placement.new_client()
        summaries = client.list_providers()
        names = {one.uuid: one.name for one in summaries}
        told = {
            one.summary.name: {
                "uuid": one.summary.uuid,
                "parent": names.get(one.summary.parent_provider_uuid or ""),
                "inventories": {
                    name: (item.total, item.reserved)
                    for name, item in (one.inventories or {}).items()
                },
                "traits": set(one.traits or ()),
                "aggregates": set(client.get_aggregates(one.summary.uuid).aggregates),
            }
            for one in survey.details(client, summaries, inventory=True, traits=True)
        }
        allocations = {name: one.pop("allocations") for name, one in killing.new.items()}

        assert killing.new == contents(placement) == told
        assert allocations["gpu-3"] == {(CONSUMER, "VGPU"): 2}


@pytest.mark.parametrize("act", ["fleet created", "fleet changed"])
def test_a_fleet_whose_trees_are_half_done_is_completed_by_the_next(
    act: str,
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    tmp_path: Path,
    record_testsuite_property: Record,
) -> None:
    with Killing(placement, placement_url[0], tmp_path, act) as killing:
        # Not the last ones: which writes go together is not the same each time.
        most = len(killing.boundaries) * 9 // 10
        found = killed(killing, sorted(random.Random(SEED).sample(range(most), SAMPLE)))

    record_testsuite_property(f"boundaries of a world {act}", len(killing.boundaries))
    assert not [(boundary, faults) for boundary, faults in found if faults]
