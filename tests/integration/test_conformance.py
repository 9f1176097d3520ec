"""The drivers of this repository keep the rules with real backends, as their reports state."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.conformance.examining import SLOW
from tests.lab.drawing import Draw
from wharfinger.conformance.overall_verdict import ExitCode
from wharfinger.conformance.rules import all_rules

REPORTS = Path(__file__).parents[2] / "docs" / "conformance"
#: Rules that each run checks: declarations, descriptions and publication; added, removed and busy
#: things; a fault at each call.
ALWAYS = ("WHF-101", "WHF-201", "WHF-208", "WHF-401", "WHF-402", "WHF-502", "WHF-703")


@pytest.mark.drawn(1)
@pytest.mark.parametrize("driver", ["cyborg", "ironic", "libvirt"])
def test_own_driver_keeps_the_rules_of_its_report(driver: str, draw: Draw, tmp_path: Path) -> None:
    ids = [rule.id for rule in all_rules()]
    chosen = draw([id for id in ids if id not in SLOW], 3, keep=ALWAYS) + draw(sorted(SLOW), 1)
    rules = [id for id in ids if id in chosen]
    is_complete = rules == ids
    selection = [] if is_complete else [part for id in rules for part in ("--rule", id)]
    run = subprocess.run(
        [
            *(sys.executable, "-m", "wharfinger.cli.app", "conformance", "run", driver),
            *("--report", "report", "--examples", str(draw.number(4, some=1)), *selection),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    expected = ExitCode.CONFORMS if is_complete else ExitCode.PARTIAL
    assert run.returncode == expected, run.stdout + run.stderr
    assert ("core: CONFORMS, extended: CONFORMS" in run.stdout) is is_complete
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    found, told = (
        json.loads((directory / f"{driver}.json").read_text())
        for directory in (tmp_path / "report", REPORTS)
    )
    for part in ("format", "kit", "capabilities"):
        assert found[part] == told[part]
    assert told["verdicts"] == {"core": "CONFORMS", "extended": "CONFORMS"}
    results, documented = _results(found), _results(told)
    assert results.keys() == documented.keys()
    assert {id: results[id] for id in rules} == {id: documented[id] for id in rules}
    assert {results[id] for id in ids if id not in rules} <= {"not run"}


def _results(report: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return the status of each rule."""
    return {rule["id"]: rule["status"] for rule in report["rules"]}
