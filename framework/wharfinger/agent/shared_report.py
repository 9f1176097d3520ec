"""Shared memory between the agent and the process of a driver instance."""

import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import BinaryIO, Final

from msgspec import MsgspecError

from wharfinger.agent import status
from wharfinger.agent.status import InstanceReport
from wharfinger.exceptions import printable

#: The time of the last sign of life, 0 before the first one.
_ALIVE: Final = struct.Struct("d")
#: The start of the driver call (0: no call) and its name; then the length and the checksum of the
#: report that follows.
_CALL: Final = struct.Struct("d64s")
_REPORT: Final = struct.Struct("II")
_OPERATION_BYTES: Final = 64
_CALL_START: Final = _ALIVE.size
_REPORT_START: Final = _CALL_START + _CALL.size
_DATA_START: Final = _REPORT_START + _REPORT.size
_SIZE: Final = 1024 * 1024


def create() -> BinaryIO:
    """Return new shared memory as an open file. Raises OSError."""
    page = open(os.memfd_create("wharfinger-report"), "wb")  # noqa: PTH123, SIM115 - no path
    page.truncate(_SIZE)
    return page


class ReportWriter:
    """Writes to the shared memory. The constructor closes the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._page: Final = mmap.mmap(descriptor, _SIZE)
        os.close(descriptor)
        self._lock: Final = Lock()
        self._calls: Final[list[tuple[float, bytes]]] = []

    def alive(self) -> None:
        """Write the present time as a sign of life."""
        _ALIVE.pack_into(self._page, 0, time.monotonic())

    @contextmanager
    def calling(self, operation: str) -> Iterator[None]:
        """Show the agent, during a block, that a driver call is in progress."""
        self._calls.append((time.monotonic(), operation.encode()[:_OPERATION_BYTES]))
        _CALL.pack_into(self._page, _CALL_START, *self._calls[-1])
        try:
            yield
        finally:
            self._calls.pop()
            call = self._calls[-1] if self._calls else (0.0, b"")
            _CALL.pack_into(self._page, _CALL_START, *call)

    def publish(self, report: InstanceReport) -> None:
        """Write a report over the former report."""
        data = status.encode(report)
        with self._lock:
            _REPORT.pack_into(self._page, _REPORT_START, len(data), zlib.crc32(data))
            self._page[_DATA_START : _DATA_START + len(data)] = data


class ReportReader:
    """Reads the shared memory, in any thread of the agent."""

    def __init__(self, descriptor: int) -> None:
        self._page: Final = mmap.mmap(descriptor, _SIZE, access=mmap.ACCESS_READ)
        self._checksum = 0
        self._report = InstanceReport()

    def call(self) -> tuple[str, float | None]:
        """Return the driver call in progress and its start; "" and None without a call."""
        began, operation = _CALL.unpack_from(self._page, _CALL_START)
        if not began:
            return "", None
        return printable(operation.rstrip(b"\0").decode(errors="replace")), _past(began)

    def alive_at(self) -> float | None:
        """Return the time of the last sign of life; None before the first."""
        (moment,) = _ALIVE.unpack_from(self._page)
        return _past(moment) if moment else None

    def report(self) -> InstanceReport:
        """Return the latest valid report; an empty one before the first."""
        length, checksum = _REPORT.unpack_from(self._page, _REPORT_START)
        if checksum != self._checksum and length <= _SIZE - _DATA_START:
            data = self._page[_DATA_START : _DATA_START + length]
            if zlib.crc32(data) == checksum:
                try:
                    self._report, self._checksum = status.decode(data), checksum
                except MsgspecError:
                    return self._report
        return self._report


def _past(moment: float) -> float:
    return moment if 0 < moment <= time.monotonic() else 0.0
