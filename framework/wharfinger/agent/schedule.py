"""When which cycle of a driver instance is due."""

from enum import StrEnum
from typing import Final

from wharfinger.conf import AgentSection

#: Seconds from the beginning of a failed attempt to the next one: at first, and at most.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 30.0


class CycleType(StrEnum):
    """The types of cycle, each of which does more than those after it."""

    FULL = "full cycle"
    DRIFT = "drift cycle"
    POLL = "poll"


class Backoff:
    """Interval between attempts that fail: it doubles with each, up to ``longest`` seconds.

    It begins with an attempt, not with its end: an attempt that waited for a timeout has waited.
    """

    def __init__(self, longest: float = LONGEST_RETRY) -> None:
        self._longest: Final = min(longest, LONGEST_RETRY)
        self._failures = 0

    def failed(self) -> float:
        """Count a failed attempt; return the seconds from its beginning to the next one."""
        # Beyond some exponent, a float has no room for the power.
        interval = FIRST_RETRY * 2.0 ** min(self._failures, 60)
        self._failures += 1
        return min(interval, self._longest)

    def succeeded(self) -> None:
        """Begin with the shortest interval again."""
        self._failures = 0


class Timetable:
    """When the cycles of one driver instance are due, in seconds of ``time.monotonic()``.

    The first full cycle is due at once, and nothing else until one has been completed: it would
    be a full one, too. An interval begins when a cycle ends: cycles that were missed meanwhile are
    not run later. A cycle counts as one of each type that does less.

    A failed cycle counts as none. It is due again after a backoff that is never longer than the
    interval of drift cycles; a poll is not due before its own interval is over either.
    """

    def __init__(self, section: AgentSection) -> None:
        self._intervals: Final = {
            CycleType.FULL: section.full_interval,
            CycleType.DRIFT: section.drift_interval,
            CycleType.POLL: section.poll_interval,
        }
        self._due: Final = {CycleType.FULL: float("-inf")}
        self._backoffs: Final = {kind: Backoff(section.drift_interval) for kind in CycleType}
        self._began = 0.0

    @property
    def next(self) -> float:
        """When the next cycle is due."""
        return min(self._due.values())

    def due(self, now: float) -> CycleType | None:
        """Return the type of the cycle that is due now, if any: it begins now."""
        self._began = now
        return next((kind for kind in CycleType if self._due.get(kind, now + 1) <= now), None)

    def ended(self, kind: CycleType, now: float, *, failed: bool = False) -> None:
        """Note that the cycle that was due was completed, or has failed."""
        if failed:
            again = self._began + self._backoffs[kind].failed()
            if kind is CycleType.POLL:
                again = max(again, now + self._intervals[kind])
            self._due[kind] = max(again, now)
            return
        kinds = list(CycleType)
        for one in kinds[kinds.index(kind) :]:
            self._due[one] = now + self._intervals[one]
            self._backoffs[one].succeeded()
