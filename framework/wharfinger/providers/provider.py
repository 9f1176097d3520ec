"""Resource providers as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from wharfinger.providers.inventory import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One resource provider at one moment: as read from Placement, as desired, or as written."""

    uuid: str
    name: str
    root_uuid: str
    parent_uuid: str | None = None
    #: The generation in Placement, None if it is unknown or has no meaning.
    generation: int | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


class PublishingMode(StrEnum):
    """Whether this driver instance creates a provider, or adds to another program's provider."""

    #: We create and update the provider, and delete it when its backend no longer has it.
    OWN = "own"
    #: Another program (nova-compute, Cyborg's conductor) creates the provider. We add only the
    #: owner trait, the reservation and the traits that the driver reports.
    OVERLAY = "overlay"
    #: Only for ``ProviderTree.set_publishing_mode``, which replaces it: by overlay if another
    #: program has created the provider, else by own.
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredProvider:
    """A provider as a driver wants it."""

    provider: Provider
    mode: PublishingMode = PublishingMode.OWN
    #: The driver's reasons to reserve the provider fully; none: not reserved.
    reservations: tuple[str, ...] = ()
    #: Whether the driver has set anything on the provider. If not, the provider is in the tree only
    #: because Placement has it, and another owner may publish it.
    stated: bool = True
    #: Whether the driver has set the inventories.
    reported: bool = False
    #: The uuid that the driver reports for a root that Placement has under another uuid.
    reported_uuid: str | None = None
