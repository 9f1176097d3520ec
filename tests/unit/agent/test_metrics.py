"""Metrics that Prometheus reads from each status."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.lab.agent_status import NOW, agent, instance, report, statuses
from wharfinger.agent.metrics import REASONS, Metrics
from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import AgentStatus, InstanceReport, ReservationCount, State

#: The time at which the metrics are read, in seconds since the epoch.
CLOCK = 1_700_000_000.0
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def page(status: AgentStatus, accept: str = "") -> str:
    return Metrics(lambda: status, lambda: (NOW, CLOCK)).page(accept)[1].decode()


def samples(families: Iterable[Metric]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def value(status: AgentStatus, name: str, /, **labels: str) -> float | None:
    if not name.startswith("wharfinger_agent"):
        labels = {"driver_instance": "metal"} | labels
    return samples(parse(page(status))).get((name, frozenset(labels.items())))


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("wharfinger_agent_start_time_seconds", {}, CLOCK - 1501),
        ("wharfinger_agent_reloads_total", {}, 0),
        ("wharfinger_agent_last_reload_successful", {}, 1),
        ("wharfinger_agent_last_service_report_successful", {}, 1),
        ("wharfinger_instance_info", {"driver": "ironic", "owner": "OWNER_NOVA"}, 1),
        ("wharfinger_instance_state", {"state": "running"}, 1),
        ("wharfinger_instance_state", {"state": "crash loop"}, 0),
        ("wharfinger_instance_restarts_total", {}, 0),
        ("wharfinger_instance_problems", {}, 0),
        ("wharfinger_health_check", {"check": "driver_instance:state", "status": "pass"}, 1),
        ("wharfinger_health_check", {"check": "driver_instance:state", "status": "fail"}, 0),
        ("wharfinger_cycle_duration_seconds_sum", {"cycle": "full"}, 50),
        ("wharfinger_cycle_duration_seconds_count", {"cycle": "full"}, 5),
        ("wharfinger_cycles_total", {"cycle": "full", "result": "completed"}, 4),
        ("wharfinger_cycles_total", {"cycle": "full", "result": "failed"}, 1),
        ("wharfinger_cycle_last_completion_age_seconds", {"cycle": "drift"}, 30),
        ("wharfinger_cycle_in_progress_start_time_seconds", {"cycle": "drift"}, CLOCK - 3),
        ("wharfinger_placement_requests_total", {"method": "GET", "code": "200"}, 70),
        ("wharfinger_placement_requests_total", {"method": "GET", "code": "0"}, 1),
        ("wharfinger_placement_unreachable_cycles", {}, 0),
        ("wharfinger_conflicts_total", {}, 1),
        ("wharfinger_providers", {"state": "published"}, 30),
        ("wharfinger_providers", {"state": "reserved"}, 2),
        ("wharfinger_providers", {"state": "absent"}, 1),
        ("wharfinger_providers", {"state": "fought"}, 0),
        ("wharfinger_reservations", {"reason": "cleaning"}, 2),
        ("wharfinger_reservation_oldest_age_seconds", {"reason": "cleaning"}, 500),
        ("wharfinger_reserving_duration_seconds_sum", {}, 7.5),
        ("wharfinger_reserving_duration_seconds_count", {}, 5),
    ],
)
def test_metric_has_the_value_of_the_status(
    name: str, labels: dict[str, str], expected: float
) -> None:
    status = agent(instance(report=report(cycle=CycleType.DRIFT, cycle_began_at=NOW - 3)))

    assert value(status, name, **labels) == expected


def test_metrics_of_instance_without_report_have_no_age() -> None:
    status = agent(instance(state=State.STARTING, completed_at={}, report=InstanceReport()))

    assert value(status, "wharfinger_instance_state", state="starting") == 1
    assert "wharfinger_cycle_last_completion_age_seconds{" not in page(status)


def test_metrics_of_refused_reload_and_failed_report_are_0() -> None:
    status = agent(refused_reload="no driver x", service_error="no database")

    assert value(status, "wharfinger_agent_last_reload_successful") == 0
    assert value(status, "wharfinger_agent_last_service_report_successful") == 0


def reserved(*reasons: str) -> AgentStatus:
    counts = {
        reason: ReservationCount(providers=1, oldest_since=NOW - number)
        for number, reason in enumerate(reasons, 1)
    }
    return agent(instance(report=report(reservations=counts)))


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("cleaning", "cleaning"),
        ("clean wait (waits for the node)", "clean wait"),
        ("node rack-7 has no power", "other reasons"),
        ("device 0000:81:00.0", "other reasons"),
        ('"}\n', "other reasons"),
        ("x" * 41, "other reasons"),
        ("", "other reasons"),
    ],
)
def test_reason_label_has_the_words_before_a_bracket_or_is_other_reasons(
    reason: str, label: str
) -> None:
    assert value(reserved(reason), "wharfinger_reservations", reason=label) == 1


def test_reasons_with_one_label_are_added_up() -> None:
    status = reserved("clean wait (a)", "clean wait (b)", "clean wait (c)")

    assert value(status, "wharfinger_reservations", reason="clean wait") == 3
    assert value(status, "wharfinger_reservation_oldest_age_seconds", reason="clean wait") == 3


def test_reasons_have_a_limited_number_of_labels_over_time() -> None:
    words = [f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij"]
    seen = set[str]()
    status = agent()
    page_of_status = Metrics(lambda: status, lambda: (NOW, CLOCK)).page
    for word in words:
        status = reserved(word)
        text = page_of_status("")[1].decode()
        seen |= {
            dict(labels)["reason"]
            for name, labels in samples(parse(text))
            if name == "wharfinger_reservations"
        }

    assert len(seen) == REASONS + 1
    assert "other reasons" in seen


@given(status=statuses)
def test_page_can_be_parsed_whatever_the_status(status: AgentStatus) -> None:
    plain = samples(parse(page(status)))
    text = page(status, OPENMETRICS)
    newer = samples(parse_openmetrics(text))  # type: ignore[no-untyped-call]

    assert plain.keys() <= newer.keys() | {key for key in plain if key[0].startswith("process_")}
    ages = [found for (name, _labels), found in plain.items() if name.endswith("_age_seconds")]
    assert all(age >= 0 for age in ages)


def test_names_follow_the_conventions() -> None:
    for family in parse(page(agent())):
        if family.name.startswith("process_"):
            continue
        assert family.name.startswith("wharfinger_")
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert "instance" not in sample.labels, "Prometheus overwrites it"
            assert sample.name.endswith("_total") == (family.type == "counter")
