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
    kept: Container[str] = (),
    lost: Iterable[str] = (),
    check: Callable[[], object] = lambda: None,
) -> tuple[Reservation, ...]:
    """Delete the allocations of a consumer; first reserve the providers that are then cleaned.

    Return the new reservations. Providers in ``kept`` (uuids) are not cleaned. Providers in
    ``lost`` are cleaned although the consumer no longer has allocations from them. ``check`` may
    raise an error to end the release before anything is written.

    Raises PlacementError, ObjectError and StateError. To complete a failed release, call this
    again.
    """
    held = client.get_allocations(consumer_uuid)
    check()
    allocations = held["allocations"]
    reservations.before_release(
        consumer_uuid, [uuid for uuid in {*allocations, *lost} if uuid not in kept]
    )
    if allocations:
        with suppress(NotFound):  # another process has deleted them
            Consumers(client).delete_allocations(consumer_uuid, held)
    return reservations.after_release(consumer_uuid)
