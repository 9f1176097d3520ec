"""Let a driver describe its nodes in another process, which also runs this module."""

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

#: The exit code after an answer. 0 would also be that of a driver that ends the process.
_ENDED: Final = 17


def described_elsewhere(
    files: Sequence[Path], instance: str, live: Contents, *, hash_seed: int
) -> dict[str, Any]:
    """Return the providers that the driver describes in another process. Raises Violation."""
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
        check=False,
    )
    if done.returncode == 0:
        raise Violation(
            "in a second process, the driver ended the process before it described its nodes",
            "a description of the nodes",
        )
    if done.returncode != _ENDED:
        reason = (done.stderr.strip() or "it printed nothing").splitlines()[-1]
        raise Violation(
            f"in a second process, the driver fails to describe its nodes: {reason}",
            "the same description as in the first process. If no second process can reach the "
            "backend, set the harness's attribute other_processes to unsupported(REASON)",
        )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def as_data(described: dict[str, DesiredProvider]) -> dict[str, Any]:
    """Return the described providers by name, as data for JSON."""
    return {
        name: {
            **_data(one.provider),
            "mode": one.mode,
            "reserved": bool(one.reservations),  # the text of a reason may contain the time
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
    """Read a request; write the providers that the driver describes."""
    question = json.load(sys.stdin)
    live = {one["name"]: _provider(one) for one in question["live"]}
    driver = driver_instance_loader.load(
        conf.parse(question["files"], []), question["instance"]
    ).driver
    with driver_instance_loader.connected(driver):
        described = describe(driver, live)
    sys.stdout.write(f"\n{json.dumps(as_data(described))}\n")
    sys.stdout.flush()
    sys.exit(_ENDED)  # runs the driver's exit handlers, as an agent's process does


if __name__ == "__main__":
    main()
