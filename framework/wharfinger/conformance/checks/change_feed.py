"""Rules of the change feed (WHF-911 to 920)."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.feed_follower import Changes, Follower, soon
from wharfinger.conformance.growing import sizes
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, difference, is_reserved
from wharfinger.conformance.rules import Level, Profile, can_be_busy, rule
from wharfinger.conformance.subject import (
    FREE_CYCLES,
    FREE_SECONDS,
    Subject,
    describe,
    listed,
    sound,
)
from wharfinger.exceptions import WharfingerError, shown

#: Seconds until a feed names a change: it need not ask its backend each time.
_WITHIN: Final = 10.0
#: Seconds after which a feed names a change no more. It may name a change again that is newer than
#: the precision of its backend's clocks.
_QUIET: Final = 30.0
#: The call of a poll that meets a fault, and the fault.
_FAULTS: Final = (
    (0, Fault.ERROR),
    (1, Fault.ERROR),
    (1, Fault.RAISE),
    (2, Fault.ERROR),
    (2, Fault.RAISE),
)
#: Number of successive polls without a node by which a feed counts as quiet.
_POLLS: Final = 5
#: Calls of a listing that a poll must not repeat. One call may be all that a backend offers.
_CALLS_OF_A_LISTING: Final = 2
#: Nodes that there are to be where one of them changes, and how often as many things are added.
_NODES: Final = 6
_GROWTHS: Final = 8
#: How often the state of one thing changes, there and back, between two polls.
_EVENTS: Final = 4
#: Changes that are made at once, and the seconds for making them.
_CHANGES: Final = 128
_MAKING: Final = 2.0


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
    """Make a thing busy, then free, and poll; if things are never busy, add one below a node."""
    harness, placement = subject.harness, subject.placement
    with subject.publishing() as publishing:
        before = publishing.settle()
        publishing.cycle.poll()

        def polled(holds: Callable[[Contents], bool]) -> bool:
            sound(publishing.cycle.poll())
            return holds(placement.contents())

        def see(holds: Callable[[Contents], bool], what: str) -> None:
            if not _soon(lambda: polled(holds)):
                text = difference(before, placement.contents())
                raise Violation(text, f"{what} by polls, within {_WITHIN:g} s")

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
        elif subject.can("change"):
            harness.change(thing)
            see(lambda now: now[thing] != before[thing], f"a change of {thing}")
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
        second: set[str] = set()

        def are_named_again() -> bool:
            nonlocal mark
            names, mark = driver.changed_nodes(mark)  # the same mark, where it did not look
            second.update(names)
            return first <= second

        if not first or not _soon(are_named_again):
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
    """Remove all things of a node, or one thing if there is only one node, and poll.

    Poll until a node is named, or until the time of the feed is over.
    """
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        mark = follower.mark
        things = [*subject.harness.things()]
        gone_node = follower.node_of(things[0])
        its = [thing for thing in things if follower.node_of(thing) == gone_node]
        for thing in its if len(its) < len(things) else its[:1]:
            subject.harness.remove(thing)
        subject.harness.expect()

        def has_asked() -> bool:
            named.update(driver.changed_nodes(mark)[0])
            return bool(subject.harness.calls)

        named: set[str] = set()
        _soon(has_asked)
        if gone := named - {node.name for node in listed(driver).nodes}:
            raise Violation(f"it names {', '.join(sorted(gone))}", "only existing nodes")


@rule(
    "WHF-914",
    Level.MUST,
    "The change feed raises where the backend does not answer, or answers with an error, and names "
    "later what it could not name then.",
    "No answer is no news.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-701", "WHF-911"),
)
def feeds_or_raises(subject: Subject) -> None:
    """Ask until there was a call, while all calls fail; then change things while one call fails."""
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        _, mark = driver.changed_nodes(None)
        for fault in (Fault.RAISE, Fault.ERROR, Fault.DENIED, Fault.HALF):
            _see_raised(subject, lambda: driver.changed_nodes(mark), fault)
    changes = Changes(subject)
    subject.harness.grow(max(0, len(_FAULTS) - len(subject.harness.things())))
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        _see_nothing_lost(subject, follower, changes)


def _see_raised(subject: Subject, ask: Callable[[], object], fault: Fault) -> None:
    """Ask while each call meets a fault, until there was a call; raises Violation."""
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
    raise Violation(f"every call meets {fault}, and it returns {shown(answer)}", "an error")


def _see_nothing_lost(subject: Subject, follower: Follower, changes: Changes) -> None:
    """Change one thing after the other; each time another call of the next poll meets a fault."""
    harness = subject.harness
    missed: int | None = None
    for thing, (at, fault) in zip([*harness.things()], _FAULTS, strict=False):
        if missed is not None and at >= missed:
            return
        changes.make(thing, follower.described.get(thing))
        harness.expect(at, fault)
        _soon(lambda: _has_asked(subject, follower))
        if len(harness.calls) <= at:
            missed = at
        harness.expect()
        _see_changes(follower, changes, [thing], f"call {at} of a poll meets {fault}: ")


def _has_asked(subject: Subject, follower: Follower) -> bool:
    """Poll, and return whether that took calls; a poll may fail."""
    try:
        follower.poll()
    except Exception:
        return True
    return bool(subject.harness.calls)


@rule(
    "WHF-915",
    Level.MUST,
    "Where nothing changes the change feed names nothing, with the mark that it gave last.",
    "The framework describes each named node and compares it, every two seconds. A feed that "
    "names all nodes each time is a complete cycle every two seconds.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_nothing(subject: Subject) -> None:
    """Poll an unchanged backend; then change a thing, change it back, and poll again."""
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        _see_quiet(follower)
        if can_be_busy(subject):
            thing = subject.harness.things()[0]
            subject.harness.make_busy(thing)
            _soon(lambda: bool(follower.poll()))
            subject.harness.make_free(thing)
            _see_quiet(follower)


@rule(
    "WHF-916",
    Level.MUST,
    "The change feed names the nodes that have changed, and not the others.",
    "In a large fleet, a few of thousands of nodes change in a minute.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-915",),
)
def feeds_no_more(subject: Subject) -> None:
    """Change one of several nodes, then another one; then one of four times as many nodes.

    The last of them changes several times before the poll. Nodes that depend on a node may be named
    with it. Their number does not grow with the fleet.
    """
    changes = Changes(subject)
    most = _NODES // 2
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        _have_nodes(subject, follower, _NODES)
        if len(follower.nodes) < _NODES:
            return
        first, second, *_, last = subject.harness.things()
        for thing, nodes in ((first, _NODES), (last, _NODES), (second, 4 * _NODES)):
            _have_nodes(subject, follower, nodes)
            _see_quiet(follower)
            node = follower.node_of(thing)
            changes.make(thing, follower.described[thing])
            if can_be_busy(subject) and thing == second:
                for _ in range(_EVENTS):
                    subject.harness.make_free(thing)
                    subject.harness.make_busy(thing)
            named = _named_until(follower, node)
            if len(named - {node}) > most:
                text = f"of {len(follower.nodes)} nodes {node} has changed; named: "
                raise Violation(text + ", ".join(sorted(named)), node)


def _have_nodes(subject: Subject, follower: Follower, count: int) -> None:
    """Add things until there are ``count`` nodes, and list them; a node may have several things."""
    follower.list_all()
    for _ in range(_GROWTHS):
        if not 1 < len(follower.nodes) < count:
            return
        subject.harness.grow(count - len(follower.nodes))
        follower.list_all()


def _named_until(follower: Follower, node: str) -> set[str]:
    """Poll until the feed names this node; return all nodes that it has named until then."""
    named: set[str] = set()

    def is_named() -> bool:
        named.update(follower.poll())
        return node in named

    _soon(is_named)
    return named


@rule(
    "WHF-917",
    Level.MUST,
    "The change feed names what changes after its first mark was given: before the first listing, "
    "and before the first poll.",
    "The framework takes the first mark, then lists all nodes, and polls seconds later.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_from_the_first_mark(subject: Subject) -> None:
    """Change a thing before the listing and another one after it; with a second instance, too."""
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
            _see_changes(follower, changes, [early, late], "between the first mark and a poll: ")


@rule(
    "WHF-918",
    Level.MUST,
    "The change feed names nodes by the mark: with an older mark it names again all nodes that "
    "have changed since, also for another instance.",
    "A poll that could not publish is made again with its mark, whatever was asked meanwhile.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_since_the_mark(subject: Subject) -> None:
    """Change two things one after the other, and ask with the marks from before each."""
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
            _see_changes(follower, changes, [thing], "")
            follower.poll()
            for mark, expected in ((marks[0], nodes), (marks[-1], nodes[-1:]), (marks[0], nodes)):
                _see_named(follower, mark, expected, "a mark is used again")
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        follower.list_all()
        _see_named(follower, marks[0], nodes, "a mark of an instance before this")


def _see_named(follower: Follower, mark: str, expected: Sequence[str], when: str) -> None:
    """Raise Violation unless the feed names these nodes since a mark, or refuses an old mark."""
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
        text = f"{when}: named: {', '.join(sorted(named)) or 'nothing'}"
        raise Violation(text, f"{', '.join(sorted({*expected} - named))}, or an error")


@rule(
    "WHF-919",
    Level.MUST,
    "The change feed names all nodes that have changed, however many.",
    "When a room loses its power, hundreds of nodes change at once.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-911",),
)
def feeds_all(subject: Subject) -> str:
    """Change as many things as a few seconds allow, and poll."""
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
        _see_changes(follower, changes, changed, f"{len(changed)} things have changed: ")
    return f"of {len(changed)} changes at once"


@rule(
    "WHF-920",
    Level.MUST,
    "A poll of an unchanged backend does not repeat the calls of a complete listing.",
    "The framework polls every two seconds, and lists all nodes once a minute. A feed that lists "
    "them in each poll costs thirty times as much.",
    profile=Profile.EXTENDED,
    supports="change_feed",
    after=("WHF-915",),
)
def feeds_cheaply(subject: Subject) -> str:
    """Compare the calls of successive polls with those of a listing.

    The driver passes if one of the polls makes fewer calls: it may limit how often it looks. It
    also passes if the backend answers a listing with one call, which a poll may need, too.
    """
    with subject.driver() as driver:
        follower = Follower(subject, driver)
        subject.harness.expect()
        follower.list_all()
        listing = Counter(subject.harness.calls)
        if listing.total() < _CALLS_OF_A_LISTING:
            return f"a listing takes {listing.total()} calls"
        _see_quiet(follower)
        for _ in range(_POLLS):
            subject.harness.expect()
            follower.poll()
            if not listing <= Counter(subject.harness.calls):
                return f"a listing takes {listing.total()} calls"
    text = ", ".join([*listing][:3])
    raise Violation(f"each poll lists again: {text}", "polls with fewer calls than a listing")


def _see_changes(follower: Follower, changes: Changes, things: Sequence[str], when: str) -> None:
    """Raise Violation unless polls show all changes."""

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
        text = f"{when}lost: {', '.join(lost[:3])}" + (
            f" and {len(lost) - 3} more" * (len(lost) > 3)
        )
        raise Violation(text, f"changes that polls show within {_WITHIN:g} s")


def _see_quiet(follower: Follower) -> None:
    """Raise Violation unless the feed becomes quiet."""
    silent = 0
    named: frozenset[str] = frozenset()

    def is_quiet() -> bool:
        nonlocal silent, named
        names = follower.poll()
        silent, named = (0, names) if names else (silent + 1, named)
        return silent >= _POLLS

    if not soon(is_quiet, _QUIET):
        text = (
            f"{', '.join(sorted(named)[:3])} and others"
            if len(named) > 3
            else ", ".join(sorted(named))
        )
        raise Violation(f"named again and again: {text}", f"nothing, within {_QUIET:g} s")


def _soon(holds: Callable[[], bool]) -> bool:
    """Return whether a condition becomes true within the time of the feed."""
    return soon(holds, _WITHIN)
