"""Rules of how a driver runs: what it asks, what that costs, what it leaves behind (WHF-8..)."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import wharfinger
from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.leaks import Kind, leaks
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.side_effects import watching
from wharfinger.conformance.subject import Subject, describe

#: How many times the harness's growth there are, one after the other, for what that costs.
_SIZES: Final = (1, 2, 4)
#: What runs there is the framework's, or the kit's.
_FRAMEWORK: Final = str(Path(wharfinger.__file__).parent)
#: A cost that is linear doubles its increase when that of the things doubles; n log n nearly does.
_MOST: Final = 2.5
#: What does not count, of each.
_SLACK: Final = {"calls to the backend": 6, "lines of Python": 500}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a listing and a description of all nodes take; ``lines`` are not the framework's."""

    calls: int
    lines: int


@rule(
    "WHF-801",
    Level.MUST,
    "After a refresh everything is answered from memory: no calls to the backend, and no programs.",
    "A cycle describes all nodes of one moment; a call for each is a request for each, and another "
    "moment.",
    profile=Profile.EXTENDED,
    after=("WHF-203",),
)
def in_memory(subject: Subject) -> None:
    """Describe all nodes twice after a refresh."""
    harness = subject.harness
    with subject.driver() as driver:
        live = subject.placement.contents()
        driver.get_available_nodes(refresh=True)
        harness.expect()
        with watching() as seen:
            for _ in range(2):
                describe(driver, live, refresh=False)
                driver.capabilities_as_traits()
                driver.get_problems()
        if harness.calls:
            raise Violation(f"{len(harness.calls)} calls: {', '.join(harness.calls[:3])}", "none")
        if seen:
            raise Violation(", ".join(seen[:3]), "answers, and nothing else")


@rule(
    "WHF-802",
    Level.MUST,
    "What a cycle costs is linear in what there is: calls to the backend, and work.",
    "What is quick with ten nodes and quadratic takes hours with ten thousand.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def linear(subject: Subject) -> None:
    """Count calls and lines at some sizes; nothing is timed, and C is not seen."""
    costs = []
    with subject.driver() as driver:
        for size in _SIZES:
            _grow(subject, size * subject.harness.growth)
            said = describe(driver, subject.placement.contents())
            live = {name: one.provider for name, one in said.items()}
            costs.append(_cost(subject, partial(describe, driver, live)))
    for what, figures in (
        ("calls to the backend", [cost.calls for cost in costs]),
        ("lines of Python", [cost.lines for cost in costs]),
    ):
        one, two, four = figures
        if four - two > _MOST * max(two - one, 0) + _SLACK[what]:
            sizes = ", ".join(str(size * subject.harness.growth) for size in _SIZES)
            raise Violation(f"{what}: {one}, {two}, {four} for {sizes} things", "linear growth")


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
    Level.MUST,
    "The driver ends the threads that it starts: cleanup_host ends those of the instance, and no "
    "call leaves another one each time.",
    "An agent runs for months, and instances are begun anew in one process.",
    after=("WHF-203",),
)
def ends_threads(subject: Subject) -> None:
    """Count threads after cycles, after failed cycles, and after the life of an instance."""
    _see_no_leak(subject, Kind.THREADS)


@rule(
    "WHF-805",
    Level.MUST,
    "The driver closes the files and sockets that it opens: neither a cycle nor a failed cycle nor "
    "an instance that has ended leaves one open each time.",
    "An agent runs for months.",
    after=("WHF-203",),
)
def closes_files(subject: Subject) -> None:
    """Count what is open after cycles, after failed cycles, and after the life of an instance."""
    _see_no_leak(subject, Kind.FILES)


@rule(
    "WHF-806",
    Level.MUST,
    "All things are described, however many there are.",
    "Backends answer by pages, and what is on none that was asked for is removed.",
    profile=Profile.EXTENDED,
    after=("WHF-802",),
)
def complete(subject: Subject) -> None:
    """Describe more things than there are in the other rules."""
    _grow(subject, _SIZES[-1] * subject.harness.growth)
    with subject.driver() as driver:
        said = describe(driver, subject.placement.contents())
    there = subject.harness.things()
    if missing := [thing for thing in there if thing not in said]:
        told = f"{len(missing)} of {len(there)} are missing, such as {missing[0]}"
        raise Violation(told, "all of them")


def _see_no_leak(subject: Subject, kind: Kind) -> None:
    if found := leaks(subject).get(kind):
        raise Violation(found, "as many as before")


def _grow(subject: Subject, count: int) -> None:
    """Have that many things; raises NotShown where there are not."""
    subject.harness.grow(count - len(subject.harness.things()))
    if (there := len(subject.harness.things())) != count:
        raise NotShown(f"the harness was to have {count} things, and has {there}")


def _cost(subject: Subject, work: Callable[[], object]) -> Cost:
    """What some work takes."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename.startswith(_FRAMEWORK):
            return None
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
