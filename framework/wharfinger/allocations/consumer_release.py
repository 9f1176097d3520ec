"""Release the allocations of a consumer."""

from collections.abc import Callable, Container, Iterable
from contextlib import suppress

from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.exceptions import ConcurrentSave, ConcurrentUpdate, NotFound
from wharfinger.objects import Reservation
from wharfinger.placement.client import PlacementClient
from wharfinger.reconcile.reserve_and_release import Reservations, retry_on


@retry_on(ConcurrentSave, ConcurrentUpdate)
def release_allocations(
    client: PlacementClient,
    reservations: Reservations,
    consumer_uuid: str,
    *,
    not_cleaned: Container[str] = (),
    also_cleaned: Iterable[str] = (),
    check: Callable[[], object] = lambda: None,
) -> tuple[Reservation, ...]:
    """Reserve the providers to be cleaned, and delete a consumer's allocations.

    Return the reservations for cleaning. Raises PlacementError, ObjectError and StateError.
    """
    held = client.get_allocations(consumer_uuid)
    check()
    allocations = held["allocations"]
    reservations.before_release(
        consumer_uuid, [uuid for uuid in {*allocations, *also_cleaned} if uuid not in not_cleaned]
    )
    if allocations:
        with suppress(NotFound):  # another process has deleted them
            Consumers(client).delete_allocations(consumer_uuid, held)
    return reservations.after_release(consumer_uuid)
