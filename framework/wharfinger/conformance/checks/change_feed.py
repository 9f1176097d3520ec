"""Rules on the change feed, ``changed_nodes`` (WHF-911 to 920)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from wharfinger.conformance.cost import processor_time_of, takes_quadratic_time
from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.feed_follower import NO_CHANGE, Changes, Follower, soon
from wharfinger.conformance.growing import seconds_run, sizes
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, difference, is_reserved
from wharfinger.conformance.rules import Level, Profile, can_be_busy, rule
from wharfinger.conformance.subject import (
    FREE_CYCLES,
    FREE_SECONDS,
    Subject,
    as_contents,
    describe,
    listed,
    sound,
)
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import WharfingerError, shown

#: Seconds within which a feed has to name a change.
_WITHIN: Final = 10.0
#: Seconds until which a feed may name a change again: times in backends are not exact.
_QUIET: Final = 30.0
#: The index of a call in a poll, and the fault that this call meets.
_FAULTS: Final = (
    (0, Fault.ERROR),
    (1, Fault.ERROR),
    (1, Fault.RAISE),
    (2, Fault.ERROR),
    (2, Fault.RAISE),
)
#: A feed is quiet after this many successive polls without a node.
_POLLS: Final = 5
#: A poll may repeat a listing that takes fewer calls: a backend may offer only one.
_CALLS_OF_A_LISTING: Final = 2
#: The least number of nodes before one of them changes, and the most attempts to add so many.
_NODES: Final = 6
_GROWTHS: Final = 8
#: How often one thing becomes free and busy again between two polls.
_EVENTS: Final = 4
#: The most changes between two polls, and the seconds for making them.
_CHANGES: Final = 128
_MAKING: Final = 2.0
#: How often one thing becomes busy and free again before measured polls: at least, and at most. The
#: measurements of each poll.
_FEWEST_TIMED: Final = 256
_MOST_TIMED: Final = 8192
_RUNS: Final = 3
#: The number of polls during which a thing changes. The seconds between two looks at the calls of a
#: poll, and for the backend to answer a call.
_MIDWAY: Final = 3
_PAUSE: Final = 0.01
_ANSWERED: Final = 0.05
#: Seconds to wait for a feed to name a node below which a thing was removed or added. It need not.
_NAMED: Final = 1.0


@rule(
    "WHF-911",
    Level.MUST,
    "The change feed names each node that has changed since the mark. The driver then describes "
    "the node as the backend has it now.",
    "A node must be reserved within seconds after its cleaning begins, not only after the next "
    "complete listing.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-502",),
)
def feeds(subject: Subject) -> None:
    """Check that polls of the change feed publish changes of the backend."""
    harness, placement = subject.harness, subject.placement
    with subject.publishing() as publishing:
        before = publishing.settle()
        publishing.cycle.poll()

        def polled(holds: Callable[[Contents], bool]) -> bool:
            sound(publishing.cycle.poll())
            return holds(placement.contents())

        def see(holds: Callable[[Contents], bool], expected: str) -> None:
            if not _soon(lambda: polled(holds)):
                raise Violation(
                    f"after {_WITHIN:g} s of polls with changed_nodes, these are all changes in "
                    f"Placement: {difference(before, placement.contents())}",
                    f"{expected} in Placement after these polls",
                )

        def is_free(now: Contents) -> bool:
            if now == before:
                return True
            # A driver may keep a free thing reserved for some time, or for some listings.
            publishing.advance(FREE_SECONDS // FREE_CYCLES)
            if publishing.driver.changed_nodes(mark)[0]:
                publishing.sync()
            return placement.contents() == before

        thing = harness.things()[0]
        if harness.busy.supported:
            harness.make_busy(thing)
            see(lambda now: is_reserved(now[thing]), f"all of {thing} reserved")
            _, mark = publishing.driver.changed_nodes(None)
            harness.make_free(thing)
            see(is_free, "no difference")
        elif subject.can("change"):
            harness.change(thing)
            see(lambda now: now[thing] != before[thing], f"a change of {thing}")
        elif before[thing].parent_uuid is not None:
            new = subject.add()
            see(lambda now: new in now, f"+ {new}")
    _check_named_nodes_described_anew(subject)
    if not harness.busy.supported and not subject.can("change"):
        raise Unproven(NO_CHANGE)


def _check_named_nodes_described_anew(subject: Subject) -> None:
    harness = subject.harness
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        thing = harness.things()[0]
        if follower.described[thing].provider.parent_uuid is None:
            return
        node = follower.node_of(thing)
        for change, done in ((harness.remove, "removed"), (harness.put_back, "put back")):
            change(thing)
            if not soon(lambda: node in follower.poll(), _NAMED):
                continue  # a feed may leave it to complete listings what is there
            with subject.driver() as other:
                expected = _figures_of(subject, other, refresh=True)
            now = expected

            def is_as_expected() -> bool:
                nonlocal now
                follower.poll()
                now = _figures_of(subject, driver)
                return now == expected  # noqa: B023

            if not _soon(is_as_expected):
                raise Violation(
                    f"{thing} was {done}, and changed_nodes names node {node}; but the driver then "
                    "describes other providers than a new driver instance: "
                    f"{difference(expected, now)}",
                    "the same description from both driver instances",
                )


def _figures_of(subject: Subject, driver: ComputeDriver, *, refresh: bool = False) -> Contents:
    described = describe(driver, subject.placement.contents(), refresh=refresh)
    return {
        name: replace(one, uuid="", root_uuid="", parent_uuid=None, aggregates=frozenset())
        for name, one in as_contents(described).items()
    }


@rule(
    "WHF-912",
    Level.MUST,
    "The change feed returns the same nodes again, or more, for a mark that is used again. It "
    "returns a first mark for None.",
    "If the framework cannot publish the nodes of a poll, it polls again with the same mark.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    busy=True,
    after=("WHF-911",),
)
def feeds_again(subject: Subject) -> None:
    """Check that the feed names the same nodes again for a reused mark."""
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
        second: set[str] = set()

        def are_named_again() -> bool:
            nonlocal mark
            names, mark = driver.changed_nodes(mark)  # the new mark may be the same
            second.update(names)
            return first <= second

        if not first or not _soon(are_named_again):
            raise Violation(
                f"after a change, changed_nodes names {sorted(first)}, then {sorted(second)} from "
                "the same mark on",
                "the changed node, and at least the same nodes when the mark is used again",
            )


@rule(
    "WHF-913",
    Level.MUST,
    "The change feed names only nodes that get_available_nodes lists.",
    "The framework lets the driver describe each node that the feed names.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-402", "WHF-911"),
)
def feeds_what_is(subject: Subject) -> None:
    """Check that the feed names only nodes that the driver lists."""
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        mark = follower.mark
        things = [*subject.harness.things()]
        gone_node = follower.node_of(things[0])
        its = [thing for thing in things if follower.node_of(thing) == gone_node]
        for thing in its if len(its) < len(things) else its[:1]:
            subject.harness.remove(thing)

        def has_asked() -> bool:
            named.update(driver.changed_nodes(mark)[0])
            return bool(subject.harness.calls)

        for when in ("was removed", "was removed and the nodes were listed again"):
            named: set[str] = set()
            subject.harness.expect()
            _soon(has_asked)
            if gone := named - {node.name for node in listed(driver, refresh=False).nodes}:
                raise Violation(
                    f"after {things[0]} {when}, changed_nodes names nodes that "
                    f"get_available_nodes does not list: {', '.join(sorted(gone))}",
                    "only nodes that get_available_nodes lists",
                )
            driver.get_available_nodes(refresh=True)


@rule(
    "WHF-914",
    Level.MUST,
    "The change feed raises if the backend does not answer or answers with an error. It keeps the "
    "snapshot of the nodes then, and later names the nodes that it could not name.",
    "A backend that does not answer may have changed.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-701", "WHF-911"),
)
def feeds_or_raises(subject: Subject) -> None:
    """Check that the feed raises while the backend fails, and loses no change."""
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        _, mark = driver.changed_nodes(None)
        others = (Fault.HANG, Fault.STALE, Fault.LATE)
        for fault in subject.possible(one for one in Fault if one not in others):
            _check_poll_raises(subject, lambda: driver.changed_nodes(mark), fault)
    changes = Changes(subject)
    subject.harness.grow(max(0, len(_FAULTS) - len(subject.harness.things())))
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        _check_no_change_lost(subject, follower, changes)


def _check_poll_raises(subject: Subject, ask: Callable[[], object], fault: Fault) -> None:
    harness = subject.harness
    harness.expect(None, fault)
    answer: object = None

    def has_asked() -> bool:
        nonlocal answer
        answer = ask()
        return bool(harness.calls)

    try:
        _soon(has_asked)
    except Exception:
        return
    finally:
        harness.expect()
    raise Violation(
        f"every backend call gets {fault}, and changed_nodes returns {shown(answer)}",
        "an error from changed_nodes",
    )


def _check_no_change_lost(subject: Subject, follower: Follower, changes: Changes) -> None:
    harness = subject.harness
    missed: int | None = None
    seen: list[str] = []
    for thing, (at, fault) in zip([*harness.things()], _FAULTS, strict=False):
        if missed is not None and at >= missed:
            return
        changes.make(thing, follower.described.get(thing))
        harness.expect(at, fault)
        _soon(lambda: _has_asked(subject, follower))
        if len(harness.calls) <= at:
            missed = at
        harness.expect()
        when = f"backend call {at} of a poll gets {fault}"
        _check_no_provider_omitted(follower, when)
        _check_changes_shown(follower, changes, [thing], when)
        seen.append(thing)
        _check_no_change_forgotten(follower, changes, seen)


def _check_no_provider_omitted(follower: Follower, when: str) -> None:
    try:
        now = follower.describe(follower.nodes)
    except Exception:
        return
    if missing := follower.described.keys() - now.keys():
        raise Violation(
            f"{when}: update_provider_tree then omits the providers {', '.join(sorted(missing))}",
            "all providers of the node, or an error from update_provider_tree",
        )


def _check_no_change_forgotten(follower: Follower, changes: Changes, seen: Sequence[str]) -> None:
    now = follower.describe(follower.nodes)
    for thing in seen:
        if not changes.is_seen(thing, now[thing]):
            raise Violation(
                f"{thing} had changed; after a poll for the change of another thing, "
                f"update_provider_tree describes {thing} as before its change",
                "the present state of each thing, also after later polls",
            )


def _has_asked(subject: Subject, follower: Follower) -> bool:
    try:
        follower.poll()
    except Exception:
        return True
    return bool(subject.harness.calls)


@rule(
    "WHF-915",
    Level.MUST,
    "While the backend does not change, the change feed names no node for its latest mark.",
    "The framework polls every two seconds, and describes each named node. A feed that always "
    "names all nodes costs a complete cycle every two seconds.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_nothing(subject: Subject) -> None:
    """Check that the feed names no node while nothing changes."""
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        _check_becomes_quiet(follower)
        if can_be_busy(subject):
            thing = subject.harness.things()[0]
            subject.harness.make_busy(thing)
            _soon(lambda: bool(follower.poll()))
            subject.harness.make_free(thing)
            _check_becomes_quiet(follower)


@rule(
    "WHF-916",
    Level.MUST,
    "The change feed names only nodes that have changed.",
    "In a large fleet, only a few of thousands of nodes change in a minute.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-915",),
)
def feeds_no_more(subject: Subject) -> str:
    """Check that the feed names few nodes that have not changed."""
    changes = Changes(subject)
    most = _NODES // 2
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        _grow_nodes(subject, follower, _NODES)
        if len(follower.nodes) < _NODES:
            if len(follower.nodes) == 1:
                return "the driver lists one node"
            raise Unproven(f"the driver lists fewer than {_NODES} nodes")
        first, second, *_, last = subject.harness.things()
        for thing, nodes in ((first, _NODES), (last, _NODES), (second, 4 * _NODES)):
            _grow_nodes(subject, follower, nodes)
            _check_becomes_quiet(follower)
            things = [thing]
            if thing == second:
                others = {first, second, last}
                things += [one for one in subject.harness.things() if one not in others][-1:]
            changed = {*map(follower.node_of, things)}
            for one in things:
                changes.make(one, follower.described[one])
            if can_be_busy(subject) and thing == second:
                for _ in range(_EVENTS):
                    subject.harness.make_free(thing)
                    subject.harness.make_busy(thing)
            named = _named_until(follower, changed)
            if len(named - changed) > most * len(changed):
                those = " and ".join(sorted(changed))
                raise Violation(
                    f"only {those} of {len(follower.nodes)} nodes changed, but changed_nodes names "
                    f"{', '.join(sorted(named))}",
                    f"{those}, and at most {most * len(changed)} other nodes",
                )
        return f"of {len(follower.nodes)} nodes"


def _grow_nodes(subject: Subject, follower: Follower, count: int) -> None:
    follower.list_all()
    for _ in range(_GROWTHS):
        if not 1 < len(follower.nodes) < count:
            return
        subject.harness.grow(count - len(follower.nodes))
        follower.list_all()


def _named_until(follower: Follower, nodes: Set[str]) -> set[str]:
    named: set[str] = set()

    def are_named() -> bool:
        named.update(follower.poll())
        return nodes <= named

    _soon(are_named)
    return named


@rule(
    "WHF-917",
    Level.MUST,
    "The change feed names each node that changes after the driver has returned the first mark, "
    "also before the first listing, before the first poll, and during a poll.",
    "The framework gets the first mark, then lists all nodes, and polls seconds later.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    wants=(Fault.LATE,),
    after=("WHF-911",),
)
def feeds_from_the_first_mark(subject: Subject) -> None:
    """Check that the feed names all nodes that change after the first mark."""
    changes = Changes(subject)
    subject.harness.grow(2)
    before, after, *others = subject.harness.things()
    with subject.driver() as driver:
        described = describe(driver, subject.placement.contents())
    for early, late in ((before, after), others[:2]):
        with subject.driver() as driver:
            follower = Follower(subject, driver)
            changes.make(early, described.get(early))
            follower.list_all()
            changes.make(late, described.get(late))
            _check_changes_shown(
                follower, changes, [early, late], "things have changed after the first mark"
            )
    if subject.can(Fault.LATE):
        _check_changes_during_polls(subject, changes)


def _check_changes_during_polls(subject: Subject, changes: Changes) -> None:
    things = [subject.add() for _ in range(2 * _MIDWAY)]
    calls = 0
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        for number, (early, late) in enumerate(zip(things, things[_MIDWAY:], strict=False)):
            at = number if number < _MIDWAY - 1 else max(number, calls - 2)
            described = follower.described
            changes.make(early, described.get(early))
            change = partial(changes.make, late, described.get(late))
            calls = _poll_with_a_change(subject, follower, at, change)
            when = f"a thing changes during backend call {at} of a poll"
            _check_changes_shown(follower, changes, [early, late], when)
            if calls <= at:
                return


def _poll_with_a_change(
    subject: Subject, follower: Follower, at: int, change: Callable[[], None]
) -> int:
    harness = subject.harness

    def poll() -> None:
        with suppress(Exception):  # the driver may have waited too long
            follower.poll()

    harness.expect(at, Fault.LATE)
    polling = threading.Thread(target=poll, name="poll", daemon=True)
    polling.start()
    while polling.is_alive() and len(harness.calls) <= at:
        polling.join(_PAUSE)
    calls = len(harness.calls)
    if calls > at:
        time.sleep(_ANSWERED)
    change()
    harness.expect()
    polling.join()
    return calls + len(harness.calls)


@rule(
    "WHF-918",
    Level.MUST,
    "For an older mark, the change feed names again all nodes that have changed since then, also "
    "in another instance of the driver.",
    "If the framework cannot publish the nodes of a poll, it polls again with the same mark, "
    "perhaps after other polls.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_since_the_mark(subject: Subject) -> None:
    """Check that the feed names all nodes that have changed since an older mark."""
    changes = Changes(subject)
    one, other = [*subject.harness.things()][:2]
    marks: list[str] = []
    nodes: list[str] = []
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        for thing in (one, other):
            marks.append(follower.mark)
            nodes.append(follower.node_of(thing))
            changes.make(thing, follower.described[thing])
            _check_changes_shown(follower, changes, [thing], "one thing has changed")
            follower.poll()
            for mark, expected in ((marks[0], nodes), (marks[-1], nodes[-1:]), (marks[0], nodes)):
                _check_nodes_named(follower, mark, expected, "for a mark that is used again")
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        _check_nodes_named(follower, marks[0], nodes, "for a mark of an earlier instance")


def _check_nodes_named(follower: Follower, mark: str, expected: Sequence[str], when: str) -> None:
    named: set[str] = set()

    def are_named() -> bool:
        nonlocal mark
        names, mark = follower.ask(mark)
        named.update(names)
        return named >= {*expected}

    try:
        is_named = _soon(are_named)
    except WharfingerError:
        return
    if not is_named:
        missing = ", ".join(sorted({*expected} - named))
        raise Violation(
            f"{when}, changed_nodes names only the nodes {', '.join(sorted(named)) or '(none)'}",
            f"also the changed nodes {missing}, or an error from changed_nodes",
        )


@rule(
    "WHF-919",
    Level.MUST,
    "The change feed names all nodes that have changed, even if many change at once. Its cost "
    "grows linearly with the number of changes.",
    "When a room loses its power, hundreds of nodes change at once.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_all(subject: Subject) -> str:
    """Check that the feed names all of many changed nodes, at linear cost."""
    changes = Changes(subject)
    with subject.driver() as driver:
        for _ in sizes(subject, most=_CHANGES):
            describe(driver, subject.placement.contents())
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        deadline = time.monotonic() + _MAKING
        changed: list[str] = []
        for thing in subject.harness.things():
            if time.monotonic() > deadline:
                break
            changes.make(thing, follower.described.get(thing))
            changed.append(thing)
        _check_changes_shown(
            follower, changes, changed, f"{len(changed)} things have changed at once"
        )
    if can_be_busy(subject) and takes_quadratic_time(_times_of_polls(subject)):
        # Other programs may have slowed one series of measurements down.
        times = _times_of_polls(subject)
        if takes_quadratic_time(times):
            costs = ", ".join(f"{one:.0f}" for one in times[-3:])
            raise Violation(
                "relative processor times of three calls of changed_nodes, each after twice as "
                f"many changes as the call before: {costs}",
                "a time that grows linearly with the number of changes",
            )
    return f"of {len(changed)} changes at once"


def _times_of_polls(subject: Subject) -> list[float]:
    subject.begin()
    changes = Changes(subject)
    thing, *_, last = subject.harness.things()
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        times = _times_of_polls_between_changes(
            subject, thing, partial(driver.changed_nodes, follower.mark)
        )
        changes.make(last, follower.described[last])
        _check_changes_shown(follower, changes, [last], f"{thing} has changed many times before")
    return times


def _times_of_polls_between_changes(
    subject: Subject, thing: str, poll: Callable[[], object]
) -> list[float]:
    harness = subject.harness
    times: list[float] = []
    count, made = _FEWEST_TIMED, 0
    while count <= _MOST_TIMED and not takes_quadratic_time(times):
        began, end = seconds_run(), time.monotonic() + _MAKING
        for _ in range(count - made):
            harness.make_busy(thing)
            harness.make_free(thing)
            if time.monotonic() > end and seconds_run() - began > _MAKING:
                return times
        made = count
        times.append(processor_time_of(subject, poll, _RUNS))
        count *= 2
    return times


@rule(
    "WHF-920",
    Level.MUST,
    "While the backend does not change, a poll leaves out some calls of a complete listing.",
    "The framework polls every two seconds, and lists all nodes once a minute. A feed that lists "
    "all nodes in each poll costs thirty times as much.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-915",),
)
def feeds_cheaply(subject: Subject) -> str:
    """Check that a poll leaves out calls of a listing."""
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        subject.harness.expect()
        follower.list_all()
        listing = Counter(subject.harness.calls)
        if listing.total() < _CALLS_OF_A_LISTING:
            return f"a listing takes {listing.total()} calls"
        _check_becomes_quiet(follower)
        for _ in range(_POLLS):
            subject.harness.expect()
            follower.poll()
            if not listing <= Counter(subject.harness.calls):
                return f"a listing takes {listing.total()} calls"
    calls = ", ".join([*listing][:3])
    raise Violation(
        "each call of changed_nodes makes all backend calls of a complete listing, such as "
        f"{calls}",
        "only some of these backend calls while the backend does not change",
    )


def _check_changes_shown(
    follower: Follower, changes: Changes, things: Sequence[str], when: str
) -> None:
    def unseen() -> list[str]:
        described = follower.described
        return [
            one
            for one in things
            if one not in described or not changes.is_seen(one, described[one])
        ]

    def are_seen() -> bool:
        follower.poll()
        return not unseen()

    if not _soon(are_seen):
        lost = unseen()
        more = f" and {len(lost) - 3} more" * (len(lost) > 3)
        raise Violation(
            f"{when}: polls do not show the change of {', '.join(lost[:3])}{more}",
            f"changed_nodes names the changed nodes within {_WITHIN:g} s, and update_provider_tree "
            "then describes the changes",
        )


def _check_becomes_quiet(follower: Follower) -> None:
    silent = 0
    named: frozenset[str] = frozenset()

    def is_quiet() -> bool:
        nonlocal silent, named
        names = follower.poll()
        silent, named = (0, names) if names else (silent + 1, named)
        return silent >= _POLLS

    if not soon(is_quiet, _QUIET):
        nodes = (
            f"{', '.join(sorted(named)[:3])} and others"
            if len(named) > 3
            else ", ".join(sorted(named))
        )
        raise Violation(
            f"changed_nodes repeatedly names nodes that have not changed: {nodes}",
            f"no node from changed_nodes when nothing has changed for {_QUIET:g} s",
        )


def _soon(holds: Callable[[], bool]) -> bool:
    return soon(holds, _WITHIN)
