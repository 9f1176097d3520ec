"""A resource provider as a value: what it is and what it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from wharfinger.providers.inventory import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One resource provider, at one moment.

    Serves for what Placement has, for what a driver wants, and for what was applied.
    ``generation`` is Placement's, None where it is not known or has no meaning.
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
    """Who creates a provider, and how much of it is ours."""

    #: We create it, replace what we put there, and delete it when it is gone.
    OWN = "own"
    #: Someone else does (nova-compute, Cyborg's conductor). We merge in the owner trait,
    #: the reservation and the traits that the driver names, and nothing else.
    OVERLAY = "overlay"
    #: For ``ProviderTree.set_publishing_mode`` alone, which returns one of the others: overlay if
    #: another program has created the provider, else own.
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredProvider:
    """A provider as a driver wants it.

    ``reservations`` are the reasons for which the whole provider is to be reserved;
    none: it is not. ``stated`` is False where the provider is in the tree only because
    Placement has it, and the driver has not set anything on it: another owner may publish it.
    ``reported`` is True where the driver has set its inventories. ``reported_uuid`` is the uuid
    that the driver gives a root, if Placement has that root under another uuid.
    """

    provider: Provider
    mode: PublishingMode = PublishingMode.OWN
    reservations: tuple[str, ...] = ()
    stated: bool = True
    reported: bool = False
    reported_uuid: str | None = None
