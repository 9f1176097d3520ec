"""Heartbeat of a host's service: a thread that reports it as up while cycles run."""

import time
from collections.abc import Callable
from datetime import timedelta
from threading import Event, Thread
from typing import Final, Self

from oslo_log import log as logging

from wharfinger.exceptions import WharfingerError

LOG: Final = logging.getLogger(__name__)
#: Reports of a service in each ``service_down_time``.
BEATS: Final = 3
#: Seconds after which work without progress counts as hung. Progress is a step that was written,
#: a plan, or the beginning of a cycle.
HANGS_AFTER: Final = 3600.0


class Heartbeat:
    """Context manager that reports the service of a host as up while its block runs.

    Other hosts take over the nodes of a service that does not report for ``down_time``. So the
    heartbeat reports three times in that time, even while a cycle waits for its driver. It ends
    with the block, and with the process. A cycle that has shown no ``progress`` for ``patience``
    seconds hangs: the heartbeat stops until the cycle goes on.

    The thread calls ``report``. It logs an error, and calls ``report`` again later.
    """

    def __init__(
        self,
        host: str,
        report: Callable[[], object],
        down_time: timedelta,
        *,
        patience: float = HANGS_AFTER,
    ) -> None:
        self._host: Final = host
        self._report: Final = report
        self._down_time: Final = down_time.total_seconds()
        self._patience: Final = patience
        self._progressed = time.monotonic()
        self._stopping: Final = Event()
        self._thread: Final = Thread(target=self._run, name="heartbeat", daemon=True)
        #: The problem of the last report, which has been logged.
        self._problem: str | None = None

    def __enter__(self) -> Self:
        self.progress()
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()  # nothing is reported after the block

    def progress(self) -> None:
        """Note that the work goes on."""
        self._progressed = time.monotonic()

    def _run(self) -> None:
        while not self._stopping.wait(self._down_time / BEATS):
            self._note(self._beat())

    def _beat(self) -> str | None:
        """Report, unless the cycle hangs; return the problem, or None."""
        if time.monotonic() - self._progressed >= self._patience:
            return f"the cycle under way has made no progress for {self._patience:g} seconds."
        try:
            self._report()
        except WharfingerError as error:
            return str(error)
        except Exception as error:
            # The cycle goes on, and so do the reports.
            LOG.debug("the heartbeat", exc_info=True)
            return f"{type(error).__name__}: {error}. This is a fault; --debug shows where."
        return None

    def _note(self, problem: str | None) -> None:
        """Log a problem when it begins and when it is over, and not in between."""
        if problem is not None and self._problem is None:
            LOG.warning(
                "the service of %s is not reported as up: %s After %g seconds without a report, "
                "other hosts take over the nodes that they list, too.",
                self._host,
                f"{problem.rstrip('.')}.",
                self._down_time,
            )
        elif problem is None and self._problem is not None:
            LOG.warning("the service of %s is reported as up again", self._host)
        self._problem = problem
