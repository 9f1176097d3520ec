"""Shows the kit's verdicts on the outsiders' drivers.

``python -m tests.lab.outsiders`` takes the names of drivers, or ``--right``, ``--wrong``,
``--all``, or ``--kind`` with a kind of defect. It examines each driver in a separate process,
because a defect may change the process. It stops examining a wrong driver at the first broken MUST
rule. If it shows CONFORMS or PARTIAL for a wrong driver, the kit did not find the defect.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from tests.lab import placement as lab
from tests.lab.conformance.quick import InOneProcess
from tests.lab.outsiders.many import MANY
from tests.lab.outsiders.right import right
from tests.lab.outsiders.running import (
    TIMEOUT,
    Installed,
    Outsider,
    examining,
    look_until_found,
    run_command,
)
from tests.lab.outsiders.wrong import wrong
from wharfinger.conformance.overall_verdict import ExitCode, exit_code, judge
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import all_rules

OUTSIDERS = {**right.all, MANY.name: MANY, **wrong.all}


def main(arguments: Sequence[str]) -> int:
    """Examine drivers. Return 1 if a right one does not conform or a wrong one does not fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.outsiders")
    parser.add_argument("names", nargs="*")
    for option in ("all", "right", "wrong", "details"):
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--here", action="store_true", help="examine without the command")
    parser.add_argument("--kind", help="examine the wrong drivers of this kind")
    parser.add_argument("--rule", action="append", default=[], help="examine only these rules")
    parser.add_argument("--skip", action="append", default=[], help="do not examine these rules")
    parser.add_argument("--examples", type=int, default=2, help="the number of random histories")
    parser.add_argument("--jobs", type=int, default=1, help="the number of processes")
    asked = parser.parse_args(arguments)
    if unknown := {*asked.names} - OUTSIDERS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    chosen = [
        one.name
        for one in OUTSIDERS.values()
        if one.name in asked.names
        or (asked.all or (asked.wrong if one.kind else asked.right))
        or (asked.kind is not None and one.kind == asked.kind)
    ]
    print(f"{'kind':12} {'driver':32} {'verdict':10} {'s':>5} found by")
    bad = 0
    with multiprocessing.get_context("fork").Pool(asked.jobs, maxtasksperchild=1) as pool:
        for is_bad, line in pool.imap_unordered(partial(_line, asked), chosen):
            bad += is_bad
            print(line, flush=True)
    return int(bad > 0)


def _line(asked: argparse.Namespace, name: str) -> tuple[bool, str]:
    """Examine a driver. Return whether the verdict is wrong, and the line to show."""
    one = OUTSIDERS[name]
    before = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        examine = _by_command if one.apart and not asked.here else _here
        verdict, found = examine(one, Path(directory), asked)
    took = time.monotonic() - before
    shown = found if asked.details else [text.partition(":")[0] for text in found]
    told = ("\n    " if asked.details else ", ").join(shown)
    is_bad = verdict != (ExitCode.FAILED if one.kind else ExitCode.CONFORMS).name
    return is_bad, f"{one.kind or 'right':12} {one.name:32} {verdict:10} {took:5.0f} {told}"


def _here(one: Outsider, directory: Path, asked: argparse.Namespace) -> tuple[str, list[str]]:
    """Examine a driver in this process. Return the verdict and the results to show."""
    looked = [
        rule
        for rule in all_rules()
        if (not asked.rule or rule.id in asked.rule) and rule.id not in asked.skip
    ]
    with (
        mock.patch.dict(os.environ, HOME=str(directory)),
        mock.patch.object(tempfile, "tempdir", str(directory)),
        lab.started(directory / "placement") as service,
        Installed(directory / "installed", [one]),
        InOneProcess(),
        mock.patch("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None)),
        examining(one, directory, RunPlacement(service), examples=asked.examples) as examination,
    ):
        if one.kind:
            results = look_until_found(examination, looked, one.rules)
        else:
            results = examination.check_all(looked)
    verdict = exit_code(judge([result.rule for result in results], results)).name
    found = [_told(one) for one in results if one.status is Status.FAILED]
    missing = [_told(one) for one in results if one.status is Status.NOT_RUN][:3]
    return verdict, found + (missing if verdict == "PARTIAL" else [])


def _told(result: Result) -> str:
    return (
        f"{result.rule.id}: {result.rule.level} {result.status}: {result.found} | "
        f"{result.expected} {result.details}"
    )


def _by_command(one: Outsider, directory: Path, asked: argparse.Namespace) -> tuple[str, list[str]]:
    """Examine a driver with the command. Return the verdict and the lines about rules."""
    installed = directory / "installed"
    rules = [f"--rule={id}" for id in asked.rule or one.rules]
    with Installed(installed, [one]):
        done = run_command(one.name, directory, installed, f"--timeout={TIMEOUT}", *rules)
    codes = {code.value: code.name for code in ExitCode}
    words = [line for line in done.stdout.splitlines() if line.startswith("WHF-")]
    return codes.get(done.returncode, f"exit {done.returncode}"), words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
