"""The conformance kit from wheels: it runs with drivers of other packages, without the sources."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.packaging.conftest import REPOSITORY
from tests.packaging.environment import run
from wharfinger.conformance.rules import all_rules

RULES = [rule.id for rule in all_rules()]
CONFORMS = 0


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.mkdir()
    return path


def test_small_driver_conforms_at_core(installed: Path, empty: Path, tmp_path: Path) -> None:
    configuration, junit = tmp_path / "wharfinger.conf", tmp_path / "junit.xml"
    configuration.write_text(
        "[DEFAULT]\nenabled_drivers = shelf\nhost = rack-7\n[shelf]\nboxes = 3\n"
    )

    printed = run(
        [
            *(installed / "python", "-m", "pytest", "--pyargs", "wharfinger.conformance"),
            *("--driver", "shelf", "--driver-profile", "core"),
            *("--driver-config", configuration, "--junit-xml", junit),
        ],
        CONFORMS,
        empty,
    )

    assert "core: CONFORMS, extended: NOT ASKED" in printed.splitlines()
    assert str(REPOSITORY) not in printed
    assert list(empty.iterdir()) == []
    assert _rules(junit) == RULES


def _rules(junit: Path) -> list[str]:
    """Return the rules in a JUnit file, from the properties of its tests."""
    return [
        one.attrib["value"]
        for case in ElementTree.parse(junit).iter("testcase")
        for one in case.iter("property")
        if one.attrib["name"] == "rule"
    ]
