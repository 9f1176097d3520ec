"""Shows what the kit says of the outsiders' drivers.

``python -m tests.lab.outsiders NAME...``, ``--right``, ``--wrong`` or ``--all``; with ``--kind``
those whose defect is of a kind. Each is examined in a process of its own: its defect may change the
process. A wrong driver for which CONFORMS is shown has escaped.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from tests.lab import placement as lab
from tests.lab.conformance.quick import InOneProcess, QuickPlacement
from tests.lab.outsiders.right import right
from tests.lab.outsiders.running import TIMEOUT, Installed, Outsider, examining, run_command
from tests.lab.outsiders.wrong import wrong
from wharfinger.conformance.overall_verdict import ExitCode, exit_code, judge
from wharfinger.conformance.rule_runner import Status
from wharfinger.conformance.rules import all_rules


def main(arguments: Sequence[str]) -> int:
    """Examine some drivers; 1 where a right one fails or a wrong one escapes."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.outsiders")
    parser.add_argument("names", nargs="*")
    for option in ("all", "right", "wrong", "here", "details"):
        parser.add_argument(f"--{option}", action="store_true")
    parser.add_argument("--kind")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rule", action="append", default=[])
    parser.add_argument("--examples", type=int, default=2)
    asked = parser.parse_args(arguments)
    every = {
        **(right.all if asked.all or asked.right or asked.names else {}),
        **(wrong.all if asked.all or asked.wrong or asked.kind or asked.names else {}),
    }
    chosen = [
        one
        for one in every.values()
        if (not asked.names or one.name in asked.names)
        and (not asked.kind or one.kind == asked.kind)
    ]
    if asked.here:
        (one,) = chosen
        print(json.dumps(_here(one, asked.rule, asked.examples)))
        sys.stdout.flush()
        os._exit(0)
    print(f"{'kind':12} {'driver':32} {'verdict':10} {'s':>5} found by")
    with ThreadPoolExecutor(asked.jobs) as pool:
        lines = pool.map(lambda one: _line(one, asked), chosen)
        return int(sum(_show(*line) for line in lines) > 0)


def _show(is_bad: bool, line: str) -> bool:
    print(line, flush=True)
    return is_bad


def _line(one: Outsider, asked: argparse.Namespace) -> tuple[bool, str]:
    """Examine a driver; whether the verdict is wrong, and what to show."""
    before = time.monotonic()
    verdict, found = _apart(one) if one.apart else _examined(one, asked)
    took = time.monotonic() - before
    shown = found if asked.details else [text.partition(":")[0] for text in found]
    told = ("\n    " if asked.details else ", ").join(shown)
    is_bad = verdict != (ExitCode.FAILED if one.kind else ExitCode.CONFORMS).name
    return is_bad, f"{one.kind or 'right':12} {one.name:32} {verdict:10} {took:5.0f} {told}"


def _examined(one: Outsider, asked: argparse.Namespace) -> tuple[str, list[str]]:
    rules = [f"--rule={id}" for id in asked.rule]
    more = [f"--examples={asked.examples}", *rules]
    command = [sys.executable, "-W", "ignore", "-m", __package__, one.name, "--here", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return "DIED", [*done.stderr.splitlines()[-1:]]
    verdict, found = json.loads(done.stdout.splitlines()[-1])
    return verdict, found


def _here(one: Outsider, rules: Sequence[str], examples: int) -> tuple[str, list[str]]:
    """Examine a driver in this process."""
    no_waiting = SimpleNamespace(sleep=lambda seconds: None)
    with (
        tempfile.TemporaryDirectory() as directory,
        lab.started(Path(directory, "placement")) as service,
        Installed(Path(directory, "installed"), [one]),
        InOneProcess(),
        mock.patch("tenacity.nap.time", no_waiting),
    ):
        Path(directory, "work").mkdir()
        placement = QuickPlacement(service)
        with examining(one, Path(directory, "work"), placement, examples=examples) as examination:
            every = [*all_rules()]
            looked = [rule for rule in every if not rules or rule.id in rules]
            results = examination.look_at(looked)
        verdict = exit_code(judge(looked, results)).name
        bad = {Status.FAILED} if verdict == "FAILED" else {Status.FAILED, Status.NOT_RUN}
        return verdict, [
            f"{result.rule.id}: {result.rule.level} {result.status}: {result.found} | "
            f"{result.expected} {result.details}"
            for result in results
            if result.status in bad
        ]


def _apart(one: Outsider) -> tuple[str, list[str]]:
    """Examine a driver with the command."""
    with tempfile.TemporaryDirectory() as directory:
        installed = Path(directory, "installed")
        with Installed(installed, [one]):
            done = run_command(one.name, Path(directory), installed, f"--timeout={TIMEOUT}")
    codes = {code.value: code.name for code in ExitCode}
    words = [line for line in done.stdout.splitlines() if line.startswith("WHF-")]
    return codes.get(done.returncode, f"exit {done.returncode}"), words


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
