"""How often rows are read again that others have saved, or are at work on."""

import pytest

from wharfinger.allocations.rows import again
from wharfinger.exceptions import BeingClaimed, ConcurrentSave, WharfingerError

pytestmark = pytest.mark.usefixtures("no_waiting")

#: That somebody is looked for who claims it, and that somebody has saved it.
LOOKS, ATTEMPTS = 20, 5
CLAIMED = BeingClaimed(instance="one", problem="it is being claimed.", remedy="Wait.")
SAVED = ConcurrentSave(kind="Instance", keys=["one"])


def done(*errors: WharfingerError) -> int:
    """At which attempt a method comes to its end that meets these before."""
    left = iter(errors)
    attempts = 0

    @again
    def work() -> int:
        nonlocal attempts
        attempts += 1
        for error in left:
            raise error
        return attempts

    return work()


def test_a_claim_that_takes_its_time_uses_up_no_attempts() -> None:
    waits = [CLAIMED] * (LOOKS - 1)
    met = [*waits, SAVED] * (ATTEMPTS - 1) + waits
    assert done(*met) == len(met) + 1


@pytest.mark.parametrize(("error", "most"), [(CLAIMED, LOOKS), (SAVED, ATTEMPTS)])
def test_it_is_not_done_for_ever(error: WharfingerError, most: int) -> None:
    assert done(*[error] * (most - 1)) == most
    with pytest.raises(type(error)):
        done(*[error] * most)
