"""The kit's tests for pytest, one for each rule."""

import pytest

from wharfinger.conformance import terminal_output
from wharfinger.conformance.rule_runner import Status
from wharfinger.conformance.rules import Level, Rule, all_rules
from wharfinger.conformance.run import Run


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in all_rules()])
def test_rule(rule: Rule, conformance_run: Run, request: pytest.FixtureRequest) -> None:
    """Check a rule, and report the result to pytest."""
    result = conformance_run.check(rule)
    request.node.user_properties += [
        ("rule", rule.id),
        ("level", str(rule.level)),
        ("profile", str(rule.profile)),
        ("status", str(result.status)),
        ("found", result.found),
        ("expected", result.expected),
    ]
    match result.status:
        case Status.EXEMPT | Status.NOT_RUN | Status.NOT_ASKED | Status.UNPROVEN:
            pytest.skip(result.found or result.status)
        case Status.KNOWN:
            pytest.xfail(result.found)
        case Status.FAILED if rule.level is not Level.MUST:
            pytest.xfail(result.found)
        case status if status.is_bad:
            pytest.fail(terminal_output.failure(result, conformance_run.asked), pytrace=False)
