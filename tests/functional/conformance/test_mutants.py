"""Each rule is broken by a driver made for that, which breaks no other; honest ones break none."""

import re
from collections.abc import Sequence, Set

import pytest

from tests.functional.conformance.conftest import Honest
from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.honest import DevicesDriver, LabDriver, MachinesDriver
from tests.lab.conformance.mutants import ALSO_BROKEN, all_mutants
from tests.lab.conformance.reach import honest as honest_of
from tests.lab.conformance.unusual import UNUSUAL
from tests.lab.drawing import Draw
from wharfinger.conformance.overall_verdict import ExitCode, Word, exit_code, judge
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Rule, all_rules

RULES = {rule.id: rule for rule in all_rules()}
MUTANTS = [*all_mutants()]
#: What there is to see where a rule is kept, or is not to be.
KEPT = {Status.PASSED, Status.EXEMPT}


@pytest.mark.parametrize("kind", [DevicesDriver, MachinesDriver])
def test_an_honest_driver_conforms(kind: type, honest: Honest, examiner: Examiner) -> None:
    results, _ = honest.seen(kind, examiner)

    assert {id: told(one) for id, one in results.items() if one.status not in KEPT} == {}
    verdicts = judge([*RULES.values()], results.values())
    assert [verdict.word for verdict in verdicts] == [Word.CONFORMS] * 2
    assert exit_code(verdicts) is ExitCode.CONFORMS


#: Histories are long: a hundred of them may be played before one shows the defect.
ONLY_WITH_ALL = {"WHF-991": pytest.mark.drawn(0)}


@pytest.mark.drawn(14)
@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        pytest.param(rule, kind, marks=ONLY_WITH_ALL.get(rule, ()), id=f"{rule}-{kind.__name__}")
        for rule, kind in MUTANTS
    ],
)
def test_a_mutant_breaks_its_rule_and_no_other(
    rule: str, kind: type[LabDriver], honest: Honest, examiner: Examiner, draw: Draw
) -> None:
    # Where it would do what the honest one does, that has been seen.
    _, reach = honest.seen(honest_of(kind), examiner)
    others = draw([id for id in RULES if id != rule and reach.is_otherwise(kind, id)], 2)
    rules = [one for id, one in RULES.items() if id == rule or id in others]

    results = examined(kind, rule, rules, examiner)

    failed = {id: told(one) for id, one in results.items() if one.status is Status.FAILED}
    also = ALSO_BROKEN[kind]
    assert rule in failed, {id: told(one) for id, one in results.items()}
    assert failed.keys() <= {rule, *also}, failed
    assert results.pop(rule).found
    later = after(rule).union(*map(after, also))
    wrong = {
        id: told(one)
        for id, one in results.items()
        if id not in also and not is_as_it_has_to_be(one, later)
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("rule", "kind"), UNUSUAL, ids=[f"{rule}-{kind.__name__}" for rule, kind in UNUSUAL]
)
def test_what_is_unusual_and_right_is_not_failed(
    rule: str, kind: type[LabDriver], examiner: Examiner
) -> None:
    result = examined(kind, rule, [RULES[rule]], examiner)[rule]

    assert result.status is Status.PASSED, told(result)


def examined(
    kind: type[LabDriver], broken: str, rules: Sequence[Rule], examiner: Examiner
) -> dict[str, Result]:
    # One history is enough where it is another rule that is broken. Where it is that of histories,
    # the first one that shows it is the last: what hypothesis draws depends on what else is loaded.
    examples = 100 if broken == "WHF-991" else 1
    harness = examiner.harness(kind)
    with examiner.examining(kind.__qualname__, harness, examples=examples) as examination:
        return {one.rule.id: one for one in examination.look_at(rules)}


def is_as_it_has_to_be(result: Result, later: Set[str]) -> bool:
    expected = {Status.NOT_RUN, Status.EXEMPT} if result.rule.id in later else KEPT
    return result.status in expected


def after(id: str) -> set[str]:
    """The rules that have nothing to look at without one."""
    found = {id}
    for rule in RULES.values():
        if found & {*rule.after}:
            found.add(rule.id)
    return found - {id}


def told(result: Result) -> str:
    return f"{result.status}: {result.found} | {result.expected} {result.details}"


# The registry.


def test_each_rule_has_a_mutant_that_says_its_defect() -> None:
    assert {rule for rule, _ in MUTANTS} == RULES.keys()
    for _, kind in MUTANTS:
        assert kind.__doc__ and kind.__doc__ != LabDriver.__doc__, kind


def test_rules_are_told_in_sentences() -> None:
    for rule in RULES.values():
        assert re.fullmatch(r"WHF-\d{3}", rule.id)
        for text in (rule.says, rule.because):
            assert re.fullmatch(r"[A-Za-z].*[^.]\.", text), text
        assert rule.check.__doc__, rule.id
        assert re.fullmatch(r"\d+\.\d+", rule.since), rule.id


def test_rules_come_after_earlier_ones_and_the_core_after_the_core() -> None:
    for rule in RULES.values():
        assert all(id in RULES and id < rule.id for id in rule.after), rule.id
        if rule.profile == "core":
            assert {RULES[id].profile for id in rule.after} <= {"core"}, rule.id
