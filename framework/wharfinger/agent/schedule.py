"""When which cycle of a driver instance is due."""

from enum import StrEnum
from typing import Final

from wharfinger.conf import AgentSection


class CycleType(StrEnum):
    """The types of cycle, each of which does more than those after it."""

    FULL = "full cycle"
    DRIFT = "drift cycle"
    POLL = "poll"


class Timetable:
    """When the cycles of one driver instance are due, in seconds of ``time.monotonic()``.

    The first full cycle is due at once, and nothing else until one has been completed: it would
    be a full one, too. An interval begins when a cycle ends: cycles that were missed meanwhile are
    not run later. A cycle counts as one of each type that does less. A failed full cycle counts as
    none, and is due again after the interval of drift cycles.
    """

    def __init__(self, section: AgentSection) -> None:
        self._intervals: Final = {
            CycleType.FULL: section.full_interval,
            CycleType.DRIFT: section.drift_interval,
            CycleType.POLL: section.poll_interval,
        }
        self._due: Final = {CycleType.FULL: float("-inf")}

    @property
    def next(self) -> float:
        """When the next cycle is due."""
        return min(self._due.values())

    def due(self, now: float) -> CycleType | None:
        """Return the type of the cycle that is due now, if any."""
        return next((kind for kind in CycleType if self._due.get(kind, now + 1) <= now), None)

    def ended(self, kind: CycleType, now: float, *, failed: bool = False) -> None:
        """Note that a cycle was completed, or has failed."""
        if failed and kind is CycleType.FULL:
            self._due[kind] = now + self._intervals[CycleType.DRIFT]
            return
        kinds = list(CycleType)
        for one in kinds[kinds.index(kind) :]:
            self._due[one] = now + self._intervals[one]
