"""Correct drivers of outside authors conform; defects of wrong drivers are found."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conformance.examining import SLOW, Examiner
from tests.lab.drawing import Draw
from tests.lab.outsiders.many import MANY
from tests.lab.outsiders.right import right
from tests.lab.outsiders.running import (
    Installed,
    Outsider,
    examining,
    look_until_found,
    run_command,
)
from tests.lab.outsiders.wrong import wrong
from wharfinger.conformance.overall_verdict import ExitCode, exit_code, judge
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Level, all_rules

RULES = [*all_rules()]
#: Wrong drivers whose defect no rule finds, with the reason. Each is expected to conform.
ESCAPES = {
    "MovesToTheFirstDevice": "its harness does not say which device an instance uses",
    "MovesToTheLastDevice": "its harness does not say which device an instance uses",
    "MovesTheOtherInstances": "its harness does not say which device an instance uses",
}
KNOWN = {name: pytest.mark.xfail(reason=reason) for name, reason in ESCAPES.items()}
#: Rules that may need a hundred random histories to find a defect.
HISTORIES = {"WHF-991"}
#: Marks drivers that only runs with --all test: only a slow rule finds their defect, or none.
OTHERS = pytest.mark.drawn(0)


def cases(apart: bool) -> list[Any]:
    return [
        pytest.param(
            one,
            id=one.name,
            marks=[
                *([KNOWN[one.name]] if one.name in KNOWN else []),
                *([OTHERS] if one.name in KNOWN or {*one.rules} <= HISTORIES | SLOW else []),
            ],
        )
        for one in wrong.all.values()
        if one.apart is apart
    ]


def name(outsider: Outsider) -> str:
    return outsider.name


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("outsiders") / "installed"
    with Installed(directory, [*right.all.values(), *wrong.all.values(), MANY]):
        yield directory


@pytest.mark.drawn(1)
@pytest.mark.parametrize("outsider", right.all.values(), ids=name)
def test_right_driver_breaks_no_rule(outsider: Outsider, examiner: Examiner, draw: Draw) -> None:
    ids = draw([rule.id for rule in RULES if rule.id not in SLOW], 3) + draw(sorted(SLOW), 1)

    with examining(outsider, examiner.directory, examiner.placement) as examination:
        results = examination.check_all([rule for rule in RULES if rule.id in ids])

    bad = {Status.FAILED, Status.NOT_RUN}
    musts = [one for one in results if one.rule.level is Level.MUST]
    assert {one.rule.id: told(one) for one in musts if one.status in bad} == {}
    if len(ids) == len(RULES):
        assert exit_code(judge(RULES, results)) is ExitCode.CONFORMS


@pytest.mark.drawn(0)
def test_right_driver_with_two_thousand_nodes_breaks_no_rule(examiner: Examiner) -> None:
    with examining(MANY, examiner.directory, examiner.placement, examples=0) as examination:
        results = examination.check_all(RULES)

    assert {one.rule.id: told(one) for one in results if one.status is Status.FAILED} == {}
    assert exit_code(judge(RULES, results)) is ExitCode.CONFORMS


@pytest.mark.drawn(3)
@pytest.mark.parametrize("outsider", cases(apart=False))
def test_defect_of_a_wrong_driver_is_found(outsider: Outsider, examiner: Examiner) -> None:
    examples = 100 if HISTORIES & {*outsider.rules} else 2
    with examining(
        outsider, examiner.directory, examiner.placement, examples=examples
    ) as examination:
        results = look_until_found(examination, RULES, outsider.rules)

    verdict = exit_code(judge([one.rule for one in results], results))
    assert verdict is ExitCode.FAILED, outsider.driver.__doc__


@pytest.mark.drawn(1)
@pytest.mark.parametrize("outsider", cases(apart=True))
def test_command_finds_a_defect_that_spoils_its_process(
    outsider: Outsider, tmp_path: Path, installed: Path
) -> None:
    rules = [f"--rule={id}" for id in outsider.rules]
    done = run_command(outsider.name, tmp_path, installed, "--timeout=30", *rules)

    assert done.returncode == ExitCode.FAILED, f"{outsider.driver.__doc__}\n{done.stdout[-2000:]}"


def test_wrong_driver_has_a_description_of_its_defect() -> None:
    for outsider in wrong.all.values():
        assert outsider.driver.__doc__, outsider.name
        assert {*outsider.rules} <= {rule.id for rule in RULES}, outsider.name


def told(result: Result) -> str:
    return f"{result.status}: {result.found} | {result.expected} {result.details}"
