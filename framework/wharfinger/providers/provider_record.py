"""Record of a provider, which is stored between cycles.

It is the third side of the diff, and separates our values from those of other programs. It is also
the cache with which an unchanged cycle takes one request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from wharfinger.providers.absence_timer import Absence
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.provider import Provider, PublishingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """A value of ours that another program has replaced after ``count`` writes in a row.

    ``ours`` and ``theirs`` are the two values, for messages. ``since_full``: the value was found
    undone since the last full cycle.
    """

    count: int
    ours: str
    theirs: str
    since_full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Record of a provider by one driver instance.

    ``applied`` has the classes, traits and aggregates that this instance has set, without those of
    other programs. ``intended`` has those that a plan is about to set: it is stored before the
    first write, and None when all are done. ``live`` is the whole provider as last read from
    Placement; without a generation, as a reshape was to leave it. While the provider is reserved,
    ``own_reserved`` has the ``reserved`` figures to restore. ``reservations`` are the reasons for
    which its driver reserves it, and ``reserved_since`` the time of each reason.
    ``absence`` is set when a complete listing of the backend lacks it. ``undone`` has the values
    that another program has undone, by name (see ``fights``). Times are in seconds since the epoch.
    A record with neither ``applied`` nor ``intended`` is of a provider that is not ours.
    """

    applied: Provider | None = None
    intended: Provider | None = None
    live: Provider | None = None
    own_reserved: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[str, ...] = ()
    reserved_since: Mapping[str, float] = field(default_factory=dict)
    mode: PublishingMode = PublishingMode.OWN
    absence: Absence | None = None
    undone: Mapping[str, Undone] = field(default_factory=dict)

    @property
    def is_ours(self) -> bool:
        """Return whether this instance has written anything of it, or was about to."""
        return self.applied is not None or self.intended is not None

    @property
    def is_own(self) -> bool:
        """Return whether this instance creates and deletes it."""
        return self.is_ours and self.mode is PublishingMode.OWN

    @property
    def absent_since(self) -> float | None:
        """Return the time of the first complete listing without it, in seconds since the epoch."""
        return self.absence.since if self.absence else None

    @property
    def left(self) -> Mapping[str, Inventory]:
        """Return the inventories after a reshape; none if Placement was read since."""
        return self.live.inventories if self.live and self.live.generation is None else {}

    @property
    def root_uuid(self) -> str | None:
        """Return the root of its tree when it was last read, or as it was planned."""
        known = self.live or self.applied or self.intended
        return known.root_uuid if known else None

    @property
    def claimed_traits(self) -> frozenset[str]:
        """Return the traits that we set, or may have set before a crash."""
        return frozenset().union(*(side.traits for side in self._ours()))

    @property
    def claimed_aggregates(self) -> frozenset[str]:
        """Return the aggregates that we set, or may have set before a crash."""
        return frozenset().union(*(side.aggregates for side in self._ours()))

    @property
    def claimed_classes(self) -> frozenset[str]:
        """Return the resource classes that we set, or may have set before a crash."""
        return frozenset().union(*(side.inventories for side in self._ours()))

    @property
    def claimed_full(self) -> frozenset[str]:
        """Return the resource classes that we fully reserved, or may have before a crash."""
        return frozenset(
            name
            for side in self._ours()
            for name, inventory in side.inventories.items()
            if inventory.is_fully_reserved
        )

    def _ours(self) -> list[Provider]:
        return [side for side in (self.applied, self.intended) if side is not None]


def encode(part: Provider | Absence | Mapping[str, Undone]) -> str:
    """Return a part of a record as a JSON document."""
    return msgspec.json.encode(part).decode()


#: Return the part of a JSON document; raise ValueError for any other document.
decode: Final = msgspec.json.Decoder(Provider).decode
decode_absence: Final = msgspec.json.Decoder(Absence).decode
decode_undone: Final = msgspec.json.Decoder(dict[str, Undone]).decode
