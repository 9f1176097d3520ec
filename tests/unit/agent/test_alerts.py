"""Alert rules and dashboard: they use existing metrics, and each alert fires when it should.

The tests that need promtool are skipped where it is missing; Debian has it in the package
prometheus.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from tests.lab.agent_status import NOW, agent, instance, report
from wharfinger.agent.health import CheckName, Verdict
from wharfinger.agent.metrics import Metrics
from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import State

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "etc" / "wharfinger" / "prometheus" / "wharfinger-alerts.yaml"
DASHBOARD = ROOT / "etc" / "wharfinger" / "grafana" / "wharfinger-agent.json"
PAGE = ROOT / "docs" / "how-to" / "alerts.rst"
PROMTOOL = shutil.which("promtool")
#: Matches a metric of Wharfinger and its label conditions in an expression.
_SELECTOR = re.compile(r"\b((?:wharfinger|process)_[a-z_]+)\b(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"([^\"]*)\"")
#: Labels that Prometheus adds.
TARGET = {"job", "instance"}
#: The values that a label of Wharfinger can have.
VALUES = {
    ("wharfinger_instance_state", "state"): {state.value for state in State},
    ("wharfinger_providers", "state"): {"published", "reserved", "absent", "fought"},
    ("wharfinger_health_check", "status"): {verdict.value for verdict in Verdict},
    ("wharfinger_health_check", "check"): {name.value for name in CheckName},
    ("wharfinger_cycles_total", "result"): {"completed", "failed"},
}


def alerts() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def expressions() -> Iterator[str]:
    for rule in alerts():
        yield rule["expr"]
    board = json.loads(DASHBOARD.read_text())
    for variable in board["templating"]["list"]:
        yield variable.get("definition", "")
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def labels_by_metric() -> dict[str, set[str]]:
    """Return the labels of each metric of an agent whose instance has a cycle in progress."""
    status = agent(instance(report=report(cycle=CycleType.FULL, cycle_began_at=NOW)))
    found: dict[str, set[str]] = {}
    text = Metrics(lambda: status).page("")[1].decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_metrics_of_alerts_and_dashboard_exist_with_their_labels() -> None:
    known = labels_by_metric()
    seen = set[str]()
    for expression in expressions():
        for name, matchers in _SELECTOR.findall(expression):
            assert name in known, expression
            seen.add(name)
            for label, operator, value in _MATCHER.findall(matchers):
                assert label in known[name] | TARGET, expression
                values = VALUES.get((name, label), set())
                if values and operator == "=":
                    assert value in values, expression
                elif values and operator == "=~" and "$" not in value:
                    assert [one for one in values if re.fullmatch(value, one)], expression
    ours = {name for name in known if name.startswith("wharfinger_")}
    # Rules and dashboard use all metrics of Wharfinger except this one.
    assert ours - seen == {"wharfinger_agent_reloads_total"}


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    names = [rule["alert"] for rule in alerts()]
    sections = re.findall(r"^(Wharfinger\w+)\n-+$", PAGE.read_text(), re.MULTILINE)

    assert sections == names
    for rule in alerts():
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook"] == f"{PAGE.relative_to(ROOT)}#{anchor}"
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["labels"]["severity"] in {"warning", "critical"}


def test_dashboard_has_a_description_for_each_panel_and_no_overlap() -> None:
    board = json.loads(DASHBOARD.read_text())
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in board["panels"]]

    assert len(set(places)) == len(places)
    assert len({one["id"] for one in board["panels"]}) == len(places)
    assert all(one["description"].endswith(".") and one["targets"] for one in board["panels"])


# Tests that need promtool.


@dataclass(frozen=True)
class Case:
    """Metrics with one value a minute, and whether the alert fires in the given minute."""

    alert: str
    fires: bool
    minute: int
    series: dict[str, str]


_TARGET_LABELS = 'job="wharfinger",instance="rack-7:9479"'


def series(name: str, labels: str, values: str) -> dict[str, str]:
    joined = f"{_TARGET_LABELS},{labels}" if labels else _TARGET_LABELS
    return {f"{name}{{{joined}}}": values}


_METAL = 'driver_instance="metal"'
_REQUESTS = "wharfinger_placement_requests_total"
_AGE = "wharfinger_reservation_oldest_age_seconds"
_STATE = "wharfinger_instance_state"
_CHECK = f'{_METAL},check="driver_instance:full_cycle"'


def requests(failing: int, code: str = "503") -> dict[str, str]:
    """Return a hundred requests a minute, of which ``failing`` have this error code."""
    good = series(_REQUESTS, f'{_METAL},method="GET",code="200"', f"0+{100 - failing}x60")
    return good | series(_REQUESTS, f'{_METAL},method="GET",code="{code}"', f"0+{failing}x60")


def reserving(seconds: int) -> dict[str, str]:
    """Return one reservation a minute, which takes ``seconds`` seconds."""
    name = "wharfinger_reserving_duration_seconds"
    total = series(f"{name}_sum", _METAL, f"0+{seconds}x60")
    return total | series(f"{name}_count", _METAL, "0+1x60")


CASES = [
    Case("AgentDown", True, 6, series("up", "", "0x10")),
    Case("AgentDown", False, 4, series("up", "", "0x10")),
    Case("AgentDown", False, 6, series("up", "", "1x10")),
    Case("InstanceWedged", True, 6, series(_STATE, f'{_METAL},state="wedged"', "0 1 0x20")),
    Case("InstanceWedged", False, 15, series(_STATE, f'{_METAL},state="wedged"', "0 1 0x20")),
    Case("InstanceCrashLoop", True, 3, series(_STATE, f'{_METAL},state="crash loop"', "1x10")),
    Case("InstanceCrashLoop", False, 3, series(_STATE, f'{_METAL},state="crash loop"', "0x10")),
    Case("InstanceCrashLoop", False, 3, series(_STATE, f'{_METAL},state="running"', "1x10")),
    Case(
        "InstanceRestarts", True, 60, series("wharfinger_instance_restarts_total", _METAL, "0+1x60")
    ),
    Case(
        "InstanceRestarts", False, 60, series("wharfinger_instance_restarts_total", _METAL, "7x60")
    ),
    Case(
        "CyclesStale", True, 3, series("wharfinger_health_check", f'{_CHECK},status="fail"', "1x10")
    ),
    Case(
        "CyclesStale",
        False,
        3,
        series("wharfinger_health_check", f'{_CHECK},status="warn"', "1x10"),
    ),
    Case(
        "CyclesFailing",
        True,
        30,
        series("wharfinger_cycles_total", f'{_METAL},cycle="drift",result="failed"', "0+1x60"),
    ),
    Case(
        "CyclesFailing",
        False,
        30,
        series("wharfinger_cycles_total", f'{_METAL},cycle="drift",result="completed"', "0+1x60"),
    ),
    Case(
        "PlacementUnreachable",
        True,
        3,
        series("wharfinger_placement_unreachable_cycles", _METAL, "4x9"),
    ),
    Case(
        "PlacementUnreachable",
        False,
        3,
        series("wharfinger_placement_unreachable_cycles", _METAL, "3x9"),
    ),
    Case("PlacementErrors", True, 40, requests(20)),
    Case("PlacementErrors", True, 40, requests(20, "0")),
    Case("PlacementErrors", False, 40, requests(5)),
    Case("PlacementErrors", False, 40, requests(20, "409")),
    Case("ReservationOld", True, 15, series(_AGE, f'{_METAL},reason="cleaning"', "90000x30")),
    Case("ReservationOld", True, 15, series(_AGE, f'{_METAL},reason="clean failed"', "90000x30")),
    Case("ReservationOld", False, 15, series(_AGE, f'{_METAL},reason="cleaning"', "80000x30")),
    Case("ReservationOld", False, 15, series(_AGE, f'{_METAL},reason="active"', "90000x30")),
    Case("ReservingSlow", True, 45, reserving(40)),
    Case("ReservingSlow", False, 45, reserving(20)),
    Case(
        "ProvidersFought",
        True,
        35,
        series("wharfinger_providers", f'{_METAL},state="fought"', "1x60"),
    ),
    Case(
        "ProvidersFought",
        False,
        35,
        series("wharfinger_providers", f'{_METAL},state="fought"', "0x60"),
    ),
    Case(
        "ProvidersAbsent",
        True,
        65,
        series("wharfinger_providers", f'{_METAL},state="absent"', "1x90"),
    ),
    Case(
        "ProvidersAbsent",
        False,
        50,
        series("wharfinger_providers", f'{_METAL},state="absent"', "1x90"),
    ),
    Case("Conflicts", True, 65, series("wharfinger_conflicts_total", _METAL, "0+20x90")),
    Case("Conflicts", False, 65, series("wharfinger_conflicts_total", _METAL, "0+1x90")),
    Case("InstanceProblems", True, 65, series("wharfinger_instance_problems", _METAL, "1x90")),
    Case("InstanceProblems", False, 65, series("wharfinger_instance_problems", _METAL, "0x90")),
    Case("ReloadRefused", True, 6, series("wharfinger_agent_last_reload_successful", "", "0x10")),
    Case("ReloadRefused", False, 6, series("wharfinger_agent_last_reload_successful", "", "1x10")),
    Case(
        "ServiceNotReported",
        True,
        3,
        series("wharfinger_agent_last_service_report_successful", "", "0x9"),
    ),
    Case(
        "ServiceNotReported",
        False,
        3,
        series("wharfinger_agent_last_service_report_successful", "", "1x9"),
    ),
]


def test_each_alert_has_cases_in_which_it_fires_and_does_not() -> None:
    found = {(one.alert, one.fires) for one in CASES}

    assert found == {
        (rule["alert"].removeprefix("Wharfinger"), fires)
        for rule in alerts()
        for fires in (True, False)
    }


def promtool_test(one: Case) -> dict[str, Any]:
    """Return the case as a test of promtool, which asks in ALERTS which alerts fire."""
    firing = f'count(ALERTS{{alertname="Wharfinger{one.alert}",alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in one.series.items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{one.minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if one.fires else [],
            }
        ],
    }


def run_promtool(*arguments: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_rules_are_valid() -> None:
    run_promtool("check", "rules", "--lint-fatal", str(RULES))


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_each_alert_fires_and_does_not_fire(tmp_path: Path) -> None:
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [promtool_test(one) for one in CASES],
    }
    path = tmp_path / "cases.yaml"
    path.write_text(yaml.safe_dump(tests))
    run_promtool("test", "rules", str(path))


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
def test_metrics_page_follows_the_conventions() -> None:
    assert PROMTOOL is not None
    status = agent(instance(report=report(cycle=CycleType.FULL, cycle_began_at=NOW)))
    page = Metrics(lambda: status).page("")[1]
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=page, capture_output=True, check=False
    )
    told = [
        line
        for line in (done.stdout + done.stderr).decode().splitlines()
        # promtool complains about metrics of the client library.
        if not line.startswith("process_")
    ]
    assert (done.returncode, told) == (0, [])
