"""Duration of a provider's absence, measured by the uptime of the machine.

The wall clock may jump, but the uptime cannot. The boot id shows whether two uptimes belong to the
same boot.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Uptime:
    """A moment, in seconds since the boot with this id (CLOCK_BOOTTIME)."""

    boot_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Absence:
    """The moment of the first complete listing that lacked a provider."""

    #: For display, in seconds since the epoch.
    since: float
    #: For the duration. None in a record of an old release, and on a machine without a boot id.
    uptime: Uptime | None = None

    def seconds_until(self, now: Uptime | None) -> float | None:
        """Return for how many seconds the provider has been absent, until ``now``.

        Return None if the moments cannot be compared: they belong to different boots, one is
        unknown, or ``now`` is earlier (a machine or database was restored).
        """
        first = self.uptime
        if first is None or now is None or first.boot_id != now.boot_id:
            return None
        return now.seconds - first.seconds if first.seconds <= now.seconds else None

    def has_lasted(self, delay: float, now: Uptime | None) -> bool:
        """Return whether the provider has been absent for ``delay``, since an earlier listing.

        ``delay`` is in seconds. Return False if the moments cannot be compared.
        """
        lasted = self.seconds_until(now)
        return lasted is not None and lasted > 0 and lasted >= delay
