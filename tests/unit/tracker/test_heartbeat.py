"""The heartbeat, which reports a host's service at intervals."""

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from wharfinger.exceptions import StateError
from wharfinger.tracker import heartbeat
from wharfinger.tracker.heartbeat import Heartbeat

#: Seconds to wait for an event, which usually takes some hundredths of a second.
TIMEOUT = 60.0
SOON = timedelta(milliseconds=3)


class Reports:
    """Counts the attempts to report; each raises ``error`` if it is set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.count = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
        if self.error is not None:
            raise self.error

    def wait_for(self, more: int) -> None:
        with self._changed:
            wanted = self.count + more
            assert self._changed.wait_for(lambda: self.count >= wanted, TIMEOUT)


class Clock:
    """A replacement for the module ``time``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = Reports()

    def monotonic(self) -> float:
        self.looks()
        return self.now


class Log(logging.Handler):
    """Collects the warnings of the heartbeat."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.lines.append(record.getMessage())
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.lines) >= count, TIMEOUT)


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def log() -> Iterator[Log]:
    logger, handler = logging.getLogger(heartbeat.__name__), Log()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_heartbeat_reports_until_the_block_ends(reports: Reports, log: Log) -> None:
    with Heartbeat("rack-7", reports, SOON):
        reports.wait_for(5)
    count = reports.count
    assert not [one for one in threading.enumerate() if one.name == "heartbeat"]
    assert reports.count == count
    assert not log.lines


def test_heartbeat_ends_at_once_however_long_the_down_time_is(reports: Reports) -> None:
    with pytest.raises(KeyError), Heartbeat("rack-7", reports, timedelta(days=1)):
        raise KeyError
    assert reports.count == 0


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StateError(path="db", problem="no route.", remedy="Wait."), "no route"),
        (KeyError("x"), "KeyError: 'x'. This is a fault"),
    ],
    ids=repr,
)
def test_failed_report_is_logged_once_and_tried_again(
    reports: Reports, log: Log, error: Exception, text: str
) -> None:
    reports.error = error
    with Heartbeat("rack-7", reports, SOON):
        reports.wait_for(3)
        reports.error = None
        log.wait_for(2)
    failed, over = log.lines
    assert failed.startswith("the service of host rack-7 is not reported as up: ")
    assert text in failed
    assert "other hosts that list the nodes of this host take the nodes over" in failed
    assert over == "the service of host rack-7 is reported as up again"


def test_heartbeat_of_work_without_progress_stops_until_it_continues(
    reports: Reports, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(heartbeat, "time", clock)
    with Heartbeat("rack-7", reports, SOON) as beating:
        reports.wait_for(1)
        clock.now = heartbeat.HANGS_AFTER
        log.wait_for(1)
        assert "no progress for 3600 s" in log.lines[0]
        count = reports.count
        clock.looks.wait_for(3)
        assert reports.count == count

        beating.progress()
        log.wait_for(2)
        assert reports.count > count
