"""The description of a driver in another process, and the program of that process.

Run as a program, it reads what it is to ask for from its standard input, and answers with JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from wharfinger import conf
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents
from wharfinger.conformance.subject import describe
from wharfinger.providers import DesiredProvider, Inventory, Provider
from wharfinger.reconcile import driver_instance_loader

#: Seconds for a process to begin, and to answer.
_TIMEOUT: Final = 120.0
#: The exit code of a process that has answered, and has ended by itself.
_ENDED: Final = 17


def said_elsewhere(
    files: Sequence[Path], instance: str, live: Contents, *, hash_seed: int
) -> dict[str, Any]:
    """Return the description of each provider by name, from a process with another hash seed.

    Raises Violation where the driver cannot be asked there.
    """
    question = {
        "files": [str(file) for file in files],
        "instance": instance,
        "live": [_data(provider) for provider in live.values()],
    }
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", __name__],
        input=json.dumps(question),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode == 0:
        raise Violation("another process exits with 0 before it answers", "an answer")
    if done.returncode != _ENDED:
        reason = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
        raise Violation(
            f"in another process: {reason}",
            "as in this one; or a harness that declares that there is none (other_processes)",
        )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def as_data(described: dict[str, DesiredProvider]) -> dict[str, Any]:
    """Return a description as JSON."""
    return {
        name: {
            **_data(one.provider),
            "mode": one.mode,
            "reserved": bool(one.reservations),  # reasons are for people, and may tell the time
            "stated": one.stated,
        }
        for name, one in described.items()
    }


def _data(provider: Provider) -> dict[str, Any]:
    return {
        **asdict(provider),
        "traits": sorted(provider.traits),
        "aggregates": sorted(provider.aggregates),
    }


def _provider(data: dict[str, Any]) -> Provider:
    inventories = {kind: Inventory(**one) for kind, one in data.pop("inventories").items()}
    traits, aggregates = frozenset(data.pop("traits")), frozenset(data.pop("aggregates"))
    return Provider(**data, inventories=inventories, traits=traits, aggregates=aggregates)


def main() -> None:
    """Answer one question."""
    question = json.load(sys.stdin)
    live = {one["name"]: _provider(one) for one in question["live"]}
    driver = driver_instance_loader.load(
        conf.parse(question["files"], []), question["instance"]
    ).driver
    with driver_instance_loader.connected(driver):
        described = describe(driver, live)
    sys.stdout.write(f"\n{json.dumps(as_data(described))}\n")
    sys.stdout.flush()
    sys.exit(_ENDED)  # as a process ends that runs for long: exit handlers and all


if __name__ == "__main__":
    main()
