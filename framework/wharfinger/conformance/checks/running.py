"""Rules of how a driver runs: what it asks, what that costs, what it leaves behind (WHF-8..)."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from wharfinger.conformance.rules import Level, Profile, Violation, rule
from wharfinger.conformance.subject import Subject, describe
from wharfinger.tracker import instances

#: How many things are added, one after the other, for what that costs.
_GROWTH: Final = (8, 8, 16)
#: A cost that is linear doubles its increase when that of the things doubles; n log n nearly does.
_MOST: Final = 3.0
#: What does not count, of each.
_SLACK: Final = {"calls to the backend": 6, "lines of Python": 500}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a listing and a description of all nodes take."""

    calls: int
    lines: int


@rule(
    "WHF-801",
    Level.MUST,
    "After a refresh everything is answered from memory: no calls to the backend.",
    "A cycle describes all nodes of one moment; a call for each is a request for each, and another "
    "moment.",
    profile=Profile.EXTENDED,
    after=("WHF-203",),
)
def in_memory(subject: Subject) -> None:
    """Describe all nodes twice after a refresh."""
    harness = subject.harness
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        harness.expect()
        for _ in range(2):
            describe(driver, subject.placement.contents(), refresh=False)
            driver.capabilities_as_traits()
            driver.get_problems()
        if harness.calls:
            raise Violation(f"{len(harness.calls)} calls: {', '.join(harness.calls[:3])}", "none")


@rule(
    "WHF-802",
    Level.MUST,
    "What a cycle costs is linear in what there is: calls to the backend, and work.",
    "What is quick with ten nodes and quadratic takes hours with ten thousand.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def linear(subject: Subject) -> None:
    """Count calls and lines at some sizes; nothing is timed."""
    costs = []
    with subject.driver() as driver:
        for more in _GROWTH:
            subject.harness.grow(more)
            costs.append(_cost(subject, lambda: describe(driver)))
    for what, figures in (
        ("calls to the backend", [cost.calls for cost in costs]),
        ("lines of Python", [cost.lines for cost in costs]),
    ):
        one, two, four = figures
        if four - two > _MOST * max(two - one, 0) + _SLACK[what]:
            sizes = "n, n + 8, n + 24"
            raise Violation(f"{what}: {one}, {two}, {four} for {sizes}", "linear growth")


@rule(
    "WHF-803",
    Level.MUST,
    "Two instances of the driver share nothing: one's refresh is not the other's.",
    "They run in threads of their own, for backends of their own.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def apart(subject: Subject) -> None:
    """Refresh one, add a thing, refresh the other, and ask the first again."""
    live = subject.placement.contents()
    with subject.driver() as one, subject.driver() as other:
        before = describe(one, live)
        subject.harness.add()
        describe(other, live)
        after = describe(one, live, refresh=False)
    if after != before:
        news = sorted(after.keys() ^ before.keys())
        raise Violation(f"the first one says otherwise now: {', '.join(news)}", "its own snapshot")


@rule(
    "WHF-804",
    Level.SHOULD,
    "cleanup_host ends the threads that the instance has started.",
    "Instances are begun anew in one process, for as long as that runs.",
    after=("WHF-203",),
)
def tidied(subject: Subject) -> None:
    """Look at the threads before and after."""
    before = {*threading.enumerate()}
    driver = subject.load().driver
    with instances.connected(driver):
        describe(driver, subject.placement.contents())
    left = [one for one in threading.enumerate() if one not in before and one.is_alive()]
    if left:
        raise Violation(f"left: {', '.join(sorted(one.name for one in left))}", "no more threads")


def _cost(subject: Subject, work: Callable[[], object]) -> Cost:
    """What some work takes."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    subject.harness.expect()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return Cost(len(subject.harness.calls), lines)
