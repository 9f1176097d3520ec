"""The rule that checks the others together, in random histories (WHF-99.)."""

from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from wharfinger.conformance.random_history import histories_of
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: Steps of one history.
_STEPS: Final = 12
#: Histories that hypothesis begins with: nothing happens, or the same again and again.
_SIMPLEST: Final = 2


@rule(
    "WHF-991",
    Level.MUST,
    "Placement holds what the backend has after any history: things come, go and are busy, calls "
    "fail, and the driver restarts, in any order.",
    "Many defects show only after several events.",
    profile=Profile.EXTENDED,
    after=("WHF-401", "WHF-506"),
)
def any_history(subject: Subject) -> None:
    """Run random histories; those of one seed are the same each time."""
    run_state_machine_as_test(
        seed(subject.seed)(histories_of(subject)),
        settings=settings(
            max_examples=_SIMPLEST + subject.examples,
            stateful_step_count=_STEPS,
            database=None,
            deadline=None,
            phases=(Phase.generate,),  # a shorter one takes minutes to find
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        ),
    )
