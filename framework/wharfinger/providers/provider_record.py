"""Record of a provider, which a driver instance stores between cycles.

The record shows which values this instance has set, so that plans keep values of other programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import Provider, PublishingMode


@dataclass(frozen=True, slots=True)
class Uptime:
    """A moment, in seconds since the boot with this id (CLOCK_BOOTTIME)."""

    boot_id: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Absence:
    """The moment since which the backend or Placement lacks a provider."""

    #: For display, in seconds since the epoch.
    since: float
    #: For the duration. None in a record of an old release, and on a machine without a boot id.
    uptime: Uptime | None = None

    def seconds_until(self, now: Uptime | None) -> float | None:
        """Return for how many seconds the provider has been absent, until ``now``.

        Return None if the moments cannot be compared, for example after a reboot.
        """
        first = self.uptime
        if first is None or now is None or first.boot_id != now.boot_id:
            return None
        return now.seconds - first.seconds if first.seconds <= now.seconds else None

    def has_lasted(self, delay: float, now: Uptime | None) -> bool:
        """Return whether the absence has lasted at least ``delay`` seconds, and more than 0.

        Return False if the duration is unknown.
        """
        lasted = self.seconds_until(now)
        return lasted is not None and lasted > 0 and lasted >= delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A value that another program has replaced after we wrote it."""

    #: After how many of our writes in a row the other program has replaced the value.
    count: int
    #: The two values, for messages.
    ours: str
    theirs: str
    #: Whether a drift cycle or poll has found the value replaced since the last full cycle.
    since_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Record of a provider by one driver instance.

    A record with neither ``applied`` nor ``intended`` is about a provider that is not ours.
    """

    #: The provider with the classes, traits and aggregates that this instance has set, without
    #: those of other programs.
    applied: Provider | None = None
    #: The same for the values that a plan is about to set. It is stored before the first write, and
    #: None after the last.
    intended: Provider | None = None
    #: The whole provider as last read from Placement; without a generation, as a reshape was
    #: expected to leave it.
    live: Provider | None = None
    #: The ``reserved`` figures to restore after a full reservation, by class.
    own_reserved: Mapping[str, int] = field(default_factory=dict)
    #: The reasons for which the driver reserves the provider.
    reservations: tuple[str, ...] = ()
    #: The time since which each reason exists, in seconds since the epoch.
    reserved_since: Mapping[str, float] = field(default_factory=dict)
    mode: PublishingMode = PublishingMode.OWN
    #: Set if the last complete listing of the backend lacked the provider, or if Placement lacks it
    #: although the driver wants it.
    absence: Absence | None = None
    #: The values that another program has undone, by name (see ``fights``).
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
    def absent_since(self) -> float | None:
        """Return since when the provider is absent, in seconds since the epoch, or None."""
        return self.absence.since if self.absence else None

    @property
    def left(self) -> Mapping[str, Inventory]:
        """Return the inventories that the provider should have after our reshape.

        Return {} without a reshape, or if the provider was read from Placement since.
        """
        return self.live.inventories if self.live and self.live.generation is None else {}

    @property
    def root_uuid(self) -> str | None:
        """Return the root of the provider's tree, or None if it is unknown."""
        known = self.live or self.applied or self.intended
        return known.root_uuid if known else None

    @property
    def claimed_traits(self) -> frozenset[str]:
        """Return the traits that we have set, or may have set before a crash."""
        return frozenset().union(*(side.traits for side in self._ours()))

    @property
    def claimed_aggregates(self) -> frozenset[str]:
        """Return the aggregates that we have set, or may have set before a crash."""
        return frozenset().union(*(side.aggregates for side in self._ours()))

    @property
    def claimed_classes(self) -> frozenset[str]:
        """Return the resource classes that we have set, or may have set before a crash."""
        return frozenset().union(*(side.inventories for side in self._ours()))

    @property
    def claimed_full(self) -> frozenset[str]:
        """Return the classes that we have fully reserved, or may have reserved before a crash."""
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
