"""Details and reservations of providers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from oslo_log import log as logging
from oslo_utils import uuidutils

from wharfinger.exceptions import FieldUnset, NotFound
from wharfinger.objects import Context, ProviderRecord, ProviderRecordList, ReservationList
from wharfinger.placement import owner_trait_reader
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import full_reservation
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import ForeignReservation
from wharfinger.providers.provider import NO_RECORD, Provider, Record, decode
from wharfinger.reconcile import record_store

LOG: Final = logging.getLogger(__name__)
#: Stands for a value that is unknown or cannot be read.
UNKNOWN: Final = "?"
#: The reason of a driver's reservation without a reason.
UNSAID: Final = "no reason given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A reservation of a provider; unknown values are UNKNOWN."""

    provider_uuid: str
    reason: str
    holder: str
    since: datetime | str = UNKNOWN
    expected_end: datetime | str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """A provider with the requested details; other details are None."""

    summary: ProviderSummary
    owners: tuple[str, ...]
    inventories: Mapping[str, Inventory] | None = None
    traits: frozenset[str] | None = None
    usages: Mapping[str, int] | None = None
    reservations: tuple[Reserved, ...] | None = None
    #: The resource classes that other programs reserve fully.
    reserved_by_others: frozenset[str] | None = None
    #: Whether ``provider release --foreign`` can end these reservations.
    is_releasable: bool = False


def find(client: PlacementClient, name_or_uuid: str) -> ProviderSummary:
    """Return the provider with this name or uuid. Raises NotFound."""
    found = client.list_providers(name=name_or_uuid) if name_or_uuid else []
    if not found and uuidutils.is_uuid_like(name_or_uuid):
        found = client.list_providers(uuid=name_or_uuid)
    if not found:
        raise NotFound(
            request="GET /resource_providers",
            status=HTTPStatus.OK,  # the answer is an empty list
            code="",
            detail=f"there is no provider with the name or uuid {name_or_uuid!r}. List all with "
            "`wharfinger provider list`.",
        )
    return found[0]


def details(
    client: PlacementClient,
    providers: Iterable[ProviderSummary],
    *,
    inventory: bool = False,
    traits: bool = False,
    usage: bool = False,
) -> list[Details]:
    """Return the owners and the requested details of providers."""
    owners = owner_trait_reader.by_provider(client)
    return [
        Details(
            summary=provider,
            owners=owners.get(provider.uuid, ()),
            inventories=client.get_inventories(provider.uuid).inventories if inventory else None,
            traits=client.get_traits(provider.uuid).traits if traits else None,
            usages=client.get_usages(provider.uuid) if usage else None,
        )
        for provider in providers
    ]


def reserved(context: Context) -> list[Reserved]:
    """Return all reservations in the database. Raises ObjectError and StateError."""
    fields = ("provider_uuid", "reason", "holder", "since", "expected_end")
    stored = [
        Reserved(**{name: _value(one, name) for name in fields})
        for one in ReservationList.get_by_filters(context)
    ]
    reported = ProviderRecordList.get_reserved(context)
    return stored + [one for record in reported for one in _reported(record)]


def names(context: Context, reservations: Iterable[Reserved]) -> dict[str, str]:
    """Return the known names of reserved providers, by uuid.

    Raises ObjectError and StateError.
    """
    uuids = {one.provider_uuid for one in reservations} - {UNKNOWN}
    return {
        record.provider_uuid: name
        for record in _records(context, uuids)
        if (name := _name(record)) is not None
    }


def last_seen(context: Context) -> dict[str, Provider]:
    """Return the last known states of providers in Placement, by uuid.

    Raises ObjectError and StateError.
    """
    found: dict[str, Provider] = {}
    for record in ProviderRecordList.get_by_filters(context):
        live = _state(record, "live")
        if live is not None and "provider_uuid" in record:
            known = found.get(record.provider_uuid)
            if known is None or (known.generation or 0) < (live.generation or 0):
                found[record.provider_uuid] = live
    return found


def foreign_reservations(context: Context) -> list[ForeignReservation]:
    """Return the reservations by other programs that the operator can end.

    Raises ObjectError and StateError.
    """
    records = map(_record, ProviderRecordList.get_by_filters(context))
    found = (
        full_reservation.foreign_reservation(one.live, one) for one in records if one and one.live
    )
    return [one for one in found if one and one.is_releasable]


def unexplained(context: Context, classes: Mapping[str, frozenset[str]]) -> dict[str, Reserved]:
    """Return the reservations of drivers that fully reserve one of these classes.

    ``classes`` and the result are by provider uuid. The reason is UNSAID. Raises ObjectError and
    StateError.
    """
    return {
        record.provider_uuid: Reserved(
            provider_uuid=record.provider_uuid, reason=UNSAID, holder=_driver(record)
        )
        for record in _records(context, classes)
        if (ours := _record(record)) is not None
        and classes[record.provider_uuid] & (ours.claimed_full | ours.own_reserved.keys())
    }


def with_reservations(context: Context | None, providers: Iterable[Details]) -> list[Details]:
    """Return the details, each with its provider's reservations.

    Without a database, all reservations count as those of other programs. Raises ObjectError and
    StateError.
    """
    details = list(providers)
    by_provider: dict[str, tuple[Reserved, ...]] = {}
    for one in reserved(context) if context else ():
        by_provider[one.provider_uuid] = (*by_provider.get(one.provider_uuid, ()), one)
    others, releasable = _reserved_by_others(
        context,
        {
            one.summary.uuid: one.inventories
            for one in details
            if one.inventories is not None and one.summary.uuid not in by_provider
        },
    )
    return [
        replace(
            one,
            reservations=by_provider.get(one.summary.uuid, ()),
            reserved_by_others=None
            if one.inventories is None
            else others.get(one.summary.uuid, frozenset()),
            is_releasable=one.summary.uuid in releasable,
        )
        for one in details
    ]


def _reported(record: ProviderRecord) -> Iterator[Reserved]:
    since = record.known("reserved_since") or {}
    for reason in record.reservations if "reservations" in record else [UNKNOWN]:
        yield Reserved(
            provider_uuid=_value(record, "provider_uuid"),
            reason=reason,
            holder=_driver(record),
            since=_moment(since[reason], record) if reason in since else UNKNOWN,
        )


def _reserved_by_others(
    context: Context | None, inventories: Mapping[str, Mapping[str, Inventory]]
) -> tuple[dict[str, frozenset[str]], set[str]]:
    releasable = set()
    others = {uuid: full_reservation.foreign(live, NO_RECORD) for uuid, live in inventories.items()}
    others = {uuid: classes for uuid, classes in others.items() if classes}
    for one in _records(context, others) if context else ():
        uuid = one.provider_uuid
        ours = _record(one)
        # If the record cannot be read, the driver instance may have reserved each of the classes.
        others[uuid] &= full_reservation.foreign(inventories[uuid], ours) if ours else frozenset()
        if ours and full_reservation.releasable(inventories[uuid], ours):
            releasable.add(uuid)
    return others, {uuid for uuid in releasable if others[uuid]}


def _record(one: ProviderRecord) -> Record | None:
    try:
        return record_store.to_record(one)
    except (FieldUnset, ValueError) as error:
        uuid = _value(one, "provider_uuid")
        LOG.warning(
            "The database record of provider %s is not used, since it is damaged: %s", uuid, error
        )
        return None


def _driver(record: ProviderRecord) -> str:
    return f"driver {_value(record, 'driver_instance')} on {_value(record, 'host')}"


def _records(context: Context, uuids: Iterable[str]) -> Iterable[ProviderRecord]:
    wanted = sorted(uuids)
    return ProviderRecordList.get_by_filters(context, provider_uuid=wanted) if wanted else ()


def _name(record: ProviderRecord) -> str | None:
    sides = (_state(record, side) for side in ("live", "applied", "intended"))
    return next((side.name for side in sides if side is not None), None)


def _state(record: ProviderRecord, side: str) -> Provider | None:
    document = getattr(record, side) if side in record else None
    try:
        return None if document is None else decode(document)
    except ValueError as error:
        LOG.warning(
            "Database field %s of %s is not used, since it is damaged: %s",
            side,
            record.subject,
            error,
        )
        return None


def _value(one: Any, name: str) -> Any:
    return getattr(one, name) if name in one else UNKNOWN


def _moment(seconds: float, record: ProviderRecord) -> datetime | str:
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (OSError, OverflowError, ValueError):
        LOG.warning(
            "The start of a reservation of provider %s is shown as unknown, since the stored time "
            "is out of range: %s s after 1970",
            _value(record, "provider_uuid"),
            seconds,
        )
        return UNKNOWN
