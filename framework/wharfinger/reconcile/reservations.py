"""Reserving a provider fully at once, and giving it back: for operators and jobs.

What is held is stored before it is written to Placement, and forgotten after it is given back: a
crash leaves it held, and the cycles of the driver instance that publishes it see to the rest.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

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
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import full_reservation, ownership
from wharfinger.providers.record import Record
from wharfinger.reconcile import record_objects

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
        uuid: str | None = None,
    ) -> Reservation:
        """Reserve a provider fully, over what is allocated from it too.

        It ends with ``release`` for that holder, or with ``release_one``, and not before: not even
        at its expected end. ``uuid`` is the uuid of the new reservation, for a caller that has to
        know it even after a failure. Raises ObjectExists where the holder has it already. Where
        Placement fails, the reservation is stored, and the next cycle writes it.
        """
        values: dict[str, Any] = {} if uuid is None else {"uuid": uuid}
        try:
            held = self._new(
                provider, holder=holder, reason=reason, expected_end=expected_end, **values
            )
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

    def is_there(self, uuid: str) -> bool:
        """Return whether a reservation has not ended yet."""
        return bool(ReservationList.get_by_filters(self._context, uuid=uuid).objects)

    def release_one(self, uuid: str) -> tuple[str, ...]:
        """End one reservation, by its own uuid, and no other of the same holder.

        Return the same as ``release``. Raises ObjectNotFound where it has ended already.
        """
        for held in ReservationList.get_by_filters(self._context, uuid=uuid):
            return self._end(held)
        raise ObjectNotFound(kind=Reservation.obj_name(), key=uuid)

    @_patiently
    def forget(self, uuid: str) -> None:
        """Delete a reservation whose provider no longer exists."""
        for one in ReservationList.get_by_filters(self._context, uuid=uuid):
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
                is_cleaned=True,
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

    def _new(
        self, provider: ProviderSummary, *, is_cleaned: bool = False, **values: object
    ) -> Reservation:
        """Store a new reservation of a provider, and return it.

        ``is_cleaned``: its driver cleans it, so an instance publishes it, even without records.
        """
        live = self._client.get_inventories(provider.uuid)
        record = self._remembered(provider.uuid)
        if record.is_ours or not is_cleaned:
            self._check(provider, record)
        held = Reservation(
            self._context,
            provider_uuid=provider.uuid,
            own_reserved=full_reservation.own_reserved(live.inventories, record),
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
        figures = full_reservation.own_reserved(live.inventories, self._remembered(uuid))
        rows = self._rows(uuid)  # after the look, whose generation a release ends
        if not rows:
            return  # somebody has released it meanwhile
        for one in rows:
            if "own_reserved" in one and one.own_reserved != figures:
                one.own_reserved = figures
                one.save()
        full = full_reservation.reserve_fully(live.inventories)
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
            own = full_reservation.release(live.inventories, record)
            if own != live.inventories:
                self._client.set_inventories(uuid, live.resource_provider_generation, own)
        return left

    def _rows(self, provider_uuid: str) -> ReservationList:
        return ReservationList.get_by_filters(self._context, provider_uuid=provider_uuid)

    def _remembered(self, provider_uuid: str) -> Record:
        """Return one record of a provider, merged from all records and reservations of it.

        If several records may be current and disagree on the figures of a class, the class has
        none, unless a reservation has them. Such a class is a reason to keep the provider reserved.
        """
        records = self._records(provider_uuid)
        ours = [record for record in records if record.is_ours]
        reserved = full_reservation.figures_of(  # these are never older than those of records
            one.own_reserved for one in self._rows(provider_uuid) if "own_reserved" in one
        )
        unclear = full_reservation.disputed(ours) - reserved.keys()
        reasons = dict.fromkeys(reason for record in records for reason in record.reservations)
        if unclear:
            reasons[
                f"{len(ours)} records of it disagree on its own reserved amounts of "
                f"{', '.join(sorted(unclear))} (the next cycle of its driver instance decides)"
            ] = None
        record = full_reservation.without(ours[0] if ours else Record(), unclear)
        return replace(
            record,
            own_reserved={**record.own_reserved, **reserved},
            reservations=tuple(reasons),
        )

    def _records(self, provider_uuid: str) -> list[Record]:
        """Return the records of a provider, without those that another one has superseded.

        Two hosts may have a record: during a takeover, or after one that left a record behind. The
        record of the host and the instance that publish the node counts.
        """
        found = ProviderRecordList.get_by_filters(self._context, provider_uuid=provider_uuid)
        records = {(one.host, one.driver_instance): _record(one) for one in found}
        ours = {key: record for key, record in records.items() if record.is_ours}
        roots = sorted({record.root_uuid for record in ours.values() if record.root_uuid})
        if len(ours) > 1:
            publishers = {
                (row.host, row.driver_instance)
                for row in ComputeNodeList.get_by_filters(self._context, uuid=roots)
                if "host" in row and "driver_instance" in row
            }
            hosts = {host for host, _instance in publishers}
            # Another instance on the host may publish a child of the root, or overlay it.
            current = ours.keys() & publishers or {key for key in ours if key[0] in hosts}
            for key in ours.keys() - current if current else ():
                del records[key]
        return list(records.values())

    def _check(self, provider: ProviderSummary, record: Record) -> None:
        """Refuse what is not published here: it is not ours to write."""
        traits = self._client.get_traits(provider.uuid).traits
        owners = ownership.owners(traits)
        claimed = ownership.owners(record.claimed_traits)
        if record.is_ours and ownership.is_published(traits, record):
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
        return ownership.is_published(traits, self._remembered(uuid))

    def _cleaned(self, uuids: Iterable[str]) -> list[ProviderSummary]:
        """Return the providers that their drivers clean after a release.

        The host of a record makes no difference: during a takeover, the row of the node names the
        new host while the records still name the old one.
        """
        summaries = [one for uuid in uuids for one in self._client.list_providers(uuid=uuid)]
        roots = sorted({one.root_provider_uuid for one in summaries})
        nodes = {
            row.uuid: row
            for row in (ComputeNodeList.get_by_filters(self._context, uuid=roots) if roots else ())
            if row.capabilities.get("cleans_after_release")
        }
        if not nodes:
            return []
        publishers: dict[str, set[str]] = {}
        wanted = {*nodes, *(one.uuid for one in summaries)}
        for found in ProviderRecordList.get_by_filters(self._context, provider_uuid=sorted(wanted)):
            if _record(found).applied is not None:  # a record may be of another owner's provider
                publishers.setdefault(found.provider_uuid, set()).add(found.driver_instance)
        return [
            one
            for one in summaries
            if (node := nodes.get(one.root_provider_uuid)) is not None
            and self._is_cleaned(one, node.driver_instance, publishers)
        ]

    def _is_cleaned(
        self, provider: ProviderSummary, instance: str, publishers: Mapping[str, set[str]]
    ) -> bool:
        """Return whether the present or former instance of a node publishes a provider of it.

        ``publishers`` are the instances with records, by provider uuid.
        """
        of_root = publishers.get(provider.root_provider_uuid, set())
        if not of_root:  # the records are lost
            mark = ownership.instance_trait(instance)
            return mark in self._client.get_traits(provider.uuid).traits
        # Until the instance of the row has a record, an instance of another name counts.
        before = of_root & {instance} or of_root
        return bool(before & publishers.get(provider.uuid, set()))


def _release_of(consumer_uuid: str) -> str:
    """Who holds what a consumer gives back."""
    return f"release of {consumer_uuid}"


def _record(found: ProviderRecord) -> Record:
    try:
        return record_objects.to_record(found)
    except ValueError as error:
        raise InvalidObject(
            subject=found.subject, problem=f"it cannot be read: {error}.", remedy="Restore it."
        ) from error
