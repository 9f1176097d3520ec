"""Measure from another process how long the calls to a driver take.

The driver's process writes to shared memory which method runs. Time in which its thread waits for a
processor does not count.
"""

import mmap
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The number of beginnings and ends of calls; then for the driver and for the harness the fields
#: of a _Party.
_PAGE: Final = struct.Struct("Qqq48sqq48s")
_NAME_BYTES: Final = 48
#: The value of ``running`` if neither the driver nor the harness runs.
_KIT: Final = "the kit"


class RunningCalls:
    """Writes to shared memory which calls to the driver and to the harness are in progress."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page: Final = mmap.mmap(file.fileno(), _PAGE.size)
        self._lock: Final = threading.Lock()
        self._count = 0
        self._driver: Final = _Party()
        self._harness: Final = _Party()

    # As a CallObserver of the driver.

    def before(self, method: str) -> None:
        """Record that a call to the driver begins."""
        self._change(self._driver, 1, method)

    def after(self, method: str) -> None:
        """Record that a call to the driver has ended."""
        self._change(self._driver, -1, method)

    # The same for the harness.

    def before_harness(self, method: str) -> None:
        """Record that a call to the harness begins."""
        self._change(self._harness, 1, method)

    def after_harness(self, method: str) -> None:
        """Record that a call to the harness has ended."""
        self._change(self._harness, -1, method)

    def _change(self, party: "_Party", by: int, method: str) -> None:
        with self._lock:
            self._count += 1
            party.calls += by
            party.thread, party.method = threading.get_native_id(), method
            data = (part for one in (self._driver, self._harness) for part in one.data())
            _PAGE.pack_into(self._page, 0, self._count, *data)


class DriverClock:
    """Adds up the time of the calls to a driver in another process.

    Call ``read`` often: it counts all time since the last ``read`` if a call is in progress now.
    """

    def __init__(self, path: Path, pid: int) -> None:
        path.write_bytes(bytes(_PAGE.size))
        with path.open("rb") as file:
            self._page: Final = mmap.mmap(file.fileno(), _PAGE.size, access=mmap.ACCESS_READ)
        self.pid = pid
        #: Seconds in calls to the driver since ``restart``.
        self.used = 0.0
        #: Seconds since a call to the driver or to the harness has begun or ended.
        self.still = 0.0
        #: The method that ran at the last ``read``, and whose it is.
        self.running = _KIT
        self._count = 0
        self._last = time.monotonic()
        self._waited: dict[int, float] = {}

    def restart(self) -> None:
        """Set ``used`` and ``still`` to 0."""
        self.read()
        self.used = self.still = 0.0

    def read(self) -> None:
        """Update ``used``, ``still`` and ``running``."""
        count, *parts = _PAGE.unpack_from(self._page)
        driver, harness = _Party.of(*parts[:3]), _Party.of(*parts[3:])
        now = time.monotonic()
        elapsed, self._last = now - self._last, now
        threads = [one.thread for one in (driver, harness) if one.calls > 0] or [self.pid]
        elapsed = max(elapsed - max(map(self._waited_for_processor, threads)), 0)
        self.still = 0.0 if count != self._count else self.still + elapsed
        self._count = count
        if driver.calls > 0:
            self.used += elapsed
        self.running = (
            f"the driver's {driver.method}"
            if driver.calls > 0
            else f"the harness's {harness.method}"
            if harness.calls > 0
            else _KIT
        )

    @property
    def is_in_kit(self) -> bool:
        """Return whether neither the driver nor the harness ran at the last ``read``."""
        return self.running == _KIT

    @property
    def is_in_harness(self) -> bool:
        """Return whether the harness ran at the last ``read``, and the driver did not."""
        return self.running.startswith("the harness's ")

    def _waited_for_processor(self, thread: int) -> float:
        # The second figure, in nanoseconds (Linux, Documentation/scheduler/sched-stats.rst).
        try:
            text = Path(f"/proc/{self.pid}/task/{thread}/schedstat").read_text()
            waited = int(text.split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0
        before = self._waited.get(thread, waited)
        self._waited[thread] = waited
        return waited - before


@dataclass
class _Party:
    """The state of the calls to the driver or to the harness."""

    #: The number of calls in progress.
    calls: int = 0
    #: The thread and the method of the call that began or ended last.
    thread: int = 0
    method: str = ""

    def data(self) -> tuple[int, int, bytes]:
        return self.calls, self.thread, self.method.encode()[:_NAME_BYTES]

    @classmethod
    def of(cls, calls: int, thread: int, method: bytes) -> "_Party":
        return cls(calls, thread, method.rstrip(b"\0").decode(errors="replace"))
