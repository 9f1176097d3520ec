"""Time for which Placement still offers a node that Ironic has taken out of use.

The benchmark uses a real Ironic with a fleet of nodes in its database, a real Placement, and
`wharfinger agent` with its default intervals in a separate process. It changes one node after the
other, at times that do not depend on the agent's cycles: it puts the node into maintenance, or
makes it leave `available`. The time runs from before the request to Ironic until Placement shows
`reserved == total`. Before that, it counts the requests of an unchanged poll, drift cycle and full
cycle to Ironic and to Placement. No thresholds: a person compares.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from keystoneauth1.adapter import Adapter

from wharfinger import conf as configuration
from wharfinger.objects import connect
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.session import make_adapter
from wharfinger.providers import Inventory
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger_harnesses.ironic import Ironic
from wharfinger_ironic.client import Ironic as IronicClient
from wharfinger_ironic.feed import OVERLAP

INSTANCE: Final = "metal"
#: Seconds between two requests to Placement; longest pause between two changes; longest wait for a
#: change.
_LOOK: Final = 0.02
_PAUSE: Final = 3.0
_PATIENCE: Final = 120.0


@contextmanager
def fleet(size: int) -> Iterator[Ironic]:
    """Run an Ironic with this number of available nodes."""
    with Ironic() as ironic:
        first = ironic.create_node("node-0")
        ironic.make_available(first)
        ironic.insert_nodes(size - 1)
        yield ironic


def write_configuration(directory: Path, ironic: Ironic) -> Path:
    path = directory / "wharfinger.conf"
    path.write_text(
        f"[DEFAULT]\nenabled_drivers = {INSTANCE}\nhost = bench\nstate_path = {directory}\n"
        f"[{INSTANCE}]\ndriver = ironic\nauth_type = none\nendpoint = {ironic.url}\n"
    )
    return path


class Counted:
    """Counts the calls of a method."""

    def __init__(self, owner: type, name: str) -> None:
        self.calls = 0
        method = getattr(owner, name)

        def counting(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            return method(*arguments, **keywords)

        setattr(owner, name, counting)

    def taken(self) -> int:
        calls, self.calls = self.calls, 0
        return calls


def requests_of_cycles(config: Path, client: PlacementClient) -> dict[str, dict[str, float]]:
    """Run a first sync, then cycles without changes; return the seconds and requests of each."""
    conf = configuration.load([str(config)])
    context = connect(conf)
    to_ironic, to_placement = Counted(IronicClient, "_get"), Counted(Adapter, "request")
    asked: dict[str, dict[str, float]] = {}

    def run(name: str, cycle: Callable[[], Any]) -> None:
        to_ironic.taken()
        to_placement.taken()
        started = time.monotonic()
        outcome = cycle()
        for problem in outcome.problems:
            raise problem
        asked[name] = {
            "seconds": round(time.monotonic() - started, 2),
            "Ironic": to_ironic.taken(),
            "Placement": to_placement.taken(),
            "written": len(outcome.steps),
        }

    instance = driver_instance_loader.load(conf, INSTANCE)
    with driver_instance_loader.running(
        instance, client, context, policy=RemovalPolicy(delay=60)
    ) as cycle:
        run("first full cycle", cycle.sync)
        run("first poll", cycle.poll)
        # The nodes are new: wait until they are older than the time that each poll reads again.
        time.sleep(OVERLAP.total_seconds() + 1)
        run("poll before", cycle.poll)
        run("poll", cycle.poll)
        run("drift cycle", cycle.drift)
        run("full cycle", cycle.sync)
    context.close()
    return asked


@contextmanager
def agent(config: Path) -> Iterator[None]:
    """Run the agent until the context ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wharfinger.cli.app", "--config-file", str(config), "agent"]
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_PATIENCE)


def wait_until_reserved(client: PlacementClient, uuid: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not all(one.is_fully_reserved for one in inventories(client, uuid)):
        if time.monotonic() > end:
            raise TimeoutError(f"node {uuid} is not reserved after {_PATIENCE} seconds")
        time.sleep(_LOOK)


def inventories(client: PlacementClient, uuid: str) -> list[Inventory]:
    """Return a node's inventories; raises LookupError if it has none."""
    found = list(client.get_inventories(uuid).inventories.values())
    if not found:
        raise LookupError(f"node {uuid} has no inventory in Placement")
    return found


def changes(ironic: Ironic, count: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield random nodes, each with a function that takes the node out of use."""
    listed = ironic.ask("GET", f"/v1/nodes?fields=uuid&limit=1000&marker={_first(ironic)}").json()
    uuids = [node["uuid"] for node in listed["nodes"]]
    for number, uuid in enumerate(random.sample(uuids, count)):
        if number % 2:
            yield uuid, partial(ironic.set_maintenance, uuid, "benchmark")
        else:
            yield uuid, partial(ironic.provision, uuid, "manage")


def _first(ironic: Ironic) -> str:
    return str(ironic.ask("GET", "/v1/nodes?fields=uuid&limit=1").json()["nodes"][0]["uuid"])


def measure(config: Path, client: PlacementClient, ironic: Ironic, count: int) -> list[float]:
    times = []
    with agent(config):
        for uuid, change in changes(ironic, count + 1):
            time.sleep(random.uniform(0, _PAUSE))
            started = time.monotonic()
            change()
            wait_until_reserved(client, uuid)
            times.append(time.monotonic() - started)
    # The first change has waited for the agent's first full cycle.
    return times[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=50)
    arguments = parser.parse_args()
    with TemporaryDirectory() as name, fleet(arguments.nodes) as ironic:
        config = write_configuration(Path(name), ironic)
        client = PlacementClient(make_adapter(configuration.load([str(config)])))
        json.dump(requests_of_cycles(config, client), sys.stdout, indent=2)
        times = measure(config, client, ironic, arguments.changes)
    print(
        f"\n{len(times)} changes among {arguments.nodes} nodes: reserved after "
        f"{statistics.median(times):.2f} s (median), {max(times):.2f} s (worst)"
    )


if __name__ == "__main__":
    main()
