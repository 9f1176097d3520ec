"""Find the nodes that changed since the last read, usually with one short request.

The clocks of Ironic's services may differ a little: hence OVERLAP.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Final, Protocol

from wharfinger_ironic.client import PAGE, Latest
from wharfinger_ironic.node import Node

#: Numbers of nodes to request, from the smallest up, until an answer is long enough.
SIZES: Final = (10, 100, PAGE)
#: A read includes updates that are dated up to this much before the last read.
OVERLAP: Final = timedelta(seconds=10)


class Source(Protocol):
    """The methods of ``Ironic`` that the feed calls."""

    def latest(self, limit: int) -> Latest:
        """Return up to ``limit`` nodes, those with the latest updates first."""

    def never_updated_come_last(self) -> bool:
        """Return whether the last node in the order of ``latest`` was never updated."""


class ChangeFeed:
    """Finds the nodes that have changed since the last read, and some that have not.

    It does not find deleted nodes, and new nodes that were never updated.
    """

    def __init__(self, source: Source) -> None:
        self._source: Final = source
        self._clock: Final = _IronicClock()
        self._size = SIZES[0]
        self._horizon: datetime | None = None
        self._next_horizon: datetime | None = None

    def begin(self) -> None:
        """Start now: the next read returns the changes from now on; raises BackendError."""
        self._request(SIZES[0])
        self.advance()

    def read(self, count: int) -> tuple[Sequence[Node], bool]:
        """Return the nodes with the latest updates, and whether all changed nodes are among them.

        If not, the caller has to read a complete list. ``count`` is the known number of selected
        nodes. The next call repeats the changes unless ``advance`` is called. Raises BackendError.
        """
        for size in SIZES[SIZES.index(self._size) :]:
            latest = self._request(size)
            needed = self._needed(latest)
            if needed is None and not latest.has_more and count <= len(latest.nodes):
                needed = len(latest.nodes)  # the answer has all nodes of Ironic
            if needed is not None:
                self._size = next((one for one in SIZES if one > needed), PAGE)
                return latest.nodes, True
        self._size = PAGE
        return latest.nodes, False

    def advance(self) -> None:
        """Let the next read begin at the time of the last read, less OVERLAP."""
        self._horizon = self._next_horizon

    def _needed(self, latest: Latest) -> int | None:
        """Return how many of these nodes were updated since the last read; None if unknown."""
        has_dates = False
        for index, updated in enumerate(latest.updated):
            if updated is None and has_dates:
                return index  # nodes without a date come last: no node with a date follows
            if updated is not None:
                has_dates = True
                if self._horizon is not None and updated < self._horizon:
                    return index
        if not has_dates and self._source.never_updated_come_last():
            return 0
        return None

    def _request(self, size: int) -> Latest:
        """Request this many nodes, and note the time of the request for ``advance``."""
        began = monotonic()
        latest = self._source.latest(size)
        now = self._clock.at(latest)
        took = timedelta(seconds=monotonic() - began)
        self._next_horizon = now and now - took - OVERLAP
        return latest


class _IronicClock:
    """Estimates the time of an answer by Ironic's clocks; it may be too early, but not too late."""

    def __init__(self) -> None:
        self._newest: datetime | None = None
        self._first_seen = 0.0

    def at(self, latest: Latest) -> datetime | None:
        newest = max((one for one in latest.updated if one), default=None)
        if newest != self._newest:
            self._newest, self._first_seen = newest, monotonic()
        known = [latest.answered] if latest.answered else []
        if newest is not None:
            known.append(newest + timedelta(seconds=monotonic() - self._first_seen))
        return min(known, default=None)
