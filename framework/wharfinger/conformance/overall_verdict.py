"""The verdict on a driver, from the results of the rules."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Level, Profile, Rule


class Word(StrEnum):
    """The overall verdicts, as printed."""

    CONFORMS = "CONFORMS"
    #: Each broken MUST rule is a declared known failure.
    KNOWN_FAILURES = "KNOWN FAILURES"
    #: At least one rule was not run.
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    #: The operator asked for the core profile alone.
    NOT_ASKED = "NOT ASKED"


class ExitCode(IntEnum):
    """Exit codes of a run."""

    #: The driver conforms, or each broken MUST rule is a declared known failure.
    CONFORMS = 0
    #: The driver breaks a MUST rule, or a declared failure did not occur.
    FAILED = 1
    #: At least one requested rule was not run.
    PARTIAL = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one profile."""

    profile: Profile
    word: Word
    counts: dict[Level, Counter[Status]]

    @property
    def unproven(self) -> int:
        """The number of unproven rules."""
        return sum(counts[Status.UNPROVEN] for counts in self.counts.values())

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for this verdict."""
        return {Word.FAILED: ExitCode.FAILED, Word.PARTIAL: ExitCode.PARTIAL}.get(
            self.word, ExitCode.CONFORMS
        )


def judge(
    rules: Sequence[Rule], results: Iterable[Result], asked: Profile = Profile.EXTENDED
) -> list[Verdict]:
    """Return the verdict on each profile. Rules without a result count as not run."""
    by_id = {result.rule.id: result for result in results}
    every = [by_id.get(rule.id, Result(rule, Status.NOT_RUN)) for rule in rules]
    return [
        _verdict(profile, [one for one in every if one.rule.profile is profile], asked)
        for profile in Profile
    ]


def exit_code(verdicts: Iterable[Verdict]) -> ExitCode:
    """Return the exit code for all verdicts together."""
    codes = {verdict.exit_code for verdict in verdicts}
    for code in (ExitCode.FAILED, ExitCode.PARTIAL):
        if code in codes:
            return code
    return ExitCode.CONFORMS


def _verdict(profile: Profile, results: Sequence[Result], asked: Profile) -> Verdict:
    counts = {
        level: Counter(one.status for one in results if one.rule.level is level) for level in Level
    }
    return Verdict(profile, _word(profile, results, asked), counts)


def _word(profile: Profile, results: Sequence[Result], asked: Profile) -> Word:
    musts = {one.status for one in results if one.rule.level is Level.MUST}
    every = {one.status for one in results}
    if Status.FAILED in musts or Status.UNEXPECTED in every:
        return Word.FAILED
    if profile is Profile.EXTENDED and asked is Profile.CORE:
        return Word.NOT_ASKED
    if Status.NOT_RUN in every or not results:
        return Word.PARTIAL
    return Word.KNOWN_FAILURES if Status.KNOWN in musts else Word.CONFORMS
