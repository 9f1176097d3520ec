"""The rule on random orders of events (WHF-991)."""

from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from wharfinger.conformance.random_history import histories_of
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: Events in one history.
_STEPS: Final = 12
#: Hypothesis begins with this many trivial histories.
_SIMPLEST: Final = 2


@rule(
    "WHF-991",
    Level.MUST,
    "Placement agrees with the backend after any order of events: things are added, removed, busy "
    "and free, calls fail, and the driver restarts.",
    "Many defects show only after several events.",
    profile=Profile.EXTENDED,
    wants=("expected",),
    after=("WHF-401", "WHF-506"),
)
def any_history(subject: Subject) -> None:
    """Check that Placement agrees with the backend after random events."""
    run_state_machine_as_test(
        seed(subject.seed)(histories_of(subject)),
        settings=settings(
            max_examples=_SIMPLEST + subject.examples,
            stateful_step_count=_STEPS,
            database=None,
            deadline=None,
            phases=(Phase.generate,),  # without the search for a shorter history, which takes long
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        ),
    )
