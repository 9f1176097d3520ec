"""The capabilities that a driver declares."""

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a driver supports a capability, and the reason if it does not."""

    supported: bool
    reason: str = ""


SUPPORTED: Final = Capability(True)


def unsupported(reason: str) -> Capability:
    """Return the declaration that a driver does not support a capability."""
    return Capability(False, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """A driver's declaration of each capability. The loader refuses None.

    - ``nested_providers``: the driver publishes child providers below root providers.
    - ``reshape``: ``update_provider_tree`` may raise ReshapeNeeded.
    - ``change_feed``: the driver implements ``changed_nodes``.
    - ``programming``: the driver implements ``program`` and ``current_function``.
    - ``cleans_after_release``: the backend cleans the hardware after its release.
    """

    nested_providers: Capability | None = None
    reshape: Capability | None = None
    change_feed: Capability | None = None
    programming: Capability | None = None
    cleans_after_release: Capability | None = None

    def supports(self, name: str) -> bool:
        """Return whether the driver declares the capability as supported."""
        declared: Capability | None = getattr(self, name)
        return declared is not None and declared.supported

    def items(self) -> list[tuple[str, Capability | None]]:
        """Return the name and the declaration of each capability."""
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


#: The optional methods of ComputeDriver, by capability.
METHODS: Final = {"change_feed": ("changed_nodes",), "programming": ("program", "current_function")}
