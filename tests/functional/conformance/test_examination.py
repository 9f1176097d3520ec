"""What comes of rules, and what that comes to: with rules of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.harnesses import WorldHarness
from tests.lab.conformance.honest import MachinesDriver
from wharfinger.conformance.examination import Examination, Status
from wharfinger.conformance.harness import Harness, Placement
from wharfinger.conformance.rules import Level, NotShown, Profile, Rule, Violation
from wharfinger.conformance.subject import Subject
from wharfinger.conformance.verdict import ExitCode, Word, exit_code, judge
from wharfinger.driver import Capability, unsupported
from wharfinger.exceptions import BackendError

DRIVER = "machines"
Check = Callable[[Subject], None]


def keeps(_subject: Subject) -> None:
    """Nothing is wrong."""


def breaks(_subject: Subject) -> None:
    raise Violation("a tree of two", "a tree of one")


def a_rule(id: str = "WHF-101", check: Check = keeps, **other: Any) -> Rule:
    settings = {"level": Level.MUST, "profile": Profile.CORE, "since": "0.1", **other}
    return Rule(id=id, says="It is so.", because="Else it is not.", check=check, **settings)


@pytest.fixture
def examination(examiner: Examiner) -> Iterator[Examination]:
    with examiner.examining(DRIVER, examiner.harness(MachinesDriver)) as examination:
        yield examination


@pytest.fixture
def without_harness(examiner: Examiner) -> Iterator[Examination]:
    with examiner.examining(DRIVER, None) as examination:
        yield examination


def word(examination: Examination, *rules: Rule, **asked: Profile) -> tuple[Word, Word, ExitCode]:
    """The verdicts on the core and on all, and what a run ends with."""
    core, extended = verdicts = judge(rules, examination.results.values(), **asked)
    return core.word, extended.word, exit_code(verdicts)


#: Kept, each of one profile: no verdict without.
CORE, EXTENDED = a_rule(), a_rule("WHF-201", profile=Profile.EXTENDED)


def test_a_driver_that_keeps_all_rules_conforms(examination: Examination) -> None:
    examination.look_at([CORE, EXTENDED])

    assert word(examination, CORE, EXTENDED) == (Word.CONFORMS, Word.CONFORMS, ExitCode.CONFORMS)


def test_a_violation_fails_its_profile_alone(examination: Examination) -> None:
    broken = a_rule("WHF-301", breaks, profile=Profile.EXTENDED)

    *_, result = examination.look_at([CORE, EXTENDED, broken])

    assert (result.status, result.found) == (Status.FAILED, "a tree of two")
    assert (result.expected, result.details) == ("a tree of one", "")
    verdicts = word(examination, CORE, EXTENDED, broken)
    assert verdicts == (Word.CONFORMS, Word.FAILED, ExitCode.FAILED)


def raises(error: BaseException) -> Check:
    def check(_subject: Subject) -> NoReturn:
        raise error

    return check


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (BackendError(driver="lab", operation="list", reason="away"), "lab: list failed: away"),
        (KeyError("name"), "KeyError: 'name'"),
        (SystemExit(3), "SystemExit: 3"),
        (AssertionError(), "AssertionError"),
        (ValueError("two\nlines\x1b[31m"), "ValueError"),
    ],
)
def test_what_a_driver_raises_fails_the_rule_with_its_traceback(
    error: BaseException, found: str, examination: Examination
) -> None:
    result = examination.look(a_rule(check=raises(error)))

    assert result.status is Status.FAILED
    assert found in result.found
    assert result.found.isprintable()
    assert Path(__file__).name in result.details or isinstance(error, BackendError)


def test_ctrl_c_is_nobodys_failure(examination: Examination) -> None:
    with pytest.raises(KeyboardInterrupt):
        examination.look(a_rule(check=raises(KeyboardInterrupt())))


@pytest.mark.parametrize("level", [Level.SHOULD, Level.MAY])
def test_what_need_not_be_kept_is_counted_and_changes_no_verdict(
    level: Level, examination: Examination
) -> None:
    broken = a_rule("WHF-301", breaks, level=level)
    examination.look_at([CORE, EXTENDED, broken])

    rules = [CORE, EXTENDED, broken]
    core, _ = judge(rules, examination.results.values())

    assert core.word is Word.CONFORMS
    assert core.counts[level] == {Status.FAILED: 1}
    assert core.counts[Level.MUST] == {Status.PASSED: 1}
    assert word(examination, *rules)[2] is ExitCode.CONFORMS


# What has nothing to look at.


def test_what_comes_after_a_broken_rule_is_not_run_nor_what_comes_after_that(
    examination: Examination, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = [a_rule("WHF-101", breaks), a_rule("WHF-102", after=("WHF-101",))]
    chain.append(a_rule("WHF-103", after=("WHF-102",)))
    monkeypatch.setattr("wharfinger.conformance.rules._REGISTRY", {rule.id: rule for rule in chain})

    results = examination.look_at(chain)

    assert [one.status for one in results] == [Status.FAILED, Status.NOT_RUN, Status.NOT_RUN]
    assert {one.found for one in results[1:]} == {"WHF-101 is not kept"}


def test_a_rule_for_another_capability_is_exempt_and_says_why(examination: Examination) -> None:
    for_others = a_rule("WHF-301", breaks, supports="nested_providers")
    not_for_it = a_rule("WHF-302", breaks, denies="change_feed")

    first, second, *_ = examination.look_at([for_others, not_for_it, CORE, EXTENDED])

    assert {first.status, second.status} == {Status.EXEMPT}
    assert first.found == "nested_providers is not supported: a machine is one provider"
    assert second.found == "change_feed is supported"
    verdicts = word(examination, CORE, EXTENDED, for_others, not_for_it)
    assert verdicts == (Word.CONFORMS, Word.CONFORMS, ExitCode.CONFORMS)


class NeverBusy(WorldHarness):
    """Machines that are free at any time."""

    busy: Capability = unsupported("whoever has a machine keeps it")  # type: ignore[misc]


def test_where_nothing_is_ever_busy_such_rules_are_exempt(examiner: Examiner) -> None:
    with examiner.examining(DRIVER, started(NeverBusy, examiner)) as examination:
        result = examination.look(a_rule(check=breaks, busy=True))

    assert result.status is Status.EXEMPT
    assert result.found == "nothing is ever busy: whoever has a machine keeps it"


def test_a_rule_is_not_run_where_it_finds_that_nothing_can_be_seen(
    examination: Examination,
) -> None:
    unseen = a_rule("WHF-301", raises(NotShown("there is one thing alone")))

    *_, result = examination.look_at([CORE, EXTENDED, unseen])

    assert (result.status, result.found) == (Status.NOT_RUN, "there is one thing alone")
    verdicts = word(examination, CORE, EXTENDED, unseen)
    assert verdicts == (Word.PARTIAL, Word.CONFORMS, ExitCode.PARTIAL)


def test_a_driver_that_there_is_not_fails_the_first_rule_and_no_other_is_run(
    examiner: Examiner,
) -> None:
    def load(subject: Subject) -> None:
        assert subject.kind

    with examiner.examining("nobody", None) as examination:
        first, second = examination.look_at(
            [a_rule(check=load), a_rule("WHF-102", after=("WHF-101",))]
        )

    assert (first.status, second.status) == (Status.FAILED, Status.NOT_RUN)
    assert "nobody" in first.found


# The harness.


def started(kind: type[WorldHarness], examiner: Examiner) -> Harness:
    directory = examiner.directory / "harness"
    directory.mkdir()
    return kind(directory, examiner.placement)


def test_without_a_harness_extended_rules_are_not_run(without_harness: Examination) -> None:
    core, extended = without_harness.look_at([CORE, EXTENDED])

    assert core.status is Status.PASSED
    assert (extended.status, extended.found) == (Status.NOT_RUN, "there is no harness")
    verdicts = word(without_harness, CORE, EXTENDED)
    assert verdicts == (Word.CONFORMS, Word.PARTIAL, ExitCode.PARTIAL)


def test_a_rule_of_the_core_that_asks_for_a_harness_is_not_run(
    without_harness: Examination,
) -> None:
    result = without_harness.look(a_rule(check=lambda subject: subject.harness.restart()))

    assert (result.status, result.found) == (Status.NOT_RUN, "there is no harness")


class Broken(WorldHarness):
    """Fails in what is asked of it."""

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.may_reset = True

    def reset(self) -> None:
        """Fail, if it is to."""
        if not self.may_reset:
            raise OSError("no space left")
        super().reset()

    def add(self) -> str:
        """Fail as a program does."""
        raise LookupError("no slot")

    def make_busy(self, thing: str) -> None:
        """Fail as what is left out does."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("does", "found"),
    [
        (lambda subject: subject.harness.add(), "the harness failed in add: LookupError: no slot"),
        (lambda subject: subject.harness.make_busy(""), "the harness has no make_busy"),
    ],
)
def test_a_harness_that_fails_is_not_the_drivers_failure(
    does: Check, found: str, examiner: Examiner
) -> None:
    rule = a_rule("WHF-201", does, profile=Profile.EXTENDED)
    with examiner.examining(DRIVER, started(Broken, examiner)) as examination:
        _, result = examination.look_at([CORE, rule])

        assert (result.status, result.found) == (Status.NOT_RUN, found)
        verdicts = word(examination, CORE, rule)
        assert verdicts == (Word.CONFORMS, Word.PARTIAL, ExitCode.PARTIAL)


def test_a_harness_that_cannot_be_reset_leaves_all_rules_unseen(examiner: Examiner) -> None:
    harness = started(Broken, examiner)
    assert isinstance(harness, Broken)
    harness.may_reset = False
    with examiner.examining(DRIVER, harness) as examination:
        results = examination.look_at([CORE, EXTENDED])

    assert {one.status for one in results} == {Status.NOT_RUN}
    assert {one.found for one in results} == {"the harness failed in reset: OSError: no space left"}


class Counting(WorldHarness):
    """Counts how often it is reset."""

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.resets = 0

    def reset(self) -> None:
        """Once more."""
        self.resets += 1
        super().reset()


def publishes(subject: Subject) -> None:
    with subject.publishing() as publishing:
        publishing.settle()


def changes_after_a_beginning_of_its_own(subject: Subject) -> None:
    harness = subject.harness
    subject.begin()
    harness.remove(harness.things()[0])


@pytest.mark.parametrize(
    ("check", "resets"),
    [
        pytest.param(keeps, 1, id="nothing is done"),
        pytest.param(lambda subject: subject.load(), 1, id="a driver is made"),
        pytest.param(publishes, 2, id="something is published"),
        pytest.param(lambda subject: subject.harness.add(), 2, id="the backend is changed"),
        pytest.param(changes_after_a_beginning_of_its_own, 3, id="it begins once more itself"),
    ],
)
def test_each_rule_begins_as_after_a_reset(examiner: Examiner, check: Check, resets: int) -> None:
    things, published = [], []

    def looks(subject: Subject) -> None:
        things.append([*subject.harness.things()])
        published.append(subject.placement.contents())

    harness = started(Counting, examiner)
    assert isinstance(harness, Counting)
    with examiner.examining(DRIVER, harness) as examination:
        examination.look_at([a_rule(check=check), a_rule("WHF-102", looks)])
        assert harness.resets == resets
        examination.look_at([a_rule("WHF-103", looks)])

    assert harness.resets == resets + 1
    assert things[0] == things[1]
    assert published[0] == published[1]


# What was declared to fail.


@pytest.fixture
def knowing(examiner: Examiner) -> Iterator[Examination]:
    """An examination that knows of a failure of WHF-301."""
    known = {"WHF-301": "bug 17"}
    with examiner.examining(DRIVER, examiner.harness(MachinesDriver), known=known) as examination:
        yield examination


@pytest.mark.parametrize("level", Level)
def test_a_failure_that_was_declared_is_known(level: Level, knowing: Examination) -> None:
    broken = a_rule("WHF-301", breaks, level=level)

    *_, result = knowing.look_at([CORE, EXTENDED, broken])

    assert result.status is Status.KNOWN
    assert not result.status.is_bad
    assert result.found == "bug 17 (a tree of two)"
    is_must = level is Level.MUST
    core = Word.KNOWN_FAILURES if is_must else Word.CONFORMS
    assert word(knowing, CORE, EXTENDED, broken) == (core, Word.CONFORMS, ExitCode.CONFORMS)


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("supports", [None, "reshape"])
def test_a_pass_or_an_exemption_that_was_declared_to_fail_is_bad(
    level: Level, supports: str | None, knowing: Examination
) -> None:
    kept = a_rule("WHF-301", level=level, supports=supports)

    *_, result = knowing.look_at([CORE, EXTENDED, kept])

    assert result.status is Status.UNEXPECTED
    assert result.status.is_bad
    assert "bug 17" in result.found
    verdicts = word(knowing, CORE, EXTENDED, kept)
    assert verdicts == (Word.FAILED, Word.CONFORMS, ExitCode.FAILED)


def test_a_known_failure_that_is_not_run_stays_so(knowing: Examination) -> None:
    unseen = a_rule("WHF-301", raises(NotShown("there is no image")))

    assert knowing.look(unseen).status is Status.NOT_RUN


def test_what_comes_after_a_known_failure_is_not_run(knowing: Examination) -> None:
    rules = [CORE, EXTENDED, a_rule("WHF-301", breaks), a_rule("WHF-302", after=("WHF-301",))]

    *_, result = knowing.look_at(rules)

    assert result.status is Status.NOT_RUN
    verdicts = word(knowing, *rules)
    assert verdicts == (Word.PARTIAL, Word.CONFORMS, ExitCode.PARTIAL)


# What was asked for.


def test_a_deselected_rule_makes_it_partial(examination: Examination) -> None:
    examination.look_at([CORE, EXTENDED])

    for level in Level:
        left_out = a_rule("WHF-302", level=level)
        verdicts = word(examination, CORE, EXTENDED, left_out)
        assert verdicts == (Word.PARTIAL, Word.CONFORMS, ExitCode.PARTIAL)


def test_a_failure_counts_more_than_what_is_missing(examination: Examination) -> None:
    broken = a_rule("WHF-301", breaks)
    examination.look_at([broken, EXTENDED])

    verdicts = word(examination, CORE, EXTENDED, broken)
    assert verdicts == (Word.FAILED, Word.CONFORMS, ExitCode.FAILED)


def test_nothing_looked_at_is_partial(examination: Examination) -> None:
    verdicts = word(examination, CORE, EXTENDED)
    assert verdicts == (Word.PARTIAL, Word.PARTIAL, ExitCode.PARTIAL)


def test_no_rules_at_all_are_no_conformance(examination: Examination) -> None:
    assert word(examination) == (Word.PARTIAL, Word.PARTIAL, ExitCode.PARTIAL)


def test_the_core_alone_is_asked_for(examiner: Examiner) -> None:
    harness = examiner.harness(MachinesDriver)
    with examiner.examining(DRIVER, harness, profile=Profile.CORE) as examination:
        core, extended = examination.look_at(
            [CORE, a_rule("WHF-201", breaks, profile=Profile.EXTENDED)]
        )

    assert (core.status, extended.status) == (Status.PASSED, Status.NOT_ASKED)
    verdicts = word(examination, CORE, EXTENDED, asked=Profile.CORE)
    assert verdicts == (Word.CONFORMS, Word.NOT_ASKED, ExitCode.CONFORMS)


# Each rule begins anew.


def test_each_rule_begins_with_an_empty_placement_and_a_whole_backend(
    examination: Examination,
) -> None:
    seen = []

    def look_and_leave_traces(subject: Subject) -> None:
        harness = subject.harness
        seen.append((dict(subject.placement.contents()), [*harness.things()], [*harness.calls]))
        with subject.publishing() as publishing:
            publishing.settle()
        harness.remove(harness.things()[0])
        assert subject.placement.contents()
        assert harness.calls

    examination.look_at([a_rule(id, look_and_leave_traces) for id in ("WHF-101", "WHF-102")])

    assert [one.status for one in examination.results.values()] == [Status.PASSED] * 2
    assert seen == [({}, ["machine-0", "machine-1"], [])] * 2
