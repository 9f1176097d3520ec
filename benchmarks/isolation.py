"""Time until a node is reserved, while another driver instance misbehaves.

`wharfinger agent` runs as a process with two driver instances, and a Placement over HTTP. The node
of the good instance changes again and again at random moments, while the driver of the other
instance misbehaves in one way. The time runs from the change until Placement shows it, in numbers
of poll intervals. In the first row, the other driver behaves well. No thresholds: a person
compares; the goal is below 2 polls.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.lab import placement
from tests.lab.bad_drivers import AT_START, MISBEHAVIOURS
from tests.lab.beside_bad import BAD, GOOD, BesideBad

#: The name of the row without a misbehaviour.
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Row:
    """Polls from a change until Placement shows it, and the number of restarts of each instance."""

    misbehaviour: str
    median: float
    worst: float
    changes: int
    restarts_of_bad: int
    restarts_of_good: int


def measure(beside: BesideBad, name: str, poll: float, changes: int) -> Row:
    """Measure the delay of the good instance's changes while the other instance misbehaves."""
    if name != NONE:
        beside.switch.touch()
        if name in AT_START:
            beside.kill_instance(BAD)
    time.sleep(2 * poll)
    times = []
    for number in range(changes):
        time.sleep(random.uniform(0, poll))
        began = time.monotonic()
        beside.set_reserved(GOOD, "" if number % 2 else "benchmark")
        beside.wait_for(GOOD, reserved=not number % 2)
        times.append((time.monotonic() - began) / poll)
    good, bad = beside.status(GOOD), beside.status(BAD)
    return Row(name, statistics.median(times), max(times), changes, bad.restarts, good.restarts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--poll", type=float, default=2.0, help="seconds; default: 2")
    parser.add_argument("--changes", type=int, default=10, help="changes for each row; default: 10")
    parser.add_argument("names", nargs="*", metavar="MISBEHAVIOUR", help="default: all")
    options = parser.parse_args(arguments)
    rows = []
    if not options.json:
        print(f"{'misbehaviour':<26}{'median':>8}{'worst':>8}{'restarts of bad':>18}{'of good':>9}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        service = stack.enter_context(placement.started(directory))
        for name in [NONE, *(options.names or MISBEHAVIOURS)]:
            place = directory / name
            place.mkdir()
            with (
                placement.over_http(service) as (url, _requests),
                BesideBad(place, url, name, intervals=(options.poll, 60, 300)) as beside,
            ):
                rows.append(row := measure(beside, name, options.poll, options.changes))
            if not options.json:
                print(
                    f"{name:<26}{row.median:8.2f}{row.worst:8.2f}"
                    f"{row.restarts_of_bad:18}{row.restarts_of_good:9}",
                    flush=True,
                )
    if options.json:
        json.dump([asdict(row) for row in rows], sys.stdout, indent=2)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
