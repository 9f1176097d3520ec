"""Rules on backend calls and shared state of drivers (WHF-801 and 803)."""

from typing import Final

from wharfinger.conformance import clock_shift
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.side_effects import watching
from wharfinger.conformance.subject import Subject, as_contents, describe

#: Seconds by which the clocks are set ahead.
_HOUR: Final = 3600


@rule(
    "WHF-801",
    Level.MUST,
    "After a listing with refresh, the driver answers from memory: without calls to the backend, "
    "and without starting programs.",
    "A cycle describes all nodes as of one moment. A call for each node costs a request each, and "
    "describes another moment.",
    profile=Profile.EXTENDED,
    after=("WHF-203",),
)
def in_memory(subject: Subject) -> None:
    """Check that the driver describes listed nodes from memory."""
    harness = subject.harness
    with subject.driver() as driver:
        live = subject.placement.contents()
        driver.get_available_nodes(refresh=True)
        harness.expect()
        with watching() as seen:
            for seconds in (0, _HOUR):
                clock_shift.advance(seconds)
                try:
                    describe(driver, live, refresh=False)
                    driver.capabilities_as_traits()
                    driver.get_problems()
                finally:
                    clock_shift.advance(-seconds)
        if harness.calls:
            raise Violation(
                f"after a listing, the driver makes {len(harness.calls)} calls to the backend, "
                f"such as {', '.join(harness.calls[:3])}",
                "answers from memory, without calls to the backend, also an hour later",
            )
        if seen:
            raise Violation(
                f"describing the nodes after a listing has side effects: {', '.join(seen[:3])}",
                "a description from memory, without side effects",
            )


@rule(
    "WHF-803",
    Level.MUST,
    "Two instances of the driver share no state: a listing of one does not change what the other "
    "describes.",
    "Each instance runs in its own thread, perhaps with another backend.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def apart(subject: Subject) -> None:
    """Check that driver instances share no state."""
    live = subject.placement.contents()
    with subject.driver() as one, subject.driver() as other:
        before = describe(one, live)
        subject.harness.add()
        describe(other, live)
        after = describe(one, live, refresh=False)
    if after != before:
        raise Violation(
            "a listing of a second driver instance has changed what the first one describes: "
            f"{difference(as_contents(before), as_contents(after))}",
            "no change until the first driver instance lists the nodes again",
        )
