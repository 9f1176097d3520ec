"""Histories of faults for drivers that cache the answers of an HTTP backend."""

import pytest

from tests.lab.conformance.examining import Examiner
from tests.lab.conformance.tagged import TagsHarness
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import all_rules

pytestmark = pytest.mark.drawn(1, of="module")

RULES = {rule.id: rule for rule in all_rules()}


def examined(name: str, rule: str, examiner: Examiner) -> Result:
    directory = examiner.directory / "backend"
    directory.mkdir()
    harness = TagsHarness(directory, examiner.placement)
    with examiner.examining(name, harness) as examination:
        return examination.check(RULES[rule])


@pytest.mark.parametrize("rule", ["WHF-721", "WHF-722", "WHF-723"])
def test_driver_that_keeps_answers_with_their_tags_passes(rule: str, examiner: Examiner) -> None:
    result = examined("tags", rule, examiner)

    assert result.status is Status.PASSED, result
    assert "faults were tried (seed 1)" in result.found


def test_driver_that_keeps_a_tag_without_its_answer_fails(examiner: Examiner) -> None:
    examiner.seconds["WHF-721"] = 60.0
    result = examined("tags-before-reading", "WHF-721", examiner)

    assert result.status is Status.FAILED, result
    assert "gets half an answer" in result.found
    assert "of the step" in result.found
