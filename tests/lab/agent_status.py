"""Statuses of agents for tests: a healthy one, and hypothesis strategies for any status."""

from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies

from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import (
    AgentStatus,
    CycleCounts,
    InstanceReport,
    InstanceStatus,
    Intervals,
    ProviderCounts,
    ReservationCount,
    State,
)

#: The moment of observation, in seconds of ``time.monotonic()``.
NOW: Final = 100_000.0
INTERVALS: Final = Intervals(poll=2.0, drift=60.0, full=300.0, hang=300.0)


def report(**changes: Any) -> InstanceReport:
    """Return the report of a healthy driver instance, with these fields changed."""
    usual = InstanceReport(
        driver="ironic",
        owner="OWNER_NOVA",
        is_complete=True,
        cycles={
            CycleType.FULL: CycleCounts(
                completed=4, failed=1, seconds=50.0, last_seconds=9.0, completed_at=NOW - 100
            ),
            CycleType.DRIFT: CycleCounts(
                completed=12, seconds=6.0, last_seconds=0.5, completed_at=NOW - 30
            ),
            CycleType.POLL: CycleCounts(
                completed=400, seconds=4.0, last_seconds=0.01, completed_at=NOW - 1
            ),
        },
        providers=ProviderCounts(published=30, reserved=2, absent=1),
        reservations={"cleaning": ReservationCount(providers=2, oldest_since=NOW - 500)},
        requests={"GET": {"200": 70, "0": 1}, "PUT": {"200": 5}},
        conflicts=1,
        reserving_count=5,
        reserving_seconds=7.5,
    )
    return replace(usual, **changes)


def instance(name: str = "metal", **changes: Any) -> InstanceStatus:
    """Return the status of a healthy driver instance, with these fields changed."""
    usual = InstanceStatus(
        name=name,
        state=State.RUNNING,
        since=NOW - 1400,
        started_at=NOW - 1500,
        pid=4711,
    ).with_report(report())
    return replace(usual, **changes)


def agent(*instances: InstanceStatus, **changes: Any) -> AgentStatus:
    """Return the status of an agent with these instances, by default one healthy instance."""
    usual = AgentStatus(
        started_at=NOW - 1501,
        looked_at=NOW - 1,
        intervals=INTERVALS,
        instances=instances or (instance(),),
    )
    return replace(usual, **changes)


def with_cycle(one: InstanceStatus, kind: CycleType, **changes: Any) -> InstanceStatus:
    """Return the status of an instance with changed counters for one type of cycle."""
    cycles = dict(one.report.cycles)
    cycles[kind] = replace(cycles.get(kind, CycleCounts()), **changes)
    return one.with_report(replace(one.report, cycles=cycles))


# Strategies for all possible statuses.

_moments: Final = strategies.floats(NOW - 10_000, NOW)
_counts: Final = strategies.integers(0, 5)
_texts: Final = strategies.sampled_from(["", "no answer from rack-7"])
_cycle_counts: Final = strategies.builds(
    CycleCounts,
    completed=_counts,
    failed=_counts,
    seconds=strategies.floats(0, 1000),
    last_seconds=strategies.floats(0, 1000),
    completed_at=strategies.none() | _moments,
    error=_texts,
)
_reports: Final = strategies.builds(
    InstanceReport,
    is_complete=strategies.booleans(),
    cycle=strategies.none() | strategies.sampled_from(CycleType),
    cycle_began_at=strategies.none() | _moments,
    cycles=strategies.dictionaries(strategies.sampled_from(CycleType), _cycle_counts),
    reservations=strategies.dictionaries(
        strategies.text(max_size=5),
        strategies.builds(ReservationCount, providers=_counts, oldest_since=_moments),
        max_size=3,
    ),
    requests=strategies.dictionaries(
        strategies.sampled_from(["GET", "PUT"]),
        strategies.dictionaries(strategies.sampled_from(["0", "200", "503"]), _counts),
    ),
    problems=strategies.just(()) | strategies.just(("node rack-7 has no memory",)),
    unreachable_cycles=_counts,
)
statuses_of_instances: Final = strategies.builds(
    InstanceStatus,
    name=strategies.just("metal"),
    state=strategies.sampled_from(State),
    since=_moments,
    started_at=_moments,
    completed_at=strategies.dictionaries(strategies.sampled_from(CycleType), _moments),
    restarts=_counts,
    last_end=_texts,
    driver_call_began_at=strategies.none() | _moments,
    report=_reports,
).map(lambda one: one.with_report(one.report))
statuses: Final = strategies.builds(
    AgentStatus,
    started_at=strategies.just(NOW - 10_000),
    looked_at=strategies.just(NOW),
    intervals=strategies.just(INTERVALS),
    instances=statuses_of_instances.map(lambda one: (instance("gpus"), one)),
    is_stopping=strategies.booleans(),
    refused_reload=_texts,
    service_error=_texts,
    reloaded_at=strategies.none() | _moments,
    service_reported_at=strategies.none() | _moments,
)
