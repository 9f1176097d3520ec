"""Cost to explain why a request has no candidates, for a small and for a large fleet.

The real Placement runs in this process, on SQLite. The nodes belong to nova and have one inventory
each; all services tag their providers. The nodes of a fleet are all free, all used up, or all
reserved for cleaning by their records. Measured are requests, and seconds of the wall clock for
client and Placement together, the best of several repeats. No thresholds: a person compares.
"""

import argparse
import time
from dataclasses import replace
from typing import Final
from uuid import NAMESPACE_DNS, uuid5

from benchmarks.candidates import NOVA, Counting, empty
from wharfinger import conf
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import (
    OWNER_TAG_VERSION,
    Context,
    ProviderRecord,
    ProviderRecordList,
    Service,
)
from wharfinger.placement.session import make_adapter
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.provider import encode
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.explainer import Explaining
from wharfinger.scheduling.request_filters import Surroundings, loader

FILTERS: Final = ("compute_status", "owner")
REQUEST: Final = ResourceRequest(groups=(RequestGroup(resources={"CUSTOM_GOLD": 1}, owner=NOVA),))
#: The state of all nodes of a fleet. Each fleet has its own resource class.
STATES: Final = ("free", "used up", "reserved")


def publish(client: WritingClient, context: Context, state: str, nodes: int) -> str:
    """Create a fleet whose nodes are in this state; return its resource class."""
    kind = f"CUSTOM_{state.replace(' ', '_').upper()}_{nodes}"
    client.create_resource_class(kind)
    inventory = Inventory(total=1, reserved=int(state == "reserved"), max_unit=1)
    records, taken = [], {}
    for number in range(nodes):
        name = f"{kind}-{number}"
        uuid = str(uuid5(NAMESPACE_DNS, name))
        client.create_provider(uuid, name, None)
        client.set_traits(uuid, client.set_inventories(uuid, 0, {kind: inventory}), [NOVA])
        seen = Provider(
            uuid=uuid,
            name=name,
            root_uuid=uuid,
            # A claim has raised the generation, and a later cycle has stored the new one.
            generation=2 + (state == "used up"),
            inventories={kind: inventory},
        )
        records.append(_record(uuid, seen, ["cleaning"] if state == "reserved" else []))
        taken[str(uuid5(NAMESPACE_DNS, f"instance on {name}"))] = {
            "allocations": {uuid: {"resources": {kind: 1}}},
            "consumer_generation": None,
            "project_id": "p",
            "user_id": "u",
            "consumer_type": "INSTANCE",
        }
    if state == "used up":
        client.set_allocations(taken)
    ProviderRecordList.replace(context, "h", kind, ProviderRecordList(objects=records), [])
    return kind


def _record(uuid: str, seen: Provider, reasons: list[str]) -> ProviderRecord:
    return ProviderRecord(
        provider_uuid=uuid,
        mode="own",
        applied=encode(seen),
        intended=None,
        live=encode(seen),
        own_reserved={},
        reservations=reasons,
        reserved_since=dict.fromkeys(reasons, time.time()),
        absent_since=None,
    )


def run(context: Context, options: conf.Options, fleets: list[int], repeats: int) -> None:
    adapter = Counting(make_adapter(options))
    client = WritingClient(adapter)  # type: ignore[arg-type]
    Service(context, host="h", binary="b", owners=[NOVA], version=OWNER_TAG_VERSION).create()
    print(f"{'fleet':<10}{'state':<10}{'providers':>10}{'requests':>10}{'seconds':>10}")
    for nodes in fleets:
        for state in STATES:
            kind = publish(client, context, state, nodes)
            group = replace(REQUEST.groups[0], resources={kind: 1})
            best, asked = float("inf"), 0
            for _ in range(repeats):
                filters = loader.load(FILTERS, Surroundings(options, client, context))
                before, start = adapter.count, time.perf_counter()
                told = Explaining(client, filters, context).explain(
                    replace(REQUEST, groups=(group,))
                )
                best, asked = min(best, time.perf_counter() - start), adapter.count - before
            there = told.parts[0].stages[0].count
            print(f"{nodes:<10}{state:<10}{there:>10}{asked:>10}{best:>10.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, nargs="+", default=[10, 1000], metavar="NODES")
    parser.add_argument("--repeats", type=int, default=3, help="default: 3")
    arguments = parser.parse_args()
    with empty() as (context, options):
        run(context, options, arguments.fleets, arguments.repeats)


if __name__ == "__main__":
    main()
