"""Retries and checks for concurrent operations on an instance."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final, ParamSpec, TypeVar

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
from wharfinger.retries import retry_on

_WAIT: Final = wait_random_exponential(multiplier=0.02, max=0.5)  # seconds
_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_retries(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a method to retry after concurrent changes and claims in progress."""
    when_saved = retry_on(ClaimedAnew, ConcurrentSave, ConcurrentUpdate, wait=_WAIT)
    while_claimed = retry_on(BeingClaimed, attempts=20, wait=_WAIT)
    return when_saved(while_claimed(work))


def refuse_released(instance: Instance) -> None:
    """Raise AllocationRefused if the release of an instance was started."""
    if instance.known("task_state") == "releasing":
        raise AllocationRefused(
            instance=instance.uuid,
            problem="the instance is being released.",
            remedy="If the release was interrupted, release the instance again.",
        )


def seconds(time: timedelta) -> str:
    """Return a time as text, in seconds."""
    return f"{time.total_seconds():g} s"


def refuse_claimed(instance: Instance, down_time: timedelta) -> None:
    """Raise BeingClaimed if another process may be claiming the instance."""
    if instance.known("task_state") == "claiming" and is_recent(instance, down_time):
        raise BeingClaimed(
            instance=instance.uuid,
            problem="another process is claiming the instance, or has died during a claim.",
            remedy=f"Repeat the command after {seconds(down_time)}.",
        )


def is_recent(one: Instance | Migration, time: timedelta) -> bool:
    """Return whether an instance or migration was saved within the last ``time``."""
    saved_at = one.known("updated_at")
    if saved_at is None and isinstance(one, Migration):
        saved_at = one.created_at
    return saved_at is not None and now() - saved_at < time


def moves_of(context: Context, instance_uuid: str) -> list[Migration]:
    """Return the migrations in progress of an instance, oldest first."""
    found = MigrationList.get_by_filters(context, instance_uuid=instance_uuid)
    return [one for one in found if one.is_in_progress]


def refuse_moving(context: Context, instance_uuid: str) -> None:
    """Raise AllocationRefused if a move of an instance is in progress."""
    for first in moves_of(context, instance_uuid):
        raise AllocationRefused(
            instance=instance_uuid,
            problem=f"migration {first.uuid} ({first.known('status')}) of the instance is neither "
            "confirmed nor reverted.",
            remedy="Confirm or revert that migration first, or release the instance. If another "
            "service has started the migration, wait until that service ends the migration.",
        )
