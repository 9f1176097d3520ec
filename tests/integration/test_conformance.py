"""Our own drivers keep the rules, with what they drive; and docs/conformance says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "docs" / "conformance"


@pytest.mark.parametrize("driver", ["cyborg", "ironic", "libvirt"])
def test_it_conforms_as_its_report_says(driver: str, tmp_path: Path) -> None:
    run = subprocess.run(
        [
            *(sys.executable, "-m", "wharfinger.cli.main", "conformance", "run", driver),
            *("--report", "report", "--examples", "4"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "core: CONFORMS, extended: CONFORMS" in run.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    found, told = (
        json.loads((directory / f"{driver}.json").read_text())
        for directory in (tmp_path / "report", REPORTS)
    )
    for part in ("format", "kit", "capabilities", "verdicts"):
        assert found[part] == told[part]
    assert _results(found) == _results(told)


def _results(report: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """What came of each rule."""
    return {rule["id"]: rule["status"] for rule in report["rules"]}
