"""Reservations that operators, jobs and releases of consumers take, and the traits of functions.

Also the reservations for lost allocations, once a cycle has stored them.

A reservation is stored before it is written to Placement, and deleted after the own figures are
restored: after a crash the provider stays reserved, and the next cycle of its driver instance goes
on. All writes go through ``apply.Writer``, with the record of the instance that publishes the
provider.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, ParamSpec, TypeVar
from uuid import uuid4

import os_traits
from tenacity import retry, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_base, wait_random_exponential

from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    DetachmentRefused,
    IntentExpired,
    InvalidObject,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    ReservationRefused,
    WharfingerError,
)
from wharfinger.objects import Context, ProviderRecord, ProviderState, Reservation, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.model import Inventories, ProviderSummary, Traits
from wharfinger.providers import full_reservation, ownership, reshape
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.providers.plan import (
    Identity,
    Reshape,
    SetInventories,
    SetTraits,
    Step,
    TreePlan,
    UpdateProvider,
)
from wharfinger.providers.plan_draft import step_target
from wharfinger.providers.provider import Provider, PublishingMode
from wharfinger.providers.provider_record import Record
from wharfinger.reconcile.apply import TreeWrite, Writer
from wharfinger.reconcile.detachment import REASON, FormerRoot
from wharfinger.reconcile.lost_allocations import is_lost, lost_by
from wharfinger.reconcile.record_store import RecordStore, to_record
from wharfinger.reconcile.reservation_phases import stored_figures

#: Host and driver instance of a provider without records; no record is stored under them.
_NO_PUBLISHER: Final = ("none", "none")
_WAIT: Final = wait_random_exponential(max=2.0)  # seconds
_CONFLICTS: Final = (ConcurrentSave, ConcurrentUpdate, IntentExpired)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def patiently(
    *errors: type[WharfingerError],
    attempts: int = 5,
    wait: wait_base = _WAIT,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that calls a function again if it raises one of these errors."""
    return retry(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(attempts),
        wait=wait,
        reraise=True,
    )


@dataclass(frozen=True, slots=True)
class _Stored:
    """A provider and its rows.

    ``live`` has the traits or inventories that were just read from Placement. Its other parts come
    from our record, if the record has the same generation. ``traits`` may have an older generation.
    ``store`` has the record of the driver instance that publishes the provider.

    ``record`` merges all records of the provider. It has the reservation reasons of all records.
    It omits the own figures on which they disagree, and adds the own figures that only
    ``reservations`` have. ``disagreement`` has a message if own figures remain unknown.
    """

    traits: frozenset[str]
    live: Provider
    store: RecordStore
    record: Record
    reservations: tuple[Reservation, ...]
    disagreement: tuple[str, ...]

    @property
    def is_published(self) -> bool:
        """Whether a driver instance publishes the provider."""
        return ownership.is_published(self.traits, self.record)

    @property
    def is_novas_root(self) -> bool:
        """Whether the provider is an overlaid root whose inventory nova writes.

        nova gives each of its roots COMPUTE_NODE. OWNER_NOVA proves nothing: we add it, too.
        """
        is_novas = os_traits.COMPUTE_NODE in self.traits or "VCPU" in self.live.inventories
        is_root = self.live.parent_uuid is None
        return is_root and is_novas and ownership.is_overlaid(self.record)

    @property
    def own_record(self) -> Record:
        """The record of the instance that publishes the provider, as it is stored."""
        return self.store.get(self.live.uuid)

    @property
    def own_figures(self) -> dict[str, int]:
        """The ``reserved`` figures from before our reservations, by resource class."""
        return full_reservation.own_reserved(self.live.inventories, self.record)


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
        try:
            return self._reserve(
                provider,
                uuid=uuid or str(uuid4()),
                holder=holder,
                reason=reason,
                expected_end=expected_end,
            )
        except ObjectExists:
            self._fill(provider)  # a crash may have prevented it
            raise

    def keep(self, uuid: str, provider_uuid: str) -> None:
        """Reserve a provider again if its owner has written other figures.

        One request where it has not. Nothing is written if the reservation has ended.
        """
        live = self._client.get_inventories(provider_uuid).inventories.values()
        if not all(one.is_fully_reserved for one in live) and self.is_there(uuid):
            for provider in self._client.list_providers(uuid=provider_uuid):
                self._fill(provider)

    def is_there(self, uuid: str) -> bool:
        """Return whether a reservation has not ended yet."""
        return bool(self._held(uuid=uuid))

    def release(self, provider: ProviderSummary, holder: str) -> tuple[str, ...]:
        """End a holder's reservation. The last reservation that ends makes the provider free.

        Return texts with the reasons why the provider is still reserved. Raises
        ObjectNotFound if the holder has not reserved it.
        """
        for held in self._held(provider_uuid=provider.uuid, holder=holder):
            return self._end(held.uuid, provider)
        raise ObjectNotFound(kind=Reservation.obj_name(), key=f"of {provider.name} by {holder}")

    @patiently(*_CONFLICTS)
    def release_foreign(self, provider: ProviderSummary) -> tuple[str, ...]:
        """End another program's full reservation of a provider that a driver instance publishes.

        The figures of the driver replace it. Return the same as ``release``. Raises
        ReservationRefused if there is no such reservation, or if no instance publishes its classes.
        """
        stored = self._read(provider)
        live, record = stored.live.inventories, stored.own_record
        figures = full_reservation.releasable(live, stored.record) if stored.is_published else {}
        if not figures:
            raise _not_foreign(provider, full_reservation.foreign(live, stored.record))
        left = (
            *stored.record.reservations,
            *(f"{one.reason} (held by {one.holder})" for one in stored.reservations),
        )
        ours = replace(record, own_reserved={**record.own_reserved, **figures})
        if left:
            full = full_reservation.reserve_fully(live)
            self._apply(stored, ours, _change(SetInventories, stored.live, full))
        else:
            own = full_reservation.release(live, ours)
            self._apply(stored, record, _change(SetInventories, stored.live, own))
        return left

    def release_one(self, uuid: str) -> tuple[str, ...]:
        """End one reservation by its own uuid, and no other of the same holder.

        Return the same as ``release``. Raises ObjectNotFound if it has ended already.
        """
        for held in self._held(uuid=uuid):
            for provider in self._client.list_providers(uuid=held.provider_uuid):
                return self._end(uuid, provider)
            self._forget(uuid)
            return ()
        raise ObjectNotFound(kind=Reservation.obj_name(), key=uuid)

    def detach(self, provider: ProviderSummary) -> FormerRoot:
        """Make a child a root of its own, fully reserved, until its node has a new root.

        Allocations and other reservations stay. After a crash, the next cycle of the driver
        instance goes on. Raises DetachmentRefused unless the provider is a child that a driver
        instance publishes in own mode, and MicroversionUnsupported.
        """
        self._client.require(Feature.REPARENT, f"detaching provider {provider.name}")
        former = self._root_of(provider)
        with suppress(ObjectExists):  # a crash prevented the rest
            self.reserve(provider, holder=former.holder, reason=REASON)
        self._detach(provider, former)
        return former

    # Releases of consumers.

    def before_release(self, consumer_uuid: str, providers: Iterable[str]) -> None:
        """Reserve those of the providers that are cleaned after a consumer has released them.

        Call ``after_release`` after the release, or ``cancel_release`` without one.
        """
        for provider in self._cleaned(providers):
            self._reserve_for_cleaning(provider, consumer_uuid)

    @patiently(*_CONFLICTS)
    def after_release(self, consumer_uuid: str) -> tuple[Reservation, ...]:
        """Note that the allocation is deleted, unless a cycle has found that already."""
        held = self._held(holder=_release_of(consumer_uuid))
        for one in held:
            if one.phase == "releasing":
                one.phase = "released"
                with suppress(ObjectNotFound):  # the reservation has ended already
                    one.save()
        return tuple(held)

    def cancel_release(self, consumer_uuid: str) -> None:
        """End the reservations of ``before_release``: the consumer keeps its allocation."""
        for one in self._held(holder=_release_of(consumer_uuid)):
            if one.phase == "releasing":
                self.release_one(one.uuid)

    # Lost allocations.

    def lost(self, instance_uuid: str) -> list[Reservation]:
        """Return the reservations of the providers whose allocation an instance has lost."""
        return list(filter(is_lost, self._held(holder=lost_by(instance_uuid))))

    def end_lost(self, instance_uuid: str) -> None:
        """End these reservations: the instance has its allocations again, or is released."""
        for one in self.lost(instance_uuid):
            with suppress(ObjectNotFound):  # a cycle has ended it
                self.release_one(one.uuid)

    @patiently(*_CONFLICTS)
    def allocate(
        self,
        provider: ProviderSummary,
        amounts: Mapping[str, int],
        allocations: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Give a consumer allocations from a provider that is fully reserved.

        ``amounts`` are those from this provider, and ``allocations`` all of the consumer's, as POST
        /reshaper takes them. One request makes room for the amounts and allocates them: no other
        consumer can have them. The provider has no more room than that until ``keep`` reserves it
        fully again. Raises ReservationRefused if it lacks that room even without the reservation,
        and PermissionRefused without the role for reshapes.
        """
        stored = self._read(provider)
        if not stored.is_published:
            raise ReservationRefused(
                provider=provider.name,
                uuid=provider.uuid,
                problem="no driver instance publishes it any more.",
                remedy="Publish it again, or release the instance.",
            )
        live = stored.live
        used = Counter(self._client.get_usages(provider.uuid)) + Counter(amounts)
        full = full_reservation.reserve_fully(live.inventories)
        room = {
            name: reshape.admitting(inventory, used[name]) if name in amounts else inventory
            for name, inventory in full.items()
        }
        own_inventories = full_reservation.release(live.inventories, stored.record)
        for name in amounts:
            inventory = own_inventories.get(name)
            if inventory is None or inventory.capacity < used[name]:
                raise ReservationRefused(
                    provider=provider.name,
                    uuid=provider.uuid,
                    problem=f"{used[name]} {name} of it would be in use, and its capacity is "
                    f"{inventory.capacity if inventory else 0:g}: other consumers use it by now.",
                    remedy="Release them, or this instance.",
                )
        change = SetInventories(**step_target(live), before=live.inventories, after=room)
        own = stored.own_record
        record = replace(
            own,
            live=replace(live, inventories=full),
            own_reserved={**own.own_reserved, **stored.own_figures},
        )
        step = Reshape(**step_target(live), inventories=(change,), allocations=allocations)
        self._apply(stored, record, step)

    # Functions of programmable devices.

    @patiently(*_CONFLICTS)
    def set_function_trait(
        self, provider: ProviderSummary, trait: str | None, owners: frozenset[str]
    ) -> None:
        """Set the trait of the function that a device holds, and remove those of other functions.

        The trait is ours in the provider's record. Raises ReservationRefused if the provider no
        longer has exactly these ``owners``' traits.
        """
        there = self._client.get_traits(provider.uuid)
        found = ownership.owners(there.traits)
        if found != owners:
            raise ReservationRefused(
                provider=provider.name,
                uuid=provider.uuid,
                problem=f"it belongs to {', '.join(sorted(found)) or 'an unknown owner'} now.",
                remedy="Ask its owner.",
            )
        new = {trait} if trait else set()
        wanted = there.traits - function_traits(there.traits) | new
        if wanted == there.traits:
            return
        stored = self._stored(provider, there)
        record = stored.own_record
        if record.applied is not None:
            ours = record.applied.traits - function_traits(record.applied.traits) | new
            record = replace(record, applied=replace(record.applied, traits=frozenset(ours)))
        self._apply(stored, record, _change(SetTraits, stored.live, frozenset(wanted)))

    def is_ours(self, provider: ProviderSummary) -> bool:
        """Return whether a driver instance still publishes a provider.

        Where no record is left, the instance trait decides. Raises NotFound.
        """
        return self._stored(provider, self._client.get_traits(provider.uuid)).is_published

    # One provider.

    def _reserve(self, provider: ProviderSummary, **values: Any) -> Reservation:
        """Store a new reservation of a provider, and reserve it.

        The driver cleans a provider that is reserved for a consumer's release: an instance
        publishes it, even without records.
        """
        held, is_written = self._create(provider, **values)
        if not is_written:
            self._fill(provider)
        return held

    @patiently(*_CONFLICTS)
    def _create(self, provider: ProviderSummary, **values: Any) -> tuple[Reservation, bool]:
        """Store a new reservation, and write it; return whether no conflict prevented the write."""
        stored = self._read(provider)
        record, is_cleaned = stored.record, "consumer_uuid" in values
        if not (stored.is_published if record.is_ours else is_cleaned):
            others = ownership.owners(stored.traits) - ownership.owners(record.claimed_traits)
            raise ReservationRefused(
                provider=provider.name,
                uuid=provider.uuid,
                problem=f"it belongs to {', '.join(sorted(others)) or 'an unknown owner'}, and "
                "no driver instance publishes it.",
                remedy="Ask its owner, or publish it first.",
            )
        if not is_cleaned and stored.is_novas_root:
            raise ReservationRefused(
                provider=provider.name,
                uuid=provider.uuid,
                problem="this instance only overlays this root, and nova-compute writes its "
                "inventory: nova restores its own reserved amounts when it refreshes the provider.",
                remedy="Disable nova's compute service, which keeps new instances away: `openstack "
                f"compute service set --disable {provider.name} nova-compute` (with the host of "
                "that service, if it has another name). Children of the root can be reserved.",
            )
        held = Reservation(
            self._context, provider_uuid=provider.uuid, own_reserved=stored.own_figures, **values
        )
        try:
            self._write_full(stored, held)
        except _CONFLICTS:
            if "revision" not in held:
                raise  # it was not stored
            return held, False
        return held, True

    @patiently(*_CONFLICTS)
    def _fill(self, provider: ProviderSummary) -> None:
        """Write the full reservation of a provider again, if a reservation of it is stored."""
        stored = self._read(provider)
        if stored.reservations and stored.is_published:
            self._write_full(stored)

    def _write_full(self, stored: _Stored, *new: Reservation) -> None:
        """Write all inventories as fully reserved.

        They are written even if they are: a release that has read them before has to read again.
        Other reservations get a copy of the own figures: the owner may have changed them since.
        """
        own, figures = stored.own_record, stored.own_figures
        record = replace(own, own_reserved={**own.own_reserved, **figures})
        outdated = [one for one in stored.reservations if one.own_reserved != figures]
        for one in outdated:
            one.own_reserved = figures
        full = full_reservation.reserve_fully(stored.live.inventories)
        change = _change(SetInventories, stored.live, full)
        self._apply(stored, record, change, new=new, changed=outdated)

    @patiently(*_CONFLICTS)
    def _end(self, uuid: str, provider: ProviderSummary) -> tuple[str, ...]:
        """End a reservation; return texts with the reasons why the provider is still reserved."""
        try:
            stored = self._read(provider)
        except NotFound:
            self._forget(uuid)
            return ()
        mine = [one for one in stored.reservations if one.uuid == uuid]
        if not mine:
            raise ObjectNotFound(kind=Reservation.obj_name(), key=uuid)
        others = (one for one in stored.reservations if one.uuid != uuid)
        left = (
            *stored.record.reservations,
            *(f"{one.reason} (held by {one.holder})" for one in others),
            *stored.disagreement,
        )
        if left or not stored.is_published:
            self._apply(stored, stored.own_record, ended=mine)
        else:
            # Written even if nothing changes: a reservation at the same time has to read again.
            own = full_reservation.release(stored.live.inventories, stored.record)
            record = replace(stored.own_record, own_reserved={})
            self._apply(stored, record, _change(SetInventories, stored.live, own), ended=mine)
        return left

    @patiently(*_CONFLICTS)
    def _forget(self, uuid: str) -> None:
        """Delete a reservation whose provider no longer exists."""
        for one in self._held(uuid=uuid):
            with suppress(ObjectNotFound):
                one.destroy()

    def _apply(
        self,
        stored: _Stored,
        record: Record,
        *steps: Step,
        new: Sequence[Reservation] = (),
        changed: Sequence[Reservation] = (),
        ended: Sequence[Reservation] = (),
    ) -> None:
        """Write one provider, its record and its reservations; raise what goes wrong.

        Without steps, only rows are written.
        """
        live, uuid, root_uuid = stored.live, stored.live.uuid, stored.live.root_uuid
        tree = TreeWrite(
            TreePlan(
                root_uuid=root_uuid,
                steps=steps,
                live={uuid: live},
                records={uuid: record} if steps and uuid in stored.store.records else {},
            ),
            known_reservations={uuid: {one.uuid: one.revision for one in stored.reservations}},
            new_reservations=new,
            changed_reservations=changed,
            ended=ended,
            is_partly_known=record.live is None or record.live.generation != live.generation,
        )
        self._writer.apply([tree], stored.store)
        for error in tree.errors:
            raise error

    def _root_of(self, provider: ProviderSummary) -> FormerRoot:
        """Return the root from which a provider can be detached; raises DetachmentRefused."""
        stored, problem, remedy = self._read(provider), "", ""
        record, parent = stored.own_record, provider.parent_provider_uuid
        if not stored.is_published or record.applied is None:
            problem, remedy = "no driver instance publishes it", "Ask its owner."
        elif record.mode is not PublishingMode.OWN:
            problem = f"driver instance {stored.store.instance} only overlays it"
            remedy = "Ask its publisher."
        elif parent is None:
            problem, remedy = "it is a root provider already", "Sync puts it below a new root."
        elif parent != provider.root_provider_uuid:
            problem = "its parent is not the root"
            remedy = f"Detach its parent: `wharfinger provider detach {parent}`."
        if problem:
            raise DetachmentRefused(
                provider=provider.name, uuid=provider.uuid, problem=problem, remedy=remedy
            )
        for root in self._client.list_providers(uuid=provider.root_provider_uuid):
            return FormerRoot(root.name, root.uuid)
        raise NotFound(
            request=f"detaching provider {provider.name}",
            status=HTTPStatus.NOT_FOUND,
            code="",
            detail=f"its root {provider.root_provider_uuid} is gone",
        )

    @patiently(*_CONFLICTS)
    def _detach(self, provider: ProviderSummary, former: FormerRoot) -> None:
        stored = self._read(provider)
        live = replace(stored.live, traits=stored.traits)
        step = UpdateProvider(
            uuid=live.uuid,
            name=live.name,
            root_uuid=live.uuid,
            before=Identity(name=live.name, parent_uuid=former.uuid),
            after=Identity(name=live.name, parent_uuid=None),
        )
        self._apply(replace(stored, live=live), stored.own_record, step)

    # Rows.

    def _held(self, **filters: str) -> list[Reservation]:
        return list(ReservationList.get_by_filters(self._context, **filters))

    def _read(self, provider: ProviderSummary) -> _Stored:
        """Read a provider's traits and inventories, and its rows after them; raises NotFound."""
        traits = self._client.get_traits(provider.uuid)
        return self._stored(provider, traits, self._client.get_inventories(provider.uuid))

    def _stored(
        self, provider: ProviderSummary, traits: Traits, inventories: Inventories | None = None
    ) -> _Stored:
        """Read the rows of a provider, in one transaction."""
        generation = (inventories or traits).resource_provider_generation
        rows = ProviderState.get(self._context, [provider.uuid], [provider.root_provider_uuid])
        by_instance = {(one.host, one.driver_instance): one for one in rows.records}
        current = _current(
            {key: _record(one) for key, one in by_instance.items()},
            {
                (row.host, row.driver_instance)
                for row in rows.nodes
                if "host" in row and "driver_instance" in row
            },
        )
        ours = {key: record for key, record in current.items() if record.is_ours}
        key = next(iter(ours or current), _NO_PUBLISHER)
        disputed = full_reservation.disputed(list(ours.values()))
        record = full_reservation.without(current.get(key, Record()), disputed)
        spare = stored_figures(rows.reservations)
        reasons = dict.fromkeys(reason for one in current.values() for reason in one.reservations)
        unclear = sorted(disputed - spare.keys())
        disagreement = (
            f"{len(ours)} records of it disagree on its own reserved amounts of "
            f"{', '.join(unclear)} (the next cycle of its driver instance decides)"
        )
        own_rows = [one for own, one in by_instance.items() if own == key]
        store = RecordStore.of(self._context, *key, own_rows)
        live = store.get(provider.uuid).live
        if live is None or live.generation != generation:
            live = Provider(
                uuid=provider.uuid,
                name=provider.name,
                root_uuid=provider.root_provider_uuid,
                parent_uuid=provider.parent_provider_uuid,
                generation=generation,
            )
        return _Stored(
            traits.traits,
            replace(live, inventories=inventories.inventories)
            if inventories
            else replace(live, traits=traits.traits),
            store,
            replace(
                record, own_reserved={**spare, **record.own_reserved}, reservations=tuple(reasons)
            ),
            tuple(rows.reservations),
            (disagreement,) if unclear else (),
        )

    def _cleaned(self, uuids: Iterable[str]) -> list[ProviderSummary]:
        """Return the providers that their drivers clean after a release.

        The host of a record makes no difference: during a takeover by an old release, the row of
        the node names the new host while the records still name the former one.
        """
        summaries = [one for uuid in uuids for one in self._client.list_providers(uuid=uuid)]
        roots = {one.root_provider_uuid for one in summaries}
        if not roots:
            return []
        wanted = roots | {one.uuid for one in summaries}
        rows = ProviderState.get(self._context, sorted(wanted), sorted(roots))
        instances = {
            row.uuid: row.driver_instance
            for row in rows.nodes
            if row.capabilities.get("cleans_after_release")
        }
        published = {
            (found.provider_uuid, found.driver_instance)
            for found in (rows.records if instances else ())
            if _record(found).applied is not None  # a record may be of another owner's provider
        }
        return [
            one
            for one in summaries
            if (instance := instances.get(one.root_provider_uuid)) is not None
            and self._is_published_by(instance, one, published)
        ]

    def _is_published_by(
        self, instance: str, provider: ProviderSummary, published: Set[tuple[str, str]]
    ) -> bool:
        """Return whether the present or former instance of a node publishes a provider of it.

        ``published`` are the providers and instances of records, by uuid and name.
        """
        of_root = {name for uuid, name in published if uuid == provider.root_provider_uuid}
        if not of_root:  # the records are lost
            mark = ownership.instance_trait(instance)
            return mark in self._client.get_traits(provider.uuid).traits
        # Until the instance of the row has a record, an instance of another name counts.
        return any((provider.uuid, name) in published for name in of_root & {instance} or of_root)

    @patiently(*_CONFLICTS, ObjectExists, ObjectNotFound)
    def _reserve_for_cleaning(self, provider: ProviderSummary, consumer_uuid: str) -> None:
        """Reserve a provider until a consumer has released it, and it was cleaned after that.

        An earlier release of the same consumer may have a reservation until a cycle ends it: it
        begins anew then.
        """
        holder = _release_of(consumer_uuid)
        for held in self._held(provider_uuid=provider.uuid, holder=holder):
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
            holder=holder,
            reason="to be cleaned",
            consumer_uuid=consumer_uuid,
            phase="releasing",
        )


def _change(kind: type[SetInventories | SetTraits], live: Provider, after: Any) -> Step:
    """Return the step of that kind which changes a provider to ``after``."""
    return kind(**step_target(live), before=getattr(live, kind.attribute), after=after)


def _current(
    records: Mapping[tuple[str, str], Record], publishers: set[tuple[str, str]]
) -> Mapping[tuple[str, str], Record]:
    """Return the records, by host and instance, that no other record has superseded.

    Two hosts may have a record: after a takeover by an old release. The record of the host and
    instance that publish the node counts.
    """
    ours = {key for key, record in records.items() if record.is_ours}
    hosts = {host for host, _instance in publishers}
    # Another instance on the host may publish a child of the root, or overlay it.
    current = ours & publishers or {key for key in ours if key[0] in hosts} or ours
    return {key: records[key] for key in records if key not in ours or key in current}


def _not_foreign(provider: ProviderSummary, classes: Collection[str]) -> ReservationRefused:
    """Return the error for a provider without a foreign reservation that can be ended here."""
    if classes:
        problem = (
            f"{', '.join(sorted(classes))} of it is fully reserved, but no driver instance that "
            "has its records in this database publishes that."
        )
        remedy = "Ask its owner to write another figure."
    else:
        problem = "no other program has fully reserved it."
        remedy = "See `wharfinger reservation list` for the reservations of operators and drivers."
    return ReservationRefused(
        provider=provider.name, uuid=provider.uuid, problem=problem, remedy=remedy
    )


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
