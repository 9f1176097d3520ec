"""Report the service of a host as up while cycles make progress."""

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread
from typing import Final, Self

from oslo_log import log as logging

from wharfinger.error_codes import with_code
from wharfinger.exceptions import WharfingerError

LOG: Final = logging.getLogger(__name__)
#: The number of reports in each ``service_down_time``.
BEATS: Final = 3
#: A cycle hangs if it makes no progress for this number of seconds.
HANGS_AFTER: Final = 3600.0


class Heartbeat:
    """Context manager that reports a host's service as up while its block runs.

    The reports stop an hour after the last ``progress``, until the next.
    """

    def __init__(
        self,
        host: str,
        report: Callable[[], object],
        down_time: timedelta,
        *,
        at_once: bool = False,
        exit_timeout: float | None = None,
    ) -> None:
        self._host: Final = host
        self._report: Final = report
        self._down_time: Final = down_time.total_seconds()
        self._at_once: Final = at_once
        self._exit_timeout: Final = exit_timeout
        self._progressed = time.monotonic()
        self._stopping: Final = Event()
        self._thread: Final = Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self.progress()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join(self._exit_timeout)

    @property
    def has_ended(self) -> bool:
        """Whether the reporting thread is not running."""
        return not self._thread.is_alive()

    def progress(self) -> None:
        """Note that a cycle or the agent has made progress."""
        self._progressed = time.monotonic()

    def _run(self) -> None:
        is_failing = False
        wait = 0.0 if self._at_once else self._down_time / BEATS
        while not self._stopping.wait(wait):
            wait = self._down_time / BEATS
            problem = self._beat()
            if problem and not is_failing:
                LOG.warning(
                    "the service of host %s is not reported as up: %s. After %g s without a "
                    "report, other hosts that list the nodes of this host take the nodes over.",
                    self._host,
                    problem.rstrip("."),
                    self._down_time,
                )
            elif is_failing and not problem:
                LOG.warning("the service of host %s is reported as up again", self._host)
            is_failing = bool(problem)

    def _beat(self) -> str:
        if time.monotonic() - self._progressed >= HANGS_AFTER:
            return f"the present cycle has made no progress for {HANGS_AFTER:g} s"
        try:
            self._report()
        except WharfingerError as error:
            return with_code(error)
        except Exception as error:  # the cycle continues, and so do the reports
            LOG.debug("the report that the service is up failed", exc_info=True)
            return f"{type(error).__name__}: {error}. This is a fault; --debug shows its place"
        return ""
