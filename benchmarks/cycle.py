"""Cost of the framework itself in a cycle without changes.

Measured are processor time in microseconds for each node, and the number of SQL statements, of a
full cycle (it asks the driver for every node) and of a drift cycle, for fleets of nodes with one
provider each. A prepared list stands in for Placement: the time to decode the list counts,
Placement's own time does not. No thresholds: a person compares.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

import requests
import sqlalchemy as sa
from oslo_config import cfg

from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.objects.database_context import local
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import after_step
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.record_store import RowChanges

SIZES: Final = (1000, 10_000)
HOST: Final = "bench"
PUBLISHER: Final = Publisher("metal", "OWNER_NOVA")
GENERATION: Final = 3


class Fleet(ComputeDriver):
    """A driver of bare metal nodes that are all alike."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("a node is flat"),
        reshape=unsupported("a node is flat"),
        change_feed=unsupported("nothing changes"),
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("there is nothing to clean"),
    )
    default_owner: ClassVar[str] = PUBLISHER.owner
    _inventory: ClassVar[dict[str, Inventory]] = {"CUSTOM_GOLD": Inventory(total=1, max_unit=1)}

    def __init__(self, size: int) -> None:
        super().__init__(cfg.ConfigOpts(), HOST, PUBLISHER.instance)
        self._names = [f"node-{number}" for number in range(size)]

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return list(self._names)

    def get_inventory(self, nodename: str) -> dict[str, Any]:
        return dict(self._inventory)


class WrittenList:
    """Adapter that answers like a Placement with a given list of providers."""

    def __init__(self) -> None:
        self.list_of(())

    def list_of(self, providers: Sequence[Provider]) -> None:
        """Set the providers that Placement has from now on."""
        self._list = json.dumps(
            {
                "resource_providers": [
                    {
                        "uuid": one.uuid,
                        "name": one.name,
                        "generation": one.generation,
                        "parent_provider_uuid": one.parent_uuid,
                        "root_provider_uuid": one.root_uuid,
                    }
                    for one in providers
                ]
            }
        ).encode()

    def request(self, path: str, _method: str, **_options: Any) -> requests.Response:
        """Answer a request as a keystoneauth adapter does."""
        response = requests.Response()
        response.status_code = 200
        versions = {"versions": [{"id": "v1.0", "min_version": "1.0", "max_version": "1.39"}]}
        response._content = json.dumps(versions).encode() if path == "/" else self._list
        return response


def published(directory: Path, size: int) -> Reconciler:
    """Return the reconciler of a fleet, in the state after everything has been published."""
    context = local(directory, HOST)
    placement = WrittenList()
    client = PlacementClient(placement)  # type: ignore[arg-type]
    cycle = Reconciler(Fleet(size), PUBLISHER, client, context, RemovalPolicy(delay=60.0))
    plan = cycle.plan()
    live: dict[str, Provider | None] = {}
    for step in plan.steps:
        live[step.uuid] = after_step(step, live.get(step.uuid))
    there = [replace(one, generation=GENERATION) for one in live.values() if one]
    placement.list_of(there)
    records = {uuid: record for tree in plan.trees for uuid, record in tree.records.items()}
    stored = {one.uuid: replace(record, live=one) for one in there if (record := records[one.uuid])}
    cycle.store.write([RowChanges(records=stored)])
    for _ in range(2):  # the first cycle writes the rows of the nodes, the second fills caches
        outcome = cycle.sync()
        if outcome.steps or outcome.problems:
            raise SystemExit(f"the fleet is not unchanged: {outcome.steps[:3]} {outcome.problems}")
    return cycle


def measure(run: Callable[[], object], size: int, repeats: int) -> tuple[float, int]:
    """Return microseconds of processor time for each node, and the number of SQL statements.

    The time is the best of several repeats.
    """
    best, statements = float("inf"), 0

    def note(*_: object) -> None:
        nonlocal statements
        statements += 1

    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    run()
    sa.event.remove(sa.Engine, "before_cursor_execute", note)
    return best / size * 1e6, statements


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--repeats", type=int, default=5, help="default: 5")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="NODES")
    options = parser.parse_args(arguments)
    results: dict[str, dict[int, tuple[float, int]]] = {"full": {}, "drift": {}}
    for size in options.sizes:
        with TemporaryDirectory() as directory:
            cycle = published(Path(directory), size)
            for name, run in (("full", cycle.sync), ("drift", cycle.drift)):
                results[name][size] = measure(run, size, options.repeats)
    if options.json:
        json.dump(results, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    for name, by_size in results.items():
        for size, (cost, statements) in by_size.items():
            print(f"{name:<6}{size:>7} nodes {cost:8.1f} us a node {statements:6} statements")


if __name__ == "__main__":
    main()
