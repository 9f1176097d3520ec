"""Time limits for calls of libvirt."""

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


def test_call_in_time_returns_its_answer_and_leaves_no_thread() -> None:
    used: list[threading.Thread] = []

    def read() -> int:
        used.append(threading.current_thread())
        return 5

    assert TimeLimit("gpus", LONG).run("reading", read) == 5
    assert not used[0].is_alive()


def test_call_in_time_raises_its_error() -> None:
    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        TimeLimit("gpus", LONG).run("reading", fail)


def test_call_that_hangs_is_an_error(over: threading.Event) -> None:
    hang(TimeLimit("gpus", SHORT), over)


def test_call_while_an_earlier_one_hangs_is_refused(over: threading.Event) -> None:
    limit = TimeLimit("gpus", SHORT)
    hang(limit, over)
    made: list[int] = []
    with pytest.raises(BackendError, match="an earlier call to libvirt has not ended"):
        limit.run("reading", lambda: made.append(1))
    assert not made


def test_call_after_an_earlier_one_has_ended_is_made(over: threading.Event) -> None:
    limit = TimeLimit("gpus", SHORT)
    hang(limit, over)
    over.set()
    assert limit.run("reading", lambda: 5) == 5
