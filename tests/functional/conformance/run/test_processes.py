"""Drivers, harnesses and users that disturb the process of the rules: no result is lost."""

import json
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from tests.lab.conformance.running import Authors, Kit, Processes
from wharfinger.conformance.rule_runner import Status
from wharfinger.conformance.rules import Profile, all_rules
from wharfinger.conformance.run import Run
from wharfinger.conformance.run_options import Asked

pytest_plugins = ["pytester"]

USAGE, PARTIAL = 4, 6
#: Where the drivers of these tests misbehave.
WHERE = "in the driver's update_provider_tree"
RULES = {rule.id: rule for rule in all_rules()}


def is_running(pid: str) -> bool:
    """Return whether the process runs and is no zombie."""
    try:
        return (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def asked(driver: str, timeout: float = 60) -> Asked:
    return Asked(driver=driver, profile=Profile.CORE, known={}, seed=1, timeout=timeout)


@pytest.mark.drawn(1, keep=["stuck"])
@pytest.mark.parametrize(
    ("driver", "found"),
    [
        ("leaving", f"the process ended with exit code 0 {WHERE}"),
        ("ending", f"the process ended with signal SIGTERM {WHERE}"),
        ("crashing", f"the process ended with signal SIGSEGV {WHERE}"),
        ("interrupting", "KeyboardInterrupt"),
        ("closing", ""),
        ("stuck", "no result after 1 s of the driver's time, in the driver's update_provider_tree"),
        (
            "silent",
            "no result after 1 s of the driver's time, in the driver's update_provider_tree",
        ),
        ("late", "the driver adds these traits to provider machine-0: OWNER_NOVA"),
    ],
)
def test_rule_without_a_result_fails_and_others_are_checked(
    driver: str, found: str, authors: Authors, tmp_path: Path
) -> None:
    with Run(asked(driver, timeout=1), tmp_path) as run:
        results = [run.check(RULES[id]) for id in ("WHF-102", "WHF-204", "WHF-904")]

    assert [one.status for one in results] == [Status.PASSED, Status.FAILED, Status.PASSED]
    assert results[1].found.startswith(found)
    if driver == "stuck":
        assert "authors.py" in results[1].details and "in inventory" in results[1].details
    told = json.loads((tmp_path / f"{driver}.json").read_text())
    assert told["verdicts"]["core"] == "FAILED"
    assert {one["status"] for one in told["rules"]} == {"passed", "failed", "not run"}


def test_driver_that_ends_every_process_ends_the_run(authors: Authors) -> None:
    with Run(asked("parting")) as run:
        results = [run.check(RULES[id]) for id in ("WHF-903", "WHF-904", "WHF-103", "WHF-101")]

    assert [one.status for one in results] == [Status.FAILED] * 3 + [Status.NOT_RUN]
    assert results[0].found == "the process ended with exit code 0 in the kit"
    assert results[3].found == "the process of the rules was lost 3 times"


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("driver", "found", "why_not"),
    [
        (
            "asleep",
            "no result after 1 s of the driver's time, in the driver's import",
            "the process of the rules was lost before it was ready",
        ),
        (
            "unborn",
            "no result after 1 s of the driver's time, in the driver's __init__",
            "the process of the rules was lost before it was ready",
        ),
        (
            "endless",
            "the kit has made no call for 5 s: see what its threads wait for",
            "WHF-101 is not kept",
        ),
    ],
)
def test_driver_that_hangs_outside_its_methods_fails(
    driver: str, found: str, why_not: str, authors: Authors
) -> None:
    with Run(asked(driver, timeout=1)) as run:
        results = [run.check(RULES[id]) for id in ("WHF-101", "WHF-102")]

    assert [one.status for one in results] == [Status.FAILED, Status.NOT_RUN]
    assert results[0].found == found
    assert "in __iter__" in results[0].details or driver != "endless"
    assert results[1].found == why_not


def test_driver_that_hangs_in_another_process_fails(authors: Authors) -> None:
    with Run(asked("hiding", timeout=1)) as run:
        result = run.check(RULES["WHF-305"])

    assert result.status is Status.FAILED
    where = "in the driver's work in another process"
    assert result.found == f"no result after 1 s of the driver's time, {where}"


def test_hanging_harness_is_no_verdict_on_the_driver(authors: Authors) -> None:
    with Run(Asked(driver="waiting", known={}, seed=1, timeout=1)) as run:
        result = run.check(RULES["WHF-201"])

    assert result.status is Status.NOT_RUN
    assert result.found == "the harness's reset has not returned for 1 s"


def test_interrupted_run_reports_partial_and_leaves_no_process(processes: Processes) -> None:
    with subprocess.Popen(
        processes.command("held", "--report", "report"),
        cwd=processes.directory,
        env=processes.authors.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs these tests in the background ignores SIGINT, and children inherit that.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as running:
        told = processes.directory / "started"
        while not (told.exists() and told.read_text()):
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        printed = running.stdout.read()
    assert running.returncode == PARTIAL, printed
    assert "core: PARTIAL, extended: PARTIAL" in printed
    assert "the run was interrupted" in printed
    assert not is_running(told.read_text())
    report = json.loads((processes.directory / "report" / "held.json").read_text())
    assert report["verdicts"] == {"core": "PARTIAL", "extended": "PARTIAL"}


# Other tests and plugins in the same pytest.


def test_pytest_run_ignores_settings_and_plugins_of_others(
    kit: Kit, pytester: pytest.Pytester
) -> None:
    """The other settings are strict, and the other plugin has an option of the same name."""
    (kit.directory / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nxfail_strict = true\n"
        "addopts = -p no:cacheprovider --strict-markers --import-mode=importlib\n"
    )
    (kit.directory / "browsers.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--driver', help='a browser')\n"
    )
    (kit.directory / "test_own.py").write_text(
        "def test_own(pytestconfig):\n    assert pytestconfig.getoption('driver') == 'firefox'\n"
    )
    # Not pytester.syspathinsert(): it ends after ``kit``, and would bring the path of ``kit`` back.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(kit.directory)
        theirs = ("-p", "browsers", "test_own.py", "--driver", "firefox")
        result = pytester.runpytest_inprocess(*theirs, "--ignore", "wharfinger/conformance")
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*PARTIAL*")

        both = kit("--driver", "shelf", "-k", "WHF-201", "-p", "browsers")
        assert both.ret == USAGE
        both.stderr.fnmatch_lines(["ERROR: another plugin has an option --driver, too*"])

        ours = kit("--driver", "shelf", "-k", "WHF-201")
        assert ours.ret == PARTIAL
        ours.assert_outcomes(passed=1, deselected=11)


def test_rules_run_in_their_order_whatever_a_plugin_shuffles(kit: Kit) -> None:
    (kit.directory / "conftest.py").write_text(
        "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n    items.reverse()\n"
    )

    result = kit("--driver", "tagged", "-k", "WHF-204 or WHF-205", "-p", "no:randomly")

    result.assert_outcomes(failed=1, skipped=1, deselected=10)
    result.stdout.fnmatch_lines(["not run: WHF-205: WHF-204 is not kept"])
