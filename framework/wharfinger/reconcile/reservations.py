"""Reservations that operators, jobs and releases of consumers take, and the traits of functions.

A reservation is stored before it is written to Placement, and deleted after the own figures are
restored: after a crash the provider stays reserved, and the next cycle of its driver instance goes
on. All writes go through ``apply.Writer``, with the record of the instance that publishes the
provider.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from tenacity import retry, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    IntentExpired,
    InvalidObject,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    ReservationRefused,
    WharfingerError,
)
from wharfinger.objects import (
    Context,
    ProviderRecord,
    ProviderState,
    Reservation,
    ReservationList,
)
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import full_reservation, ownership
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import SetInventories, SetTraits, Step, TreePlan
from wharfinger.providers.provider import Provider
from wharfinger.providers.provider_record import Record
from wharfinger.reconcile.apply import TreeWrite, Writer
from wharfinger.reconcile.record_store import RecordStore, to_record
from wharfinger.reconcile.reservation_phases import stored_figures

_ATTEMPTS: Final = 5
#: Seconds between two attempts, at most.
_LONGEST_WAIT: Final = 2.0
_WAIT: Final = wait_random_exponential(max=_LONGEST_WAIT)
#: Host and driver instance of a provider without records; no record is stored under them.
_NO_PUBLISHER: Final = ("none", "none")
_CONFLICTS: Final = (ConcurrentSave, ConcurrentUpdate, IntentExpired)

_patiently: Final = retry(
    retry=retry_if_exception_type(_CONFLICTS),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=_WAIT,
    reraise=True,
)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Rows of one provider.

    ``own_record`` is the record of the instance that publishes it, in ``store``. ``record`` is the
    same with the reasons of all records, and without the figures in which they differ; ``unclear``
    names the classes of these.
    """

    provider_uuid: str
    store: RecordStore
    own_record: Record
    record: Record
    reservations: tuple[Reservation, ...]
    unclear: frozenset[str]
    number: int

    @property
    def revisions(self) -> dict[str, int]:
        """The revisions of the reservations, by reservation uuid."""
        return {one.uuid: one.revision for one in self.reservations}

    @property
    def complete_record(self) -> Record:
        """The record, completed by the own figures that the reservations have stored."""
        spare = stored_figures(self.reservations)
        return replace(self.record, own_reserved={**spare, **self.record.own_reserved})

    def reasons(self, without: str) -> tuple[str, ...]:
        """Return what the provider is reserved for besides one reservation, for people."""
        spare = stored_figures(self.reservations)
        others = (one for one in self.reservations if one.uuid != without)
        unclear = self.unclear - spare.keys()
        disagree = (
            f"{self.number} records of it disagree on its own reserved amounts of "
            f"{', '.join(sorted(unclear))} (the next cycle of its driver instance decides)"
        )
        return (
            *self.record.reservations,
            *(f"{one.reason} (held by {one.holder})" for one in others),
            *((disagree,) if unclear else ()),
        )


class Reservations:
    """Stored reservations of providers that driver instances publish.

    A plan is written within half of ``down_time``, or made again.

    Methods raise PlacementError, ObjectError and StateError, and ReservationRefused for a provider
    that no driver instance publishes.
    """

    def __init__(
        self,
        client: PlacementClient,
        context: Context,
        down_time: timedelta = timedelta(seconds=60),
    ) -> None:
        self._client: Final = client
        self._context: Final = context
        self._writer: Final = Writer(client, valid_for=down_time / 2)

    def reserve(
        self,
        provider: ProviderSummary,
        *,
        holder: str,
        reason: str,
        expected_end: datetime | None = None,
        uuid: str | None = None,
    ) -> Reservation:
        """Reserve a provider fully, also over its allocations.

        The reservation ends with ``release`` for that holder, or with ``release_one``, and not
        before: not even at its expected end. ``uuid`` is the uuid of the new reservation, for a
        caller that has to know it even after a failure. Raises ObjectExists if the holder has a
        reservation of the provider. If Placement fails, the reservation is stored, and the next
        cycle writes it.
        """
        values: dict[str, Any] = {} if uuid is None else {"uuid": uuid}
        try:
            return self._reserve(
                provider, holder=holder, reason=reason, expected_end=expected_end, **values
            )
        except ObjectExists:
            if self.has(provider, holder):
                self._fill(provider)  # a crash may have prevented it
            raise

    def keep(self, held: Reservation) -> None:
        """Reserve the provider again if its owner has written other figures.

        One request where it has not. Nothing is written for a reservation that has ended.
        """
        live = self._client.get_inventories(held.provider_uuid).inventories.values()
        if not all(one.is_fully_reserved for one in live) and self.is_there(held.uuid):
            for provider in self._client.list_providers(uuid=held.provider_uuid):
                self._fill(provider)

    def has(self, provider: ProviderSummary, holder: str) -> bool:
        """Return whether a holder has a reservation of a provider."""
        found = ReservationList.get_by_filters(
            self._context, provider_uuid=provider.uuid, holder=holder
        )
        return bool(found.objects)

    def is_there(self, uuid: str) -> bool:
        """Return whether a reservation has not ended yet."""
        return bool(ReservationList.get_by_filters(self._context, uuid=uuid).objects)

    def release(self, provider: ProviderSummary, holder: str) -> tuple[str, ...]:
        """End a holder's reservation; the provider is free if it was the last one.

        Return, for people, the reasons for which the provider is still reserved. Raises
        ObjectNotFound if the holder has no reservation of it.
        """
        for held in ReservationList.get_by_filters(
            self._context, provider_uuid=provider.uuid, holder=holder
        ):
            return self._end(held, provider)
        raise ObjectNotFound(kind=Reservation.obj_name(), key=f"of {provider.name} by {holder}")

    def release_one(self, uuid: str) -> tuple[str, ...]:
        """End one reservation by its own uuid, and no other of the same holder.

        Return the same as ``release``. Raises ObjectNotFound if it has ended already.
        """
        for held in ReservationList.get_by_filters(self._context, uuid=uuid):
            for provider in self._client.list_providers(uuid=held.provider_uuid):
                return self._end(held, provider)
            self.forget(uuid)
            return ()
        raise ObjectNotFound(kind=Reservation.obj_name(), key=uuid)

    @_patiently
    def forget(self, uuid: str) -> None:
        """Delete a reservation whose provider no longer exists."""
        for one in ReservationList.get_by_filters(self._context, uuid=uuid):
            with suppress(ObjectNotFound):
                one.destroy()

    # Releases of consumers.

    def before_release(self, consumer_uuid: str, providers: Iterable[str]) -> None:
        """Reserve those of the providers that are cleaned after a consumer has released them.

        ``after_release`` follows when it has, or ``cancel_release`` if it does not.
        """
        for provider in self._cleaned(providers):
            self._reserve_for_cleaning(provider, consumer_uuid)

    @_patiently
    def after_release(self, consumer_uuid: str) -> tuple[Reservation, ...]:
        """Note that the allocation is deleted, unless a cycle has found that already."""
        held = ReservationList.get_by_filters(self._context, holder=_release_of(consumer_uuid))
        for one in held:
            if one.phase == "releasing":
                one.phase = "released"
                with suppress(ObjectNotFound):  # the reservation has ended already
                    one.save()
        return tuple(held)

    def cancel_release(self, consumer_uuid: str) -> None:
        """End the reservations of ``before_release``: the consumer keeps its allocation."""
        for one in ReservationList.get_by_filters(self._context, holder=_release_of(consumer_uuid)):
            if one.phase == "releasing":
                self.release_one(one.uuid)

    # Functions of programmable devices.

    @_patiently
    def set_function_trait(
        self, provider: ProviderSummary, trait: str | None, owners: frozenset[str]
    ) -> None:
        """Set the trait of the function that a device holds, and remove those of others.

        The trait is ours in the provider's record. Raises ReservationRefused if the provider no
        longer has exactly these ``owners``' traits.
        """
        there = self._client.get_traits(provider.uuid)
        found = ownership.owners(there.traits)
        if found != owners:
            raise ReservationRefused(
                provider=provider.name,
                uuid=provider.uuid,
                problem=f"it belongs to {', '.join(sorted(found)) or 'nobody known'} now.",
                remedy="Ask its owner.",
            )
        new = {trait} if trait else set()
        wanted = there.traits - function_traits(there.traits) | new
        if wanted == there.traits:
            return
        stored = self._stored(provider)
        live = _provider(provider, there.resource_provider_generation, traits=there.traits)
        step = SetTraits(**_target(provider), before=there.traits, after=frozenset(wanted))
        record = stored.own_record
        if record.applied is not None:
            ours = record.applied.traits - function_traits(record.applied.traits) | new
            record = replace(record, applied=replace(record.applied, traits=frozenset(ours)))
        self._apply(stored, live, step, record)

    def is_ours(self, provider: ProviderSummary) -> bool:
        """Return whether a driver instance still publishes a provider.

        Where no record is left, the instance trait decides. Raises NotFound.
        """
        traits = self._client.get_traits(provider.uuid).traits
        return ownership.is_published(traits, self._stored(provider).record)

    # One provider.

    def _reserve(self, provider: ProviderSummary, **values: Any) -> Reservation:
        """Store a new reservation of a provider, and reserve it."""
        held, error = self._create(provider, **values)
        if isinstance(error, _CONFLICTS):
            self._fill(provider)
        elif error is not None:
            raise error
        return held

    @_patiently
    def _create(
        self, provider: ProviderSummary, *, is_cleaned: bool = False, **values: Any
    ) -> tuple[Reservation, WharfingerError | None]:
        """Store a new reservation, and write it; return the error of the write, if any.

        ``is_cleaned``: its driver cleans it, so an instance publishes it, even without records.
        """
        traits = self._client.get_traits(provider.uuid).traits
        live = self._client.get_inventories(provider.uuid)
        stored = self._stored(provider)
        if stored.record.is_ours or not is_cleaned:
            _refuse_unpublished(provider, traits, stored.record)
        figures = full_reservation.own_reserved(live.inventories, stored.complete_record)
        held = Reservation(
            self._context, provider_uuid=provider.uuid, own_reserved=figures, **values
        )
        try:
            self._write_full(stored, provider, live, figures, held)
        except WharfingerError as error:
            if "revision" not in held:
                raise  # it was not stored
            return held, error
        return held, None

    @_patiently
    def _fill(self, provider: ProviderSummary) -> None:
        """Write the full reservation of a provider again, if a reservation of it is stored."""
        traits = self._client.get_traits(provider.uuid).traits
        live = self._client.get_inventories(provider.uuid)
        stored = self._stored(provider)
        if stored.reservations and ownership.is_published(traits, stored.record):
            figures = full_reservation.own_reserved(live.inventories, stored.complete_record)
            self._write_full(stored, provider, live, figures)

    def _write_full(
        self,
        stored: _Stored,
        provider: ProviderSummary,
        live: Any,
        figures: Mapping[str, int],
        *new: Reservation,
    ) -> None:
        """Write all inventories as fully reserved.

        They are written even if they are: a release that has read them before has to read again.
        """
        step = SetInventories(
            **_target(provider),
            before=live.inventories,
            after=full_reservation.reserve_fully(live.inventories),
        )
        there = _provider(provider, live.resource_provider_generation, inventories=live.inventories)
        own = stored.own_record
        record = replace(own, own_reserved={**own.own_reserved, **figures})
        self._apply(stored, there, step, record, new=new)

    @_patiently
    def _end(self, held: Reservation, provider: ProviderSummary) -> tuple[str, ...]:
        """End a reservation; return, for people, the reasons that keep its provider reserved."""
        try:
            traits = self._client.get_traits(provider.uuid).traits
            live = self._client.get_inventories(provider.uuid)
        except NotFound:
            self.forget(held.uuid)
            return ()
        stored = self._stored(provider)
        mine = [one for one in stored.reservations if one.uuid == held.uuid]
        if not mine:
            raise ObjectNotFound(kind=Reservation.obj_name(), key=held.uuid)
        left = stored.reasons(without=held.uuid)
        there = _provider(provider, live.resource_provider_generation, inventories=live.inventories)
        if left or not ownership.is_published(traits, stored.record):
            self._apply(stored, there, None, stored.own_record, ended=mine)
            return left
        # It is written even if nothing changes: a reservation at the same time has to read again.
        own = full_reservation.release(live.inventories, stored.complete_record)
        step = SetInventories(**_target(provider), before=live.inventories, after=own)
        self._apply(stored, there, step, replace(stored.own_record, own_reserved={}), ended=mine)
        return left

    def _apply(
        self,
        stored: _Stored,
        live: Provider,
        step: Step | None,
        record: Record,
        *,
        new: Iterable[Reservation] = (),
        ended: Iterable[Reservation] = (),
    ) -> None:
        """Write one provider, its record and its reservations; raise what goes wrong."""
        uuid, known = stored.provider_uuid, record.live
        is_known = known is not None and known.generation == live.generation
        if known is not None and is_known:
            part = "traits" if isinstance(step, SetTraits) else "inventories"
            live = replace(known, **{part: getattr(live, part)})
        has_record = step is not None and uuid in stored.store.records
        tree = TreeWrite(
            TreePlan(
                root_uuid=live.root_uuid,
                steps=() if step is None else (step,),
                live={uuid: live},
                records={uuid: record} if has_record else {},
            ),
            known_reservations={uuid: stored.revisions},
            new_reservations=list(new),
            ended=list(ended),
            is_partly_known=not is_known,
        )
        self._writer.apply([tree], stored.store)
        for error in tree.errors:
            raise error

    # Rows.

    def _stored(self, provider: ProviderSummary) -> _Stored:
        """Read the rows of a provider, in one transaction."""
        rows = ProviderState.get(self._context, [provider.uuid], [provider.root_provider_uuid])
        records = {(one.host, one.driver_instance): _record(one) for one in rows.records}
        current = _current(
            records,
            {
                (row.host, row.driver_instance)
                for row in rows.nodes
                if "host" in row and "driver_instance" in row
            },
        )
        ours = {key: records[key] for key in current if records[key].is_ours}
        key = next(iter(ours), next(iter(current), _NO_PUBLISHER))
        unclear = full_reservation.disputed(list(ours.values()))
        own_record = records.get(key, Record())
        record = full_reservation.without(own_record, unclear)
        reasons = dict.fromkeys(reason for one in current for reason in records[one].reservations)
        own_rows = [one for one in rows.records if (one.host, one.driver_instance) == key]
        return _Stored(
            provider.uuid,
            RecordStore.of(self._context, *key, own_rows),
            own_record,
            replace(record, reservations=tuple(reasons)),
            tuple(rows.reservations),
            unclear,
            len(ours),
        )

    def _cleaned(self, uuids: Iterable[str]) -> list[ProviderSummary]:
        """Return the providers that their drivers clean after a release.

        The host of a record makes no difference: during a takeover by an old release, the row of
        the node names the new host while the records still name the former one.
        """
        summaries = [one for uuid in uuids for one in self._client.list_providers(uuid=uuid)]
        if not summaries:
            return []
        roots = sorted({one.root_provider_uuid for one in summaries})
        wanted = sorted({*roots, *(one.uuid for one in summaries)})
        rows = ProviderState.get(self._context, wanted, roots)
        nodes = {
            row.uuid: row for row in rows.nodes if row.capabilities.get("cleans_after_release")
        }
        publishers: dict[str, set[str]] = {}
        for found in rows.records if nodes else ():
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

    @retry(
        retry=retry_if_exception_type((*_CONFLICTS, ObjectExists, ObjectNotFound)),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=_WAIT,
        reraise=True,
    )
    def _reserve_for_cleaning(self, provider: ProviderSummary, consumer_uuid: str) -> None:
        """Reserve a provider until a consumer has released it, and it was cleaned after that.

        An earlier release of the same consumer may have a reservation until a cycle ends it: it
        begins anew then.
        """
        mine = {"provider_uuid": provider.uuid, "holder": _release_of(consumer_uuid)}
        for held in ReservationList.get_by_filters(self._context, **mine):
            if held.phase != "releasing":
                has = self._client.get_allocations(consumer_uuid)["allocations"]
                if provider.uuid not in has:
                    return  # another process has released it since
                held.phase, held.since = "releasing", now()
                held.save()
            self._fill(provider)
            if not self.is_there(held.uuid):
                raise ObjectNotFound(kind=Reservation.obj_name(), key=held.uuid)
            return
        self._reserve(
            provider,
            holder=mine["holder"],
            is_cleaned=True,
            reason="to be cleaned",
            consumer_uuid=consumer_uuid,
            phase="releasing",
        )


def _current(
    records: Mapping[tuple[str, str], Record], publishers: set[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the keys (host, instance) of the records that no other record has superseded.

    Two hosts may have a record: after a takeover by an old release. The record of the host and
    instance that publish the node counts.
    """
    ours = {key for key, record in records.items() if record.is_ours}
    if len(ours) < 2:
        return list(records)
    hosts = {host for host, _instance in publishers}
    # Another instance on the host may publish a child of the root, or overlay it.
    current = ours & publishers or {key for key in ours if key[0] in hosts}
    return [key for key in records if key not in ours or not current or key in current]


def _refuse_unpublished(provider: ProviderSummary, traits: frozenset[str], record: Record) -> None:
    """Raise ReservationRefused for a provider that no driver instance publishes."""
    if record.is_ours and ownership.is_published(traits, record):
        return
    others = ownership.owners(traits) - ownership.owners(record.claimed_traits)
    raise ReservationRefused(
        provider=provider.name,
        uuid=provider.uuid,
        problem=f"it belongs to {', '.join(sorted(others)) or 'nobody known'}, and "
        "no driver instance publishes it.",
        remedy="Ask its owner, or publish it first.",
    )


def _provider(
    provider: ProviderSummary,
    generation: int,
    *,
    inventories: Mapping[str, Inventory] | None = None,
    traits: frozenset[str] = frozenset(),
) -> Provider:
    """Return a provider of which only the part that is to be written is known."""
    return Provider(
        uuid=provider.uuid,
        name=provider.name,
        root_uuid=provider.root_provider_uuid,
        parent_uuid=provider.parent_provider_uuid,
        generation=generation,
        inventories=inventories or {},
        traits=traits,
    )


def _target(provider: ProviderSummary) -> dict[str, str]:
    return {
        "uuid": provider.uuid,
        "name": provider.name,
        "root_uuid": provider.root_provider_uuid,
    }


def _release_of(consumer_uuid: str) -> str:
    """Return the holder of the reservations for the release of a consumer."""
    return f"release of {consumer_uuid}"


def _record(row: ProviderRecord) -> Record:
    try:
        return to_record(row)
    except ValueError as error:
        raise InvalidObject(
            subject=row.subject, problem=f"it cannot be read: {error}.", remedy="Restore it."
        ) from error
