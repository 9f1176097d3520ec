"""Each rule is a test."""

import pytest

from wharfinger.conformance import terminal_output
from wharfinger.conformance.pytest_session import properties
from wharfinger.conformance.rule_runner import Status
from wharfinger.conformance.rules import Level, Rule, all_rules
from wharfinger.conformance.run_setup import Run


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in all_rules()])
def test_rule(rule: Rule, conformance_run: Run, request: pytest.FixtureRequest) -> None:
    """Look whether a rule is kept."""
    result = conformance_run.look(rule)
    request.node.user_properties += properties(result)
    match result.status:
        case Status.EXEMPT | Status.NOT_RUN | Status.NOT_ASKED:
            pytest.skip(result.found or result.status)
        case Status.KNOWN:
            pytest.xfail(result.found)
        case Status.FAILED if rule.level is not Level.MUST:
            pytest.xfail(result.found)
        case status if status.is_bad:
            pytest.fail(terminal_output.failure(result, conformance_run.asked), pytrace=False)
