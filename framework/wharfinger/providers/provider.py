"""Resource providers as they are, as a driver wants them, and as this instance recorded them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec
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


@dataclass(frozen=True, slots=True)
class Uptime:
    """A moment, in seconds since a boot of the machine."""

    boot_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Absence:
    """The moment since which the backend or Placement lacks a provider."""

    #: For display, in seconds since the epoch.
    since: float
    #: For the duration, None if it is unknown.
    uptime: Uptime | None = None

    def seconds_until(self, now: Uptime | None) -> float | None:
        """Return the seconds of absence until ``now``, or None if they are unknown."""
        first = self.uptime
        if first is None or now is None or first.boot_id != now.boot_id:
            return None
        return now.seconds - first.seconds if first.seconds <= now.seconds else None

    def has_lasted(self, delay: float, now: Uptime | None) -> bool:
        """Return whether the absence is known to have lasted ``delay`` seconds, and more than 0."""
        lasted = self.seconds_until(now)
        return lasted is not None and lasted > 0 and lasted >= delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A value that another program has replaced after we wrote it."""

    #: How many of our writes in a row the other program has undone.
    count: int
    #: The two values, for messages.
    ours: str
    theirs: str
    #: Whether the value was undone since the last full cycle.
    since_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Record of a driver instance about a provider."""

    #: The provider with only those classes, traits and aggregates that this instance has set.
    applied: Provider | None = None
    #: The provider with the values that a plan is about to set; None after the last write.
    intended: Provider | None = None
    #: The whole provider as last read; without a generation, as our reshape should have left it.
    live: Provider | None = None
    #: The ``reserved`` figures to restore after a full reservation, by class.
    own_reserved: Mapping[str, int] = field(default_factory=dict)
    #: The reasons for which the driver reserves the provider.
    reservations: tuple[str, ...] = ()
    #: The time since which each reason exists, in seconds since the epoch.
    reserved_since: Mapping[str, float] = field(default_factory=dict)
    mode: PublishingMode = PublishingMode.OWN
    #: Set while the backend or Placement lacks the provider.
    absence: Absence | None = None
    #: The values that another program has undone, by name.
    undone: Mapping[str, Undone] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Return whether this instance has written the provider, or was about to."""
        return self.applied is not None or self.intended is not None

    @property
    def is_own(self) -> bool:
        """Return whether this instance creates and deletes the provider."""
        return self.is_ours and self.mode is PublishingMode.OWN

    @property
    def left(self) -> Mapping[str, Inventory]:
        """Return the inventories to expect after our last reshape, or {}."""
        return self.live.inventories if self.live and self.live.generation is None else {}

    @property
    def root_uuid(self) -> str | None:
        """Return the root of the provider's tree, or None if it is unknown."""
        known = self.live or self.applied or self.intended
        return known.root_uuid if known else None

    @property
    def claimed_traits(self) -> frozenset[str]:
        """Return the traits that we have set or may have set."""
        return frozenset().union(*(side.traits for side in self._ours()))

    @property
    def claimed_aggregates(self) -> frozenset[str]:
        """Return the aggregates that we have set or may have set."""
        return frozenset().union(*(side.aggregates for side in self._ours()))

    @property
    def claimed_classes(self) -> frozenset[str]:
        """Return the resource classes that we have set or may have set."""
        return frozenset().union(*(side.inventories for side in self._ours()))

    @property
    def claimed_full(self) -> frozenset[str]:
        """Return the classes that we have fully reserved or may have reserved."""
        return frozenset(
            name
            for side in self._ours()
            for name, inventory in side.inventories.items()
            if inventory.is_fully_reserved
        )

    def _ours(self) -> list[Provider]:
        return [side for side in (self.applied, self.intended) if side is not None]


#: For a provider without a record.
NO_RECORD: Final = Record()


def encode(part: Provider | Absence | Mapping[str, Undone]) -> str:
    """Return a part of a record as a JSON document."""
    return msgspec.json.encode(part).decode()


#: These functions return the part of a record in a JSON document, or raise ValueError.
decode: Final = msgspec.json.Decoder(Provider).decode
decode_absence: Final = msgspec.json.Decoder(Absence).decode
decode_undone: Final = msgspec.json.Decoder(dict[str, Undone]).decode
