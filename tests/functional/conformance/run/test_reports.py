"""Files that a run writes: its reports and a JUnit file, and no other file."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.lab.conformance.running import FEW, Kit

pytest_plugins = ["pytester"]

REPORTS = ("racks.json", "racks.md", "racks.svg")


def test_reports_have_the_results_of_the_run(kit: Kit) -> None:
    """The terminal and all reports of one complete run have the same results."""
    result = kit(
        *("--driver", "racks", "--driver-examples", "1", "--driver-seed", "7"),
        *("--driver-report", "reports/new", "--junit-xml", "junit.xml"),
    )

    assert result.ret == 0
    assert "core: CONFORMS, extended: CONFORMS" in result.outlines
    result.stdout.fnmatch_lines(["reports: */reports/new/racks.[*]"])
    directory = kit.directory / "reports" / "new"
    assert sorted(path.name for path in directory.iterdir()) == sorted(REPORTS)
    assert {path.name for path in kit.directory.iterdir()} == {"reports", "junit.xml"}

    facts = json.loads((directory / "racks.json").read_text())
    assert [rule["id"] for rule in facts["rules"]] == [*FEW]
    statuses = {rule["id"]: rule["status"] for rule in facts["rules"]}
    assert Counter(statuses.values()).keys() == {"passed", "exempt"}
    assert _rules_of_junit(kit.directory / "junit.xml") == statuses
    assert facts["asked"] == {
        "profile": "extended",
        "backend": "the harness tests.lab.conformance.harnesses:WorldHarness",
        "known_failures": {},
        "seed": 7,
        "examples": 1,
        "timeout": 300.0,
        "thorough": False,
    }
    assert facts["driver"] == {
        "name": "racks",
        "class": "tests.lab.conformance.honest:MachinesDriver",
        "distribution": "authors 2.1",
    }
    assert facts["verdicts"] == {"core": "CONFORMS", "extended": "CONFORMS"}

    text = (directory / "racks.md").read_text()
    assert re.findall(r"^\| (WHF-\d+) \| \w+ \| ([\w ]+) \|", text, re.M) == _by_level(facts)
    badge = ElementTree.fromstring((directory / "racks.svg").read_text())
    assert "".join(badge.itertext()).split() == [
        *("racks:", "core", "conforms,", "extended", "conforms"),
        *("wharfinger", "core", "conforms", "extended", "conforms"),
    ]


def test_report_of_a_partial_run_has_the_rules_that_did_not_run(kit: Kit) -> None:
    result = kit(
        *("--driver", "tagged", "-k", "WHF-204 or WHF-205 or WHF-401"),
        *("--driver-report", ".", "--driver-known-failure", "WHF-204: old\nfirmware | tags"),
    )

    assert result.ret == 6
    facts = json.loads((kit.directory / "tagged.json").read_text())
    found = {rule["id"]: (rule["status"], rule["found"]) for rule in facts["rules"]}
    assert found["WHF-101"] == ("not run", "not selected or not reached")
    assert found["WHF-204"] == (
        "known failure",
        r"old\nfirmware | tags (the driver adds these traits to provider shelf: OWNER_NOVA)",
    )
    assert found["WHF-205"] == ("not run", "WHF-204 is not kept")
    assert found["WHF-401"] == ("not run", "there is no harness")
    assert facts["asked"]["known_failures"] == {"WHF-204": r"old\nfirmware | tags"}
    assert facts["verdicts"] == {"core": "PARTIAL", "extended": "PARTIAL"}


def test_run_without_a_driver_has_no_report(kit: Kit) -> None:
    result = kit("--driver-report", "reports")

    assert result.ret == 6
    assert list(kit.directory.iterdir()) == []


def _rules_of_junit(path: Path) -> dict[str, str]:
    """Return the status of each rule from the properties in a JUnit file."""
    said = (
        {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
        for case in ElementTree.parse(path).iter("testcase")
    )
    return {one["rule"]: one["status"] for one in said}


def _by_level(facts: dict[str, Any]) -> list[tuple[str, str]]:
    order = ["MUST", "SHOULD", "MAY"]
    rules = sorted(facts["rules"], key=lambda rule: (order.index(rule["level"]), rule["id"]))
    return [(rule["id"], rule["status"]) for rule in rules]
