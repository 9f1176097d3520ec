"""The capabilities that a driver declares to the framework."""

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a driver supports a capability; if it does not, ``reason`` says why."""

    supported: bool
    reason: str = ""


SUPPORTED: Final = Capability(True)


def unsupported(reason: str) -> Capability:
    """Return the declaration that a driver does not support a capability, with the reason."""
    return Capability(False, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A driver's declarations; the loader refuses a driver that does not declare each capability.

    None means "not declared". A driver overrides the METHODS of the capabilities that it supports,
    and no methods of the others.

    - ``nested_providers``: it publishes child providers below a node's root provider.
    - ``reshape``: ``update_provider_tree`` may raise ReshapeNeeded, and edits the allocations when
      it is called again.
    - ``change_feed``: ``changed_nodes`` returns the changed nodes at low cost.
    - ``programming``: ``program`` and ``current_function`` work on its providers.
    - ``cleans_after_release``: the backend cleans the hardware after an instance releases it.
    """

    nested_providers: Capability | None = None
    reshape: Capability | None = None
    change_feed: Capability | None = None
    programming: Capability | None = None
    cleans_after_release: Capability | None = None

    def supports(self, name: str) -> bool:
        """Return whether the driver declares the capability of this name as supported."""
        declared: Capability | None = getattr(self, name)
        return declared is not None and declared.supported

    def items(self) -> list[tuple[str, Capability | None]]:
        """Return pairs of the name and the declaration of each capability."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


#: The optional methods of ComputeDriver, by capability.
METHODS: Final = {
    "change_feed": ("changed_nodes",),
    "programming": ("program", "current_function"),
}
