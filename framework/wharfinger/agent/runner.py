"""Runner of a driver instance: a thread of the agent, or a process of its own."""

from typing import Protocol

from wharfinger.agent.status import InstanceStatus


class Runner(Protocol):
    """Runs one driver instance. All methods are called by the main thread of the agent."""

    @property
    def name(self) -> str:
        """The name of the driver instance."""

    def start(self) -> None:
        """Start the instance."""

    def check(self) -> None:
        """Look after the instance: notice that it has ended or hangs, and start it again."""

    def stop(self) -> None:
        """Ask the instance to end after the cycle in progress; do not start it again."""

    def has_ended(self) -> bool:
        """Return whether the instance has ended."""

    def kill(self) -> None:
        """End the instance at once, if that is possible."""

    def status(self) -> InstanceStatus:
        """Return the status of this moment; for any thread."""
