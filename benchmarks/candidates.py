"""Cost of the request filters: a search for candidates with them and without them.

The real Placement runs in this process, on SQLite. Each host belongs to nova and has VCPU. Its
three child providers have VGPU: one of nova, one of Cyborg, one without an owner. The request is
for VCPU and VGPU of nova. All services tag their providers, so the filters also drop providers
without an owner. Measured are the processor time of client and Placement together, the best of
several repeats, and the number of requests. No thresholds: a person compares.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from wharfinger import conf
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import OWNER_TAG_VERSION, Context, Service
from wharfinger.objects.database_context import local
from wharfinger.placement.session import make_adapter
from wharfinger.providers import Inventory
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.request_filters import Surroundings, loader

NOVA: Final = "OWNER_NOVA"
CHILDREN: Final = {"ours": [NOVA], "cyborgs": ["OWNER_CYBORG"], "nobodys": []}


class Counting:
    """Adapter that counts the requests to another adapter."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.count = 0

    def request(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self._adapter.request(*args, **kwargs)


def publish(client: WritingClient, hosts: int) -> None:
    """Create hosts with child providers, each provider with three requests."""

    def provider(name: str, parent: str | None, resources: str, traits: list[str]) -> str:
        uuid = str(uuid5(NAMESPACE_DNS, name))
        client.create_provider(uuid, name, parent)
        generation = client.set_inventories(uuid, 0, {resources: Inventory(total=8)})
        client.set_traits(uuid, generation, traits)
        return uuid

    for number in range(hosts):
        root = provider(f"host-{number}", None, "VCPU", [NOVA])
        for name, traits in CHILDREN.items():
            provider(f"host-{number}-{name}", root, "VGPU", traits)


def measure(ask: Callable[[], object], repeats: int) -> float:
    """Return the milliseconds of processor time of a call, the best of several repeats."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        ask()
        best = min(best, time.process_time() - start)
    return best * 1000


def run(context: Context, options: conf.Options, hosts: int, repeats: int) -> None:
    adapter = Counting(make_adapter(options))
    client = WritingClient(adapter)  # type: ignore[arg-type]
    publish(client, hosts)
    Service(context, host="h", binary="b", owners=[NOVA], version=OWNER_TAG_VERSION).create()
    group = RequestGroup(resources={"VCPU": 1, "VGPU": 1}, owner=NOVA)
    surroundings = Surroundings(options, client, context)
    filters = loader.load(["compute_status", "owner"], surroundings)
    print(f"{hosts} hosts          candidates   dropped  requests        ms")
    for limit in (None, hosts // 10, 1):
        request = ResourceRequest(groups=(group,), limit=limit)
        for name, chosen in (("without", {}), ("with", filters)):
            search = CandidateSearch(client, chosen)
            found = search.find(request)  # also fills the caches
            before = adapter.count
            cost = measure(partial(search.find, request), repeats)
            asked = (adapter.count - before) / repeats
            dropped = sum(found.dropped.values())
            print(
                f"{name:<8} limit {limit or 'none':<5}{len(found.candidates):>9}{dropped:>10}"
                f"{asked:>10.0f}{cost:>10.1f}"
            )


@contextmanager
def empty() -> Iterator[tuple[Context, conf.Options]]:
    """Yield a database and a configuration with an embedded Placement, all of them new."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "wharfinger.conf"
        file.write_text(f"[DEFAULT]\nstate_path = {directory}\n")
        context = local(Path(directory), "bench")
        try:
            yield context, conf.load([str(file)])
        finally:
            context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=200, help="default: 200")
    parser.add_argument("--repeats", type=int, default=5, help="default: 5")
    arguments = parser.parse_args()
    with empty() as (context, options):
        run(context, options, arguments.hosts, arguments.repeats)


if __name__ == "__main__":
    main()
