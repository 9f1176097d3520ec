"""Runs that are asked for wrongly, or whose backend is not what it should be: one clear line."""

from pathlib import Path

import pytest

from tests.lab.conformance.running import Kit
from wharfinger.conformance.rules import all_rules

pytest_plugins = ["pytester"]

CORE = ("--driver-profile", "core")
USAGE, PARTIAL = 4, 6


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--driver", "a/b"), "--driver: 'a/b' is no name of a driver"),
        (("--driver", ""), "--driver: '' is no name of a driver"),
        (("--driver-config", "no.conf"), "--driver-config: there is no file no.conf"),
        (("--driver-config", "."), "--driver-config: there is no file ."),
        (("--driver-examples", "0"), "--driver-examples: 0 is less than 1"),
        (("--driver-timeout", "0"), "--driver-timeout: 0 is no number of seconds"),
        (("--driver-timeout", "nan"), "--driver-timeout: nan is no number of seconds"),
        (("--driver", "shelf", "--driver-report", "a file"), "--driver-report: *a file'"),
        (("--driver", "shelf", "--junit-xml", "a file/x.xml"), "--junit-xml: *a file'"),
        (("-n2",), "the rules build on each other, *: leave out -n, or say -n0"),
    ],
)
def test_wrong_usage_is_said_in_a_line(kit: Kit, arguments: tuple[str, ...], line: str) -> None:
    (kit.directory / "a file").touch()

    result = kit(*arguments)

    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: {line}"])
    assert result.outlines == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[shelf\n", "configuration: *"),
        ("\0\xff", "configuration: *"),
        ("[shelf]\nboxxes = 3\n", "configuration: *boxxes*"),
        ("[shelf]\nboxes = none\n", "configuration: section [[]shelf]: *boxes*"),
        ("[shelf]\nowner = NOVA\n", "*owner = NOVA: *"),
        (
            "[DEFAULT]\nenabled_drivers = a, b\n[a]\ndriver = shelf\n[b]\ndriver = shelf\n",
            "*enabled_drivers = a, b: * enables several instances of shelf. Leave one of them.",
        ),
    ],
)
def test_a_configuration_that_is_wrong_is_no_word_on_the_driver(
    kit: Kit, text: str, line: str
) -> None:
    (kit.directory / "wharfinger.conf").write_text(text)

    result = kit("--driver", "shelf", *CORE, "--driver-config", "wharfinger.conf")

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines([f"not run: WHF-101, *: {line}"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_instance_is_the_one_that_the_configuration_enables(kit: Kit) -> None:
    text = "[DEFAULT]\nenabled_drivers = hall\n[hall]\ndriver = shelf\nboxxes = 3\n"
    (kit.directory / "wharfinger.conf").write_text(text)

    result = kit("--driver", "shelf", "--driver-config", "wharfinger.conf", "-k", "WHF-201")

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines(["not run: WHF-201: configuration: *boxxes of section [[]hall].*"])


@pytest.mark.parametrize(
    ("driver", "line"),
    [
        ("down", r"the harness failed in start: OSError: no route to\nthe laboratory"),
        ("astray", "the harness tests.lab.conformance.nowhere:Harness: ModuleNotFoundError: *"),
        ("abstract", "the harness tests.lab.*: TypeError: Can't instantiate abstract class *"),
    ],
)
def test_a_harness_that_is_none_is_no_word_on_the_driver(
    kit: Kit, driver: str, line: str, tmp_path: Path
) -> None:
    result = kit("--driver", driver, "--driver-report", str(tmp_path))

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines([f"not run: WHF-101, *: {line}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".svg"]


def test_a_harness_that_waits_for_ever_is_no_word_on_the_driver(kit: Kit) -> None:
    result = kit("--driver", "waiting", "--driver-timeout", "2", "-k", "WHF-201")

    assert result.ret == PARTIAL
    line = "not run: WHF-201: the harness failed in reset: Overdue: no end after 2 s"
    result.stdout.fnmatch_lines([line])


def test_a_harness_that_does_not_stop_is_an_error(kit: Kit) -> None:
    result = kit("--driver", "staying", "-k", "WHF-101")

    result.assert_outcomes(passed=1, errors=1, deselected=len([*all_rules()]) - 1)
    result.stdout.fnmatch_lines(["*the harness failed in stop: OSError: *"])
