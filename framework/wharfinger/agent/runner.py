"""Interface of the runner of a driver instance."""

from typing import Protocol

from wharfinger.agent.status import InstanceStatus


class Runner(Protocol):
    """Runs one driver instance."""

    @property
    def name(self) -> str:
        """Return the name of the driver instance."""

    def start(self) -> None:
        """Start the driver instance."""

    def check(self) -> None:
        """Check the driver instance, and update its status."""

    def stop(self) -> None:
        """Tell the driver instance to end, and do not restart it."""

    def has_ended(self) -> bool:
        """Return whether the driver instance has ended."""

    def kill(self) -> None:
        """End the driver instance at once, if that is possible."""

    def status(self) -> InstanceStatus:
        """Return the present status. Any thread may call this method."""
