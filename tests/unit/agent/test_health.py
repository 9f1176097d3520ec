"""Health and readiness for each status of the agent."""

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tests.lab.agent_status import (
    INTERVALS,
    NOW,
    agent,
    instance,
    report,
    statuses,
    statuses_of_instances,
    with_cycle,
)
from wharfinger.agent.health import FIRST_FULL_CYCLE, Check, CheckName, Verdict, health, ready
from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import AgentStatus, InstanceReport, InstanceStatus, State

FULL, DRIFT, POLL = CycleType


def problems(status: AgentStatus) -> list[Check]:
    return [one for one in health(status, NOW).checks if one.verdict is not Verdict.PASS]


def starting(**changes: Any) -> InstanceStatus:
    values: dict[str, Any] = {
        "state": State.STARTING,
        "since": NOW - 200,
        "started_at": NOW - 200,
        "completed_at": {},
        "report": InstanceReport(cycle=FULL, cycle_began_at=NOW - 199),
    }
    return instance(**(values | changes))


def test_health_of_agent_at_work_passes() -> None:
    assert health(agent(), NOW).verdict is Verdict.PASS
    assert health(agent(instance("metal"), instance("gpus")), NOW).verdict is Verdict.PASS


def test_health_of_agent_without_instance_passes() -> None:
    assert (
        health(AgentStatus(started_at=NOW, looked_at=NOW, intervals=INTERVALS), NOW).verdict
        is Verdict.PASS
    )


def test_health_of_starting_instance_passes() -> None:
    assert problems(agent(starting())) == []


def aged(kind: CycleType, age: float) -> InstanceStatus:
    """Return an instance whose last cycle of this type ended ``age`` seconds ago."""
    one = with_cycle(instance(), FULL, completed_at=NOW - age if kind is FULL else NOW - 500)
    return with_cycle(one, kind, completed_at=NOW - age)


CASES = {
    "wedged": (instance(state=State.WEDGED), CheckName.STATE, Verdict.FAIL),
    "crash loop": (instance(state=State.CRASH_LOOP), CheckName.STATE, Verdict.FAIL),
    "ended": (instance(state=State.ENDED), CheckName.STATE, Verdict.WARN),
    "stopping": (instance(state=State.STOPPING), CheckName.STATE, Verdict.WARN),
    "driver call for as long as the hang timeout": (
        instance(driver_call="snapshot", driver_call_began_at=NOW - 300),
        CheckName.STATE,
        Verdict.FAIL,
    ),
    "full cycle stale": (aged(FULL, 600), CheckName.FULL_CYCLE, Verdict.FAIL),
    "drift cycle stale": (aged(DRIFT, 120), CheckName.DRIFT_CYCLE, Verdict.FAIL),
    "full cycle failed": (
        with_cycle(instance(), FULL, error="no answer"),
        CheckName.FULL_CYCLE,
        Verdict.WARN,
    ),
    "drift cycle failed": (
        with_cycle(instance(), DRIFT, error="no answer"),
        CheckName.DRIFT_CYCLE,
        Verdict.WARN,
    ),
    "poll failed": (with_cycle(instance(), POLL, error="no"), CheckName.POLL, Verdict.WARN),
    "Placement away for 3 cycles": (
        instance(report=report(unreachable_cycles=3)),
        CheckName.PLACEMENT,
        Verdict.WARN,
    ),
    "Placement away for 4 cycles": (
        instance(report=report(unreachable_cycles=4)),
        CheckName.PLACEMENT,
        Verdict.FAIL,
    ),
    "problem of a tree": (
        instance(report=report(problems=("node n has no memory",))),
        CheckName.PROBLEMS,
        Verdict.WARN,
    ),
    "first full cycle failed": (
        with_cycle(starting(), FULL, failed=1, error="no answer"),
        CheckName.FULL_CYCLE,
        Verdict.WARN,
    ),
    "first full cycle long": (
        starting(started_at=NOW - 600),
        CheckName.FULL_CYCLE,
        Verdict.WARN,
    ),
    "first full cycle never ends": (
        starting(started_at=NOW - 600 - FIRST_FULL_CYCLE),
        CheckName.FULL_CYCLE,
        Verdict.FAIL,
    ),
    "first full cycle failed, and was tried for 2 intervals": (
        with_cycle(starting(started_at=NOW - 600), FULL, failed=3, error="no answer"),
        CheckName.FULL_CYCLE,
        Verdict.FAIL,
    ),
    "started again": (
        instance(restarts=1, since=NOW - 5, report=InstanceReport(driver="ironic")),
        CheckName.STATE,
        Verdict.WARN,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_health_of_condition_names_its_check_and_instance(case: str) -> None:
    bad, name, verdict = CASES[case]
    status = agent(instance("good"), bad)

    assert [(one.name, one.instance, one.verdict) for one in problems(status)] == [
        (name, "metal", verdict)
    ]
    assert all(one.output.endswith(".") for one in problems(status))
    assert health(status, NOW).verdict is verdict


@pytest.mark.parametrize("kind", [FULL, DRIFT])
def test_health_passes_until_two_intervals_have_gone(kind: CycleType) -> None:
    limit = 2 * (INTERVALS.full if kind is FULL else INTERVALS.drift)

    assert problems(agent(aged(kind, limit - 1))) == []
    assert problems(agent(aged(kind, limit))) != []


@pytest.mark.parametrize(("age", "verdict"), [(1399, Verdict.WARN), (1400, Verdict.FAIL)])
def test_health_of_long_full_cycle_warns_until_its_usual_time(age: float, verdict: Verdict) -> None:
    one = with_cycle(instance(), FULL, last_seconds=800.0, completed_at=NOW - age)
    one = with_cycle(one, DRIFT, completed_at=NOW - 1)
    one = replace(
        one,
        report=replace(one.report, cycle=FULL, cycle_began_at=NOW - age + 300),
    )

    assert [(one.name, one.verdict) for one in problems(agent(one))] == [
        (CheckName.FULL_CYCLE, verdict)
    ]


def in_progress(one: InstanceStatus, kind: CycleType, **changes: Any) -> InstanceStatus:
    return replace(one, report=replace(one.report, cycle=kind, cycle_began_at=NOW - 1, **changes))


def failures(one: InstanceStatus) -> set[CheckName]:
    return {check.name for check in problems(agent(one)) if check.verdict is Verdict.FAIL}


def test_health_of_a_late_full_cycle_fails_also_during_a_long_poll() -> None:
    one = with_cycle(aged(FULL, 600), POLL, last_seconds=800.0)

    assert failures(in_progress(one, POLL)) == {CheckName.FULL_CYCLE}


def test_health_of_a_late_cycle_in_progress_fails_if_the_last_one_failed() -> None:
    one = with_cycle(aged(FULL, 600), FULL, last_seconds=800.0, error="no answer")

    assert failures(in_progress(one, FULL)) == {CheckName.FULL_CYCLE}


@pytest.mark.parametrize("state", [State.ENDED, State.CRASH_LOOP, State.WEDGED, State.STOPPING])
def test_health_of_a_late_cycle_in_progress_fails_if_the_instance_does_not_work(
    state: State,
) -> None:
    one = replace(with_cycle(aged(FULL, 600), FULL, last_seconds=800.0), state=state)

    assert CheckName.FULL_CYCLE in failures(in_progress(one, FULL))


def test_health_of_running_instance_with_new_report_counts_from_its_start() -> None:
    one = instance(since=NOW - 5, completed_at={}, report=InstanceReport())
    assert problems(agent(one)) == []

    one = replace(one, since=NOW - 130)
    assert failures(one) == {CheckName.DRIFT_CYCLE}


def test_health_of_instance_that_starts_again_warns_until_its_full_cycle() -> None:
    again = starting(
        restarts=1, started_at=NOW - 90_000, since=NOW - 5, completed_at={FULL: NOW - 200}
    )
    status = agent(again)

    assert [(one.name, one.verdict) for one in problems(status)] == [
        (CheckName.STATE, Verdict.WARN)
    ]
    assert ready(status).verdict is Verdict.PASS


def test_health_of_ended_instance_counts_from_its_last_full_cycle() -> None:
    one = instance(
        state=State.ENDED, since=NOW - 5, completed_at={FULL: NOW - 130}, report=InstanceReport()
    )

    assert failures(one) == {CheckName.DRIFT_CYCLE}


def test_health_of_slow_crash_loop_fails_though_each_report_is_new() -> None:
    one = instance(
        restarts=5,
        since=NOW - 100,
        completed_at={FULL: NOW - 600},
        report=InstanceReport(cycle=FULL, cycle_began_at=NOW - 99),
    )

    assert CheckName.FULL_CYCLE in {
        one.name for one in problems(agent(one)) if one.verdict is Verdict.FAIL
    }


def test_health_of_refused_reload_and_failed_service_report_warns() -> None:
    status = agent(refused_reload="[metal] driver = x", reloaded_at=NOW - 7)
    [check] = problems(status)
    assert (check.name, check.verdict, check.at) == (
        CheckName.CONFIGURATION,
        Verdict.WARN,
        NOW - 7,
    )

    [check] = problems(agent(service_error="no database", service_reported_at=NOW - 8))
    assert (check.name, check.verdict, check.at) == (CheckName.SERVICE, Verdict.WARN, NOW - 8)


def test_health_of_agent_that_does_not_check_its_instances_fails() -> None:
    assert problems(agent(looked_at=NOW - 29)) == []

    [check] = problems(agent(looked_at=NOW - 30))
    assert (check.name, check.verdict) == (CheckName.AGENT_STATE, Verdict.FAIL)


def test_health_of_stopping_agent_warns() -> None:
    assert [one.name for one in problems(agent(is_stopping=True))] == [CheckName.AGENT_STATE]


# Conditions while which health never passes.


def _any_cycle_at(one: InstanceStatus) -> Iterator[float]:
    yield one.completed_at.get(FULL, one.started_at)
    yield one.since
    for counts in one.report.cycles.values():
        if counts.completed_at is not None:
            yield counts.completed_at


def _full_cycle_at(one: InstanceStatus) -> Iterator[float]:
    if FULL not in one.completed_at and one.state is State.RUNNING:
        yield one.since
    yield one.completed_at.get(FULL, one.started_at)


CONDITIONS: dict[str, Callable[[InstanceStatus], bool]] = {
    "wedged": lambda one: one.state is State.WEDGED,
    "crash loop": lambda one: one.state is State.CRASH_LOOP,
    "ended": lambda one: one.state is State.ENDED,
    "driver hangs": lambda one: (
        (one.driver_call_began_at is not None and NOW - one.driver_call_began_at >= INTERVALS.hang)
        and one.state in (State.STARTING, State.RUNNING)
    ),
    "Placement away": lambda one: one.report.unreachable_cycles > 0,
    "problems": lambda one: bool(one.report.problems),
    "failed cycle": lambda one: any(
        kind in one.report.cycles and one.report.cycles[kind].error for kind in (FULL, POLL)
    ),
    "no full cycle for 2 intervals": lambda one: (
        NOW - max(_full_cycle_at(one)) >= 2 * INTERVALS.full
    ),
    "no cycle for 2 drift intervals": lambda one: (
        one.state is State.RUNNING and NOW - max(_any_cycle_at(one)) >= 2 * INTERVALS.drift
    ),
    "no full cycle since it was started again": lambda one: (
        one.restarts > 0
        and (FULL not in one.report.cycles or not one.report.cycles[FULL].completed)
    ),
}
#: Conditions for which health must fail, and not only warn.
FAILURES = ("wedged", "crash loop", "driver hangs")


@given(one=statuses_of_instances)
def test_health_never_passes_while_a_condition_holds(one: InstanceStatus) -> None:
    verdict = health(agent(instance("good"), one), NOW).verdict
    holding = [name for name, holds in CONDITIONS.items() if holds(one)]

    assert not holding or verdict is not Verdict.PASS
    assert verdict is Verdict.FAIL or not set(holding) & set(FAILURES)
    assert verdict is Verdict.FAIL or one.report.unreachable_cycles <= 3


@given(one=statuses_of_instances)
def test_health_of_same_status_never_improves_with_time(one: InstanceStatus) -> None:
    order = list(Verdict)
    before, after = (
        health(agent(one, looked_at=moment), moment).verdict for moment in (NOW, NOW + 500)
    )

    assert order.index(before) <= order.index(after)


@given(status=statuses)
def test_health_is_no_better_than_that_of_one_instance(status: AgentStatus) -> None:
    order = list(Verdict)
    whole = health(status, NOW).verdict
    for one in status.instances:
        alone = health(replace(status, instances=(one,)), NOW).verdict
        assert order.index(alone) <= order.index(whole)


# As JSON.


@given(status=statuses)
def test_health_as_json_has_a_time_in_each_check_and_no_text_of_drivers(
    status: AgentStatus,
) -> None:
    body = health(status, NOW).as_json(NOW, epoch_now=1_700_000_000.0)
    text = json.dumps(body)

    assert set(body) == {"status", "description", "checks"}
    for name, results in body["checks"].items():
        component, _, metric = name.partition(":")
        assert component and metric and ":" not in metric
        for one in results:
            assert one["status"] in {"pass", "warn", "fail"}
            assert one["componentType"] in {"component", "system"}
            assert ("output" in one) == (one["status"] != "pass")
            assert datetime.fromisoformat(one["time"]) <= datetime.fromtimestamp(1_700_000_000, UTC)
    assert "rack-7" not in text
    assert socket.gethostname() not in text


def test_health_as_json_has_the_time_of_the_fact() -> None:
    body = health(agent(), NOW).as_json(NOW, epoch_now=1_700_000_000.0)

    assert body["status"] == "pass"
    assert body["checks"]["driver_instance:full_cycle"] == [
        {
            "componentId": "metal",
            "componentType": "component",
            "observedValue": 100.0,
            "observedUnit": "s",
            "status": "pass",
            "time": "2023-11-14T22:11:40.000+00:00",
        }
    ]


# Readiness.


@pytest.mark.parametrize(
    ("one", "is_ready"),
    [
        (instance(), True),
        (instance(state=State.ENDED), True),
        (instance(completed_at={}, report=InstanceReport()), True),
        (instance(restarts=1, completed_at={FULL: NOW - 900}, report=InstanceReport()), True),
        (starting(), False),
        (starting(state=State.ENDED), False),
        (instance(state=State.WEDGED), False),
        (instance(state=State.CRASH_LOOP), False),
    ],
)
def test_ready_requires_a_full_cycle_of_each_instance(one: InstanceStatus, is_ready: bool) -> None:
    found = ready(agent(instance("good"), one))

    assert (found.verdict is Verdict.PASS) is is_ready
    assert [one.instance for one in found.checks if one.output] == ([] if is_ready else ["metal"])


def test_ready_of_stopping_agent_fails() -> None:
    assert ready(agent(is_stopping=True)).verdict is Verdict.FAIL
