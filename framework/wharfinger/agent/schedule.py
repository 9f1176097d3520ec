"""When which pace of a driver instance is due."""

from enum import Enum
from typing import Final

from wharfinger.conf import AgentSection


class Pace(Enum):
    """The paces, each of which does more than those after it."""

    FULL = "full cycle"
    DRIFT = "drift cycle"
    POLL = "poll"


#: Seconds from the beginning of a failed attempt to the next one: at first, and at most.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 30.0


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
    """When the paces of one driver instance are due, in seconds of a clock that never goes back.

    The first full cycle is due at once, and nothing else until one has come to its end: it would
    be a full one, too. An interval begins when a cycle ends: what was missed meanwhile is not
    caught up. A cycle counts as all that it does more than.

    A cycle that failed counts as nothing. It is due again after a backoff that is never longer
    than the interval of the drift cycles; a poll, not before its own interval is over either.
    """

    def __init__(self, section: AgentSection) -> None:
        self._intervals: Final = {
            Pace.FULL: section.full_interval,
            Pace.DRIFT: section.drift_interval,
            Pace.POLL: section.poll_interval,
        }
        self._due: Final = {Pace.FULL: float("-inf")}
        self._backoffs: Final = {pace: Backoff(section.drift_interval) for pace in Pace}
        self._began = 0.0

    @property
    def next(self) -> float:
        """When something is due."""
        return min(self._due.values())

    def due(self, now: float) -> Pace | None:
        """What is to be done now, if anything: it begins now."""
        self._began = now
        return next((pace for pace in Pace if self._due.get(pace, now + 1) <= now), None)

    def ended(self, pace: Pace, now: float, *, failed: bool = False) -> None:
        """Note that the cycle that was due has come to its end, or has failed."""
        if failed:
            interval = self._backoffs[pace].failed()
            if pace is Pace.POLL:
                interval = max(interval, self._intervals[pace])
            self._due[pace] = max(self._began + interval, now)
            return
        paces = list(Pace)
        for one in paces[paces.index(pace) :]:
            self._due[one] = now + self._intervals[one]
            self._backoffs[one].succeeded()
