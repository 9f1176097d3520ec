"""States of claims and moves in their rows, and how often a row is read again."""

from datetime import timedelta
from typing import Any

import pytest

from tests.lab import samples
from wharfinger.allocations import operation_states
from wharfinger.allocations.operation_states import with_retries
from wharfinger.exceptions import AllocationRefused, BeingClaimed, ConcurrentSave, WharfingerError
from wharfinger.objects.field_types import now

pytestmark = pytest.mark.usefixtures("no_waiting")

#: Errors: another process is claiming the instance; another process has saved its row.
LOOKS, ATTEMPTS = 20, 5
CLAIMED = BeingClaimed(instance="one", problem="it is being claimed.", remedy="Wait.")
SAVED = ConcurrentSave(kind="Instance", keys=["one"])


def done(*errors: WharfingerError) -> int:
    """Return the number of the attempt that succeeds after these errors."""
    left = iter(errors)
    attempts = 0

    @with_retries
    def work() -> int:
        nonlocal attempts
        attempts += 1
        for error in left:
            raise error
        return attempts

    return work()


def test_waits_for_a_claim_use_up_no_attempts() -> None:
    waits = [CLAIMED] * (LOOKS - 1)
    met = [*waits, SAVED] * (ATTEMPTS - 1) + waits
    assert done(*met) == len(met) + 1


@pytest.mark.parametrize(("error", "most"), [(CLAIMED, LOOKS), (SAVED, ATTEMPTS)])
def test_attempts_are_bounded(error: WharfingerError, most: int) -> None:
    assert done(*[error] * (most - 1)) == most
    with pytest.raises(type(error)):
        done(*[error] * most)


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("state", "age", "refused"),
    [
        ("claiming", 0, BeingClaimed),
        ("claiming", 60, None),  # the claim was interrupted: no save for 60 s
        ("claiming", None, None),
        ("releasing", 0, AllocationRefused),
        ("releasing", 60, AllocationRefused),
        (None, 0, None),
        ("unset", 0, None),
    ],
)
def test_instance_in_an_operation_is_refused_to_others(
    state: str | None, age: int | None, refused: type[WharfingerError] | None
) -> None:
    values: dict[str, Any] = {} if state == "unset" else {"task_state": state}
    saved = None if age is None else now() - timedelta(seconds=age)
    one = samples.instance(None, updated_at=saved, **values)
    problems = []
    for refuse in (
        operation_states.refuse_released,
        lambda one: operation_states.refuse_claimed(one, MINUTE),
    ):
        try:
            refuse(one)
        except WharfingerError as error:
            problems.append(type(error))
    assert problems == ([refused] if refused else [])


@pytest.mark.parametrize(
    ("created", "updated", "is_recent"),
    [(0, None, True), (90, None, False), (90, 0, True), (0, 90, False), (90, "unset", False)],
)
def test_move_is_recent_after_its_last_save_or_creation(
    created: int, updated: int | str | None, is_recent: bool
) -> None:
    def before(seconds: Any) -> Any:
        return None if seconds is None else now() - timedelta(seconds=seconds)

    values = {} if updated == "unset" else {"updated_at": before(updated)}
    one = samples.migration(None, created_at=before(created), **values)
    assert operation_states.is_recent(one, MINUTE) is is_recent
