"""Duration of a provider's absence, counted in uptime and never by the wall clock.

The wall clock may jump. Uptime cannot. The boot id shows whether two uptimes are of one boot.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Uptime:
    """A moment of one boot of a machine: ``seconds`` of CLOCK_BOOTTIME, and the boot's id."""

    boot_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Absence:
    """When complete listings began to lack a provider.

    ``since``, in seconds since the epoch, is for display. The absence is counted from ``uptime``.
    ``uptime`` is None in a record of an old release, and on a machine without a boot id.
    """

    since: float
    uptime: Uptime | None = None

    def seconds_until(self, now: Uptime | None) -> float | None:
        """Return how long the absence has lasted, in seconds.

        Return None if the moments cannot be compared: they are of different boots, one is unknown,
        or the first is later than the second (a machine or database was restored).
        """
        first = self.uptime
        if first is None or now is None or first.boot_id != now.boot_id:
            return None
        return now.seconds - first.seconds if first.seconds <= now.seconds else None
