"""The stored reservations of providers, as a cycle finds them before it asks its driver.

What a consumer gives back is held until it has been cleaned: a snapshot begun after its allocation
was deleted shows cleaning, and a later one that it has ended; or the driver says that none will
come. Rows are read before a snapshot begins, so what they say was so by then.
"""

from collections.abc import Callable, Container, Mapping, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, Reservation, ReservationList
from wharfinger.providers import DesiredProvider, Provider, full_reservation
from wharfinger.providers.record import Record

_NOTHING: Final = Record()


@dataclass(frozen=True, slots=True)
class Judgement:
    """Changes of the reservations in one cycle.

    ``held`` are the uuids of the providers that stay reserved, by the reservations ``kept``;
    ``over`` are reservations that end once the cycle's plan has released their providers, and
    ``moved`` reservations that change their phase.
    """

    held: frozenset[str] = frozenset()
    kept: tuple[Reservation, ...] = ()
    over: tuple[Reservation, ...] = ()
    moved: tuple[tuple[Reservation, str], ...] = ()

    def note_figures(self, records: Mapping[str, Record | None]) -> None:
        """Have reservations know what a plan would restore when they end, before it is applied.

        Else only the records would, where an owner has written figures since. Raises
        ConcurrentSave, ObjectNotFound where others have changed them meanwhile.
        """
        for one in self.kept:
            record = records.get(one.provider_uuid)
            figures = dict(record.own_reserved) if record and record.is_ours else {}
            if figures and "own_reserved" in one and one.own_reserved != figures:
                one.own_reserved = figures
                one.save()

    def save(self, context: Context, unfinished: Set[str]) -> None:
        """Write the changes. A row that another process has changed is left to the next cycle.

        A reservation does not end while its provider is ``unfinished``: a step of the plan failed,
        and the provider may still be reserved. Its phase is written in any case: the driver
        has reported it, and the next snapshot may not report it again.
        """
        for one, phase in self.moved:
            one.phase = phase
        moved = ReservationList(context, objects=[one for one, _phase in self.moved])
        over = ReservationList(
            context, objects=[one for one in self.over if one.provider_uuid not in unfinished]
        )
        for several, write in ((moved, "save"), (over, "destroy")):
            if several.objects and not _is_written(several, write):
                for one in several.objects:
                    _is_written(one, write)


@dataclass(frozen=True, slots=True)
class StoredReservations:
    """All stored reservations, by provider uuid.

    ``earlier`` are the uuids and revisions of those that a driver's snapshot can say something of:
    the others are newer than that. ``before`` are those that there were before Placement was read:
    some may have ended since.
    """

    by_provider: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)
    earlier: frozenset[tuple[str, int]] = frozenset()
    before: Mapping[str, tuple[Reservation, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, context: Context) -> Self:
        """Read them; raises ObjectError, StateError."""
        found: dict[str, tuple[Reservation, ...]] = {}
        for one in ReservationList.get_by_filters(context):
            if "provider_uuid" in one:
                found[one.provider_uuid] = (*found.get(one.provider_uuid, ()), one)
        return cls(found)

    def read_again(self, context: Context) -> Self:
        """Those that there are now that Placement has been read.

        What it shows as reserved was stored before.
        """
        later = type(self).read(context)
        return replace(later, earlier=self.earlier, before=self.by_provider)

    @property
    def later(self) -> frozenset[str]:
        """The uuids of the providers that were given back too late for the driver's snapshot."""
        return frozenset(
            uuid
            for uuid, rows in self.by_provider.items()
            if any(_phase(one) and not self._is_earlier(one) for one in rows)
        )

    @property
    def known(self) -> frozenset[tuple[str, int]]:
        """The uuids and revisions of all of them."""
        rows = [one for several in self.by_provider.values() for one in several]
        return frozenset(
            (one.uuid, one.revision) for one in rows if "uuid" in one and "revision" in one
        )

    def with_figures(
        self, records: Mapping[str, Record], there: Container[str]
    ) -> Mapping[str, Record]:
        """The records, with the own figures that the reservations know, which are never older.

        Of those providers that are ``there``.
        """
        known = {
            uuid: full_reservation.figures_of(
                one.own_reserved
                for rows in (self.by_provider, self.before)
                for one in rows.get(uuid, ())
                if "own_reserved" in one
            )
            for uuid in self.by_provider.keys() | self.before.keys()
            if uuid in there
        }
        completed = {
            uuid: replace(record, own_reserved={**record.own_reserved, **figures})
            for uuid, figures in known.items()
            if not figures.items() <= (record := records.get(uuid, _NOTHING)).own_reserved.items()
        }
        return {**records, **completed} if completed else records

    def changes(self, uuid: str, live: Provider, record: Record) -> bool:
        """Whether a provider has to be reserved or released, though nobody has written it."""
        if uuid in self.by_provider:
            return any(not one.is_fully_reserved for one in live.inventories.values())
        return bool(record.own_reserved) and not record.reservations

    def judge(
        self,
        desired: Mapping[str, DesiredProvider],
        *,
        is_clean: Callable[[str, datetime], bool],
        is_given_back: Callable[[str, str], bool],
    ) -> Judgement:
        """What holds on, seen from what the driver said of its providers just now.

        ``is_clean`` says whether a provider that was given back then needs no cleaning any more,
        ``is_given_back`` whether a consumer has nothing of a provider any more.
        """
        held, kept, over, moved = set(), [], [], []
        for uuid, rows in self.by_provider.items():
            for one in rows:
                wanted = desired.get(uuid)
                after = None
                if wanted is not None and wanted.stated and self._is_earlier(one):
                    after = _after(one, bool(wanted.reservations), is_clean, is_given_back)
                if after == _OVER:
                    over.append(one)
                    continue
                held.add(uuid)
                kept.append(one)
                if after is not None:
                    moved.append((one, after))
        return Judgement(frozenset(held), tuple(kept), tuple(over), tuple(moved))

    def _is_earlier(self, one: Reservation) -> bool:
        return "uuid" in one and "revision" in one and (one.uuid, one.revision) in self.earlier


_OVER: Final = "over"


def _after(
    one: Reservation,
    is_reserved: bool,
    is_clean: Callable[[str, datetime], bool],
    is_given_back: Callable[[str, str], bool],
) -> str | None:
    """The phase that a reservation comes to, _OVER, or None where it stays as it is.

    One that cannot be read stays as it is, and stops no other one.
    """
    match _phase(one):
        case "releasing" if (
            "consumer_uuid" in one
            and one.consumer_uuid
            and is_given_back(one.provider_uuid, one.consumer_uuid)
        ):
            return "released"
        case "released" if is_reserved:
            return "cleaning"
        case "released" if "since" in one and is_clean(one.provider_uuid, one.since):
            return _OVER
        case "cleaning" if not is_reserved:
            return _OVER
    return None


def _phase(one: Reservation) -> str | None:
    return one.phase if "phase" in one else None


def _is_written(one: Reservation | ReservationList, write: str) -> bool:
    """Save or destroy it; False where others have changed it: the next cycle reads it anew."""
    try:
        getattr(one, write)()
    except (ConcurrentSave, ObjectNotFound):
        return False
    return True
