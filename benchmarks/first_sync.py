"""Cost of a first sync, beside its raw writes and nova's report client.

Placement runs on PostgreSQL in a separate process, and Wharfinger's database is on the same server.
Each measurement has new and empty databases:

    sync    a full cycle of one-provider nodes that Placement does not have
    raw     the same writes again, with as many connections, by a plain HTTP client
    nova    the same nodes by nova's report client, as nova-compute calls it, if nova is installed

Measured are seconds of the wall clock, processor time of the process that sends, and requests. No
thresholds: a person compares.
"""

import argparse
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import requests
from keystoneauth1 import token_endpoint
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from benchmarks.cycle import HOST, PUBLISHER, Fleet
from tests.lab import placement_service
from tests.lab.postgresql import PostgreSQL
from wharfinger.db.database import Database
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.names import root_uuid
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger_harnesses.daemons import PythonDaemon

CONNECTIONS: Final = 8
_HEADERS: Final = {
    "X-Auth-Token": "admin",
    "X-Roles": "admin,service",
    "Content-Type": "application/json",
}
_CONFIGURATION: Final = """\
[api]
auth_strategy = noauth2

[placement_database]
connection = {url}
sync_on_startup = true
"""


class Write(NamedTuple):
    """A request that changes Placement. ``node`` is the uuid in its path, if it has one."""

    method: str
    path: str
    body: Any
    microversion: str
    node: str | None


class Cost(NamedTuple):
    """Seconds of the wall clock, seconds of processor time, and the number of requests."""

    wall: float
    cpu: float
    requests: int


class Placement(PythonDaemon):
    """A Placement server on an empty PostgreSQL database; ``url`` is its address."""

    url: str

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self._database = server.create_database()

    def _setUp(self) -> None:
        super()._setUp()
        (self.directory / "placement.conf").write_text(_CONFIGURATION.format(url=self._database))
        self.start_program(Path(placement_service.__file__))
        self.url = f"http://127.0.0.1:{(self.directory / 'port').read_text()}"

    def adapter(self) -> Adapter:
        return Adapter(
            Session(),
            auth=token_endpoint.Token(self.url, "admin"),
            service_type="placement",
            endpoint_override=self.url,
            additional_headers={"X-Roles": _HEADERS["X-Roles"]},
        )


@contextmanager
def counted() -> Iterator[list[Write]]:
    """Record all requests that keystoneauth sends; reads have the method GET."""
    sent: list[Write] = []
    request = Session.request

    def noting(session: Session, url: str, method: str, **options: Any) -> Any:
        path = url if url.startswith("/") else "/" + url.split("/", 3)[-1]
        parts = path.split("/")
        node = parts[2] if path.startswith("/resource_providers/") else None
        body = options.get("data")
        if method == "POST" and path == "/resource_providers" and body:
            node = json.loads(body)["uuid"]
        sent.append(Write(method, path, body, str(options.get("microversion") or ""), node))
        return request(session, url, method, **options)

    Session.request = noting  # type: ignore[assignment, method-assign]
    try:
        yield sent
    finally:
        Session.request = request  # type: ignore[method-assign]


def measured(run: Callable[[], int]) -> Cost:
    """Call a function that returns its number of requests; return the cost of the call."""
    wall, cpu = time.monotonic(), time.process_time()
    sent = run()
    return Cost(time.monotonic() - wall, time.process_time() - cpu, sent)


def sync(server: PostgreSQL, directory: Path, nodes: int) -> tuple[Cost, list[Write]]:
    """Measure a first sync; return the cost and the writes."""
    database = Database(server.create_database(), directory=directory, host=HOST, managed=True)
    with Placement(server) as placement, counted() as sent:
        client = PlacementClient(placement.adapter(), CONNECTIONS)
        cycle = Reconciler(
            Fleet(nodes), PUBLISHER, client, Context(database), RemovalPolicy(delay=60)
        )

        def run() -> int:
            for problem in cycle.sync().problems:
                raise problem
            return len(sent)

        cost = measured(run)
    database.close()
    return cost, [one for one in sent if one.method != "GET"]


def raw(server: PostgreSQL, writes: Sequence[Write]) -> Cost:
    """Send the writes of a first sync with a plain HTTP client; return the cost.

    The client sends the writes for several nodes at a time, then the writes without a node.
    """
    by_node: dict[str, list[Write]] = {}
    rest: list[Write] = []
    first: list[Write] = []
    for one in writes:
        if one.node is not None:
            by_node.setdefault(one.node, []).append(one)
        else:
            (rest if by_node else first).append(one)
    local = threading.local()
    with Placement(server) as placement:

        def send(some: Sequence[Write]) -> None:
            session = local.__dict__.setdefault("session", requests.Session())
            for one in some:
                headers = {**_HEADERS, "OpenStack-API-Version": f"placement {one.microversion}"}
                url = placement.url + one.path
                session.request(one.method, url, data=one.body, headers=headers).raise_for_status()

        def run() -> int:
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                send(first)
                list(pool.map(send, by_node.values()))
                list(pool.map(send, [[one] for one in rest]))
            return len(writes)

        return measured(run)


def nova(server: PostgreSQL, nodes: int) -> Cost:
    """Measure nova's report client, called for each node as nova-compute calls it."""
    from nova import conf, context  # noqa: PLC0415 - only one environment has nova
    from nova.scheduler.client import report  # noqa: PLC0415

    conf.CONF([], project="nova", default_config_files=[])
    fleet = Fleet(nodes)
    with Placement(server) as placement, counted() as sent:
        client = report.SchedulerReportClient(placement.adapter())
        admin = context.get_admin_context()

        def run() -> int:
            for name in fleet.get_available_nodes():
                tree = client.get_provider_tree_and_ensure_root(admin, root_uuid(name), name=name)
                inventories = {
                    kind: {
                        "total": one.total,
                        "reserved": one.reserved,
                        "min_unit": one.min_unit,
                        "max_unit": one.max_unit,
                        "step_size": one.step_size,
                        "allocation_ratio": one.allocation_ratio,
                    }
                    for kind, one in fleet.get_inventory(name).items()
                }
                tree.update_inventory(name, inventories)
                tree.add_traits(name, *PUBLISHER.traits)
                client.update_from_provider_tree(admin, tree)
            return len(sent)

        return measured(run)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--nodes", type=int, default=1000, help="default: 1000")
    options = parser.parse_args(arguments)
    costs: dict[str, Cost] = {}
    with PostgreSQL() as server:
        costs["sync"], writes = sync(server, server.directory, options.nodes)
        costs["raw"] = raw(server, writes)
        if importlib.util.find_spec("nova"):
            costs["nova"] = nova(server, options.nodes)
    if options.json:
        json.dump({name: cost._asdict() for name, cost in costs.items()}, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    print(f"{options.nodes} nodes     wall s     CPU s  requests   wall of sync   CPU of sync")
    ours = costs["sync"]
    for name, cost in costs.items():
        print(
            f"{name:<10}{cost.wall:12.2f}{cost.cpu:10.2f}{cost.requests:10}"
            f"{ours.wall / cost.wall:13.2f} x{ours.cpu / cost.cpu:12.2f} x"
        )


if __name__ == "__main__":
    main()
