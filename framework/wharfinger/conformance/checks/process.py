"""Rules of what a driver does to its process, which it shares with all others (WHF-81.)."""

from collections.abc import Iterable

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.import_check import done_by_import
from wharfinger.conformance.leaks import Kind, leaks
from wharfinger.conformance.process_exercise import exercise
from wharfinger.conformance.process_observer import Misuse
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: The number of findings in a report.
_NAMED = 5
#: Kinds of change that are observed in every rule. The others take more time.
_ALWAYS = (Misuse.STATE, Misuse.LOGGING, Misuse.PATCH)


for _id, _kind, _says, _because, _expected in (
    (
        "WHF-811",
        Misuse.STATE,
        "The driver leaves the process as it is: the working directory, the umask, signal "
        "handlers, the environment, the locale, the seed of random, and all other state that code "
        "shares. It does not change them for the time of a call either.",
        "The framework and all other drivers run in the same process, in other threads.",
        "the same as before the call",
    ),
    (
        "WHF-812",
        Misuse.LOGGING,
        "The driver leaves logging and warnings as they are: it configures at most its own "
        "loggers, and none of a library that the framework uses.",
        "The operator sets in the configuration which messages are logged, and where.",
        "the same as before the call",
    ),
    (
        "WHF-813",
        Misuse.PATCH,
        "The driver replaces no function, method or class of the framework, of Python or of a "
        "library that the framework uses.",
        "A replaced function is replaced for all other drivers, too.",
        "the original function, method or class",
    ),
    (
        "WHF-814",
        Misuse.PRINT,
        "The driver writes nothing to the standard streams. It logs.",
        "A command writes its own output there, which programs read.",
        "nothing",
    ),
    (
        "WHF-815",
        Misuse.SLEEP,
        "The driver does not sleep. It may wait between two attempts while its backend fails, and "
        "for a device that it programs.",
        "A driver that sleeps publishes nothing, and the agent cannot stop it.",
        "calls that return when the backend has answered",
    ),
):

    @rule(_id, Level.MUST, _says, _because, after=("WHF-203",))
    def leaves_the_process(
        subject: Subject, kind: Misuse = _kind, expected: str = _expected
    ) -> None:
        """Compare before and after every call, in this rule and in the earlier ones."""
        exercise(subject)
        _see_none(subject, [kind], expected)


@rule(
    "WHF-999",
    Level.MUST,
    "The driver leaves the process, logging and all code as they are in each situation of the "
    "other rules, too.",
    "Refused jobs, large fleets and random histories come up in production.",
    profile=Profile.EXTENDED,
    after=("WHF-811", "WHF-812", "WHF-813"),
)
def leaves_the_process_always(subject: Subject) -> None:
    """Report the changes that calls have made in the rules that ran before this one."""
    _see_none(subject, _ALWAYS, "the same as before the call")


def _see_none(subject: Subject, kinds: Iterable[Misuse], expected: str) -> None:
    texts = [
        f"{what}, {where}" for kind in kinds for what, where in subject.process.found[kind].items()
    ]
    if texts:
        more = f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
        raise Violation("; ".join(texts[:_NAMED]) + more, expected)


for _id, _leaks, _says, _because in (
    (
        "WHF-804",
        Kind.THREADS,
        "The driver ends the threads and processes that it starts: cleanup_host ends those of the "
        "instance, and no call leaves another one each time.",
        "An agent runs for months, and starts instances again in one process.",
    ),
    (
        "WHF-805",
        Kind.FILES,
        "The driver closes the files and sockets that it opens: no cycle, no failed cycle, no "
        "question, no programming and no instance that has ended leaves one open each time.",
        "An agent runs for months. A process may open a limited number of files.",
    ),
    (
        "WHF-816",
        Kind.MEMORY,
        "The driver needs no more memory after many cycles than after a few.",
        "An agent runs for months. A history or a cache has a bound of some hundred entries.",
    ),
):

    @rule(_id, Level.MUST, _says, _because, after=("WHF-203",))
    def leaks_nothing(subject: Subject, kind: Kind = _leaks) -> None:
        """Measure after each kind of call, failed cycles, and the life of an instance."""
        if found := leaks(subject).get(kind):
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
        raise Violation("; ".join(found[:_NAMED]), "an import, and nothing else")
