"""What a driver declares that it can do, and cannot."""

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Capability:
    """One declaration. What is not supported has a reason, for whoever wonders."""

    supported: bool
    reason: str = ""


SUPPORTED: Final = Capability(True)


def unsupported(reason: str) -> Capability:
    """A capability that a driver does not have, and why."""
    return Capability(False, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A driver's declarations; the loader refuses a driver that leaves one out.

    None is "not declared". Supported means that the driver implements the methods that
    METHODS names for it, unsupported that it does not.

    - ``nested_providers``: it publishes children below a node's root.
    - ``reshape``: it may raise ReshapeNeeded, and edits the allocations it is then given.
    - ``change_feed``: ``changed_nodes`` says cheaply which nodes have changed.
    - ``programming``: ``program`` and ``current_function`` work on its providers.
    - ``cleans_after_release``: what an instance gives back is cleaned before it can be
      used again, so that it has to be reserved before the allocation is removed.
    """

    nested_providers: Capability | None = None
    reshape: Capability | None = None
    change_feed: Capability | None = None
    programming: Capability | None = None
    cleans_after_release: Capability | None = None

    def supports(self, name: str) -> bool:
        """Whether a capability is declared as supported."""
        declared: Capability | None = getattr(self, name)
        return declared is not None and declared.supported

    def items(self) -> list[tuple[str, Capability | None]]:
        """Each capability's name and declaration."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


#: The optional methods of ComputeDriver that stand behind a capability.
METHODS: Final = {
    "change_feed": ("changed_nodes",),
    "programming": ("program", "current_function"),
}
