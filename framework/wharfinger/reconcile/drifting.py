"""What a cycle has to look at that starts from what Placement has, and not from the backend."""

from collections.abc import Iterator, Mapping, Set

from wharfinger.placement.reader import Reading
from wharfinger.providers import Provider, full_reservation
from wharfinger.providers.plan import ForeignReservation
from wharfinger.providers.record import Record
from wharfinger.reconcile.desire import shares
from wharfinger.reconcile.node_list import NodeListing
from wharfinger.reconcile.reservation_phases import StoredReservations


def unsettled(
    reading: Reading, records: Mapping[str, Record], stored: StoredReservations
) -> set[str]:
    """The roots of trees that are not as they were left, or that a reservation changes."""
    live = reading.live
    found = {record.root_uuid for uuid, record in records.items() if uuid not in live}
    for uuid, provider in live.items():
        record = records.get(uuid)
        if (
            record is None
            or record.live is not provider  # what has not moved is what is remembered
            or (record.intended is not None and record.absent_since is None)
            or stored.changes(uuid, provider, record)
        ):
            found.add(provider.root_uuid)
    return {root for root in found if root is not None}.union(reading.unreadable)


def foreign(
    live: Mapping[str, Provider], records: Mapping[str, Record], asked: Set[str]
) -> Iterator[ForeignReservation]:
    """What others have reserved of what is ours, but in the trees of these roots."""
    for uuid, provider in live.items():
        record = records.get(uuid)
        if record is not None and record.is_ours and provider.root_uuid not in asked:
            classes = full_reservation.foreign(provider.inventories, record)
            if classes:
                yield ForeignReservation(uuid=uuid, name=provider.name, classes=classes)


def only(listing: NodeListing, roots: Set[str], live: Mapping[str, Provider]) -> NodeListing:
    """The nodes of these roots; all, where trees share providers, and what one says all need."""
    if roots and any(shares(provider) for provider in live.values()):
        return listing
    return listing.only(roots)
