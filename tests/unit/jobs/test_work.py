"""Whether a process still works on a job, and the job's state as text."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.lab import samples
from wharfinger.jobs import describe, is_at_work
from wharfinger.objects.device_job import FINISHED, UNFINISHED

SEEN = datetime(2031, 1, 1, tzinfo=UTC)
DOWN_TIME = timedelta(seconds=60)


@pytest.mark.parametrize("state", [*UNFINISHED, *FINISHED])
def test_process_is_at_work_while_its_last_sign_of_life_is_recent(state: str) -> None:
    job = samples.device_job(None, state=state, seen_at=SEEN)
    is_possible = state in UNFINISHED and state != "unknown"
    for silent, is_lately in ((-5, True), (0, True), (60, True), (61, False), (10**6, False)):
        now = SEEN + timedelta(seconds=silent)
        assert is_at_work(job, DOWN_TIME, now) is (is_possible and is_lately)
        interrupted = is_possible and not is_lately
        words = f"interrupted while {state}" if interrupted else state
        assert describe(job, DOWN_TIME, now) == words


@pytest.mark.parametrize("seconds", [-1, 0, 1, 3])
def test_process_is_regarded_as_dead_only_after_several_seconds(seconds: int) -> None:
    job = samples.device_job(None, state="programming", seen_at=SEEN)
    down_time = timedelta(seconds=seconds)
    assert is_at_work(job, down_time, SEEN + timedelta(seconds=3))
    assert not is_at_work(job, down_time, SEEN + timedelta(seconds=4))
