"""Rules on the description of an unchanged backend (WHF-301 to 305)."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, can_be_busy, rule
from wharfinger.conformance.second_process import described_elsewhere
from wharfinger.conformance.subject import Subject, as_contents, describe, listed
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle_result import CycleResult

T = TypeVar("T")

#: How often all types of cycle run, since a difference may show only after some cycles.
_ROUNDS: Final = 4
#: Seconds after which no other round begins, if the backend is slow.
_ENOUGH: Final = 60.0


@rule(
    "WHF-301",
    Level.MUST,
    "While the backend does not change, no type of cycle changes anything in Placement.",
    "The framework compares thousands of nodes every minute. Each needless write loads Placement, "
    "and may conflict with a write of another program.",
    after=("WHF-208",),
)
def unchanged(subject: Subject) -> None:
    """Check that no cycle writes to Placement while the backend does not change."""
    with subject.publishing() as publishing:
        before = publishing.settle()
        cycle = publishing.cycle
        end = time.monotonic() + _ENOUGH
        for again in range(_ROUNDS):
            if again and time.monotonic() > end:
                break
            for run in (cycle.sync, cycle.drift, cycle.poll, cycle.sync):
                check_nothing_done(subject, before, run())
            publishing.sync()


@rule(
    "WHF-302",
    Level.MUST,
    "The driver reports the same names and uuids of nodes and providers each time.",
    "The framework removes a provider whose name or uuid changes, and creates another one. Other "
    "programs and operators know only the first one.",
    after=("WHF-203",),
)
def named_as_before(subject: Subject) -> None:
    """Check that the driver reports the same names and uuids after a restart."""
    live = subject.placement.contents()
    looks = []
    for _ in range(2):
        with subject.driver() as driver:
            nodes = {node.name: node.uuid for node in listed(driver).nodes}
            described = describe(driver, live)
            looks.append(nodes | {name: one.provider.uuid for name, one in described.items()})
    _check_same(*looks)


def _check_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
    for name in sorted(first.keys() | second.keys()):
        one, other = first.get(name), second.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            one, other = (
                {key: value for key, value in its.items() if value != others.get(key)}
                for its, others in ((one, other), (other, one))
            )
        if one != other:
            raise Violation(
                f"two descriptions of {name} differ without a change in the backend: {one}, then "
                f"{other}",
                "the same description each time",
            )


@rule(
    "WHF-303",
    Level.MUST,
    "After a restart, the driver describes the backend as before it.",
    "Operators restart processes at any time, and the hardware does not change by that.",
    after=("WHF-301",),
)
def restarted(subject: Subject) -> None:
    """Check that a restart of the driver changes nothing in Placement."""
    with subject.publishing() as publishing:
        before = publishing.settle()
        if can_be_busy(subject):
            subject.harness.make_busy(subject.harness.things()[0])
            before = publishing.settle()
        for _ in range(2):
            publishing.restart()
            check_nothing_done(subject, before, publishing.cycle.sync())
            publishing.sync()


@rule(
    "WHF-304",
    Level.MUST,
    "The methods of a driver instance work in any thread, also if each call is in another thread.",
    "The framework calls an instance from only one thread at a time, but not always from the same.",
    after=("WHF-203", "WHF-301"),
)
def in_any_thread(subject: Subject) -> None:
    """Check that the methods of a driver instance work in any thread."""
    live = subject.placement.contents()
    driver = subject.load().driver
    connection = driver_instance_loader.connected(driver)
    _in_thread(connection.__enter__)
    try:
        here = _in_thread(lambda: describe(driver, live))
        there = _in_thread(lambda: describe(driver, live, refresh=False))
    finally:
        _in_thread(lambda: connection.__exit__(None, None, None))
    if as_contents(there) != as_contents(here):
        raise Violation(
            "called in another thread, the driver describes the same backend differently: "
            f"{difference(as_contents(here), as_contents(there))}",
            "the same description in each thread",
        )


@rule(
    "WHF-305",
    Level.MUST,
    "The driver describes an unchanged backend in the same way in each process.",
    "A description that depends on the hashes of texts, or on variables of a module, changes with "
    "each start of a process.",
    elsewhere=True,
    after=("WHF-302", "WHF-303"),
)
def as_elsewhere(subject: Subject) -> None:
    """Check that the driver describes the backend equally in each process."""
    live = subject.placement.contents()
    files, name = subject.files(), subject.instance_name
    with subject.in_another_process(), ThreadPoolExecutor(2) as pool:
        asked = [
            pool.submit(described_elsewhere, files, name, live, hash_seed=seed) for seed in (1, 2)
        ]
    _check_same(*(one.result() for one in asked))


def _in_thread(call: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def check_nothing_done(subject: Subject, before: Contents, outcome: CycleResult) -> None:
    """Check that a cycle had no problems, and nothing to write or remove."""
    for problem in outcome.problems:
        raise Violation(f"the cycle reports a problem: {problem}", "a cycle without a problem")
    after = subject.placement.contents()
    if after != before:
        raise Violation(difference(before, after), "no difference")
    for step in outcome.steps:
        raise Violation(
            f"the cycle has written to provider {step.name} ({type(step).__name__}), although the "
            "write changed nothing",
            "no write to Placement while the backend is unchanged",
        )
    for one in outcome.pending:
        raise Violation(
            f"the cycle plans to remove provider {one.name}: {one.reason}",
            f"no removal, since the backend still has {one.name}",
        )
