"""Each rule is broken by a mutant, a driver written for that; honest drivers break no rule."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from tests.lab.conformance.examining import SLOW, Examiner
from tests.lab.conformance.honest import DevicesDriver, LabDriver, MachinesDriver
from tests.lab.conformance.mutants import all_mutants
from tests.lab.conformance.mutants.listing import StopsAtAnError
from tests.lab.conformance.unusual import CONFORMING, UNUSUAL
from tests.lab.drawing import Draw
from wharfinger.conformance.checks import change_feed, listing
from wharfinger.conformance.overall_verdict import ExitCode, Word, exit_code, judge
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Profile, Rule, all_rules, requirements

RULES = {rule.id: rule for rule in all_rules()}
MUTANTS = [*all_mutants()]
NAMES: dict[type, str] = {DevicesDriver: "devices", MachinesDriver: "machines"}
#: Rules that start processes or test all calls. They are too slow for mutants of other rules.
IN_PROCESSES = {f"WHF-{id}" for id in (305, 811, 812, 813, 814, 815, 817)}
#: Statuses of a rule that is not broken.
KEPT = {Status.PASSED, Status.EXEMPT}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", [DevicesDriver, MachinesDriver])
def test_honest_driver_conforms(kind: type[LabDriver], examiner: Examiner, draw: Draw) -> None:
    ids = sorted(draw(sorted(RULES.keys() - SLOW), 4) + draw(sorted(SLOW), 1))

    results = examined(kind, [RULES[id] for id in ids], examiner, examples=2)

    assert {id: told(one) for id, one in results.items() if one.status not in KEPT} == {}
    if len(ids) == len(RULES):
        verdicts = judge([*RULES.values()], results.values())
        assert [verdict.word for verdict in verdicts] == [Word.CONFORMS] * 2
        assert exit_code(verdicts) is ExitCode.CONFORMS


#: Rules and mutants that only runs with --all test. It may take a hundred long histories to show
#: the defect of WHF-991. Only processor time shows the two mutants; a busy machine may hide it.
ONLY_WITH_ALL = {"WHF-991", "AsksTheTreeForAll", "WritesAllDown"}


#: Rules that must run before a rule, because they create what its mutants need.
SITUATIONS = {"WHF-999": ("WHF-922",)}


def cases(drivers: Iterable[tuple[str, type[LabDriver]]], *, slow: bool) -> list[Any]:
    return [
        pytest.param(
            rule,
            kind,
            marks=[pytest.mark.drawn(0)] * bool({rule, kind.__name__} & ONLY_WITH_ALL),
            id=f"{rule}-{kind.__name__}",
        )
        for rule, kind in drivers
        if (rule in SLOW) is slow
    ]


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("rule", "kind"), cases(MUTANTS, slow=False))
def test_mutant_breaks_its_rule(rule: str, kind: type[LabDriver], examiner: Examiner) -> None:
    see_broken(rule, kind, examiner)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("rule", "kind"), cases(MUTANTS, slow=True))
def test_mutant_breaks_its_slow_rule(rule: str, kind: type[LabDriver], examiner: Examiner) -> None:
    see_broken(rule, kind, examiner)


def see_broken(rule: str, kind: type[LabDriver], examiner: Examiner) -> None:
    if rule in examiner.seconds:  # give time for more histories; the first broken one is the last
        examiner.seconds[rule] = 60.0
    # Hypothesis may draw the breaking case late: its draws depend on the loaded modules.
    examples = 100 if rule == "WHF-991" else 1
    rules = [RULES[id] for id in (*SITUATIONS.get(rule, ()), rule)]
    result = examined(kind, rules, examiner, examples)[rule]

    assert result.status is Status.FAILED, told(result)
    assert result.found


def test_listing_rule_without_time_still_fails_each_later_call(
    examiner: Examiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_TRYING", -1.0)
    monkeypatch.setattr(listing, "_PAGED", 256)

    see_broken("WHF-451", StopsAtAnError, examiner)


#: Other rules that a mutant breaks, too, although mutants should keep them.
ALSO_BROKEN = {"ThinksItIsTheProgram": {"WHF-102"}, "HasAnotherUuid": {"WHF-208"}}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("rule", "kind"), [*cases(MUTANTS, slow=False), *cases(MUTANTS, slow=True)]
)
def test_mutant_keeps_the_core_and_the_rules_before_its_own(
    rule: str, kind: type[LabDriver], examiner: Examiner
) -> None:
    core = {one.id for one in RULES.values() if one.profile is Profile.CORE}
    ids = (core | requirements([rule])) - SLOW - IN_PROCESSES - {rule}
    if rule in core:
        ids -= {one for one in core if rule in requirements([one])}

    results = examined(kind, [RULES[id] for id in sorted(ids)], examiner)

    broken = {id for id, one in results.items() if one.status is Status.FAILED}
    assert broken == ALSO_BROKEN.get(kind.__name__, set()), [told(results[id]) for id in broken]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("rule", "kind"), cases(UNUSUAL, slow=False))
def test_unusual_driver_that_is_right_keeps_its_rule(
    rule: str, kind: type[LabDriver], examiner: Examiner
) -> None:
    see_kept(rule, kind, examiner)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("rule", "kind"), cases(UNUSUAL, slow=True))
def test_unusual_driver_that_is_right_keeps_a_slow_rule(
    rule: str, kind: type[LabDriver], examiner: Examiner
) -> None:
    see_kept(rule, kind, examiner)


def see_kept(rule: str, kind: type[LabDriver], examiner: Examiner) -> None:
    result = examined(kind, [RULES[rule]], examiner)[rule]

    assert result.status is (Status.UNPROVEN if kind.older else Status.PASSED), told(result)


@pytest.mark.drawn(0)
@pytest.mark.parametrize("kind", CONFORMING)
def test_unusual_driver_that_is_right_conforms(
    kind: type[LabDriver], examiner: Examiner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_feed, "_QUIET", 30.0)  # one of these feeds names a machine for 5 s
    results = examined(kind, [*RULES.values()], examiner, examples=4)

    assert {id: told(one) for id, one in results.items() if one.status not in KEPT} == {}


def examined(
    kind: type[LabDriver], rules: Sequence[Rule], examiner: Examiner, examples: int = 1
) -> dict[str, Result]:
    name = NAMES.get(kind, kind.__qualname__)
    with examiner.examining(name, examiner.harness(kind), examples=examples) as examination:
        return {one.rule.id: one for one in examination.check_all(rules)}


def told(result: Result) -> str:
    return f"{result.status}: {result.found} | {result.expected} {result.details}"


# The registry.


def test_rule_has_a_mutant_with_a_description() -> None:
    assert {rule for rule, _ in MUTANTS} == RULES.keys()
    for _, kind in MUTANTS:
        assert kind.__doc__ and kind.__doc__ != LabDriver.__doc__, kind


def test_rules_are_described_in_sentences() -> None:
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
