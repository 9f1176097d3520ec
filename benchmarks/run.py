"""Cost of the packages without input and output, for fleets of several sizes.

Measured is the processor time of the fastest of several repeats, in microseconds for each root
provider. In the measured parts, a driver builds the tree; the framework makes a tree of Placement's
providers, lists the desired providers, and plans the writes for a new and for an unchanged fleet.
No thresholds: a person compares.
"""

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from wharfinger.providers import DesiredProvider, Provider, ProviderTree
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import TreePlan, after_step
from wharfinger.providers.plan_draft import PlanFacts
from wharfinger.providers.provider import Record
from wharfinger.providers.tree_planner import plan_trees

SIZES: Final = (1000, 2000, 5000, 10_000)
PUBLISHER: Final = Publisher("metal", "OWNER_NOVA")
FACTS: Final = PlanFacts(publisher=PUBLISHER, now=1000.0, is_listing=True, removal_delay=60.0)


def build(size: int) -> ProviderTree:
    """Return the tree of a fleet of bare metal nodes, as nova's Ironic driver writes it."""
    tree = ProviderTree()
    for number in range(size):
        name = f"node-{number}"
        if not tree.exists(name):
            tree.new_root(name)
        inventory = tree.data(name).inventory
        inventory["CUSTOM_BAREMETAL_GOLD"] = {"total": 1, "reserved": 0, "max_unit": 1}
        if tree.has_inventory_changed(name, inventory):
            tree.update_inventory(name, inventory)
        tree.update_traits(name, ["HW_CPU_X86_VMX", "CUSTOM_RAID"])
        tree.add_traits(name, "COMPUTE_NODE")
        if number % 100 == 0:
            tree.reserve(name, "cleaning")
    return tree


def plan(
    desired: Sequence[DesiredProvider],
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
) -> tuple[TreePlan, ...]:
    return plan_trees(FACTS, desired, live, records)


@dataclass(frozen=True)
class Fleet:
    """The data of a fleet at each stage of a cycle."""

    size: int
    desired: Sequence[DesiredProvider]
    live: Mapping[str, Provider]
    records: Mapping[str, Record]
    tree: ProviderTree

    @classmethod
    def of(cls, size: int) -> "Fleet":
        tree = build(size)
        desired = tree.desired()
        live: dict[str, Provider | None] = {}
        first = plan(desired, {}, {})
        for planned in first:
            for step in planned.steps:
                live[step.uuid] = after_step(step, live.get(step.uuid))
        there = {uuid: replace(one, generation=3) for uuid, one in live.items() if one}
        records = {
            uuid: replace(record, live=there[uuid])
            for planned in first
            for uuid, record in planned.records.items()
            if record
        }
        fleet = cls(size, desired, there, records, tree)
        unchanged = plan(desired, there, records)
        if unchanged:
            raise SystemExit(f"the fleet is not unchanged: {unchanged[0].steps[:3]}")
        return fleet


PARTS: Final[dict[str, Callable[[Fleet], object]]] = {
    "build": lambda fleet: build(fleet.size),
    "from_providers": lambda fleet: ProviderTree.from_providers(fleet.live.values()),
    "desired": lambda fleet: fleet.tree.desired(),
    "plan, first": lambda fleet: plan(fleet.desired, {}, {}),
    "plan, unchanged": lambda fleet: plan(fleet.desired, fleet.live, fleet.records),
}


def measure(part: Callable[[Fleet], object], fleet: Fleet, repeats: int) -> float:
    """Return microseconds of processor time for each root provider, the best of several repeats."""
    best = float("inf")
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        made = part(fleet)
        best = min(best, time.process_time() - start)
        del made  # not while the clock runs
    return best / fleet.size * 1e6


def run(sizes: Sequence[int], repeats: int) -> dict[str, dict[int, float]]:
    """Return microseconds for each root provider, by measured part and number of roots."""
    results: dict[str, dict[int, float]] = {name: {} for name in PARTS}
    for size in sizes:
        fleet = Fleet.of(size)
        for name, part in PARTS.items():
            results[name][size] = measure(part, fleet, repeats)
    return results


def ratios(results: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Return the cost of a root in the largest fleet divided by that in the smallest, by part."""
    return {name: cost[max(cost)] / cost[min(cost)] for name, cost in results.items()}


def table(results: Mapping[str, Mapping[int, float]], sizes: Sequence[int]) -> str:
    head = "".join(f"{size:>9}" for size in sizes)
    lines = [f"{'us per root':<17}{head}{'ratio':>8}"]
    for name, ratio in ratios(results).items():
        costs = "".join(f"{results[name][size]:9.2f}" for size in sizes)
        lines.append(f"{name:<17}{costs}{ratio:8.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--no-gc",
        action="store_true",
        help="disable Python's cyclic garbage collector, whose share grows with the objects in "
        "memory",
    )
    parser.add_argument("--repeats", type=int, default=7, help="default: 7")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="ROOTS")
    options = parser.parse_args(arguments)
    if options.no_gc:
        gc.disable()
    results = run(options.sizes, options.repeats)
    if options.json:
        data: dict[str, Any] = {"us_per_root": results, "ratio": ratios(results)}
        json.dump(data, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        print(table(results, options.sizes))


if __name__ == "__main__":
    main()
