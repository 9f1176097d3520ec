"""The verdict on a driver, from the results of all rules."""

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
    #: Some rules were not checked.
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    #: The core alone was asked for.
    NOT_ASKED = "NOT ASKED"


class ExitCode(IntEnum):
    """Exit codes of a run. The codes of pytest keep their meaning."""

    #: It conforms, but for failures that were declared.
    CONFORMS = 0
    #: A rule that has to be kept is not, or is kept and was declared to fail.
    FAILED = 1
    #: Not all of what was asked for was looked at.
    PARTIAL = 6


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one profile, with the number of results by level and status."""

    profile: Profile
    word: Word
    counts: dict[Level, Counter[Status]]

    @property
    def unproven(self) -> int:
        """How many rules could not be checked, since the harness lacks an optional method."""
        return sum(counts[Status.UNPROVEN] for counts in self.counts.values())

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code of a run with this verdict alone."""
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
    """Return the exit code of a run: a failure counts more than a missing result."""
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
