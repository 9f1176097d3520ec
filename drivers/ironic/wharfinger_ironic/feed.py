"""Find the nodes that may have changed since an earlier read."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Final, Protocol

from wharfinger_ironic.client import PAGE, Latest
from wharfinger_ironic.node import Node

#: Numbers of nodes to request, from the smallest up, until an answer is long enough.
SIZES: Final = (10, 100, PAGE)
#: A read includes updates that are dated up to this much before the last read: the clocks of
#: Ironic's services may differ.
OVERLAP: Final = timedelta(seconds=10)


class Source(Protocol):
    """The methods of ``Ironic`` that the feed calls."""

    def latest(self, limit: int) -> Latest:
        """Return up to ``limit`` nodes that the options select, last updated first."""

    def never_updated_come_last(self) -> bool:
        """Return whether the last node in the order of ``latest`` was never updated."""


class ChangeFeed:
    """Finds nodes that may have changed since an earlier read.

    It does not find deleted nodes.
    """

    def __init__(self, source: Source) -> None:
        self._source: Final = source
        self._clock: Final = _IronicClock()
        self._size = SIZES[0]
        self._horizon: datetime | None = None
        self._next_horizon: datetime | None = None

    def begin(self) -> None:
        """Let the next read return the changes since about now. Raises BackendError."""
        self._request(SIZES[0])
        self.advance()

    def read(self, selected_count: int) -> tuple[Sequence[Node], bool]:
        """Return the nodes with the latest updates, and whether all changed nodes are among them.

        The next read repeats the changes unless ``advance`` is called. Raises BackendError.
        """
        for size in SIZES[SIZES.index(self._size) :]:
            latest = self._request(size)
            needed = self._changed_count(latest)
            if needed is None and not latest.has_more and selected_count <= len(latest.nodes):
                needed = len(latest.nodes)  # the answer has all nodes of Ironic
            if needed is not None:
                self._size = next((one for one in SIZES if one > needed), PAGE)
                return latest.nodes, True
        self._size = PAGE
        return latest.nodes, False

    def advance(self) -> None:
        """Let the next read return changes since about the last read."""
        self._horizon = self._next_horizon

    def _changed_count(self, latest: Latest) -> int | None:
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
        began = monotonic()
        latest = self._source.latest(size)
        now = self._clock.at(latest)
        took = timedelta(seconds=monotonic() - began)
        self._next_horizon = now and now - took - OVERLAP
        return latest


class _IronicClock:
    """Estimates the time of an answer by Ironic's clocks, never too late."""

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
