"""Runs with wrong arguments or an unusable backend fail with one clear line."""

from pathlib import Path

import pytest

from tests.lab.conformance.running import Kit

pytest_plugins = ["pytester"]

CORE = ("--driver-profile", "core")
USAGE, PARTIAL = 4, 6
KNOWN = "--driver-known-failure"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--driver", "a/b"), "--driver: 'a/b' is not a driver's name, such as libvirt"),
        (("--driver-config", "no.conf"), "--driver-config: there is no file no.conf"),
        (("--driver-config", "."), "--driver-config: there is no file ."),
        (("--driver-examples", "0"), "--driver-examples: 0 is not a number of 1 or more"),
        (("--driver-timeout", "0"), "--driver-timeout: 0 is not a number of seconds, such as 60"),
        (("--driver-timeout", "nan"), "--driver-timeout: nan is not a number of seconds, *"),
        (("-n2",), "the rules cannot run in parallel, *: leave out -n and --dist, or use -n0"),
        ((KNOWN, "WHF-201"), f"{KNOWN}: 'WHF-201' is not the id of a rule and a reason, *"),
        ((KNOWN, "WHF-999: no such"), f"{KNOWN}: 'WHF-999: no such' is not *"),
        ((KNOWN, "WHF-201:  "), f"{KNOWN}: 'WHF-201:  ' is not *"),
    ],
)
def test_wrong_usage_is_refused_in_one_line(
    kit: Kit, arguments: tuple[str, ...], line: str
) -> None:
    result = kit(*arguments)

    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"*{line}"])
    assert result.outlines == []


def test_report_that_cannot_be_written_is_refused(kit: Kit) -> None:
    (kit.directory / "a file").touch()

    result = kit("--driver", "shelf", "--driver-report", "a file")

    assert result.ret == USAGE
    result.stderr.fnmatch_lines(["*--driver-report: cannot create directory a file: *"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\0\xff", "configuration: *"),
        ("[shelf]\nboxes = none\n", "configuration: section [[]shelf]: *boxes*"),
        ("[shelf]\nowner = NOVA\n", "*owner = NOVA: *"),
        # The instance is the one that the configuration file enables.
        (
            "[DEFAULT]\nenabled_drivers = hall\n[hall]\ndriver = shelf\nboxxes = 3\n",
            "configuration: *boxxes of section [[]hall] is unknown.*",
        ),
        (
            "[DEFAULT]\nenabled_drivers = a, b\n[a]\ndriver = shelf\n[b]\ndriver = shelf\n",
            "*enabled_drivers = a, b: * enables several instances*only one of these instances.",
        ),
    ],
)
def test_configuration_that_is_wrong_is_no_word_on_the_driver(
    kit: Kit, text: str, line: str
) -> None:
    (kit.directory / "wharfinger.conf").write_text(text)

    result = kit("--driver", "shelf", *CORE, "--driver-config", "wharfinger.conf")

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines([f"not run: WHF-101, *: {line}"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("driver", "line"),
    [
        ("down", r"the harness failed in start: OSError: no route to\nthe laboratory"),
        ("astray", "the harness tests.lab.conformance.nowhere:Harness cannot be imported: *"),
        (
            "abstract",
            "the harness * cannot be created: TypeError: Can't instantiate abstract class *",
        ),
    ],
)
def test_unusable_harness_is_no_verdict_on_the_driver(
    kit: Kit, driver: str, line: str, tmp_path: Path
) -> None:
    asked = ("-k", "WHF-201", "--driver-report", str(tmp_path))
    result = kit("--driver", driver, *asked)

    assert result.ret == PARTIAL
    result.stdout.fnmatch_lines([f"not run: WHF-201: {line}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md", ".svg"]
