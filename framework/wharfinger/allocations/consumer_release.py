"""Release the allocations of a consumer.

Providers that their drivers clean after a release are reserved before the allocations are deleted.
"""

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from typing import Final

from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.exceptions import ConcurrentSave, ConcurrentUpdate, NotFound
from wharfinger.objects import Context, Reservation
from wharfinger.placement.client import PlacementClient
from wharfinger.reconcile.reserve_and_release import Reservations, retry_on


class AllocationRelease:
    """Releases the allocations of consumers.

    Methods raise PlacementError, ObjectError and StateError.
    """

    def __init__(self, client: PlacementClient, context: Context) -> None:
        self._client: Final = client
        self._consumers: Final = Consumers(client)
        self._reservations: Final = Reservations(client, context)

    @retry_on(ConcurrentSave, ConcurrentUpdate)
    def release(
        self,
        consumer_uuid: str,
        *,
        kept: Container[str] = (),
        lost: Iterable[str] = (),
        check: Callable[[], object] = lambda: None,
    ) -> tuple[Reservation, ...]:
        """Delete the allocations of a consumer; first reserve the providers that are then cleaned.

        Return these reservations. A cycle ends each when the driver has reported the end of the
        cleaning. Providers in ``kept`` (uuids) are not cleaned: another consumer has them for the
        same instance. Providers in ``lost`` are cleaned although the consumer no longer has
        allocations from them. After the allocations were read, ``check`` is called, and may raise
        an error to end the release. If the allocations change meanwhile, they are not deleted. To
        complete a failed release, call this again.
        """
        held = self._client.get_allocations(consumer_uuid)
        check()
        allocations = held["allocations"]
        self._reservations.before_release(
            consumer_uuid, [uuid for uuid in {*allocations, *lost} if uuid not in kept]
        )
        if allocations:
            with suppress(NotFound):  # another process has deleted them
                self._consumers.delete_allocations(consumer_uuid, held)
        return self._reservations.after_release(consumer_uuid)
