"""A page of memory in which the process of a driver instance shows what it does.

The process writes its report there, and each call to its driver that is in progress. The agent
reads the page when it likes. Neither waits for the other, and a driver that closes descriptors,
prints, forks or hangs in C with Python's lock changes nothing about that.
"""

import mmap
import os
import struct
import time
import zlib
from threading import Lock
from typing import BinaryIO, Final

from msgspec import MsgspecError

from wharfinger.agent import status
from wharfinger.agent.status import InstanceReport

#: Moment at which the driver was called (0: no call), and the operation; length and checksum of
#: the report that follows.
_CALL: Final = struct.Struct("d64s")
_REPORT: Final = struct.Struct("II")
_OPERATION_BYTES: Final = 64
_SIZE: Final = 1024 * 1024


def create() -> BinaryIO:
    """Return a new page as an open file; raises OSError."""
    page = open(os.memfd_create("wharfinger-report"), "wb")  # noqa: PTH123, SIM115 - no path
    page.truncate(_SIZE)
    return page


class ReportWriter:
    """Writes the page; an observer of the calls to the driver. Takes over the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._page: Final = mmap.mmap(descriptor, _SIZE)
        os.close(descriptor)
        self._lock: Final = Lock()
        self._calls: Final[list[tuple[float, bytes]]] = []

    def began(self, operation: str) -> None:
        """Note that a call to the driver has begun."""
        self._calls.append((time.monotonic(), operation.encode()[:_OPERATION_BYTES]))
        _CALL.pack_into(self._page, 0, *self._calls[-1])

    def ended(self) -> None:
        """Note that the latest call has returned or raised."""
        self._calls.pop()
        _CALL.pack_into(self._page, 0, *(self._calls[-1] if self._calls else (0.0, b"")))

    def publish(self, report: InstanceReport) -> None:
        """Replace the report."""
        data = status.encode(report)
        start = _CALL.size + _REPORT.size
        with self._lock:
            _REPORT.pack_into(self._page, _CALL.size, len(data), zlib.crc32(data))
            self._page[start : start + len(data)] = data


class ReportReader:
    """Reads the page of another process, for any thread. The page is freed with the reader."""

    def __init__(self, descriptor: int) -> None:
        self._page: Final = mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_READ)
        self._checksum = 0
        self._report = InstanceReport()

    def call(self) -> tuple[str, float | None]:
        """Return the call to the driver in progress and its begin; "" and None without one."""
        began, operation = _CALL.unpack_from(self._page)
        if not began:
            return "", None
        return operation.rstrip(b"\0").decode(errors="replace"), began

    def report(self) -> InstanceReport:
        """Return the latest report; the one before while another is being written."""
        length, checksum = _REPORT.unpack_from(self._page, _CALL.size)
        start = _CALL.size + _REPORT.size
        if checksum != self._checksum and length <= _SIZE - start:
            data = self._page[start : start + length]
            if zlib.crc32(data) == checksum:
                try:
                    self._report, self._checksum = status.decode(data), checksum
                except MsgspecError:  # a driver may write anywhere in its process
                    return self._report
        return self._report
