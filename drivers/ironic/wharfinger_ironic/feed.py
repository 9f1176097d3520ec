"""What has changed in Ironic since the last look: one short answer, as a rule.

Ironic has no list of changes, but it sorts nodes by when they were updated. They are read from the
latest on, down to the time of the last look. Each answer is read for itself, from its beginning,
and a longer one asked for where it does not reach that far: pages that follow one another would
shift when nodes change between them.

That time is by clocks which are not ours: those of Ironic's conductors, which date the updates,
and of its API, which dates its answers. They may differ a little, and some databases keep whole
seconds: hence OVERLAP.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Final, Protocol

from wharfinger_ironic.client import PAGE, Latest
from wharfinger_ironic.node import Node

#: How many nodes are asked for: the fewest, and then more.
SIZES: Final = (10, 100, PAGE)
#: How much earlier than the last look an update may be dated, and is read all the same.
OVERLAP: Final = timedelta(seconds=10)


class Source(Protocol):
    """Where the latest nodes are read from; an Ironic."""

    def latest(self, limit: int) -> Latest:
        """The nodes that were updated last."""

    def never_updated_come_last(self) -> bool:
        """Whether the latest end with those that were never updated."""


class ChangeFeed:
    """The nodes that have changed since the last look, and some that have not.

    Not those that are gone, nor new ones that were never updated: a complete listing shows these.
    """

    def __init__(self, source: Source) -> None:
        self._source: Final = source
        self._clock: Final = _ItsClock()
        self._size = SIZES[0]
        self._horizon: datetime | None = None
        self._next_horizon: datetime | None = None

    def begin(self) -> None:
        """Have the next look show what changes from now on. Raises BackendError."""
        self._look(SIZES[0])
        self.advance()

    def read(self, count: int) -> tuple[Sequence[Node], bool]:
        """The latest of those nodes as they are now, and whether these are all.

        Where they may not be, a complete listing can say. ``count`` is how many nodes there are, as
        far as is known. Until ``advance`` is called, the same is read again. Raises BackendError.
        """
        for size in SIZES[SIZES.index(self._size) :]:
            latest = self._look(size)
            needed = self._needed(latest)
            if needed is None and not latest.has_more and count <= len(latest.nodes):
                needed = len(latest.nodes)  # these are all
            if needed is not None:
                self._size = next((one for one in SIZES if one > needed), PAGE)
                return latest.nodes, True
        self._size = PAGE
        return latest.nodes, False

    def advance(self) -> None:
        """What was read has been taken: the next look starts from there."""
        self._horizon = self._next_horizon

    def _needed(self, latest: Latest) -> int | None:
        """How many of them have been updated since the last look; None: perhaps there are more."""
        has_dates = False
        for index, updated in enumerate(latest.updated):
            if updated is None and has_dates:
                return index  # these come last: there are no more that have a date
            if updated is not None:
                has_dates = True
                if self._horizon is not None and updated < self._horizon:
                    return index
        if not has_dates and self._source.never_updated_come_last():
            return 0
        return None

    def _look(self, size: int) -> Latest:
        """Ask for that many, and note from when on the next look has to show changes.

        An answer may be as old as the question.
        """
        began = monotonic()
        latest = self._source.latest(size)
        now = self._clock.at(latest)
        took = timedelta(seconds=monotonic() - began)
        self._next_horizon = now and now - took - OVERLAP
        return latest


class _ItsClock:
    """The time as it was in Ironic when it gave an answer, or somewhat earlier.

    Since the newest update was first seen, at least as much has passed there as here. Of that time
    and the answer's own date the earlier is taken: one clock that is ahead does no harm.
    """

    def __init__(self) -> None:
        self._newest: datetime | None = None
        self._first_seen = 0.0

    def at(self, latest: Latest) -> datetime | None:
        """That time; None where nothing says."""
        newest = max((one for one in latest.updated if one), default=None)
        if newest != self._newest:
            self._newest, self._first_seen = newest, monotonic()
        known = [latest.answered] if latest.answered else []
        if newest is not None:
            known.append(newest + timedelta(seconds=monotonic() - self._first_seen))
        return min(known, default=None)
