"""Reserve and release providers.

Store a reservation before reserving in Placement, and delete it after releasing there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import os_traits

from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    DetachmentRefused,
    IntentExpired,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    ReservationRefused,
)
from wharfinger.objects import Context, ProviderState, Reservation, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Feature
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import full_reservation, ownership, reshape
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.providers.plan import (
    Reshape,
    SetTraits,
    Step,
    TreePlan,
    UpdateProvider,
    step_target,
)
from wharfinger.providers.provider import PublishingMode, Record
from wharfinger.reconcile.apply import Writer
from wharfinger.reconcile.detachment import REASON, FormerRoot
from wharfinger.reconcile.lost_allocations import is_lost, lost_by
from wharfinger.reconcile.record_store import RowChanges
from wharfinger.reconcile.stored_provider import StoredProvider, stores_of
from wharfinger.reconcile.tree_write import TreeWrite
from wharfinger.retries import retry_on

_CONFLICTS: Final = (ConcurrentSave, ConcurrentUpdate, IntentExpired)
_UNPUBLISHED: Final = (
    "its reserved amounts in Placement do not change, since no driver instance publishes it"
)


class Reservations:
    """Reserves and releases providers that driver instances publish.

    Methods raise PlacementError, ObjectError, StateError and ReservationRefused.
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
        """Reserve a provider fully, even if it has allocations; return the reservation.

        The reservation may remain stored after an error. Raises ObjectExists.
        """
        new = Reservation(
            self._context,
            uuid=uuid or str(uuid4()),
            provider_uuid=provider.uuid,
            holder=holder,
            reason=reason,
            expected_end=expected_end,
        )
        try:
            self._reserve_fully(provider, new)
        except ObjectExists:
            self._reserve_fully(provider)  # a crash may have prevented the write
            raise
        return new

    def keep_reserved(self, reservation_uuid: str, provider_uuid: str) -> None:
        """Fully reserve a provider again, unless the reservation has ended."""
        live = self._client.get_inventories(provider_uuid).inventories.values()
        if not all(one.is_fully_reserved for one in live) and self.is_stored(reservation_uuid):
            for provider in self._client.list_providers(uuid=provider_uuid):
                self._reserve_fully(provider)

    def is_stored(self, uuid: str) -> bool:
        """Return whether a reservation with this uuid is stored."""
        return bool(self._held(uuid=uuid))

    def release(self, provider: ProviderSummary, holder: str) -> tuple[str, ...]:
        """End a holder's reservation; return why the provider stays reserved, if so.

        Raises ObjectNotFound.
        """
        for held in self._held(provider_uuid=provider.uuid, holder=holder):
            return self._end(held.uuid, provider)
        raise ObjectNotFound(kind=Reservation.obj_name(), key=f"of {provider.name} by {holder}")

    @retry_on(*_CONFLICTS)
    def release_foreign(self, provider: ProviderSummary) -> tuple[str, ...]:
        """End another program's full reservation; return why the provider stays reserved, if so.

        Raises ReservationRefused.
        """
        stored = self._read(provider)
        live, record, left = stored.live.inventories, stored.own_record, stored.reasons()
        figures = full_reservation.releasable(live, stored.record) if stored.is_published else {}
        if not figures:
            if others := full_reservation.foreign(live, stored.record):
                raise _refused(
                    provider,
                    f"{', '.join(sorted(others))} is fully reserved, but no driver instance with "
                    "records in this database publishes this resource class.",
                    "Ask the owner to lower the reserved amount.",
                )
            raise _refused(
                provider,
                "no other program has fully reserved it.",
                "See `wharfinger reservation list` for the reservations of operators and drivers.",
            )
        after, ours = full_reservation.reserve_fully(live), stored.record_with(figures)
        if not left:
            after, ours = full_reservation.release(live, ours), record
        self._apply(stored, ours, stored.set_inventories(after))
        return left

    def release_one(self, uuid: str) -> tuple[str, ...]:
        """End the reservation ``uuid``; return why the provider stays reserved, if so.

        Raises ObjectNotFound.
        """
        for held in self._held(uuid=uuid):
            for provider in self._client.list_providers(uuid=held.provider_uuid):
                return self._end(uuid, provider)
            self._forget(uuid)
            return ()
        raise ObjectNotFound(kind=Reservation.obj_name(), key=uuid)

    def detach(self, provider: ProviderSummary) -> FormerRoot:
        """Turn a child into a reserved root until its node has a new root.

        Return the former root. Raises DetachmentRefused and MicroversionUnsupported.
        """
        self._client.require(Feature.REPARENT, f"detaching provider {provider.name}")
        former = self._root_of(provider)
        with suppress(ObjectExists):  # an earlier call has crashed after this
            self.reserve(provider, holder=former.holder, reason=REASON)
        self._make_root(provider, former)
        return former

    @retry_on(*_CONFLICTS)
    def _make_root(self, provider: ProviderSummary, former: FormerRoot) -> None:
        stored = self._read(provider)
        live = stored.live
        step = UpdateProvider(
            uuid=live.uuid,
            name=live.name,
            root_uuid=live.uuid,
            before=replace(live, parent_uuid=former.uuid),
            after=replace(live, parent_uuid=None, root_uuid=live.uuid),
        )
        self._apply(stored, stored.own_record, step)

    # Releases of consumers.

    def before_release(self, consumer_uuid: str, providers: Iterable[str]) -> None:
        """Reserve those providers whose hardware is cleaned after a release.

        Call ``after_release`` or ``cancel_release`` afterwards.
        """
        for provider in self._cleaned_after_release(providers):
            self._reserve_for_cleaning(provider, consumer_uuid)

    @retry_on(*_CONFLICTS)
    def after_release(self, consumer_uuid: str) -> tuple[Reservation, ...]:
        """Note that a consumer's allocations are deleted; return its reservations for cleaning."""
        held = self._held(holder=_release_of(consumer_uuid))
        for one in held:
            if one.phase == "releasing":
                one.phase = "released"
                with suppress(ObjectNotFound):  # the reservation has ended already
                    one.save()
        return tuple(held)

    def cancel_release(self, consumer_uuid: str) -> None:
        """End the reservations of ``before_release``, since the consumer keeps its allocations."""
        for one in self._held(holder=_release_of(consumer_uuid)):
            if one.phase == "releasing":
                self.release_one(one.uuid)

    # Lost allocations.

    def lost(self, instance_uuid: str) -> list[Reservation]:
        """Return the reservations in place of an instance's lost allocations."""
        return list(filter(is_lost, self._held(holder=lost_by(instance_uuid))))

    def end_lost(self, instance_uuid: str) -> None:
        """End the reservations in place of an instance's lost allocations."""
        for one in self.lost(instance_uuid):
            with suppress(ObjectNotFound):  # a cycle has ended it
                self.release_one(one.uuid)

    @retry_on(*_CONFLICTS)
    def allocate(
        self,
        provider: ProviderSummary,
        amounts: Mapping[str, int],
        allocations: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Write ``allocations``, which add ``amounts`` of a fully reserved provider.

        Call ``keep_reserved`` afterwards. Raises ReservationRefused.
        """
        stored = self._read(provider)
        _check_published(
            provider,
            stored,
            "Let a driver instance publish the provider again, or release the instance that has "
            "lost its allocation.",
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
                raise _refused(
                    provider,
                    f"with this allocation, {used[name]} {name} would be in use, but the capacity "
                    f"is {inventory.capacity if inventory else 0:g}: other consumers use the "
                    "provider now, or its inventory has shrunk.",
                    "Release other consumers of the provider and repair the instance again, or "
                    "release the instance that has lost its allocation.",
                )
        record = replace(
            stored.record_with(stored.own_figures), live=replace(live, inventories=full)
        )
        changes = (stored.set_inventories(room),)
        step = Reshape(**step_target(live), inventories=changes, allocations=allocations)
        self._apply(stored, record, step)

    # Functions of programmable devices.

    @retry_on(*_CONFLICTS)
    def set_function_trait(
        self, provider: ProviderSummary, trait: str | None, owners: frozenset[str]
    ) -> None:
        """Replace the function traits of a provider by one trait, or by none.

        Raises ReservationRefused unless the provider has exactly ``owners``.
        """
        there = self._client.get_traits(provider.uuid)
        found = ownership.owners(there.traits)
        if found != owners:
            raise _refused(
                provider,
                f"its owner traits have changed: it belongs to {_names(found)} now, so its "
                "function trait is not written.",
                "Ask the present owner before you resolve the job.",
            )
        new = frozenset({trait} if trait else ())
        wanted = there.traits - function_traits(there.traits) | new
        if wanted == there.traits:
            return
        stored = StoredProvider.read(self._context, provider, there)
        record = stored.own_record
        if record.applied is not None:
            ours = record.applied.traits - function_traits(record.applied.traits) | new
            record = replace(record, applied=replace(record.applied, traits=ours))
        live = stored.live
        step = SetTraits(**step_target(live), before=live.traits, after=wanted)
        self._apply(stored, record, step)

    def published_owners(self, provider: ProviderSummary) -> frozenset[str]:
        """Return the owners of a provider that a driver instance publishes.

        Raises NotFound, and ReservationRefused for other providers.
        """
        traits = self._client.get_traits(provider.uuid)
        _check_published(
            provider,
            StoredProvider.read(self._context, provider, traits),
            "Set the function trait with the program that publishes the provider now, and resolve "
            "the job with --unchanged.",
        )
        return ownership.owners(traits.traits)

    # One provider.

    @retry_on(*_CONFLICTS)
    def _reserve_fully(self, provider: ProviderSummary, new: Reservation | None = None) -> None:
        stored = self._read(provider)
        figures = stored.own_figures
        # After a conflict, ``new`` may be stored already.
        added = [new] if new is not None and "revision" not in new else []
        for one in added:
            _check_reservable(provider, stored, is_cleaned=one.known("consumer_uuid") is not None)
            one.own_reserved = figures
        if not added and not (stored.reservations and stored.is_published):
            return
        outdated = [one for one in stored.reservations if one.own_reserved != figures]
        for one in outdated:
            one.own_reserved = figures
        # Write even if nothing changes: a concurrent release has to read again.
        step = stored.set_inventories(full_reservation.reserve_fully(stored.live.inventories))
        self._apply(stored, stored.record_with(figures), step, new=added, changed=outdated)

    @retry_on(*_CONFLICTS)
    def _end(self, uuid: str, provider: ProviderSummary) -> tuple[str, ...]:
        try:
            stored = self._read(provider)
        except NotFound:
            self._forget(uuid)
            return ()
        mine = [one for one in stored.reservations if one.uuid == uuid]
        if not mine:
            raise ObjectNotFound(kind=Reservation.obj_name(), key=uuid)
        left = (*stored.reasons(without=uuid), *stored.disagreement)
        live = stored.live.inventories
        if not stored.is_published and any(one.is_fully_reserved for one in live.values()):
            left = (*left, _UNPUBLISHED)
        if left or not stored.is_published:
            self._apply(stored, stored.own_record, ended=mine)
        else:
            # Write even if nothing changes: a concurrent reservation has to read again.
            own = full_reservation.release(live, stored.record)
            record = full_reservation.released(stored.own_record, own)
            self._apply(stored, record, stored.set_inventories(own), ended=mine)
        return left

    @retry_on(*_CONFLICTS)
    def _forget(self, uuid: str) -> None:
        for one in self._held(uuid=uuid):
            with suppress(ObjectNotFound):
                one.destroy()

    def _apply(
        self,
        stored: StoredProvider,
        record: Record,
        *steps: Step,
        new: Sequence[Reservation] = (),
        changed: Sequence[Reservation] = (),
        ended: Sequence[Reservation] = (),
    ) -> None:
        live, uuid, root_uuid = stored.live, stored.live.uuid, stored.live.root_uuid
        tree = TreeWrite(
            TreePlan(
                root_uuid=root_uuid,
                steps=steps,
                live={uuid: live},
                records={uuid: record} if steps and uuid in stored.store.records else {},
            ),
            RowChanges(known_reservations={uuid: stored.reservations}, new_reservations=new),
            RowChanges(changed_reservations=changed, ended=ended),
            is_partly_known=stored.is_partly_known,
        )
        self._writer.apply([tree], stored.store)
        for error in tree.errors:
            raise error

    def _root_of(self, provider: ProviderSummary) -> FormerRoot:
        stored, problem, remedy = self._read(provider), "", ""
        record, parent = stored.own_record, provider.parent_provider_uuid
        if not stored.is_published or record.applied is None:
            problem = "no driver instance publishes it"
            remedy = "Ask its owner to move it, or let a driver instance publish it first."
        elif record.mode is not PublishingMode.OWN:
            problem = (
                f"driver instance {stored.store.instance} only adds traits and reservations to "
                "this provider, which another program publishes"
            )
            remedy = "Ask that program's operator to move the provider."
        elif parent is None:
            problem = "it is a root provider already"
            remedy = (
                "If it was detached before, `wharfinger sync` moves it below the new root of its "
                "node, as soon as there is one."
            )
        elif parent != provider.root_provider_uuid:
            problem = "its parent is not the root"
            remedy = f"Detach the parent: `wharfinger provider detach {parent}`."
        if problem:
            raise DetachmentRefused(
                provider=provider.name, uuid=provider.uuid, problem=problem, remedy=remedy
            )
        root_uuid = provider.root_provider_uuid
        found = self._client.list_providers(uuid=root_uuid)
        # Without the root, the provider is gone, too, and cannot be reserved.
        return FormerRoot(found[0].name if found else root_uuid, root_uuid)

    # Rows.

    def _held(self, **filters: str) -> list[Reservation]:
        return list(ReservationList.get_by_filters(self._context, **filters))

    def _read(self, provider: ProviderSummary) -> StoredProvider:
        traits = self._client.get_traits(provider.uuid)
        inventories = self._client.get_inventories(provider.uuid)
        return StoredProvider.read(self._context, provider, traits, inventories)

    def _cleaned_after_release(self, uuids: Iterable[str]) -> list[ProviderSummary]:
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
        publishers: defaultdict[str, set[str]] = defaultdict(set)
        for store in stores_of(self._context, rows.records if instances else ()).values():
            for uuid, record in store.records.items():
                if record.applied is not None:  # otherwise, another owner may have the provider
                    publishers[uuid].add(store.instance)

        def is_cleaned(one: ProviderSummary) -> bool:
            instance = instances.get(one.root_provider_uuid)
            if instance is None:
                return False
            of_root = publishers[one.root_provider_uuid]
            if not of_root:  # the records are lost
                our_trait = ownership.instance_trait(instance)
                return our_trait in self._client.get_traits(one.uuid).traits
            # As long as the instance in the row has no record of the root, the former one counts.
            return not publishers[one.uuid].isdisjoint(of_root & {instance} or of_root)

        return list(filter(is_cleaned, summaries))

    @retry_on(*_CONFLICTS, ObjectExists, ObjectNotFound)
    def _reserve_for_cleaning(self, provider: ProviderSummary, consumer_uuid: str) -> None:
        holder = _release_of(consumer_uuid)
        for held in self._held(provider_uuid=provider.uuid, holder=holder):
            if held.phase != "releasing":
                has = self._client.get_allocations(consumer_uuid)["allocations"]
                if provider.uuid not in has:
                    return  # another process has deleted the allocation meanwhile
                held.phase, held.since = "releasing", now()
                held.save()
            self._reserve_fully(provider)
            if not self.is_stored(held.uuid):
                raise ObjectNotFound(kind=Reservation.obj_name(), key=held.uuid)
            return
        new = Reservation(
            self._context,
            provider_uuid=provider.uuid,
            holder=holder,
            reason="to be cleaned",
            consumer_uuid=consumer_uuid,
            phase="releasing",
        )
        self._reserve_fully(provider, new)


def _check_published(provider: ProviderSummary, stored: StoredProvider, remedy: str) -> None:
    if not stored.is_published:
        raise _refused(provider, "no driver instance publishes this provider any more.", remedy)


def _check_reservable(
    provider: ProviderSummary, stored: StoredProvider, *, is_cleaned: bool
) -> None:
    if not (stored.is_published if stored.record.is_ours else is_cleaned):
        others = ownership.owners(stored.traits) - ownership.owners(stored.record.claimed_traits)
        raise _refused(
            provider,
            f"it belongs to {_names(others)}, and no driver instance publishes it.",
            "Ask the owner, or let a driver instance publish the provider first.",
        )
    # nova gives each of its roots COMPUTE_NODE. OWNER_NOVA proves nothing: we set it, too.
    is_novas = os_traits.COMPUTE_NODE in stored.traits or "VCPU" in stored.live.inventories
    is_overlaid_root = stored.live.parent_uuid is None and ownership.is_overlaid(stored.record)
    if is_novas and is_overlaid_root and not is_cleaned:
        raise _refused(
            provider,
            "nova-compute publishes this root and writes its inventories. When nova refreshes the "
            "provider, it would overwrite the full reservation.",
            "Disable nova's compute service, which keeps new instances away: `openstack compute "
            f"service set --disable {provider.name} nova-compute` (with the host of that service, "
            "if it has another name). Children of the root can be reserved.",
        )


def _refused(provider: ProviderSummary, problem: str, remedy: str) -> ReservationRefused:
    return ReservationRefused(
        provider=provider.name, uuid=provider.uuid, problem=problem, remedy=remedy
    )


def _names(owners: Iterable[str]) -> str:
    return ", ".join(sorted(owners)) or "an unknown owner"


def _release_of(consumer_uuid: str) -> str:
    return f"release of {consumer_uuid}"
