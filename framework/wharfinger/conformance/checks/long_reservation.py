"""Rules on things that are busy for long, repeatedly, together, or when new (WHF-508 to 510)."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from wharfinger.conformance import clock_shift
from wharfinger.conformance.busy_things import BusyThings
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import difference, is_reserved
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Publishing, Subject, sound
from wharfinger.exceptions import WharfingerError
from wharfinger.reconcile.cycle import CycleResult

#: Rounds of cycles in which a thing stays busy: at least, and at most.
_FEWEST: Final = 5
_MOST: Final = 60
_THOROUGH: Final = 500
#: Seconds after which no other round is begun, once there were enough.
_LONG: Final = 10.0
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: How much later it is each time, so that other hours, days of the week and months are met, too.
_LATER: Final = (_MINUTE, _HOUR, 7 * _HOUR, 7 * _HOUR, 2 * _DAY, 40 * _DAY)
#: Cycles in which a busy thing is new.
_CYCLES: Final = 3
#: How many things are busy at once.
_AT_ONCE: Final = 3


@rule(
    "WHF-508",
    Level.MUST,
    "The driver keeps a busy thing reserved, however many cycles run, and however late it is by "
    "the clock.",
    "A repair takes days. Placement gives a thing that is offered before its end to an instance.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-303", "WHF-506", "WHF-507"),
)
def reserved_however_long(subject: Subject) -> None:
    """Make a thing busy, run many cycles, set the clocks ahead, and run more.

    A cycle may fail at a later time. The thing has to stay reserved then.
    """
    with subject.publishing() as publishing:
        things = BusyThings(subject, publishing)
        things.make_busy(subject.harness.things()[0])
        publishing.settle()
        end = clock_shift.real_seconds() + _LONG
        for number in range(1, 1 + (_THOROUGH if subject.thorough else _MOST)):
            if number > _FEWEST and clock_shift.real_seconds() > end and not subject.thorough:
                break
            publishing.sync()
            publishing.cycle.poll()
            things.see(f"after {number} cycles and polls")
        passed = timedelta()
        for seconds in _LATER:
            publishing.advance(seconds)
            passed += timedelta(seconds=seconds)
            for run in (publishing.cycle.poll, publishing.cycle.drift, publishing.cycle.sync):
                _attempt(run)
                things.see(f"busy for {passed}")
        publishing.restart()
        _attempt(publishing.cycle.sync)
        things.see(f"busy for {passed}, after a restart")


@rule(
    "WHF-509",
    Level.MUST,
    "The driver reserves each thing for as long as that thing is busy: also while all things are "
    "busy, for the second time, and while another one is gone.",
    "A backend cleans many nodes at once, all day.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-303", "WHF-403", "WHF-506", "WHF-507"),
)
def each_for_itself(subject: Subject) -> None:
    """Make one thing after the other busy, restart, make them free in that order; repeat this.

    Then remove a thing while another one is busy.
    """
    with subject.publishing() as publishing:
        busy = BusyThings(subject, publishing)
        things = subject.harness.things()[:_AT_ONCE]
        for order in (things, things[::-1]):
            for thing in order:
                busy.make_busy(thing)
                sound(publishing.cycle.poll())
                busy.see_others(f"{thing} is busy, too, and there was a poll")
                publishing.settle()
                busy.see(f"{thing} is busy, too")
            publishing.restart()
            publishing.settle()
            busy.see("after a restart")
            for thing in order:
                busy.make_free(thing)
                busy.see(f"{thing} is free")
        thing, other = things[:2]
        busy.make_busy(thing)
        subject.harness.remove(other)
        if not is_reserved(found := publishing.settle()[thing]):
            text = difference({}, {thing: found})
            raise Violation(f"{thing} is busy, {other} is gone: {text}", f"all of {thing} reserved")
        subject.harness.put_back(other)
        busy.make_free(thing)
        busy.see(f"{thing} is free, and {other} has returned")
        for time_ in ("the second", "the third"):
            busy.make_busy(things[-1])
            publishing.settle()
            busy.see(f"{things[-1]} is busy for {time_} time")
            busy.make_free(things[-1])
            busy.see(f"{things[-1]} is free for {time_} time")


@rule(
    "WHF-510",
    Level.MUST,
    "The driver reserves a thing at once that is busy when the driver lists it for the first time, "
    "or again.",
    "An operator tests a card that has come back from repair before an instance gets it.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-403", "WHF-506", "WHF-507"),
)
def reserved_on_return(subject: Subject) -> None:
    """Return a busy thing after two listings without it, and after one. Add a busy thing.

    A busy thing may have no inventory until it is free: a driver may not know of how much.
    """
    harness = subject.harness
    with subject.publishing() as publishing:
        busy = BusyThings(subject, publishing)
        thing = harness.things()[0]
        for cycles in (publishing.settle, publishing.sync):
            harness.remove(thing)
            cycles()
            harness.put_back(thing)
            busy.make_busy(thing)
            for _ in range(_CYCLES):
                _see_never_free(publishing, subject, thing)
            busy.see_others(f"{thing} has returned, and is busy")
            busy.make_free(thing)
            busy.see(f"{thing} has returned, and is free")
        new = subject.add()
        harness.make_busy(new)
        for _ in range(_CYCLES):
            _see_never_free(publishing, subject, new)


def _see_never_free(publishing: Publishing, subject: Subject, thing: str) -> None:
    """Run a cycle; raises Violation if a busy thing has a provider that is not reserved."""
    publishing.sync()
    found = subject.placement.contents().get(thing)
    if found is not None and found.inventories and not is_reserved(found):
        text = difference({}, {thing: found})
        raise Violation(f"{thing} is busy when it is listed: {text}", "all of it reserved")


def _attempt(run: Callable[[], CycleResult]) -> None:
    """Run a cycle that may fail."""
    with suppress(WharfingerError):
        run()
