"""Rules of what a driver does to its process, which it shares with all others (WHF-81.)."""

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.import_check import done_by_import
from wharfinger.conformance.leaks import Kind, leaks
from wharfinger.conformance.process_exercise import exercise
from wharfinger.conformance.process_observer import Misuse
from wharfinger.conformance.rules import Level, rule
from wharfinger.conformance.subject import Subject

#: The number of findings in a report.
_TOLD = 5


@rule(
    "WHF-811",
    Level.MUST,
    "The driver leaves the process as it is: the working directory, the umask, signal handlers, "
    "the environment, the locale, the seed of random, and whatever else all code shares.",
    "The framework and all other drivers run in the same process.",
    after=("WHF-203",),
)
def leaves_the_process(subject: Subject) -> None:
    """Compare the process before and after every call, in this rule and in those before."""
    _see_none(subject, Misuse.STATE, "the same as before the call")


@rule(
    "WHF-812",
    Level.MUST,
    "The driver leaves logging and warnings as they are: it configures at most its own loggers.",
    "The operator says in the configuration what is logged, and where.",
    after=("WHF-203",),
)
def leaves_logging(subject: Subject) -> None:
    """Compare the framework's loggers before and after every call."""
    _see_none(subject, Misuse.LOGGING, "the same as before the call")


@rule(
    "WHF-813",
    Level.MUST,
    "The driver replaces no function, method or class of the framework, of Python or of a library "
    "that the framework uses.",
    "What it replaces is replaced for all other drivers, too.",
    after=("WHF-203",),
)
def replaces_nothing(subject: Subject) -> None:
    """Compare modules and classes after the life of each instance."""
    _see_none(subject, Misuse.PATCH, "what was there before")


@rule(
    "WHF-814",
    Level.MUST,
    "The driver writes nothing to the standard streams. It logs.",
    "A command writes its own output there, which programs read.",
    after=("WHF-203",),
)
def prints_nothing(subject: Subject) -> None:
    """Redirect both streams during every call."""
    _see_none(subject, Misuse.PRINT, "nothing")


@rule(
    "WHF-815",
    Level.MUST,
    "The driver does not sleep. It may wait between two attempts while its backend fails, and for "
    "a device that it programs.",
    "The instance publishes nothing meanwhile, and cannot be stopped.",
    after=("WHF-203",),
)
def is_awake(subject: Subject) -> None:
    """Add up what calls sleep while the backend answers."""
    _see_none(subject, Misuse.SLEEP, "calls that return when the backend has answered")


@rule(
    "WHF-816",
    Level.MUST,
    "The driver needs no more memory after many cycles than after a few.",
    "An agent runs for months. A history or a cache has a bound of some hundred entries.",
    after=("WHF-203",),
)
def needs_no_more_memory(subject: Subject) -> None:
    """Trace what is allocated in cycles, in failed cycles, and in the life of an instance."""
    if found := leaks(subject).get(Kind.MEMORY):
        raise Violation(found, "as much as before")


@rule(
    "WHF-817",
    Level.MUST,
    "To import the driver's module changes nothing in the process, prints nothing, and starts no "
    "thread.",
    "Each command that reads the configuration imports the drivers.",
    after=("WHF-101",),
)
def is_imported_quietly(subject: Subject) -> None:
    """Import it in a process of its own, after the libraries that it uses."""
    if found := done_by_import(subject.name):
        raise Violation("; ".join(found[:_TOLD]), "an import, and nothing else")


def _see_none(subject: Subject, kind: Misuse, expected: str) -> None:
    exercise(subject)
    if found := subject.process.found[kind]:
        told = [f"{what}, {where}" for what, where in found.items()]
        more = f"; and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
        raise Violation("; ".join(told[:_TOLD]) + more, expected)
