"""The verdict on each profile and the exit code of a run, by the results of the rules."""

import pytest

from wharfinger.conformance.overall_verdict import ExitCode, Verdict, Word, exit_code, judge
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Level, Profile, Rule

MUST, SHOULD, MAY = Level
CORE, EXTENDED = Profile

TABLE = [
    # Level of a rule in the core profile; its status; the verdict on the profile.
    (MUST, Status.PASSED, Word.CONFORMS),
    (MUST, Status.EXEMPT, Word.CONFORMS),
    (MUST, Status.FAILED, Word.FAILED),
    (MUST, Status.UNEXPECTED, Word.FAILED),
    (MUST, Status.KNOWN, Word.KNOWN_FAILURES),
    (MUST, Status.NOT_RUN, Word.PARTIAL),
    (SHOULD, Status.FAILED, Word.CONFORMS),
    (SHOULD, Status.KNOWN, Word.CONFORMS),
    (SHOULD, Status.UNEXPECTED, Word.FAILED),
    (SHOULD, Status.NOT_RUN, Word.PARTIAL),
    (MAY, Status.FAILED, Word.CONFORMS),
    (MAY, Status.EXEMPT, Word.CONFORMS),
    (MAY, Status.NOT_RUN, Word.PARTIAL),
    (MAY, Status.UNEXPECTED, Word.FAILED),
]
CODES = {
    Word.CONFORMS: ExitCode.CONFORMS,
    Word.KNOWN_FAILURES: ExitCode.CONFORMS,
    Word.NOT_ASKED: ExitCode.CONFORMS,
    Word.PARTIAL: ExitCode.PARTIAL,
    Word.FAILED: ExitCode.FAILED,
}


@pytest.mark.parametrize(("level", "status", "word"), TABLE)
def test_verdict_on_a_profile_follows_its_results(level: Level, status: Status, word: Word) -> None:
    good = [Result(_rule("WHF-1", CORE), Status.PASSED), Result(_rule("WHF-2"), Status.PASSED)]
    other = Result(_rule("WHF-3", CORE, level), status)
    results = [*good, other]

    core, extended = judge([one.rule for one in results], results)

    assert (core.profile, core.word, core.exit_code) == (CORE, word, CODES[word])
    assert (extended.profile, extended.word) == (EXTENDED, Word.CONFORMS)
    assert core.counts[level][status] >= 1
    assert exit_code([core, extended]) == CODES[word]


def test_failure_takes_precedence_over_missing_or_known_results() -> None:
    statuses = (Status.NOT_RUN, Status.KNOWN, Status.FAILED)
    results = [
        Result(_rule(f"WHF-{number}", CORE), status) for number, status in enumerate(statuses)
    ]
    rules = [one.rule for one in results]

    assert judge(rules, results)[0].word is Word.FAILED
    assert judge(rules[:2], results[:2])[0].word is Word.PARTIAL


def test_rule_without_a_result_was_not_run() -> None:
    rules = [_rule("WHF-1", CORE), _rule("WHF-2")]

    core, extended = judge(rules, [Result(rules[0], Status.PASSED)])

    assert (core.word, extended.word) == (Word.CONFORMS, Word.PARTIAL)
    assert extended.counts[MUST] == {Status.NOT_RUN: 1}


def test_verdict_without_rules_never_conforms() -> None:
    assert {one.word for one in judge([], [])} == {Word.PARTIAL}


@pytest.mark.parametrize(
    ("status", "word"),
    [(Status.NOT_ASKED, Word.NOT_ASKED), (Status.UNEXPECTED, Word.FAILED)],
)
def test_verdict_on_the_core_alone_needs_no_rule_of_other_profiles(
    status: Status, word: Word
) -> None:
    results = [
        Result(_rule("WHF-1", CORE), Status.PASSED),
        Result(_rule("WHF-2"), status),
    ]

    core, extended = judge([one.rule for one in results], results, CORE)

    assert (core.word, extended.word) == (Word.CONFORMS, word)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((Word.CONFORMS, Word.CONFORMS), 0),
        ((Word.KNOWN_FAILURES, Word.NOT_ASKED), 0),
        ((Word.CONFORMS, Word.PARTIAL), 6),
        ((Word.FAILED, Word.PARTIAL), 1),
        ((Word.PARTIAL, Word.FAILED), 1),
    ],
)
def test_run_exits_with_the_code_of_the_worst_verdict(words: tuple[Word, ...], code: int) -> None:
    verdicts = [Verdict(profile, word, {}) for profile, word in zip(Profile, words, strict=True)]
    assert exit_code(verdicts) == code


def _rule(id: str, profile: Profile = EXTENDED, level: Level = MUST) -> Rule:
    return Rule(
        id=id,
        level=level,
        profile=profile,
        says="It is so.",
        because="It has to be.",
        since="0.1",
        check=lambda subject: None,
    )
