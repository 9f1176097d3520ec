"""Rules on lasting effects of faults (WHF-721 to 723)."""

from typing import Final

from wharfinger.conformance.exceptions import NotShown, Unproven
from wharfinger.conformance.fault_history import try_faults
from wharfinger.conformance.harness import COMMON_FAULTS, Fault
from wharfinger.conformance.killed_history import try_kills
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: Seconds after which a rule starts no further play.
_SECONDS: Final = {"WHF-721": 6.0, "WHF-722": 4.0, "WHF-723": 6.0}
#: The optional changes of the history.
_CHANGES: Final = ("change", "use")
_AFTER: Final = (
    *("WHF-303", "WHF-304", "WHF-401", "WHF-402", "WHF-403", "WHF-506"),
    *("WHF-701", "WHF-702", "WHF-703", "WHF-704", "WHF-705", "WHF-707", "WHF-708"),
)


@rule(
    "WHF-721",
    Level.MUST,
    "A fault of one call has no lasting effect: after cycles without a fault, Placement has the "
    "same contents as if the fault had not occurred.",
    "The driver runs for months, and its backend may fail at any moment. A wrong value in the "
    "driver's memory stays until an operator restarts the driver.",
    profile=Profile.EXTENDED,
    wants=_CHANGES,
    after=_AFTER,
)
def leave_nothing_behind(subject: Subject) -> str:
    """Check that faults of backend calls have no lasting effect."""
    faults = subject.possible((*COMMON_FAULTS, Fault.FORBIDDEN))
    return try_faults(subject, frozenset(faults), seconds=_SECONDS["WHF-721"], apart=2)


@rule(
    "WHF-722",
    Level.MUST,
    "A stale or a late answer has no effect any more after the backend has answered again in time.",
    "A cache or a replica may return old data. The answer to a request that has timed out is not "
    "the answer to the next request.",
    profile=Profile.EXTENDED,
    wants=_CHANGES,
    needs=(Fault.STALE, Fault.LATE),
    after=(*_AFTER, "WHF-721"),
)
def forgets_old_answers(subject: Subject) -> str:
    """Check that stale and late answers have no lasting effect."""
    faults = frozenset({Fault.STALE, Fault.LATE})
    for fault in faults:
        try:
            subject.harness.expect(0, fault)
        except NotShown as error:  # an old harness does not know these faults
            raise Unproven(str(error)) from error
        finally:
            subject.harness.expect()
    return try_faults(subject, faults, seconds=_SECONDS["WHF-722"], apart=3, is_short=True)


@rule(
    "WHF-723",
    Level.MUST,
    "After its process was killed at any moment, the driver starts again, and publishes the same "
    "as without the kill.",
    "A host may lose its power, and the kernel may kill a process. A lock file that is left behind "
    "or a half-written file must not stop the next process.",
    profile=Profile.EXTENDED,
    wants=_CHANGES,
    elsewhere=True,
    after=(*_AFTER, "WHF-721"),
)
def survives_a_kill(subject: Subject) -> str:
    """Check that the driver recovers after its process was killed."""
    return try_kills(subject, seconds=_SECONDS["WHF-723"])
