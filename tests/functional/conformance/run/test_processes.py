"""Runs in processes of their own, as authors start them."""

import os
import shlex
import signal
import subprocess
import sys
from functools import partial

import pytest

from tests.lab.conformance.running import Kit, Processes

pytest_plugins = ["pytester"]

FAILED, INTERRUPTED, USAGE, PARTIAL = 1, 2, 4, 6


def test_the_command_of_a_failure_shows_it_again(kit: Kit, processes: Processes) -> None:
    result = kit("--driver", "tagged", "--driver-profile", "core")
    assert result.ret == FAILED
    at = next(at for at, line in enumerate(result.outlines) if line.startswith("WHF-204 MUST: "))
    four = result.outlines[at : at + 4]
    assert four[1:3] == ["expected: none of them", "found:    shelf: + OWNER_NOVA"]
    program, *arguments = shlex.split(four[3].removeprefix("again:"))
    assert program == "pytest"

    run = processes.run([sys.executable, "-m", "pytest", *arguments])

    assert run.returncode == FAILED, run.stdout
    lines = run.stdout.splitlines()
    at = lines.index(four[0])
    assert lines[at : at + 4] == four
    assert list(processes.directory.iterdir()) == []


def test_where_it_is_run_nothing_of_others_counts(processes: Processes) -> None:
    """Their settings are strict, and their plugin has an option of the same name."""
    directory = processes.directory
    (directory / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nxfail_strict = true\n"
        "addopts = -p no:cacheprovider --strict-markers --import-mode=importlib\n"
    )
    (directory / "browsers.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--driver', help='a browser')\n"
    )
    (directory / "test_own.py").write_text(
        "def test_own(pytestconfig):\n    assert pytestconfig.getoption('driver') == 'firefox'\n"
    )
    theirs = [sys.executable, "-m", "pytest", "-p", "browsers", "test_own.py"]
    run = processes.run([*theirs, "--driver", "firefox", "--ignore", "wharfinger/conformance"])
    assert (run.returncode, "1 passed" in run.stdout) == (0, True), run.stdout
    assert "PARTIAL" not in run.stdout

    ours = processes.command("--driver", "shelf", "-k", "WHF-201")
    run = processes.run([*ours, "-p", "browsers"])
    assert run.returncode == USAGE
    assert "ERROR: another plugin has an option --driver, too" in run.stderr

    run = processes.run(ours)
    assert (run.returncode, "1 passed" in run.stdout) == (PARTIAL, True), run.stdout


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
