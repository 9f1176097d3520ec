"""Timetable of a driver instance: times are seconds of a clock that the test has."""

from pathlib import Path

import pytest

from wharfinger.agent.schedule import CycleType, Timetable
from wharfinger.conf import AgentSection

SOCKET = Path("/run/wharfinger/agent.sock")
SECTION = AgentSection(2, 60, 300, SOCKET)


def run(timetable: Timetable, until: float, takes: float = 0.0) -> list[tuple[float, CycleType]]:
    """What is done until then, and when, if each thing takes so long."""
    now, done = 0.0, []
    while now < until:
        pace = timetable.due(now)
        if pace is None:
            assert timetable.next > now
            now = timetable.next
        else:
            done.append((now, pace))
            now += takes
            timetable.ended(pace, now)
    return done


def times(done: list[tuple[float, CycleType]], pace: CycleType) -> list[float]:
    return [when for when, which in done if which is pace]


def test_each_pace_comes_when_its_interval_is_over() -> None:
    done = run(Timetable(SECTION), until=601)

    assert times(done, CycleType.FULL) == [0, 300, 600]
    # A full cycle counts as one.
    assert times(done, CycleType.DRIFT) == [60, 120, 180, 240, 360, 420, 480, 540]
    every = [float(when) for when in range(0, 601, 2)]
    assert [when for when, _pace in done] == every  # and each of both as a poll


def test_what_was_missed_is_not_caught_up() -> None:
    done = run(Timetable(SECTION), until=200, takes=50)

    # A drift cycle is due 60 s after the end of the full one, at 110: a poll is under way then,
    # and one that would have been due meanwhile is not run.
    assert done == [
        (0, CycleType.FULL),
        (52, CycleType.POLL),
        (104, CycleType.POLL),
        (154, CycleType.DRIFT),
    ]


def test_equal_intervals_leave_the_pace_that_does_most() -> None:
    done = run(Timetable(AgentSection(5, 5, 5, SOCKET)), until=20)

    assert done == [(when, CycleType.FULL) for when in (0, 5, 10, 15)]


def test_until_a_full_cycle_has_succeeded_there_is_nothing_else() -> None:
    timetable = Timetable(SECTION)
    for now in (0, 60, 120):
        assert timetable.due(now) is CycleType.FULL
        timetable.ended(CycleType.FULL, now, failed=True)
        assert timetable.due(now + 59.9) is None
        assert timetable.next == now + 60

    timetable.ended(timetable.due(180) or CycleType.POLL, 180)

    assert (timetable.next, timetable.due(182)) == (182, CycleType.POLL)


def test_a_full_cycle_that_fails_later_is_tried_again_soon_and_leaves_the_others_alone() -> None:
    timetable = Timetable(SECTION)
    timetable.ended(CycleType.FULL, 0)

    for now in (300, 360):
        assert timetable.due(now) is CycleType.FULL
        timetable.ended(CycleType.FULL, now, failed=True)
        assert timetable.due(now) is CycleType.DRIFT
        timetable.ended(CycleType.DRIFT, now)
        assert (timetable.next, timetable.due(now + 2)) == (now + 2, CycleType.POLL)
        timetable.ended(CycleType.POLL, now + 2)


@pytest.mark.parametrize("pace", [CycleType.DRIFT, CycleType.POLL])
def test_another_pace_that_fails_comes_again_as_usual(pace: CycleType) -> None:
    failed, succeeded = Timetable(SECTION), Timetable(SECTION)
    for timetable in (failed, succeeded):
        timetable.ended(CycleType.FULL, 0)

    failed.ended(pace, 70, failed=True)
    succeeded.ended(pace, 70)

    assert failed.next == succeeded.next
    assert [failed.due(now) for now in (71, 72, 299)] == [
        succeeded.due(now) for now in (71, 72, 299)
    ]
    assert failed.due(300) is CycleType.FULL
