"""Times at which the cycles of a driver instance are due."""

from enum import StrEnum
from typing import Final

from wharfinger.conf import AgentSection

#: The shortest and the longest time between the starts of two attempts, in seconds.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 30.0


class CycleType(StrEnum):
    """Types of cycles; each type includes the work of the later types."""

    FULL = "full cycle"
    DRIFT = "drift cycle"
    POLL = "poll"


class Backoff:
    """Seconds between the starts of failed attempts, which grow to a limit."""

    def __init__(self, longest: float = LONGEST_RETRY) -> None:
        self._longest: Final = min(longest, LONGEST_RETRY)
        self._failures = 0

    def failed(self) -> float:
        """Count a failed attempt; return the seconds from its start to the next."""
        # A float cannot hold higher powers.
        interval = FIRST_RETRY * 2.0 ** min(self._failures, 60)
        self._failures += 1
        return min(interval, self._longest)

    def succeeded(self) -> None:
        """Reset the interval."""
        self._failures = 0


class Timetable:
    """Plans the cycles of a driver instance, in seconds of a monotonic clock."""

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
        """Return the time at which the next cycle is due."""
        return min(self._due.values())

    def due(self, now: float) -> CycleType | None:
        """Return the type of the cycle to start now, or None."""
        self._began = now
        return next((kind for kind in CycleType if self._due.get(kind, now + 1) <= now), None)

    def ended(self, kind: CycleType, now: float, *, failed: bool = False) -> None:
        """Plan the next cycles after a cycle has ended."""
        if failed:
            interval = self._backoffs[kind].failed()
            if kind is CycleType.POLL:
                interval = max(interval, self._intervals[kind])
            self._due[kind] = max(self._began + interval, now)
            return
        kinds = list(CycleType)
        for one in kinds[kinds.index(kind) :]:
            self._due[one] = now + self._intervals[one]
            self._backoffs[one].succeeded()
