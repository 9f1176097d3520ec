"""Rules of how a driver runs: what it asks, what it shares, what it leaves behind (WHF-8..)."""

import gc
import threading
from typing import Final

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.side_effects import open_files, watching
from wharfinger.conformance.subject import Subject, describe
from wharfinger.reconcile import driver_instance_loader

#: Refreshes before and between two looks at what is open.
_REFRESHES: Final = (3, 10)
#: Seconds for a thread that is about to end.
_TO_END: Final = 1.0


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
    with driver_instance_loader.connected(driver):
        describe(driver, subject.placement.contents())
    left = [one for one in threading.enumerate() if one not in before]
    for one in left:
        one.join(_TO_END)  # one that serves a request, perhaps the harness's, has its end to reach
    if left := [one for one in left if one.is_alive()]:
        raise Violation(f"left: {', '.join(sorted(one.name for one in left))}", "no more threads")


@rule(
    "WHF-805",
    Level.SHOULD,
    "Refreshes leave no files and no sockets open.",
    "An agent refreshes for months.",
    after=("WHF-203",),
)
def closed(subject: Subject) -> None:
    """Count what is open after some refreshes, and after some more."""
    with subject.driver() as driver:
        counts = []
        for refreshes in _REFRESHES:
            for _ in range(refreshes):
                driver.get_available_nodes(refresh=True)
            gc.collect()
            counts.append(open_files())
    before, after = counts
    if after >= before + _REFRESHES[1]:
        raise Violation(f"{before} open after {_REFRESHES[0]} refreshes, then {after}", "as many")
