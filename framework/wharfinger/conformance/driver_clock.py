"""Measure from another process how long the calls to a driver take."""

import mmap
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The number of beginnings and ends of calls, and the _Party of the driver and of the harness.
_PAGE: Final = struct.Struct("Qq48sq48s")
_NAME_BYTES: Final = 48
#: ``running`` if neither the driver nor the harness runs.
_KIT: Final = "the kit"


class RunningCalls:
    """Shows another process which method of the driver or the harness runs."""

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
            party.method = method
            data = (part for one in (self._driver, self._harness) for part in one.data())
            _PAGE.pack_into(self._page, 0, self._count, *data)


class DriverClock:
    """Adds up the time of the calls to a driver in another process.

    Only ``read`` looks whether a call is in progress: call it often.
    """

    def __init__(self, path: Path, pid: int) -> None:
        path.write_bytes(bytes(_PAGE.size))
        with path.open("rb") as file:
            self._page: Final = mmap.mmap(file.fileno(), _PAGE.size, access=mmap.ACCESS_READ)
        self.pid = pid
        self._used: Final = _Time()
        self._still: Final = _Time()
        #: The method that ran at the last ``read``, and whose it is.
        self.running = _KIT
        self._count = 0
        self._last = time.monotonic()
        self._waited: Mapping[int, float] = {}

    @property
    def used(self) -> float:
        """Seconds in driver calls since ``restart``, less waits for a processor."""
        return self._used.seconds

    @property
    def still(self) -> float:
        """Lower bound of seconds since a driver or harness call began or ended."""
        return self._still.seconds

    def restart(self) -> None:
        """Set ``used`` and ``still`` to 0."""
        self.read()
        self._used.clear()
        self._still.clear()

    def read(self) -> None:
        """Update the attributes from the shared memory."""
        count, *parts = _PAGE.unpack_from(self._page)
        driver, harness = _Party.of(*parts[:2]), _Party.of(*parts[2:])
        now, waited = time.monotonic(), _seconds_waited_for_processor(self.pid)
        elapsed, self._last = now - self._last, now
        waits = {one: all - self._waited.get(one, 0.0) for one, all in waited.items()}
        self._waited = waited
        if count != self._count:
            self._still.clear()
        else:
            self._still.add(elapsed, waits)
        self._count = count
        if driver.calls > 0:
            self._used.add(elapsed, waits)
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


class _Time:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._elapsed = 0.0
        self._waits = defaultdict[int, float](float)

    def add(self, elapsed: float, waits: Mapping[int, float]) -> None:
        self._elapsed += elapsed
        for thread, seconds in waits.items():
            self._waits[thread] += seconds

    @property
    def seconds(self) -> float:
        # The sum of all waits could be longer than the time.
        return self._elapsed - max(self._waits.values(), default=0.0)


def _seconds_waited_for_processor(pid: int) -> Mapping[int, float]:
    waited, processes = {}, [pid]
    for process in processes:  # grows meanwhile
        with suppress(OSError):  # the process has ended
            for thread in [*Path(f"/proc/{process}/task").iterdir()]:
                with suppress(OSError):  # the thread has ended
                    # The second figure, in nanoseconds (Linux,
                    # Documentation/scheduler/sched-stats.rst).
                    nanoseconds = (thread / "schedstat").read_text().split()[1]
                    waited[int(thread.name)] = int(nanoseconds) / 1e9
                    processes += map(int, (thread / "children").read_text().split())
    return waited


@dataclass
class _Party:
    calls: int = 0
    #: The method of the call that began or ended last.
    method: str = ""

    def data(self) -> tuple[int, bytes]:
        return self.calls, self.method.encode()[:_NAME_BYTES]

    @classmethod
    def of(cls, calls: int, method: bytes) -> "_Party":
        return cls(calls, method.rstrip(b"\0").decode(errors="replace"))
