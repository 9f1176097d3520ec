"""``wharfinger conformance``: its exit codes, and the arguments that it passes to the kit."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conformance.running import FEW, Kit
from tests.lab.inprocess import logging_of_its_own
from wharfinger.cli.app import main

pytest_plugins = ["pytester"]

FAILED, PARTIAL, USAGE = 1, 6, 64


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    with logging_of_its_own():
        yield


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["shelf", "--rule", "WHF-201", "--rule", "WHF-204"], PARTIAL, "WHF-204  MUST    passed"),
        (["tagged", "--profile", "core", "--rule", "WHF-204"], FAILED, "core: FAILED"),
        (["shelf", "--rule", "WHF-20"], USAGE, "there is no rule WHF-20."),
        (["shelf", "--driver-config", "no.conf"], USAGE, "there is no file no.conf"),
        (["shelf", "--report", "/dev/null/x"], USAGE, "cannot create directory /dev/null/x: "),
        ([], USAGE, "required: NAME"),
    ],
)
def test_run_exits_as_documented(
    kit: Kit, arguments: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", "run", *arguments]) == code

    assert said in "".join(capfd.readouterr())


def test_run_passes_its_arguments_to_the_kit(kit: Kit, tmp_path: Path) -> None:
    arguments = ["--seed", "0", "--examples", "2", "--rule", "WHF-204"]
    files = ["--report", str(tmp_path)]
    known = ["--known-failure", "WHF-204: old firmware"]

    assert main(["conformance", "run", "tagged", *arguments, *files, *known]) == PARTIAL

    assert json.loads((tmp_path / "tagged.json").read_text())["asked"] == {
        "profile": "extended",
        "backend": "no harness",
        "known_failures": {"WHF-204": "old firmware"},
        "seed": 0,
        "examples": 2,
        "timeout": 300.0,
        "thorough": False,
    }


def test_rules_are_listed(kit: Kit, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "rules", "-f", "json"]) == 0

    rules = json.loads(capfd.readouterr().out)
    assert rules[0].keys() == {"ID", "Level", "Profile", "Since", "Rule", "Reason"}
    assert [rule["ID"] for rule in rules] == [*FEW]
