"""What becomes of calls to libvirt that take too long."""

import threading
from collections.abc import Iterator

import pytest

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.time_limit import TimeLimit

SHORT = 0.05
LONG = 30.0


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hang(limit: TimeLimit, over: threading.Event) -> None:
    with pytest.raises(BackendError, match=r"gpus: reading failed: libvirt has not answered for"):
        limit.run("reading", over.wait)


def test_a_call_in_time_returns_its_answer_and_leaves_no_thread() -> None:
    before = threading.active_count()
    assert TimeLimit("gpus", LONG).run("reading", lambda: 5) == 5
    assert threading.active_count() == before


def test_a_call_in_time_raises_its_error() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        TimeLimit("gpus", LONG).run("reading", fail)


def test_a_call_that_hangs_is_given_up(over: threading.Event) -> None:
    hang(TimeLimit("gpus", SHORT), over)


def test_no_call_is_made_while_an_earlier_one_hangs(over: threading.Event) -> None:
    limit = TimeLimit("gpus", SHORT)
    hang(limit, over)
    made: list[int] = []
    with pytest.raises(BackendError, match="an earlier call has not ended yet"):
        limit.run("reading", lambda: made.append(1))
    assert not made


def test_calls_are_made_again_when_an_earlier_one_has_ended(over: threading.Event) -> None:
    limit = TimeLimit("gpus", SHORT)
    hang(limit, over)
    over.set()
    assert limit.run("reading", lambda: 5) == 5
