"""Clocks that a test sets."""

from uuid import uuid4

from wharfinger.providers.provider import Uptime


class Clock:
    """A clock for the uptime of a machine, which a test advances or reboots."""

    def __init__(self) -> None:
        self.reboot(seconds=1_000_000.0)

    def __call__(self) -> Uptime:
        return Uptime(self.boot_id, self.seconds)

    def later(self, seconds: float) -> None:
        """Advance the uptime; a negative number sets it back, as on a restored machine."""
        self.seconds += seconds

    def reboot(self, seconds: float = 10.0) -> None:
        """Set a new boot id, and an uptime of ``seconds``, as after a reboot."""
        self.boot_id = str(uuid4())
        self.seconds = seconds
