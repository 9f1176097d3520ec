"""Processor time of program starts, as ratios to ``openstack --version`` in the same run.

It measures user and system seconds of whole processes. The commands take turns, so that a slower
phase of the machine slows down all of them. The medians are compared. ``provider list`` uses the
embedded Placement; a sample host is published before. The script prints the goals beside the
ratios, and does not fail.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

SAMPLE: Final = Path(__file__).resolve().parents[1] / "etc" / "wharfinger" / "sample"
PROGRAMS: Final = Path(sys.executable).parent
YARDSTICK: Final = ("openstack", "--version")
#: The largest ratio that each command should have.
GOALS: Final[dict[tuple[str, ...], float]] = {
    ("wharfinger", "--version"): 0.2,
    ("wharfinger", "service", "list"): 0.8,
    ("wharfinger", "provider", "list"): 1.4,
}


def prepare(directory: Path) -> dict[str, str]:
    """Publish the sample host; return the environment with its configuration."""
    configuration = directory / ".wharfinger"
    configuration.mkdir()
    sample = (SAMPLE / "wharfinger.conf").read_text().replace("@demo@", str(directory))
    (configuration / "wharfinger.conf").write_text(sample)
    shutil.copy(SAMPLE / "host.xml", directory / "host.xml")
    # Like an installed program: after the first run, no run compiles a module.
    environment = {**os.environ, "HOME": str(directory), "PYTHONPYCACHEPREFIX": f"{directory}/pyc"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    seconds(("wharfinger", "sync"), environment)
    return environment


def seconds(command: Sequence[str], environment: dict[str, str]) -> float:
    """Run a command in this environment until it ends; return its seconds of processor time."""
    program, *arguments = command
    process = subprocess.Popen(
        [PROGRAMS / program, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    _pid, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure(environment: dict[str, str], runs: int) -> dict[tuple[str, ...], float]:
    """Return the median of each command's processor seconds; the first turn does not count."""
    commands = (YARDSTICK, *GOALS)
    turns = [[seconds(command, environment) for command in commands] for _ in range(runs + 1)]
    return {
        command: median(turn[number] for turn in turns[1:])
        for number, command in enumerate(commands)
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="of each command; default: 9")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        medians = measure(prepare(Path(directory)), options.runs)
    sys.stdout.write(f"{'command':<28}{'seconds':>8}{'ratio':>7}{'goal':>6}\n")
    for command, cost in medians.items():
        goal = f"{GOALS[command]:6.1f}" if command in GOALS else ""
        ratio = cost / medians[YARDSTICK]
        sys.stdout.write(f"{' '.join(command):<28}{cost:8.2f}{ratio:7.2f}{goal}\n")


if __name__ == "__main__":
    main()
