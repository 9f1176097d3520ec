"""Times at which the cycles of a driver instance are due, on a simulated clock."""

from pathlib import Path

import pytest

from wharfinger.agent.schedule import CycleType, Timetable
from wharfinger.conf import AgentSection

SOCKET = Path("/run/agent.sock")
SECTION = AgentSection(2, 60, 300, health_socket=SOCKET)


def run(timetable: Timetable, until: float, takes: float = 0.0) -> list[tuple[float, CycleType]]:
    """Return the start and type of each cycle until this time; each takes ``takes`` seconds."""
    now, done = 0.0, []
    while now < until:
        cycle_type = timetable.due(now)
        if cycle_type is None:
            assert timetable.next > now
            now = timetable.next
        else:
            done.append((now, cycle_type))
            now += takes
            timetable.ended(cycle_type, now)
    return done


def times(done: list[tuple[float, CycleType]], cycle_type: CycleType) -> list[float]:
    return [when for when, which in done if which is cycle_type]


def test_cycle_is_due_when_its_interval_is_over() -> None:
    done = run(Timetable(SECTION), until=601)

    assert times(done, CycleType.FULL) == [0, 300, 600]
    # A full cycle also counts as a drift cycle.
    assert times(done, CycleType.DRIFT) == [60, 120, 180, 240, 360, 420, 480, 540]
    every = [float(when) for when in range(0, 601, 2)]
    assert [
        when for when, _cycle_type in done
    ] == every  # full and drift cycles also count as polls


def test_missed_cycles_are_not_caught_up() -> None:
    done = run(Timetable(SECTION), until=200, takes=50)

    # A drift cycle is due at 110, which is 60 s after the end of the full one. A poll runs then;
    # the polls that are due during a cycle are not run later.
    assert done == [
        (0, CycleType.FULL),
        (52, CycleType.POLL),
        (104, CycleType.POLL),
        (154, CycleType.DRIFT),
    ]


def test_equal_intervals_run_only_full_cycles() -> None:
    done = run(Timetable(AgentSection(5, 5, 5, SOCKET)), until=20)

    assert done == [(when, CycleType.FULL) for when in (0, 5, 10, 15)]


def test_full_cycle_that_fails_keeps_other_cycles_waiting() -> None:
    timetable, now = Timetable(SECTION), 0.0
    for interval in (1, 2, 4, 8, 16, 30, 30):
        assert timetable.due(now) is CycleType.FULL
        timetable.ended(CycleType.FULL, now, failed=True)
        assert timetable.next == now + interval
        now += interval

    assert timetable.due(now) is CycleType.FULL
    timetable.ended(CycleType.FULL, now)

    assert (timetable.next, timetable.due(now + 2)) == (now + 2, CycleType.POLL)


def test_interval_of_a_retry_begins_with_the_attempt() -> None:
    timetable = Timetable(SECTION)
    assert timetable.due(100) is CycleType.FULL
    timetable.ended(CycleType.FULL, 100.25, failed=True)
    assert timetable.next == 101

    assert timetable.due(101) is CycleType.FULL
    timetable.ended(CycleType.FULL, 131, failed=True)  # the cycle has waited for a timeout
    assert timetable.next == 131


def test_failure_after_a_success_waits_for_the_shortest_time() -> None:
    timetable = Timetable(SECTION)
    for now in (0, 1, 3):
        timetable.due(now)
        timetable.ended(CycleType.FULL, now, failed=True)
    timetable.due(7)
    timetable.ended(CycleType.FULL, 7)

    assert timetable.due(307) is CycleType.FULL
    timetable.ended(CycleType.FULL, 307, failed=True)
    assert timetable.due(307) is CycleType.DRIFT
    timetable.ended(CycleType.DRIFT, 307)
    assert timetable.next == 308


def test_failures_of_one_cycle_type_do_not_delay_the_others() -> None:
    timetable = Timetable(SECTION)
    timetable.due(0)
    timetable.ended(CycleType.FULL, 0)

    assert timetable.due(60) is CycleType.DRIFT
    timetable.ended(CycleType.DRIFT, 60, failed=True)
    assert timetable.due(60) is CycleType.POLL
    timetable.ended(CycleType.POLL, 60)
    assert timetable.due(61) is CycleType.DRIFT
    timetable.ended(CycleType.DRIFT, 61)

    assert (timetable.next, timetable.due(63)) == (63, CycleType.POLL)


def test_poll_that_fails_waits_for_its_interval_and_then_longer() -> None:
    timetable, now, waited = Timetable(SECTION), 0.0, []
    timetable.due(now)
    timetable.ended(CycleType.FULL, now)
    for _ in range(6):
        now = timetable.next
        assert timetable.due(now) is CycleType.POLL
        timetable.ended(CycleType.POLL, now, failed=True)
        waited.append(timetable.next - now)

    assert waited == [2, 2, 4, 8, 16, 26]  # the last wait ends when a drift cycle is due


def test_no_retry_waits_longer_than_the_interval_of_the_drift_cycles() -> None:
    timetable, now = Timetable(AgentSection(0.5, 3, 300, SOCKET)), 0.0
    waited = []
    for _ in range(4):
        timetable.due(now)
        timetable.ended(CycleType.FULL, now, failed=True)
        waited.append(timetable.next - now)
        now = timetable.next

    assert waited == [1, 2, 3, 3]


@pytest.mark.parametrize("takes", [0.0, 0.5, 7.0, 29.0, 30.0], ids=str)
def test_work_after_ten_minutes_of_an_outage_goes_on_within_thirty_seconds(takes: float) -> None:
    """Each attempt fails after ``takes`` seconds. The outage may end at any second."""
    timetable, now, begins = Timetable(SECTION), 0.0, []
    while now < 700:
        begins.append(now)
        assert timetable.due(now) is CycleType.FULL
        now += takes
        timetable.ended(CycleType.FULL, now, failed=True)
        now = timetable.next

    for back in range(600, 660):
        assert min(begin - back for begin in begins if begin >= back) <= 30
    assert len(begins) < 700 / 30 + 10
