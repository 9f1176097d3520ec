"""Interface of the runner of a driver instance: a thread of the agent, or a separate process."""

from typing import Protocol

from wharfinger.agent.status import InstanceStatus


class Runner(Protocol):
    """Runs one driver instance. The main thread of the agent calls the methods."""

    @property
    def name(self) -> str:
        """Return the name of the driver instance."""

    def start(self) -> None:
        """Start the driver instance."""

    def check(self) -> None:
        """Log if the driver instance hangs; restart its process if that is necessary."""

    def stop(self) -> None:
        """Tell the driver instance to end after the cycle in progress; do not restart it."""

    def has_ended(self) -> bool:
        """Return whether the driver instance has ended."""

    def kill(self) -> None:
        """End the driver instance at once, if that is possible."""

    def status(self) -> InstanceStatus:
        """Return the present status; any thread may call this method."""
