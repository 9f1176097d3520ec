"""What a run does to the process, the directory and the plugins where an author starts it."""

import os
import signal
import subprocess
from functools import partial

import pytest

from tests.lab.conformance.running import Kit, Processes

pytest_plugins = ["pytester"]

INTERRUPTED, USAGE, PARTIAL = 2, 4, 6


def test_where_it_is_run_nothing_of_others_counts(kit: Kit, pytester: pytest.Pytester) -> None:
    """Their settings are strict, and their plugin has an option of the same name."""
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
    pytester.syspathinsert()
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


def test_rules_are_looked_at_in_their_order_whatever_a_plugin_shuffles(kit: Kit) -> None:
    (kit.directory / "conftest.py").write_text(
        "import pytest\n@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection_modifyitems(items):\n    items.reverse()\n"
    )

    result = kit("--driver", "tagged", "-k", "WHF-204 or WHF-205", "-p", "no:randomly")

    result.assert_outcomes(failed=1, deselected=10)
    result.stdout.fnmatch_lines(["not run: WHF-205: WHF-204 is not kept"])


def test_a_run_that_is_interrupted_stops_its_backend_and_says_nothing(
    processes: Processes,
) -> None:
    with subprocess.Popen(
        processes.command("--driver", "held", "-s"),
        cwd=processes.directory,
        env=processes.authors.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Whoever runs these tests in the background has it ignored, and so would they.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as running:
        assert running.stdout is not None
        started = next(line for line in running.stdout if "it has started" in line)
        running.send_signal(signal.SIGINT)
        rest = running.stdout.read()
    assert running.returncode == INTERRUPTED
    assert "CONFORMS" not in rest
    assert "PARTIAL" not in rest
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.split()[-1]), 0)
    assert [*processes.directory.iterdir()] == []
