"""Read, replace and release the allocations of consumers in Placement."""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from wharfinger.exceptions import ConcurrentSave, ConcurrentUpdate, PlacementError, WharfingerError
from wharfinger.objects import Instance, Reservation
from wharfinger.placement.allocation_writes import AllocationWrites
from wharfinger.placement.client import PlacementClient
from wharfinger.reconcile.reserve_and_release import Reservations
from wharfinger.retries import retry_on

#: Amounts by resource class, by provider uuid.
Allocations = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer with its allocations."""

    uuid: str
    allocations: Allocations = field(default_factory=dict)
    #: The consumer generation; None if the consumer has no allocations.
    generation: int | None = None


class Consumers(AllocationWrites):
    """Reads and writes the allocations of consumers. Methods raise PlacementError."""

    def __init__(self, client: PlacementClient) -> None:
        super().__init__(client)
        # Placement (16, as observed) keeps a new consumer, with generation 0, if it refuses its
        # allocations with status 400.
        self._left: Final[set[str]] = set()

    def get(self, uuid: str) -> Consumer:
        """Read a consumer; an unknown one has no allocations."""
        held = self._client.get_allocations(uuid)
        allocations = {one: part["resources"] for one, part in held["allocations"].items()}
        return Consumer(uuid, allocations, held.get("consumer_generation") if allocations else None)

    def set(self, instance: Instance, *changes: tuple[Consumer, Allocations]) -> None:
        """Replace all allocations of one or more consumers, in one request.

        Raises ConcurrentUpdate and Conflict.
        """
        new = {consumer.uuid for consumer, _wanted in changes if consumer.generation is None}
        body = self.body(instance, *changes)
        self._left.difference_update(new)
        try:
            self.set_allocations(body)
        except PlacementError as error:
            if error.status == HTTPStatus.BAD_REQUEST:
                self._left.update(new)
            raise

    @retry_on(ConcurrentSave, ConcurrentUpdate)
    def release(
        self,
        uuid: str,
        reservations: Reservations,
        *,
        not_cleaned: Container[str] = (),
        also_cleaned: Iterable[str] = (),
        check: Callable[[], object] = lambda: None,
    ) -> tuple[Reservation, ...]:
        """Reserve the providers to be cleaned, and delete all allocations of a consumer.

        Return the reservations for cleaning. Also raises ObjectError and StateError.
        """
        held = self._client.get_allocations(uuid)
        check()
        providers = [one for one in {*held["allocations"], *also_cleaned} if one not in not_cleaned]
        reservations.before_release(uuid, providers)
        if held["allocations"]:
            self.delete_allocations(uuid, held)
        return reservations.after_release(uuid)

    def body(
        self, instance: Instance, *changes: tuple[Consumer, Allocations]
    ) -> dict[str, dict[str, Any]]:
        """Return the body that ``set`` sends in POST /allocations."""
        return {
            consumer.uuid: {
                "allocations": {
                    provider: {"resources": amounts} for provider, amounts in allocations.items()
                },
                "consumer_generation": 0
                if consumer.generation is None and consumer.uuid in self._left
                else consumer.generation,
                # nova's consumer types, so that Placement counts nova's usages and ours together.
                "consumer_type": "INSTANCE" if consumer.uuid == instance.uuid else "MIGRATION",
                "project_id": instance.project_id,
                "user_id": instance.user_id,
            }
            for consumer, allocations in changes
        }

    def note_left(self, uuid: str) -> None:
        """Note that Placement has a consumer without allocations."""
        self._left.add(uuid)


def was_refused(error: WharfingerError) -> bool:
    """Return whether Placement refuses the allocations: 400, or 409 but not ConcurrentUpdate."""
    statuses = (HTTPStatus.BAD_REQUEST, HTTPStatus.CONFLICT)
    is_refused = isinstance(error, PlacementError) and error.status in statuses
    return is_refused and not isinstance(error, ConcurrentUpdate)


def is_unsure(error: WharfingerError) -> bool:
    """Return whether Placement may have written allocations despite an error."""
    return (
        isinstance(error, PlacementError)
        and error.request.partition(" (")[0] in {"POST /allocations", "POST /reshaper"}
        and not HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    )
