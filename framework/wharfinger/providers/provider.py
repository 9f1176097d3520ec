"""Resource providers as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from wharfinger.providers.inventory import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One resource provider, at one moment.

    It represents a provider in Placement, a desired provider, or what was applied.
    ``generation`` is that of Placement, None if it is unknown or has no meaning.
    """

    uuid: str
    name: str
    root_uuid: str
    parent_uuid: str | None = None
    generation: int | None = None
    inventories: Mapping[str, Inventory] = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()


class PublishingMode(StrEnum):
    """The program that creates a provider, and the parts of it that are ours."""

    #: We create and update it, and delete it when its backend no longer has it.
    OWN = "own"
    #: Another program creates it (nova-compute, Cyborg's conductor). We add the owner trait, the
    #: reservation and the traits that the driver reports, and nothing else.
    OVERLAY = "overlay"
    #: For ``ProviderTree.set_publishing_mode`` alone, which returns one of the others: overlay if
    #: another program has created the provider, else own.
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredProvider:
    """A provider as a driver wants it.

    ``reservations`` are the reasons for a full reservation; without any, it is not reserved.
    ``stated`` is False if the provider is in the tree only because Placement has it, and the driver
    has set nothing on it: another owner may publish it. ``reported`` is True if the driver has set
    its inventories. ``reported_uuid`` is the uuid that the driver gives a root, if Placement has
    that root under another uuid.
    """

    provider: Provider
    mode: PublishingMode = PublishingMode.OWN
    reservations: tuple[str, ...] = ()
    stated: bool = True
    reported: bool = False
    reported_uuid: str | None = None
