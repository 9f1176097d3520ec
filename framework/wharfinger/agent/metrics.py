"""Metrics of the agent for Prometheus."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from wharfinger.agent import health
from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import AgentStatus, InstanceStatus, State

#: The label of the other reasons.
OTHER_REASONS: Final = "other reasons"
#: The largest number of labels of a driver instance.
REASONS: Final = 40
#: Reasons that can be labels. Other texts of drivers may contain names.
_LABEL: Final = re.compile(r"[A-Za-z][A-Za-z _-]{0,39}\Z")
_CYCLES: Final = {CycleType.FULL: "full", CycleType.DRIFT: "drift", CycleType.POLL: "poll"}


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.time()


class Metrics:
    """Makes the page of metrics from the status of the agent."""

    def __init__(
        self, status: Callable[[], AgentStatus], clocks: Callable[[], tuple[float, float]] = _clocks
    ) -> None:
        self._registry: Final = CollectorRegistry()
        self._registry.register(_StatusCollector(status, clocks))
        ProcessCollector(registry=self._registry)

    def page(self, accept: str) -> tuple[str, bytes]:
        """Return the content type and the page for the HTTP header Accept."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)


class _StatusCollector(Collector):
    def __init__(
        self, status: Callable[[], AgentStatus], clocks: Callable[[], tuple[float, float]]
    ) -> None:
        self._status: Final = status
        self._clocks: Final = clocks
        self._labels: Final = _ReasonLabels()

    def describe(self) -> Iterable[Metric]:
        # Otherwise, registering the collector would read the status.
        return ()

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        now, clock = self._clocks()
        offset = clock - now
        yield from _agent_metrics(status, offset)
        yield _health(status, now)
        yield from _instance_metrics(status.instances)
        yield from _cycles(status.instances, now, offset)
        yield from _placement(status.instances)
        yield from _providers(status.instances)
        yield from self._reservations(status.instances, now)

    def _reservations(self, instances: Iterable[InstanceStatus], now: float) -> Iterator[Metric]:
        count = GaugeMetricFamily(
            "wharfinger_reservations",
            "Providers that are reserved for a reason.",
            labels=("driver_instance", "reason"),
        )
        oldest = GaugeMetricFamily(
            "wharfinger_reservation_oldest_age_seconds",
            "Age of the oldest reservation for a reason.",
            labels=("driver_instance", "reason"),
        )
        for one in instances:
            numbers: dict[str, int] = {}
            begins: dict[str, float] = {}
            for reason, found in one.report.reservations.items():
                label = self._labels.label(one.name, reason)
                numbers[label] = numbers.get(label, 0) + found.providers
                begins[label] = min(begins.get(label, found.oldest_since), found.oldest_since)
            for label, number in numbers.items():
                count.add_metric((one.name, label), number)
                oldest.add_metric((one.name, label), max(0.0, now - begins[label]))
        yield count
        yield oldest


class _ReasonLabels:
    def __init__(self) -> None:
        self._known: Final[dict[str, set[str]]] = {}

    def label(self, instance: str, reason: str) -> str:
        label = reason.partition(" (")[0]
        known = self._known.setdefault(instance, set())
        if label not in known:
            if len(known) >= REASONS or not _LABEL.match(label):
                return OTHER_REASONS
            known.add(label)
        return label


def _agent_metrics(status: AgentStatus, offset: float) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "wharfinger_agent_start_time_seconds",
        "Start of the agent, in seconds since the epoch.",
        value=status.started_at + offset,
    )
    yield CounterMetricFamily(
        "wharfinger_agent_reloads",
        "New configurations that the agent accepted while it ran.",
        value=status.reloads,
    )
    yield GaugeMetricFamily(
        "wharfinger_agent_last_reload_successful",
        "1 if the agent accepted the last new configuration, 0 if it refused it.",
        value=not status.refused_reload,
    )
    yield GaugeMetricFamily(
        "wharfinger_agent_last_service_report_successful",
        "1 if the last report of the host's service succeeded, else 0.",
        value=not status.service_error,
    )


def _health(status: AgentStatus, now: float) -> Metric:
    family = GaugeMetricFamily(
        "wharfinger_health_check",
        "1 for the status of a check of /health, 0 for its other statuses.",
        labels=("driver_instance", "check", "status"),
    )
    for one in health.health(status, now).checks:
        for verdict in health.Verdict:
            key = (one.instance, one.name.value, verdict.value)
            family.add_metric(key, verdict is one.verdict)
    return family


def _instance_metrics(instances: Iterable[InstanceStatus]) -> Iterator[Metric]:
    info = InfoMetricFamily(
        "wharfinger_instance", "Driver and owner of an instance.", labels=("driver_instance",)
    )
    states = GaugeMetricFamily(
        "wharfinger_instance_state",
        "1 for the state of an instance, 0 for the other states.",
        labels=("driver_instance", "state"),
    )
    restarts = CounterMetricFamily(
        "wharfinger_instance_restarts", "Starts after the first one.", labels=("driver_instance",)
    )
    problems = GaugeMetricFamily(
        "wharfinger_instance_problems",
        "Problems that the last cycles found.",
        labels=("driver_instance",),
    )
    for one in instances:
        names = {"driver": one.report.driver or "", "owner": one.report.owner or ""}
        info.add_metric((one.name,), names)
        for state in State:
            states.add_metric((one.name, state.value), state is one.state)
        restarts.add_metric((one.name,), one.restarts)
        problems.add_metric((one.name,), len(one.report.problems))
    yield info
    yield states
    yield restarts
    yield problems


def _cycles(instances: Iterable[InstanceStatus], now: float, offset: float) -> Iterator[Metric]:
    labels = ("driver_instance", "cycle")
    durations = SummaryMetricFamily(
        "wharfinger_cycle_duration_seconds", "Duration of cycles.", labels=labels
    )
    results = CounterMetricFamily(
        "wharfinger_cycles", "Cycles by result.", labels=(*labels, "result")
    )
    ages = GaugeMetricFamily(
        "wharfinger_cycle_last_completion_age_seconds",
        "Time since the last cycle of this type was completed.",
        labels=labels,
    )
    begins = GaugeMetricFamily(
        "wharfinger_cycle_in_progress_start_time_seconds",
        "Start of the cycle in progress, in seconds since the epoch.",
        labels=labels,
    )
    for one in instances:
        report = one.report
        for kind, counts in report.cycles.items():
            key = (one.name, _CYCLES[kind])
            durations.add_metric(key, counts.completed + counts.failed, counts.seconds)
            results.add_metric((*key, "completed"), counts.completed)
            results.add_metric((*key, "failed"), counts.failed)
        for kind, moment in one.completed_at.items():
            ages.add_metric((one.name, _CYCLES[kind]), max(0.0, now - moment))
        if report.cycle is not None and report.cycle_began_at is not None:
            begins.add_metric((one.name, _CYCLES[report.cycle]), report.cycle_began_at + offset)
    yield durations
    yield results
    yield ages
    yield begins


def _placement(instances: Iterable[InstanceStatus]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "wharfinger_placement_requests",
        "Requests to Placement by method and HTTP status; 0 for no answer.",
        labels=("driver_instance", "method", "code"),
    )
    unreachable = GaugeMetricFamily(
        "wharfinger_placement_unreachable_cycles",
        "Cycles in a row in which Placement did not answer.",
        labels=("driver_instance",),
    )
    conflicts = CounterMetricFamily(
        "wharfinger_conflicts",
        "Trees that another process changed at the same time.",
        labels=("driver_instance",),
    )
    for one in instances:
        for method, codes in one.report.requests.items():
            for code, number in codes.items():
                requests.add_metric((one.name, method, code), number)
        unreachable.add_metric((one.name,), one.report.unreachable_cycles)
        conflicts.add_metric((one.name,), one.report.conflicts)
    yield requests
    yield unreachable
    yield conflicts


def _providers(instances: Iterable[InstanceStatus]) -> Iterator[Metric]:
    providers = GaugeMetricFamily(
        "wharfinger_providers",
        "Providers by state. The state published includes the others.",
        labels=("driver_instance", "state"),
    )
    reserving = SummaryMetricFamily(
        "wharfinger_reserving_duration_seconds",
        "Time from the start of the cycle that found a change until Placement had the reservation.",
        labels=("driver_instance",),
    )
    for one in instances:
        counts = one.report.providers
        for state in ("published", "reserved", "absent", "fought"):
            providers.add_metric((one.name, state), getattr(counts, state))
        report = one.report
        reserving.add_metric((one.name,), report.reserving_count, report.reserving_seconds)
    yield providers
    yield reserving
