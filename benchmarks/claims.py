"""Cost to claim, move and release an instance, on a small and on a large fleet.

The real Placement runs in this process, on SQLite. All services tag their providers with owners.
Each host belongs to nova and has two child providers: a vGPU of nova and one of Cyborg. An instance
gets the vGPU of nova, is resized to the vGPU of Cyborg, and so on. Measured are requests, and
seconds of the wall clock for client and Placement together, the median of several instances. No
thresholds: a person compares.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from benchmarks.candidates import NOVA, Counting, empty
from wharfinger import conf
from wharfinger.allocations import FlavorSearch, Moves
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import (
    OWNER_TAG_VERSION,
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    Service,
)
from wharfinger.placement.session import make_adapter
from wharfinger.providers import Inventory
from wharfinger.scheduling.request_filters import Surroundings

CYBORG: Final = "OWNER_CYBORG"
#: Instances that are not counted: the first requests fill the caches.
_WARM: Final = 2


def publish(client: WritingClient, context: Context, hosts: int) -> None:
    """Create hosts, each with two child providers of different owners."""
    nodes = []
    for number in range(hosts):
        root = _provider(client, f"host-{number}", None, NOVA, {"VCPU": 64})
        for owner in (NOVA, CYBORG):
            _provider(client, f"host-{number}-{owner}", root, owner, {"VGPU": 4})
        nodes.append(
            ComputeNode(
                context,
                uuid=root,
                host="h",
                hypervisor_hostname=f"host-{number}",
                driver_instance="bench",
                owner=NOVA,
                vcpus=64,
                last_seen=None,
            )
        )
    ComputeNodeList(context, objects=nodes).create()


def _provider(
    client: WritingClient, name: str, parent: str | None, owner: str, totals: dict[str, int]
) -> str:
    uuid = str(uuid5(NAMESPACE_DNS, name))
    client.create_provider(uuid, name, parent)
    inventories = {kind: Inventory(total=total) for kind, total in totals.items()}
    client.set_traits(uuid, client.set_inventories(uuid, 0, inventories), [owner])
    return uuid


def flavor(name: str, owner: str) -> Flavor:
    """Return a flavor with two CPUs and a vGPU of an owner."""
    specs = {"resources_GPU:VGPU": "1", "trait_GPU:" + owner: "required"}
    made = Flavor(flavorid=name, name=name, vcpus=2, memory_mb=0, extra_specs=specs)
    made.obj_set_defaults()
    return made


def run(context: Context, options: conf.Options, hosts: int, repeats: int) -> None:
    adapter = Counting(make_adapter(options))
    client = WritingClient(adapter)  # type: ignore[arg-type]
    publish(client, context, hosts)
    Service(
        context, host="h", binary="b", owners=[NOVA, CYBORG], version=OWNER_TAG_VERSION
    ).create()
    search = FlavorSearch(Surroundings(options, client, context))
    moves = Moves(search)
    claims = moves.claims
    of_nova, of_cyborg = flavor("of-nova", NOVA), flavor("of-cyborg", CYBORG)
    found: dict[str, list[tuple[int, float]]] = {}

    def costing(what: str, act: Callable[[], Any]) -> Any:
        before, start = adapter.count, time.perf_counter()
        answer = act()
        found.setdefault(what, []).append((adapter.count - before, time.perf_counter() - start))
        return answer

    def claim() -> str:
        return claims.claim(of_nova, project_id="p", user_id="u").instance.uuid

    for _ in range(_WARM + repeats):
        uuid = costing("claim", claim)
        costing("resize", partial(moves.start, uuid, of_cyborg))
        costing("confirm", partial(moves.confirm, uuid))
        costing("migrate", partial(moves.start, uuid))
        costing("revert", partial(moves.revert, uuid))
        costing("release", partial(claims.release, uuid))
    for what, costs in found.items():
        counts = sorted({count for count, _seconds in costs[_WARM:]})
        seconds = median(seconds for _count, seconds in costs[_WARM:])
        asked = "-".join(map(str, counts))
        print(f"{3 * hosts:<12}{what:<10}{asked:>10}{seconds:>10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=333, help="default: 333, 999 providers")
    parser.add_argument("--repeats", type=int, default=10, help="default: 10")
    arguments = parser.parse_args()
    print(f"{'providers':<12}{'':<10}{'requests':>10}{'seconds':>10}")
    with empty() as (context, options):
        run(context, options, arguments.hosts, arguments.repeats)


if __name__ == "__main__":
    main()
