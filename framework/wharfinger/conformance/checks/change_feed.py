"""Rules of the change feed (WHF-91.)."""

import time
from collections.abc import Callable
from typing import Final

from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, difference, is_reserved
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import (
    FREE_CYCLES,
    FREE_SECONDS,
    Subject,
    describe,
    listed,
    sound,
)
from wharfinger.exceptions import shown

#: Seconds in which a feed has told of a change, and between two polls: it need not ask its backend
#: each time.
_WITHIN: Final = 10.0
_PACE: Final = 0.1


@rule(
    "WHF-911",
    Level.MUST,
    "The change feed names a node that has changed since the mark, and what is asked of it then is "
    "as the backend has it now.",
    "A node that is cleaned is to be reserved within seconds, and not with the next complete "
    "listing.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-502",),
)
def feeds(subject: Subject) -> None:
    """Make a thing busy, then free, and poll; where nothing is ever busy, add one below a node."""
    harness, placement = subject.harness, subject.placement
    with subject.publishing() as publishing:
        before = publishing.settle()
        publishing.cycle.poll()

        def polled(holds: Callable[[Contents], bool]) -> bool:
            sound(publishing.cycle.poll())
            return holds(placement.contents())

        def see(holds: Callable[[Contents], bool], what: str) -> None:
            if not _soon(lambda: polled(holds)):
                told = difference(before, placement.contents())
                raise Violation(told, f"{what} by polls, within {_WITHIN:g} s")

        def is_free(now: Contents) -> bool:
            if now != before:  # a driver may wait before it offers what is free
                publishing.advance(FREE_SECONDS // FREE_CYCLES)
            return now == before

        thing = harness.things()[0]
        if harness.busy.supported:
            harness.make_busy(thing)
            see(lambda now: is_reserved(now[thing]), f"all of {thing} reserved")
            harness.make_free(thing)
            see(is_free, "no difference")
        elif before[thing].parent_uuid is not None:
            new = subject.add()
            see(lambda now: new in now, f"+ {new}")
        else:
            raise NotShown("the harness has nothing that a feed would have to name")


@rule(
    "WHF-912",
    Level.MUST,
    "The same mark gives the same nodes again, or more; the first mark is given for None.",
    "A poll that could not publish is made again with its mark.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    busy=True,
    after=("WHF-911",),
)
def feeds_again(subject: Subject) -> None:
    """Ask twice with one mark."""
    harness = subject.harness
    first: set[str] = set()
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        describe(driver, subject.placement.contents(), refresh=False)
        _, mark = driver.changed_nodes(None)
        harness.make_busy(harness.things()[0])

        def are_named() -> bool:
            first.update(driver.changed_nodes(mark)[0])
            return bool(first)

        _soon(are_named)
        second, _ = driver.changed_nodes(mark)
    if not first or not first <= {*second}:
        raise Violation(f"{sorted(first)}, then {sorted(second)}", "the same, or more")


@rule(
    "WHF-913",
    Level.MUST,
    "The change feed names no node that is gone.",
    "Only a complete listing says that something is gone.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-402", "WHF-911"),
)
def feeds_what_is(subject: Subject) -> None:
    """Remove a thing and ask, until something is named or it is clear that nothing is."""
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        describe(driver, subject.placement.contents(), refresh=False)
        _, mark = driver.changed_nodes(None)
        subject.harness.remove(subject.harness.things()[0])
        subject.harness.expect()

        def has_asked() -> bool:
            named.update(driver.changed_nodes(mark)[0])
            return bool(subject.harness.calls)

        named: set[str] = set()
        _soon(has_asked)
        if gone := named - {node.name for node in listed(driver).nodes}:
            raise Violation(f"it names {', '.join(sorted(gone))}", "nodes that there are")


@rule(
    "WHF-914",
    Level.MUST,
    "The change feed raises where the backend does not answer.",
    "No answer is no news.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-701",),
)
def feeds_or_raises(subject: Subject) -> None:
    """Have every call be refused and ask, until there was a call."""
    harness = subject.harness
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        _, mark = driver.changed_nodes(None)
        harness.expect(None, Fault.RAISE)
        answer = None

        def has_asked() -> bool:
            nonlocal answer
            answer = driver.changed_nodes(mark)
            return bool(harness.calls)

        try:
            _soon(has_asked)
        except Exception:
            return
        finally:
            harness.expect()
        raise Violation(f"every call is refused, and it returns {shown(answer)}", "an error")


def _now() -> float:
    """Seconds by a clock that is never set ahead."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _soon(holds: Callable[[], bool]) -> bool:
    """Whether something holds now or within the time that a feed has."""
    deadline = _now() + _WITHIN
    while not holds():
        if _now() > deadline:
            return False
        time.sleep(_PACE)
    return True
