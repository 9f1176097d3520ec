"""Compute the health and readiness of the agent from its status.

The results omit texts of drivers, since these may contain names of hosts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypedDict

from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import AgentStatus, CycleCounts, InstanceStatus, Intervals, State

#: A type of cycle is stale after this many intervals without a completed cycle.
STALE_INTERVALS: Final = 2
#: More cycles in a row without an answer of Placement are a failure, not a warning.
TOLERATED_UNREACHABLE_CYCLES: Final = 3
#: Further seconds that a first full cycle may take, since its usual duration is unknown.
FIRST_FULL_CYCLE: Final = 3600.0
#: Seconds without a check of the instances after which the agent counts as hanging.
AGENT_HANGS_AFTER: Final = 30.0
#: States in which an instance runs cycles.
_AT_WORK: Final = frozenset({State.STARTING, State.RUNNING})
_NO_CYCLES: Final = CycleCounts()


class Verdict(StrEnum):
    """Result of a check, from the best to the worst."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


class CheckName(StrEnum):
    """Names of the checks."""

    AGENT_STATE = "agent:state"
    CONFIGURATION = "agent:configuration"
    SERVICE = "agent:service"
    STATE = "driver_instance:state"
    FULL_CYCLE = "driver_instance:full_cycle"
    DRIFT_CYCLE = "driver_instance:drift_cycle"
    POLL = "driver_instance:poll"
    PLACEMENT = "driver_instance:placement"
    PROBLEMS = "driver_instance:problems"
    READY = "driver_instance:ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of one check."""

    name: CheckName
    #: The time of the observed event, in seconds of ``time.monotonic()``.
    at: float
    #: The name of a driver instance, empty for the agent itself.
    instance: str = ""
    verdict: Verdict = Verdict.PASS
    #: Seconds since the last completed cycle, for checks of cycles.
    age: float | None = None
    #: The explanation of a result other than PASS.
    output: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    """Results of checks of the agent."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """Return the worst result."""
        return max((one.verdict for one in self.checks), key=list(Verdict).index)

    def as_json(self, monotonic_now: float, epoch_now: float) -> dict[str, Any]:
        """Return the results in the format of draft-inadarei-api-health-check-06."""
        checks: dict[str, list[dict[str, Any]]] = {}
        for one in self.checks:
            checks.setdefault(one.name, []).append(_as_json(one, epoch_now - monotonic_now))
        return {"status": self.verdict, "description": "wharfinger agent", "checks": checks}


def health(status: AgentStatus, now: float) -> Health:
    """Check the agent and its driver instances; return the results."""
    checks = list(_agent_checks(status, now))
    for one in status.instances:
        checks += _instance_checks(one, status.intervals, now)
    return Health(tuple(checks))


def ready(status: AgentStatus) -> Health:
    """Check whether the agent and its driver instances are ready; return the results."""
    checks = [_agent_state(status, Verdict.FAIL)]
    checks += [_readiness(one) for one in status.instances]
    return Health(tuple(checks))


def _agent_checks(status: AgentStatus, now: float) -> Iterator[Check]:
    idle = now - status.looked_at
    if idle >= AGENT_HANGS_AFTER and not status.is_stopping:
        yield Check(
            name=CheckName.AGENT_STATE,
            at=status.looked_at,
            verdict=Verdict.FAIL,
            output=f"The agent has not looked after its instances for {idle:.0f} s.",
        )
    else:
        yield _agent_state(status, Verdict.WARN)
    yield Check(
        name=CheckName.CONFIGURATION,
        at=_or_else(status.reloaded_at, status.started_at),
        verdict=Verdict.WARN if status.refused_reload else Verdict.PASS,
        output="The last new configuration was refused. The agent runs with the one before it."
        if status.refused_reload
        else "",
    )
    yield Check(
        name=CheckName.SERVICE,
        at=_or_else(status.service_reported_at, status.started_at),
        verdict=Verdict.WARN if status.service_error else Verdict.PASS,
        output="The last report of the host's service failed. Other hosts may take over its nodes."
        if status.service_error
        else "",
    )


def _agent_state(status: AgentStatus, if_stopping: Verdict) -> Check:
    return Check(
        name=CheckName.AGENT_STATE,
        at=status.started_at,
        verdict=if_stopping if status.is_stopping else Verdict.PASS,
        output="The agent stops." if status.is_stopping else "",
    )


def _instance_checks(one: InstanceStatus, intervals: Intervals, now: float) -> Iterator[Check]:
    yield _state(one, intervals, now)
    yield _full_cycle(one, intervals, now)
    yield _drift_cycle(one, intervals, now)
    yield _poll(one, now)
    yield _placement(one)
    problems = len(one.report.problems)
    yield Check(
        name=CheckName.PROBLEMS,
        instance=one.name,
        at=_or_else(one.completed_at.get(CycleType.FULL), one.started_at),
        verdict=Verdict.WARN if problems else Verdict.PASS,
        output=f"The last cycles found {problems} problem{'s' * (problems > 1)}."
        if problems
        else "",
    )


def _state(one: InstanceStatus, intervals: Intervals, now: float) -> Check:
    verdict, output, at = Verdict.PASS, "", one.since
    call = one.driver_call_began_at
    if one.state is State.WEDGED:
        verdict, output = Verdict.FAIL, "Its driver or its process hangs."
    elif one.state is State.CRASH_LOOP:
        verdict = Verdict.FAIL
        output = f"It ends soon after each start. It was started again {one.restarts} times."
    elif call is not None and one.state in _AT_WORK and now - call >= intervals.hang:
        verdict, at = Verdict.FAIL, call
        output = f"A call to its driver has not returned for {now - call:.0f} s."
    elif one.state is State.ENDED:
        verdict, output = Verdict.WARN, "It has ended, and waits for its next start."
    elif one.state is State.STOPPING:
        verdict, output = Verdict.WARN, "It stops."
    elif one.restarts and not one.report.cycles.get(CycleType.FULL, _NO_CYCLES).completed:
        verdict = Verdict.WARN
        output = "It has not completed a full cycle since it was started again."
    return Check(name=CheckName.STATE, instance=one.name, at=at, verdict=verdict, output=output)


def _full_cycle(one: InstanceStatus, intervals: Intervals, now: float) -> Check:
    completed = one.completed_at.get(CycleType.FULL)
    if completed is None:
        # A running instance has completed one, even if its report does not contain it after a
        # restart.
        completed = one.since if one.state is State.RUNNING else one.started_at
    allowance = _granted_seconds(one) if one.report.cycle is CycleType.FULL else 0.0
    return Check(
        name=CheckName.FULL_CYCLE,
        instance=one.name,
        at=completed,
        **_judge_age(one, CycleType.FULL, now - completed, intervals.full, allowance),
    )


def _drift_cycle(one: InstanceStatus, intervals: Intervals, now: float) -> Check:
    # A full cycle counts, too. No drift cycle is due before the first full cycle is completed.
    moments = [
        counts.completed_at
        for kind, counts in one.report.cycles.items()
        if kind is not CycleType.POLL and counts.completed_at is not None
    ]
    known = one.completed_at.get(CycleType.FULL)
    if moments:
        completed = max(moments)
    elif known is not None or one.state is State.RUNNING:
        # Its report was reset by its last restart.
        completed = one.since if one.state in _AT_WORK else _or_else(known, one.since)
    else:
        return Check(name=CheckName.DRIFT_CYCLE, instance=one.name, at=one.started_at)
    return Check(
        name=CheckName.DRIFT_CYCLE,
        instance=one.name,
        at=completed,
        **_judge_age(one, CycleType.DRIFT, now - completed, intervals.drift, _granted_seconds(one)),
    )


class _Age(TypedDict):
    age: float
    verdict: Verdict
    output: str


def _judge_age(
    one: InstanceStatus, kind: CycleType, age: float, interval: float, allowance: float
) -> _Age:
    stale = STALE_INTERVALS * interval
    verdict, output = Verdict.PASS, ""
    if age >= stale:
        verdict = Verdict.FAIL if age >= stale + allowance else Verdict.WARN
        output = f"No {kind} was completed for {age:.0f} s. The interval is {interval:g} s."
    elif one.report.cycles.get(kind, _NO_CYCLES).error:
        verdict, output = Verdict.WARN, f"The last {kind} failed."
    return {"age": max(0.0, age), "verdict": verdict, "output": output}


def _poll(one: InstanceStatus, now: float) -> Check:
    counts = one.report.cycles.get(CycleType.POLL, _NO_CYCLES)
    completed = one.completed_at.get(CycleType.POLL)
    return Check(
        name=CheckName.POLL,
        instance=one.name,
        at=_or_else(completed, one.started_at),
        verdict=Verdict.WARN if counts.error else Verdict.PASS,
        age=None if completed is None else max(0.0, now - completed),
        output=f"The last {CycleType.POLL} failed." if counts.error else "",
    )


def _placement(one: InstanceStatus) -> Check:
    count = one.report.unreachable_cycles
    verdict = Verdict.WARN if count else Verdict.PASS
    if count > TOLERATED_UNREACHABLE_CYCLES:
        verdict = Verdict.FAIL
    return Check(
        name=CheckName.PLACEMENT,
        instance=one.name,
        at=_or_else(one.completed_at.get(CycleType.FULL), one.started_at),
        verdict=verdict,
        output=f"Placement did not answer in {count} cycle{'s' * (count > 1)} in a row."
        if count
        else "",
    )


def _readiness(one: InstanceStatus) -> Check:
    completed = one.completed_at.get(CycleType.FULL)
    output = ""
    if one.state in (State.WEDGED, State.CRASH_LOOP):
        output = f"Its state is: {one.state}."
    elif completed is None and one.state is not State.RUNNING:
        output = "It has not completed a full cycle since the agent was started."
    return Check(
        name=CheckName.READY,
        instance=one.name,
        at=one.since if output else _or_else(completed, one.since),
        verdict=Verdict.FAIL if output else Verdict.PASS,
        output=output,
    )


def _granted_seconds(one: InstanceStatus) -> float:
    kind = one.report.cycle
    if kind is None or one.state not in _AT_WORK:
        return 0.0
    counts = one.report.cycles.get(kind, _NO_CYCLES)
    if counts.completed:
        return 0.0 if counts.error else counts.last_seconds
    is_first = kind is CycleType.FULL and not counts.failed and not one.restarts
    return FIRST_FULL_CYCLE if is_first else 0.0


def _or_else(moment: float | None, otherwise: float) -> float:
    return otherwise if moment is None else moment


def _as_json(check: Check, offset: float) -> dict[str, Any]:
    time = datetime.fromtimestamp(check.at + offset, UTC).isoformat(timespec="milliseconds")
    fields: Iterable[tuple[str, Any]] = (
        ("componentId", check.instance),
        ("componentType", "system" if check.name is CheckName.PLACEMENT else "component"),
        ("observedValue", None if check.age is None else round(check.age, 3)),
        ("observedUnit", None if check.age is None else "s"),
        ("status", check.verdict),
        ("time", time),
        ("output", check.output),
    )
    return {name: value for name, value in fields if value not in (None, "")}
