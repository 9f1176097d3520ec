"""The capabilities that a driver declares."""

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Capability:
    """One declaration; an unsupported capability has a reason."""

    supported: bool
    reason: str = ""


SUPPORTED: Final = Capability(True)


def unsupported(reason: str) -> Capability:
    """Return the declaration of an unsupported capability."""
    return Capability(False, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A driver's declarations; the loader refuses a driver that omits one.

    None means "not declared". A driver implements the METHODS of the capabilities that it
    supports, and only these.

    - ``nested_providers``: it publishes children below a node's root.
    - ``reshape``: it may raise ReshapeNeeded, and edits the allocations of the next call.
    - ``change_feed``: ``changed_nodes`` returns the changed nodes at low cost.
    - ``programming``: ``program`` and ``current_function`` work on its providers.
    - ``cleans_after_release``: the backend cleans a provider after its release. The framework
      reserves the provider before it removes the allocation.
    """

    nested_providers: Capability | None = None
    reshape: Capability | None = None
    change_feed: Capability | None = None
    programming: Capability | None = None
    cleans_after_release: Capability | None = None

    def supports(self, name: str) -> bool:
        """Return whether a capability is declared as supported."""
        declared: Capability | None = getattr(self, name)
        return declared is not None and declared.supported

    def items(self) -> list[tuple[str, Capability | None]]:
        """Return the name and declaration of each capability."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


#: The optional methods of ComputeDriver, by capability.
METHODS: Final = {
    "change_feed": ("changed_nodes",),
    "programming": ("program", "current_function"),
}
