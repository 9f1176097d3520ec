"""Rules on backends that fail, hang, or break off an answer (WHF-701 to 709)."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Final
from weakref import WeakKeyDictionary

from wharfinger.conformance.checks.stability import check_nothing_done
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.fault_sweep import Breaking, see_listing_raise_or_stay
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import difference
from wharfinger.conformance.rules import Level, Profile, can_be_busy, rule
from wharfinger.conformance.subject import Subject, describe
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import WharfingerError, shown

#: Faults in which the backend answers with an error.
_REFUSALS = (Fault.ERROR, Fault.DENIED)
#: These, and the errors that not every harness can inject.
_ANSWERS = (*_REFUSALS, Fault.FORBIDDEN, Fault.MISSING)


@rule(
    "WHF-701",
    Level.MUST,
    "A listing that fails raises. It never returns an empty list, or the nodes of an earlier "
    "listing.",
    "An empty list means that the backend has no nodes, so the framework removes all providers.",
    profile=Profile.EXTENDED,
    after=("WHF-208",),
)
def raises(subject: Subject) -> None:
    """Check that a listing raises while all calls to the backend fail."""
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        _check_listing_raises(
            subject, driver, subject.possible((Fault.RAISE, Fault.HALF, *_ANSWERS))
        )
    with subject.driver() as driver:
        _check_listing_raises(subject, driver, (Fault.RAISE,))
    unanswered = _hung_listing(subject)
    if unanswered.names is not None and unanswered.calls == 1:
        raise Violation(
            "the only backend call is never answered, and get_available_nodes returns "
            f"{shown(unanswered.names)}",
            "an error from get_available_nodes",
        )


def _check_listing_raises(subject: Subject, driver: ComputeDriver, faults: Sequence[Fault]) -> None:
    for fault in faults:
        subject.harness.expect(None, fault)
        try:
            names = driver.get_available_nodes(refresh=True)
        except Exception:
            continue
        finally:
            subject.harness.expect()
        raise Violation(
            f"every backend call gets {fault}, and get_available_nodes returns {shown(names)}",
            "an error from get_available_nodes",
        )


@dataclass(slots=True)
class _HungListing:
    #: The returned nodes, None if the listing raised.
    names: Sequence[str] | None = None
    calls: int = 0
    #: Whether it has ended within the harness's patience.
    has_ended: bool = True


_UNANSWERED: Final[WeakKeyDictionary[Subject, _HungListing]] = WeakKeyDictionary()


def _hung_listing(subject: Subject) -> _HungListing:
    if subject not in _UNANSWERED:
        found = _UNANSWERED[subject] = _HungListing()
        with subject.driver() as driver:
            driver.get_available_nodes(refresh=True)

            def listing() -> None:
                with suppress(Exception):
                    found.names = driver.get_available_nodes(refresh=True)

            subject.harness.expect(0, Fault.HANG)
            running = threading.Thread(target=listing, name="listing", daemon=True)
            running.start()
            running.join(subject.harness.patience)
            found.has_ended, found.calls = not running.is_alive(), len(subject.harness.calls)
            subject.harness.expect()
            running.join()
    return _UNANSWERED[subject]


@rule(
    "WHF-702",
    Level.MUST,
    "The next cycle after a failure of the backend publishes the same as without the failure. No "
    "restart of the driver is necessary.",
    "A backend that does not answer for a minute at night must not wake an operator.",
    profile=Profile.EXTENDED,
    after=("WHF-301", "WHF-701"),
)
def recovers(subject: Subject) -> None:
    """Check that the driver recovers from a failure of the backend without a restart."""
    with subject.publishing() as publishing:
        if can_be_busy(subject):
            subject.harness.make_busy(subject.harness.things()[0])
        before = publishing.settle()
        subject.harness.expect(None, Fault.RAISE)
        for run in (publishing.cycle.sync, publishing.cycle.poll, publishing.cycle.drift):
            with suppress(WharfingerError):
                run()
        subject.harness.expect()
        after = subject.placement.contents()
        if after != before:
            raise Violation(difference(before, after), "no difference")
        check_nothing_done(subject, before, publishing.cycle.sync())


for _id, _fault, _says in (
    ("WHF-703", Fault.RAISE, "when any one call to the backend fails"),
    ("WHF-704", Fault.HALF, "when the answer to any one call to the backend breaks off"),
    ("WHF-705", Fault.HANG, "while any one call to the backend hangs, and after that"),
):

    @rule(
        _id,
        Level.MUST,
        "The driver publishes each tree as it was before or as it is now, and no mixture of both, "
        f"{_says}.",
        "A mixture of an old tree and a new one describes hardware that never existed.",
        profile=Profile.EXTENDED,
        after=("WHF-303", "WHF-304", "WHF-401", "WHF-402", "WHF-506", "WHF-702"),
    )
    def each_call_fails(subject: Subject, fault: Fault = _fault) -> None:
        """Check that each published tree is the old or the new one when a call fails."""
        Breaking(subject, fault).sweep()


@rule(
    "WHF-706",
    Level.SHOULD,
    "A call that the backend never answers ends after the configured time.",
    "A driver instance that waits for ever publishes nothing any more, and the agent cannot stop "
    "it in an orderly way.",
    profile=Profile.EXTENDED,
    after=("WHF-304", "WHF-702"),
)
def gives_up(subject: Subject) -> None:
    """Check that a listing ends if the backend never answers a call."""
    if not _hung_listing(subject).has_ended:
        patience = subject.harness.patience
        raise Violation(
            "the first backend call is never answered, and get_available_nodes has not ended after "
            f"{patience:g} s",
            "an error after a time limit shorter than the harness's attribute patience",
        )


@rule(
    "WHF-707",
    Level.MUST,
    "After a restart of the backend, the driver reaches the backend again. The contents of "
    "Placement stay.",
    "Operators upgrade a service without a restart of its clients.",
    profile=Profile.EXTENDED,
    after=("WHF-303", "WHF-702"),
)
def found_again(subject: Subject) -> None:
    """Check that the driver works with a restarted backend."""
    with subject.publishing() as publishing:
        if can_be_busy(subject):
            subject.harness.make_busy(subject.harness.things()[0])
        before = publishing.settle()
        subject.harness.restart()
        check_nothing_done(subject, before, publishing.cycle.sync())


@rule(
    "WHF-708",
    Level.MUST,
    "If the backend answers any call of a listing with an error, the listing raises, or returns "
    "the same as without the error.",
    "An error may look like an answer: a load balancer may send it, or a service that no longer "
    "accepts a token or does not know a path.",
    profile=Profile.EXTENDED,
    after=("WHF-304", "WHF-702"),
)
def errors_are_none(subject: Subject) -> None:
    """Check that a listing never takes an error of the backend for an answer."""
    harness = subject.harness
    with subject.driver() as driver:
        live = subject.placement.contents()
        if can_be_busy(subject):
            harness.make_busy(harness.things()[0])
        before = describe(driver, live)
        harness.expect()
        driver.get_available_nodes(refresh=True)
        calls = [*enumerate(harness.calls)]
        for fault, call in product(subject.possible(_ANSWERS), calls):
            see_listing_raise_or_stay(harness, driver, live, before, call=call, fault=fault)


@rule(
    "WHF-709",
    Level.MUST,
    "If the backend stops during a listing and does not come back, the contents of Placement stay.",
    "A driver that skips the failed calls publishes only a part of the backend.",
    profile=Profile.EXTENDED,
    after=("WHF-703", "WHF-705", "WHF-708"),
)
def gone_for_good(subject: Subject) -> None:
    """Check that Placement stays unchanged if the backend stops during a listing."""
    for fault in (Fault.RAISE, *_REFUSALS):
        Breaking(subject, fault).lasting()
