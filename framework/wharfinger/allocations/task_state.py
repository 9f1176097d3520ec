"""What the rows of instances and migrations say of what is being done with them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, ParamSpec, TypeVar

from tenacity import retry, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from wharfinger.exceptions import (
    AllocationRefused,
    BeingClaimed,
    ClaimedAnew,
    ConcurrentSave,
    ConcurrentUpdate,
)
from wharfinger.objects import Context, Instance, Migration, MigrationList
from wharfinger.objects.field_types import now

#: How often rows are read again that others have saved meanwhile.
_ATTEMPTS: Final = 5
#: How often it is looked whether a claim that is under way has come to its end.
_LOOKS: Final = 20
#: Seconds between two of them, at most.
_LONGEST_WAIT: Final = 0.5
_WAIT: Final = wait_random_exponential(multiplier=0.02, max=_LONGEST_WAIT)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def again(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Have a method read rows again that others have saved, and wait for the end of a claim.

    It is done so often for each of the two: a claim that takes its time uses up no attempts.
    """
    return _when_saved(_while_claimed(work))


_when_saved: Final = retry(
    retry=retry_if_exception_type((ClaimedAnew, ConcurrentSave, ConcurrentUpdate)),
    stop=stop_after_attempt(_ATTEMPTS),
    wait=_WAIT,
    reraise=True,
)
_while_claimed: Final = retry(
    retry=retry_if_exception_type(BeingClaimed),
    stop=stop_after_attempt(_LOOKS),
    wait=_WAIT,
    reraise=True,
)


def refuse_released(instance: Instance) -> None:
    """Raise AllocationRefused for an instance that is being released, or has begun to be."""
    if state_of(instance) == "releasing":
        raise AllocationRefused(
            instance=instance.uuid,
            problem="it is being released.",
            remedy="If that was cut short, release it again.",
        )


def seconds(time: timedelta) -> str:
    """A time, for people to read."""
    return f"{time.total_seconds():g} s"


def refuse_claimed(instance: Instance, down_time: timedelta) -> None:
    """Raise BeingClaimed while somebody is at work on the claim of an instance."""
    if state_of(instance) == "claiming" and is_recent(instance, down_time):
        raise BeingClaimed(
            instance=instance.uuid,
            problem="it is being claimed.",
            remedy=f"If that was cut short, this can be done in {seconds(down_time)}.",
        )


def state_of(instance: Instance) -> str | None:
    """What is being done with an instance; None where nothing is, or nobody knows."""
    return instance.task_state if "task_state" in instance else None


def is_recent(one: Instance | Migration, time: timedelta) -> bool:
    """Whether somebody has saved it within that time."""
    said = one.updated_at if "updated_at" in one else None
    if said is None and isinstance(one, Migration):
        said = one.created_at
    return said is not None and now() - said < time


def moves_of(context: Context, instance_uuid: str) -> list[Migration]:
    """The moves of an instance that are in progress, as they began."""
    found = MigrationList.get_by_filters(context, instance_uuid=instance_uuid)
    return [one for one in found if one.is_in_progress]


def ends_of(migration: Migration) -> set[tuple[str | None, str | None]]:
    """The service hosts and nodes that a move comes from and goes to."""
    return {
        (migration.source_compute, migration.source_node),
        (migration.dest_compute, migration.dest_node),
    }
