"""Rules on the process that drivers share (WHF-804, 805, 811 to 817 and 999)."""

from collections.abc import Iterable, Sequence

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.import_check import done_by_import
from wharfinger.conformance.leaks import Kind, leaks
from wharfinger.conformance.process_exercise import exercise
from wharfinger.conformance.process_observer import Misuse
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: The most changes that a verdict names.
_NAMED = 5
#: Kinds of misuse that the kit observes during every rule. The others take more time.
_ALWAYS = (Misuse.STATE, Misuse.LOGGING, Misuse.PATCH)


for _id, _kind, _says, _because, _expected in (
    (
        "WHF-811",
        Misuse.STATE,
        "The driver leaves the process as it is: the working directory, the umask, signal "
        "handlers, the environment, the locale, the seed of random, and all other shared state. It "
        "does not change this state during a call either.",
        "The framework and all other drivers run in the same process, in other threads.",
        "the same state as before the call to the driver",
    ),
    (
        "WHF-812",
        Misuse.LOGGING,
        "The driver does not change logging and warnings. It configures only its own loggers.",
        "The operator configures which messages are logged, and where.",
        "the same state as before the call to the driver",
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
        "Commands write their own output there, and other programs read it.",
        "nothing written to standard output or standard error",
    ),
    (
        "WHF-815",
        Misuse.SLEEP,
        "The driver does not sleep. It may wait for a device that it programs. While its backend "
        "fails, a call may wait between its attempts, for less than 5 s in all.",
        "A driver that sleeps publishes nothing, and the agent cannot stop it.",
        "calls that return when the backend has answered",
    ),
):

    @rule(_id, Level.MUST, _says, _because, wants=("change", "use"), after=("WHF-203",))
    def leaves_the_process(
        subject: Subject, kind: Misuse = _kind, expected: str = _expected
    ) -> None:
        """Check that calls to the driver do not misuse its process."""
        exercise(subject)
        _check_no_misuse(subject, [kind], expected)


@rule(
    "WHF-999",
    Level.MUST,
    "The driver follows WHF-811, WHF-812 and WHF-813 also in the situations of all other rules.",
    "Refused jobs, large fleets and random orders of events occur in production, too.",
    profile=Profile.EXTENDED,
    after=("WHF-811", "WHF-812", "WHF-813"),
)
def leaves_the_process_always(subject: Subject) -> None:
    """Check that the driver has not misused its process in earlier rules."""
    _check_no_misuse(subject, _ALWAYS, "the same state as before the call to the driver")


def _check_no_misuse(subject: Subject, kinds: Iterable[Misuse], expected: str) -> None:
    texts = [
        f"{what}, {where}" for kind in kinds for what, where in subject.process.found[kind].items()
    ]
    if texts:
        more = f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
        raise Violation(
            f"the driver misuses its process: {'; '.join(texts[:_NAMED])}{more}", expected
        )


for _id, _leaks, _says, _because in (
    (
        "WHF-804",
        (Kind.THREADS,),
        "The driver ends the threads and processes that it starts, in cleanup_host at the latest. "
        "Their number does not grow with repeated calls.",
        "An agent runs for months, and may restart driver instances in the same process.",
    ),
    (
        "WHF-805",
        (Kind.FILES,),
        "The driver closes the files and sockets that it opens. Their number does not grow with "
        "repeated cycles, failed cycles, other calls, or new instances. The driver leaves no file "
        "in the directory of temporary files, in the home directory or in the working directory, "
        "and no segment of shared memory.",
        "An agent runs for months. A process can open only a limited number of files, and a file "
        "system can hold only a limited number.",
    ),
    (
        "WHF-816",
        (Kind.MEMORY, Kind.FOREIGN),
        "The driver needs no more memory after many cycles than after a few. Memory that a library "
        "in C allocates counts, too.",
        "An agent runs for months. A cache needs a limit of some hundred entries.",
    ),
):

    @rule(_id, Level.MUST, _says, _because, after=("WHF-203",))
    def leaks_nothing(subject: Subject, kinds: Sequence[Kind] = _leaks) -> None:
        """Check that repeated calls to the driver leak no resources."""
        found = leaks(subject)
        if leaked := [found[kind] for kind in kinds if kind in found]:
            raise Violation(
                f"the driver leaks: {'; '.join(leaked)}",
                "no growth when calls are repeated, and no file left behind",
            )


@rule(
    "WHF-817",
    Level.MUST,
    "The import of the driver's module changes nothing in the process, prints nothing, and starts "
    "no thread.",
    "Each command that reads the configuration imports the drivers.",
    after=("WHF-101",),
)
def is_imported_quietly(subject: Subject) -> None:
    """Check that the import of the driver has no side effects."""
    with subject.in_another_process():
        found = done_by_import(subject.name)
    if found:
        text = f"the import has side effects: {'; '.join(found[:_NAMED])}"
        raise Violation(text, "no side effects")
