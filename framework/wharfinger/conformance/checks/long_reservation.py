"""Rules on long, repeated and simultaneous reservations (WHF-508 to 510)."""

import threading
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Final

from wharfinger.conformance import clock_shift
from wharfinger.conformance.busy_things import BusyThings
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.growing import seconds_run
from wharfinger.conformance.placement_diff import at_and_below, difference, is_reserved
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Publishing, Subject, as_contents, describe, sound
from wharfinger.exceptions import WharfingerError

#: Rounds of cycles: at least, at most if the driver has no thread, and with --thorough.
_FEWEST: Final = 5
_MOST: Final = 60
_THOROUGH: Final = 500
#: Seconds after which no other round begins, if there were _FEWEST.
_LONG: Final = 10.0
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
#: Seconds by which the clocks are set ahead, to other hours, days of the week and months.
_LATER: Final = (_MINUTE, _HOUR, 7 * _HOUR, 7 * _HOUR, 2 * _DAY, 40 * _DAY)
#: The first cycles after a busy thing was added or put back.
_CYCLES: Final = 3
#: The number of things that are busy at the same time while the order matters.
_AT_ONCE: Final = 3
#: The most things that are busy at the same time, as a multiple of the harness's ``growth``.
_TIMES: Final = 4
#: Seconds after which the kit makes no further thing busy.
_SHORT: Final = 0.5


@rule(
    "WHF-508",
    Level.MUST,
    "The driver keeps a busy thing reserved, however many cycles run and however much time passes.",
    "A repair takes days. If the driver releases the thing before its end, Placement gives it to "
    "an instance.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-303", "WHF-506", "WHF-507"),
)
def reserved_however_long(subject: Subject) -> None:
    """Check that a node or device stays reserved, however long it is busy."""
    threads = threading.active_count()
    with subject.publishing() as publishing:
        things = BusyThings(subject, publishing)
        things.make_busy(subject.harness.things()[0])
        publishing.settle()
        end = clock_shift.real_seconds() + _LONG
        for number in count(1):
            is_long = clock_shift.real_seconds() > end
            # Setting the clocks ahead does not end a wait in a thread of the driver.
            waits = threading.active_count() > threads and not is_long
            most = _THOROUGH if subject.thorough else _FEWEST if is_long else _MOST
            if number > most and not waits:
                break
            publishing.sync()
            publishing.cycle.poll()
            things.see(f"after {number} cycles and polls")
        passed = timedelta()
        for seconds in _LATER:
            publishing.advance(seconds)
            passed += timedelta(seconds=seconds)
            for run in (publishing.cycle.poll, publishing.cycle.drift, publishing.cycle.sync):
                with suppress(WharfingerError):
                    run()
                things.see(f"busy for {passed}")
        publishing.restart()
        with suppress(WharfingerError):
            publishing.cycle.sync()
        things.see(f"busy for {passed}, after a restart")


@rule(
    "WHF-509",
    Level.MUST,
    "The driver reserves each thing exactly as long as the thing is busy: also while other things "
    "are busy, when the thing is busy again, and while another thing is gone.",
    "A backend cleans many nodes at the same time, all day.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-303", "WHF-403", "WHF-506", "WHF-507"),
)
def each_for_itself(subject: Subject) -> None:
    """Check that exactly the busy nodes and devices are reserved."""
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
            if order is not things:
                publishing.restart()
                publishing.settle()
                busy.see("after a restart")
            for thing in order:
                busy.make_free(thing)
                busy.see(f"{thing} is free")
        thing, other = things[:2]
        busy.make_busy(thing)
        subject.harness.remove(other)
        contents = publishing.settle()
        for name in at_and_below(contents, thing):
            if not all(one.is_fully_reserved for one in contents[name].inventories.values()):
                raise Violation(
                    f"{thing} is busy, and {other} was removed; then Placement has "
                    f"{difference({}, {name: contents[name]})}",
                    f"all inventory of {name} reserved",
                )
        subject.harness.put_back(other)
        busy.make_free(thing)
        busy.see(f"{thing} is free, and {other} has returned")
        for time_ in ("the second", "the third"):
            busy.make_busy(things[-1])
            publishing.settle()
            busy.see(f"{things[-1]} is busy for {time_} time")
            busy.make_free(things[-1])
            busy.see(f"{things[-1]} is free for {time_} time")
        _check_many_reserved(subject, publishing)


def _check_many_reserved(subject: Subject, publishing: Publishing) -> None:
    harness = subject.harness
    busy: list[str] = []
    there = [*harness.things()]
    began = seconds_run()
    while len(busy) < _TIMES * harness.growth and seconds_run() - began < _SHORT:
        thing = there.pop() if there else subject.add()
        harness.make_busy(thing)
        busy.append(thing)
    described = describe(publishing.driver, subject.placement.contents())
    for name in (name for thing in busy for name in at_and_below(as_contents(described), thing)):
        one = described[name]
        if one.provider.inventories and not (one.reservations or is_reserved(one.provider)):
            raise Violation(
                f"{len(busy)} things are busy; then the driver describes "
                f"{difference({}, {name: one.provider})}",
                f"all inventory of {name} reserved",
            )


@rule(
    "WHF-510",
    Level.MUST,
    "If a thing is busy when it is added or put back, the driver reserves it from the first "
    "listing on.",
    "An operator tests a card after its repair, before an instance gets it.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-403", "WHF-506", "WHF-507"),
)
def reserved_on_return(subject: Subject) -> None:
    """Check that busy nodes and devices are reserved when they are added or return."""
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
                _check_never_free(publishing, subject, thing)
            busy.see_others(f"{thing} has returned, and is busy")
            busy.make_free(thing)
            busy.see(f"{thing} has returned, and is free")
        new = subject.add()
        harness.make_busy(new)
        for _ in range(_CYCLES):
            _check_never_free(publishing, subject, new)


def _check_never_free(publishing: Publishing, subject: Subject, thing: str) -> None:
    publishing.sync()
    found = subject.placement.contents().get(thing)
    if found is not None and found.inventories and not is_reserved(found):
        raise Violation(
            f"{thing} has been busy since it was added or put back, but is not fully reserved: "
            f"{difference({}, {thing: found})}",
            f"all inventory of {thing} reserved from the first cycle on",
        )
