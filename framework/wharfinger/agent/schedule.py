"""When which pace of a driver instance is due."""

from enum import Enum
from typing import Final

from wharfinger.conf import AgentSection


class Pace(Enum):
    """The paces, each of which does more than those after it."""

    FULL = "full cycle"
    DRIFT = "drift cycle"
    POLL = "poll"


class Timetable:
    """When the paces of one driver instance are due, in seconds of a clock that never goes back.

    The first full cycle is due at once, and nothing else until one has come to its end: it would
    be a full one, too. An interval begins when a cycle ends: what was missed meanwhile is not
    caught up. A cycle counts as all that it does more than. A full one that failed counts as
    nothing, and is due again after the interval of the drift cycles.
    """

    def __init__(self, section: AgentSection) -> None:
        self._intervals: Final = {
            Pace.FULL: section.full_interval,
            Pace.DRIFT: section.drift_interval,
            Pace.POLL: section.poll_interval,
        }
        self._due: Final = {Pace.FULL: float("-inf")}

    @property
    def next(self) -> float:
        """When something is due."""
        return min(self._due.values())

    def due(self, now: float) -> Pace | None:
        """What is to be done now, if anything."""
        return next((pace for pace in Pace if self._due.get(pace, now + 1) <= now), None)

    def ended(self, pace: Pace, now: float, *, failed: bool = False) -> None:
        """Note that a cycle has come to its end, or has failed."""
        if failed and pace is Pace.FULL:
            self._due[pace] = now + self._intervals[Pace.DRIFT]
            return
        paces = list(Pace)
        for one in paces[paces.index(pace) :]:
            self._due[one] = now + self._intervals[one]
