"""Resource providers as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import os_traits

from wharfinger.providers.inventory import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A resource provider as read from Placement, as desired, or as written."""

    uuid: str
    name: str
    root_uuid: str
    parent_uuid: str | None = None
    #: The generation in Placement, None if it is unknown or has no meaning.
    generation: int | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()

    @property
    def shares(self) -> bool:
        """Return whether several trees may share the provider."""
        return os_traits.MISC_SHARES_VIA_AGGREGATE in self.traits


class PublishingMode(StrEnum):
    """Whether this driver instance or another program creates a provider."""

    #: This instance creates, updates and deletes the provider.
    OWN = "own"
    #: Another program creates the provider. This instance only adds traits and reservations.
    OVERLAY = "overlay"
    #: Overlay for a provider of another program, else own. Only ``set_publishing_mode`` takes it.
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredProvider:
    """A provider as a driver wants it."""

    provider: Provider
    mode: PublishingMode = PublishingMode.OWN
    #: The driver's reasons to reserve the provider fully.
    reservations: tuple[str, ...] = ()
    #: Whether the driver has set anything on the provider.
    stated: bool = True
    #: Whether the driver has set the inventories.
    reported: bool = False
    #: The uuid that the driver reports for a root that Placement has under another uuid.
    reported_uuid: str | None = None
