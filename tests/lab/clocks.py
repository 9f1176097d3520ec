"""Clocks that a test sets."""

from uuid import uuid4

from wharfinger.providers.absence_timer import Uptime


class Clock:
    """The uptime of a machine; a test advances it, or reboots."""

    def __init__(self) -> None:
        self.reboot(seconds=1_000_000.0)

    def __call__(self) -> Uptime:
        return Uptime(self.boot_id, self.seconds)

    def later(self, seconds: float) -> None:
        """Advance the uptime, or set it back as on a restored machine."""
        self.seconds += seconds

    def reboot(self, seconds: float = 10.0) -> None:
        """Reboot the machine, so many seconds ago."""
        self.boot_id = str(uuid4())
        self.seconds = seconds
