"""What the results of all rules come to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Level, Profile, Rule


class Word(StrEnum):
    """The verdict in a word."""

    CONFORMS = "CONFORMS"
    #: All that fails was declared to.
    KNOWN_FAILURES = "KNOWN FAILURES"
    #: Not all was looked at: nothing is said.
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    #: The core alone was asked for.
    NOT_ASKED = "NOT ASKED"


class ExitCode(IntEnum):
    """What a run exits with; what pytest itself means something by has another meaning here."""

    #: It conforms, but for failures that were declared.
    CONFORMS = 0
    #: A rule that has to be kept is not, or is kept and was declared to fail.
    FAILED = 1
    #: Not all of what was asked for was looked at.
    PARTIAL = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one profile, and how many of the rules of each level came to what."""

    profile: Profile
    word: Word
    counts: dict[Level, Counter[Status]]

    @property
    def unproven(self) -> int:
        """How many rules could not be checked, since the harness lacks an optional method."""
        return sum(counts[Status.UNPROVEN] for counts in self.counts.values())

    @property
    def exit_code(self) -> ExitCode:
        """What a run with this verdict alone exits with."""
        return {Word.FAILED: ExitCode.FAILED, Word.PARTIAL: ExitCode.PARTIAL}.get(
            self.word, ExitCode.CONFORMS
        )


def judge(
    rules: Sequence[Rule], results: Iterable[Result], asked: Profile = Profile.EXTENDED
) -> list[Verdict]:
    """The verdict on each profile; a rule without a result was not run."""
    by_id = {result.rule.id: result for result in results}
    every = [by_id.get(rule.id, Result(rule, Status.NOT_RUN)) for rule in rules]
    return [
        _verdict(profile, [one for one in every if one.rule.profile is profile], asked)
        for profile in Profile
    ]


def exit_code(verdicts: Iterable[Verdict]) -> ExitCode:
    """What a run exits with: that something fails counts more than that something is missing."""
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
