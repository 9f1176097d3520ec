"""Rules on lasting effects of a fault, by comparison with a history without it (WHF-72.)."""

from typing import Final

from wharfinger.conformance.exceptions import NotShown, Unproven
from wharfinger.conformance.fault_history import try_faults
from wharfinger.conformance.harness import COMMON_FAULTS, Fault
from wharfinger.conformance.killed_history import try_kills
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: Seconds in which faults are tried, by the rule; each history that has begun ends.
_SECONDS: Final = {"WHF-721": 6.0, "WHF-722": 4.0, "WHF-723": 6.0}
_AFTER: Final = (
    *("WHF-303", "WHF-304", "WHF-401", "WHF-402", "WHF-403", "WHF-506"),
    *("WHF-701", "WHF-702", "WHF-703", "WHF-704", "WHF-705", "WHF-707", "WHF-708"),
)


@rule(
    "WHF-721",
    Level.MUST,
    "A fault at one call leaves nothing behind: after cycles without a fault Placement holds what "
    "it would hold without it.",
    "The driver runs for months, and its backend fails at any moment of them. A wrong value in the "
    "driver's memory stays until an operator restarts it.",
    profile=Profile.EXTENDED,
    after=_AFTER,
)
def leave_nothing_behind(subject: Subject) -> str:
    """Play a history again and again, each time with faults at other calls."""
    return try_faults(subject, COMMON_FAULTS, seconds=_SECONDS["WHF-721"], apart=2)


@rule(
    "WHF-722",
    Level.MUST,
    "An answer that is stale or comes late is of no consequence once the backend has answered "
    "again in time.",
    "A cache or a replica answers with what was. An answer to a request that has timed out is not "
    "the answer to the next request.",
    profile=Profile.EXTENDED,
    needs=(Fault.STALE, Fault.LATE),
    after=(*_AFTER, "WHF-721"),
)
def forgets_old_answers(subject: Subject) -> str:
    """Play a history with stale answers, and with answers after the driver's time-out."""
    faults = frozenset({Fault.STALE, Fault.LATE})
    for fault in faults:
        try:
            subject.harness.expect(0, fault)
        except NotShown as error:  # it was written before these faults
            raise Unproven(str(error)) from error
        finally:
            subject.harness.expect()
    return try_faults(subject, faults, seconds=_SECONDS["WHF-722"], apart=3, is_short=True)


@rule(
    "WHF-723",
    Level.MUST,
    "A driver whose process is killed at any moment starts again, and publishes what it would "
    "have published.",
    "A host loses its power, and a process its memory. A lock file that is left behind, or a file "
    "that was written by halves, must not stop the next process.",
    profile=Profile.EXTENDED,
    elsewhere=True,
    after=(*_AFTER, "WHF-721"),
)
def survives_a_kill(subject: Subject) -> str:
    """Play a history with the driver in another process; kill the process at calls and writes."""
    return try_kills(subject, seconds=_SECONDS["WHF-723"])
