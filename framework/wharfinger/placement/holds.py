"""Reserving a provider fully at once, and giving it back: for operators and jobs.

What is held is stored before it is written to Placement, and forgotten after it is given back: a
crash leaves it held, and the cycles of the driver instance that publishes it see to the rest.
"""

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from tenacity import retry, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    InvalidObject,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    ReservationRefused,
)
from wharfinger.objects import (
    ComputeNodeList,
    Context,
    ProviderRecord,
    ProviderRecordList,
    Reservation,
    ReservationList,
)
from wharfinger.objects.kinds import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ownership, reservation, stored
from wharfinger.providers.record import Record

_ATTEMPTS: Final = 5
#: Seconds between two attempts, at most.
_LONGEST_WAIT: Final = 2.0

_patiently: Final = retry(
    retry=retry_if_exception_type((ConcurrentSave, ConcurrentUpdate)),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=wait_random_exponential(max=_LONGEST_WAIT),
    reraise=True,
)


class Holds:
    """Stored reservations of providers that driver instances publish.

    Methods raise PlacementError, ObjectError and StateError, and ReservationRefused for what is not
    ours to reserve.
    """

    def __init__(self, client: PlacementClient, context: Context) -> None:
        self._client: Final = client
        self._context: Final = context

    def reserve(
        self,
        provider: ProviderSummary,
        *,
        holder: str,
        reason: str,
        expected_end: datetime | None = None,
    ) -> Reservation:
        """Reserve a provider fully, over what is allocated from it too.

        It ends with ``release`` for that holder, and not before: not even at its expected end.
        Raises ObjectExists where the holder has it already. Where Placement fails, it is stored all
        the same, and the next cycle writes it.
        """
        try:
            held = self._new(provider, holder=holder, reason=reason, expected_end=expected_end)
        except ObjectExists:
            if self.has(provider, holder):
                self._fill(provider.uuid)  # which a crash may have kept from it
            raise
        self._fill(provider.uuid)
        self._see_kept(held)
        return held

    def keep(self, held: Reservation) -> None:
        """See that Placement still says so: its owner may have written other figures.

        One request where it does. Nothing is written of what somebody has released meanwhile.
        """
        live = self._client.get_inventories(held.provider_uuid).inventories.values()
        if not all(one.is_fully_reserved for one in live) and any(
            one.uuid == held.uuid for one in self._rows(held.provider_uuid)
        ):
            self._fill(held.provider_uuid)
            self._see_kept(held)

    def has(self, provider: ProviderSummary, holder: str) -> bool:
        """Whether a holder has a provider reserved."""
        return any("holder" in one and one.holder == holder for one in self._rows(provider.uuid))

    def release(self, provider: ProviderSummary, holder: str) -> tuple[str, ...]:
        """End what a holder has of a provider: it is free again if nobody else has it.

        Returns, for people, what it is still reserved for. Raises ObjectNotFound where the holder
        has nothing of it.
        """
        rows = self._rows(provider.uuid)
        mine = [one for one in rows if "holder" in one and one.holder == holder]
        if not mine:
            raise ObjectNotFound(kind=Reservation.obj_name(), key=f"of {provider.name} by {holder}")
        [held] = mine
        return self._end(held)

    @_patiently
    def forget(self, provider_uuid: str, holder: str) -> None:
        """End what a holder has of a provider that is no more."""
        for one in ReservationList.get_by_filters(
            self._context, provider_uuid=provider_uuid, holder=holder
        ):
            with suppress(ObjectNotFound):
                one.destroy()

    @_patiently
    def give_back(
        self,
        consumer_uuid: str,
        *,
        kept: Container[str] = (),
        check: Callable[[], object] = lambda: None,
    ) -> tuple[Reservation, ...]:
        """Delete a consumer's allocations; what is cleaned after that is reserved first.

        It stays so until its driver has seen the cleaning end: that is for the cycles to find. What
        is ``kept``, by provider uuid, is not cleaned: another consumer has it for the same
        instance. ``check`` is called when it has been read what the consumer has, which alone is
        deleted; what it raises ends this. Returns those reservations. What failed on the way is
        repeated by calling it again.
        """
        held = self._client.get_allocations(consumer_uuid)
        check()
        allocations = held["allocations"]
        self.before_release(consumer_uuid, [uuid for uuid in allocations if uuid not in kept])
        if allocations:
            with suppress(NotFound):  # somebody else has done it
                self._client.delete_allocations(consumer_uuid, held)
        return self.after_release(consumer_uuid)

    def before_release(self, consumer_uuid: str, providers: Iterable[str]) -> None:
        """Reserve those of the providers that are cleaned when a consumer has given them back.

        ``after_release`` is to follow when it has, or ``cancel_release`` where it does not.
        """
        for provider in self._cleaned(providers):
            self._hold(provider, consumer_uuid)

    @retry(
        retry=retry_if_exception_type((ConcurrentSave, ObjectExists, ObjectNotFound)),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(max=_LONGEST_WAIT),
        reraise=True,
    )
    def _hold(self, provider: ProviderSummary, consumer_uuid: str) -> None:
        """Reserve a provider until a consumer has given it back, and it was cleaned after that.

        What it has given back before has a hold, too, until a cycle ends that: then it begins anew.
        """
        mine = {"provider_uuid": provider.uuid, "holder": _release_of(consumer_uuid)}
        for held in ReservationList.get_by_filters(self._context, **mine):
            if held.phase != "releasing":
                has = self._client.get_allocations(consumer_uuid)["allocations"]
                if provider.uuid not in has:
                    return  # somebody else has given it back since
                held.phase, held.since = "releasing", now()
                held.save()
            break
        else:
            held = self._new(
                provider,
                holder=mine["holder"],
                reason="to be cleaned",
                consumer_uuid=consumer_uuid,
                phase="releasing",
            )
        self._fill(provider.uuid)
        if held.uuid not in {one.uuid for one in self._rows(provider.uuid)}:
            self._empty(held)
            raise ObjectNotFound(kind=Reservation.obj_name(), key=held.uuid)

    @_patiently
    def after_release(self, consumer_uuid: str) -> tuple[Reservation, ...]:
        """Note that the allocation is gone, unless a cycle has found that already."""
        held = ReservationList.get_by_filters(self._context, holder=_release_of(consumer_uuid))
        for one in held:
            if one.phase == "releasing":
                one.phase = "released"
                with suppress(ObjectNotFound):  # that is over already
                    one.save()
        return tuple(held)

    def cancel_release(self, consumer_uuid: str) -> None:
        """End what ``before_release`` has reserved: the consumer has not given it back."""
        for one in ReservationList.get_by_filters(self._context, holder=_release_of(consumer_uuid)):
            if one.phase == "releasing":
                self._end(one)

    def _end(self, held: Reservation) -> tuple[str, ...]:
        """End a reservation; returns, for people, what its provider is still reserved for."""
        self._empty(held)
        held.destroy()
        return self._empty(held)  # somebody else may have ended his at the same time

    def _new(self, provider: ProviderSummary, **values: object) -> Reservation:
        """A new reservation of a provider, stored."""
        live = self._client.get_inventories(provider.uuid)
        record = self._remembered(provider.uuid)
        self._check(provider, record)
        held = Reservation(
            self._context,
            provider_uuid=provider.uuid,
            own_reserved=reservation.own_reserved(live.inventories, record),
            **values,
        )
        held.create()
        return held

    @_patiently
    def _fill(self, uuid: str) -> None:
        """Have Placement say that all is reserved.

        It is written though it says so already: who looked before that, and gives it back, has to
        look again.
        """
        if not self.is_ours(uuid):
            return  # it has come to be another owner's since
        live = self._client.get_inventories(uuid)
        figures = reservation.own_reserved(live.inventories, self._remembered(uuid))
        rows = self._rows(uuid)  # after the look, whose generation a release ends
        if not rows:
            return  # somebody has released it meanwhile
        for one in rows:
            if "own_reserved" in one and one.own_reserved != figures:
                one.own_reserved = figures
                one.save()
        full = reservation.reserve_fully(live.inventories)
        self._client.set_inventories(uuid, live.resource_provider_generation, full)

    def _see_kept(self, held: Reservation) -> None:
        """Give back what somebody has released while it was written."""
        if held.uuid not in {one.uuid for one in self._rows(held.provider_uuid)}:
            self._empty(held)

    @_patiently
    def _empty(self, held: Reservation) -> tuple[str, ...]:
        """Have Placement say what was before, if nobody else has it; else what it is held for."""
        uuid = held.provider_uuid
        # Before what is remembered: who reserves it after this look changes the generation.
        try:
            is_ours = self.is_ours(uuid)
            live = self._client.get_inventories(uuid)
        except NotFound:
            return ()  # it is gone, and nothing can be had of it
        others = [one for one in self._rows(uuid) if one.uuid != held.uuid]
        record = self._remembered(uuid)
        left = (
            *record.reservations,
            *(f"{one.reason} (held by {one.holder})" for one in others),
        )
        if not left and is_ours:
            figures = held.own_reserved if "own_reserved" in held else {}
            record = replace(record, own_reserved={**figures, **record.own_reserved})
            own = reservation.release(live.inventories, record)
            if own != live.inventories:
                self._client.set_inventories(uuid, live.resource_provider_generation, own)
        return left

    def _rows(self, provider_uuid: str) -> ReservationList:
        return ReservationList.get_by_filters(self._context, provider_uuid=provider_uuid)

    def _remembered(self, provider_uuid: str) -> Record:
        """What driver instances and reservations remember of a provider together."""
        records = [
            _record(one)
            for one in ProviderRecordList.get_by_filters(self._context, provider_uuid=provider_uuid)
        ]
        figures = reservation.figures_of(
            [
                # Those of reservations are never older.
                *(one.own_reserved for one in self._rows(provider_uuid) if "own_reserved" in one),
                *(record.own_reserved for record in records if record.is_ours),
            ]
        )
        ours = next((record for record in records if record.is_ours), Record())
        reasons = dict.fromkeys(reason for record in records for reason in record.reservations)
        return replace(ours, own_reserved=figures, reservations=tuple(reasons))

    def _check(self, provider: ProviderSummary, record: Record) -> None:
        """Refuse what is not published here: it is not ours to write."""
        owners = ownership.owners(self._client.get_traits(provider.uuid).traits)
        claimed = ownership.owners(record.claimed_traits)
        if record.is_ours and owners <= claimed:
            return
        raise ReservationRefused(
            provider=provider.name,
            uuid=provider.uuid,
            problem=f"it belongs to {', '.join(sorted(owners - claimed)) or 'nobody known'}, and "
            "no driver instance publishes it.",
            remedy="Ask its owner, or publish it first.",
        )

    def is_ours(self, uuid: str) -> bool:
        """Whether a provider that was reserved is still one that is published here.

        Where no record is left, the mark of an instance says so. Raises NotFound.
        """
        traits = self._client.get_traits(uuid).traits
        record = self._remembered(uuid)
        if record.is_ours:
            return ownership.owners(traits) <= ownership.owners(record.claimed_traits)
        return any(map(ownership.is_instance_trait, traits))

    def _cleaned(self, uuids: Iterable[str]) -> list[ProviderSummary]:
        """Those of the providers that their drivers clean when they are given back."""
        summaries = [one for uuid in uuids for one in self._client.list_providers(uuid=uuid)]
        roots = sorted({one.root_provider_uuid for one in summaries})
        nodes = {
            row.uuid: row
            for row in (ComputeNodeList.get_by_filters(self._context, uuid=roots) if roots else ())
            if row.capabilities.get("cleans_after_release")
        }
        return [
            one
            for one in summaries
            if (node := nodes.get(one.root_provider_uuid)) is not None
            and any(
                _record(found).is_ours  # it remembers others' in its trees, too
                for found in ProviderRecordList.get_by_filters(
                    self._context,
                    host=node.host,
                    driver_instance=node.driver_instance,
                    provider_uuid=one.uuid,
                )
            )
        ]


def _release_of(consumer_uuid: str) -> str:
    """Who holds what a consumer gives back."""
    return f"release of {consumer_uuid}"


def _record(found: ProviderRecord) -> Record:
    try:
        return stored.to_record(found)
    except ValueError as error:
        raise InvalidObject(
            subject=found.subject, problem=f"it cannot be read: {error}.", remedy="Restore it."
        ) from error
