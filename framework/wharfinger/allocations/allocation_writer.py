"""Read, replace and delete the allocations of consumers in Placement.

The one writer of allocations, apart from the reshapes of a plan.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from wharfinger.exceptions import Conflict, PlacementError, UnexpectedAnswer, WharfingerError
from wharfinger.objects import Instance
from wharfinger.placement.allocation_writes import AllocationWrites
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import Amounts

#: Amounts by resource class, by provider uuid.
Allocations = Mapping[str, Mapping[str, int]]


class ConsumerType(StrEnum):
    """nova's, so that its usages and ours are counted together."""

    INSTANCE = "INSTANCE"
    MIGRATION = "MIGRATION"


@dataclass(frozen=True, slots=True)
class Consumer:
    """What a consumer has; ``generation`` is None where it has nothing."""

    uuid: str
    allocations: Allocations = field(default_factory=dict)
    generation: int | None = None


class Change(NamedTuple):
    """That a consumer, as it was read, is to have these allocations, and no others."""

    consumer: Consumer
    allocations: Allocations
    type: ConsumerType


class _Answer(msgspec.Struct, frozen=True):
    allocations: dict[str, Amounts]
    consumer_generation: int | None = None


class Consumers:
    """The consumers of one Placement. Methods raise PlacementError."""

    def __init__(self, client: PlacementClient) -> None:
        self._client: Final = client
        self._writes: Final = AllocationWrites(client)
        self._left: Final[set[str]] = set()

    def get(self, uuid: str) -> Consumer:
        """What a consumer has now."""
        try:
            answer = msgspec.convert(self._client.get_allocations(uuid), _Answer)
        except msgspec.ValidationError as error:
            raise UnexpectedAnswer(
                request=f"GET /allocations/{uuid}",
                status=HTTPStatus.OK,
                code="",
                detail=str(error),
            ) from error
        allocations = {provider: its.resources for provider, its in answer.allocations.items()}
        return Consumer(uuid, allocations, answer.consumer_generation if allocations else None)

    def set(self, instance: Instance, *changes: Change) -> None:
        """Make all changes, of consumers of an instance, or none.

        Raises ConcurrentUpdate where one of them has changed since it was read, Conflict where a
        provider has not the room.
        """
        new = {change.consumer.uuid for change in changes if change.consumer.generation is None}
        try:
            self._writes.set_allocations(
                {
                    consumer.uuid: {
                        "allocations": {
                            provider: {"resources": amounts}
                            for provider, amounts in allocations.items()
                        },
                        "consumer_generation": self._generation(consumer),
                        "consumer_type": kind,
                        "project_id": instance.project_id,
                        "user_id": instance.user_id,
                    }
                    for consumer, allocations, kind in changes
                }
            )
        except PlacementError as error:
            self._left.difference_update(new)
            if error.status == HTTPStatus.BAD_REQUEST:
                self._left.update(new)
            raise
        self._left.difference_update(new)

    def delete(self, uuid: str, held: Mapping[str, Any]) -> None:
        """Delete the allocations of a consumer, ``held``, as Placement has returned them.

        Raises ConcurrentUpdate where the consumer has other allocations by now.
        """
        self._writes.delete_allocations(uuid, held)

    def note_left(self, uuid: str) -> None:
        """Say that a consumer has nothing, and yet there is one.

        Placement (16, as observed) leaves a new one behind, of generation 0, where it refuses what
        is allocated to it with 400: of a provider that is no more. It tells nobody.
        """
        self._left.add(uuid)

    def _generation(self, consumer: Consumer) -> int | None:
        is_left = consumer.generation is None and consumer.uuid in self._left
        return 0 if is_left else consumer.generation


def amounts_of(allocations: Allocations) -> Counter[str]:
    """What is taken in all, by resource class."""
    total: Counter[str] = Counter()
    for amounts in allocations.values():
        total.update(amounts)
    return total


def was_refused(error: WharfingerError) -> bool:
    """Whether Placement has said no, for what was asked, and has done nothing."""
    return isinstance(error, Conflict) or (
        isinstance(error, PlacementError) and error.status == HTTPStatus.BAD_REQUEST
    )


def is_unsure(error: WharfingerError) -> bool:
    """Whether allocations may have been written all the same, or may be yet."""
    return (
        isinstance(error, PlacementError)
        and error.request == "POST /allocations"
        and not HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    )
