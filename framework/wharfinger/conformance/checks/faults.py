"""Rules of backends that fail, hang, or answer half (WHF-7..)."""

from collections.abc import Callable
from itertools import product

from wharfinger.conformance.checks.stability import see_nothing_done
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.fault_sweep import Breaking, see_listing_raise_or_stay
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import difference
from wharfinger.conformance.rules import Level, Profile, can_be_busy, rule
from wharfinger.conformance.subject import Subject, describe
from wharfinger.exceptions import WharfingerError, shown

#: Answers of a backend that are errors.
_REFUSALS = (Fault.ERROR, Fault.DENIED)


@rule(
    "WHF-701",
    Level.MUST,
    "A listing that failed raises. It never returns an empty list, or what was known before.",
    "An empty list means that the backend has nothing, so all providers are removed.",
    profile=Profile.EXTENDED,
    after=("WHF-208",),
)
def raises(subject: Subject) -> None:
    """List the nodes while each call is refused, and while each answer breaks off."""
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        for fault in (Fault.RAISE, Fault.HALF, *_REFUSALS):
            subject.harness.expect(None, fault)
            try:
                names = driver.get_available_nodes(refresh=True)
            except Exception:
                continue
            finally:
                subject.harness.expect()
            raise Violation(f"every call meets {fault}, and it returns {shown(names)}", "an error")


@rule(
    "WHF-702",
    Level.MUST,
    "After a failure the next cycle is as if there had been none, without a restart.",
    "A backend that was away for a minute at night must not wake an operator.",
    profile=Profile.EXTENDED,
    after=("WHF-301", "WHF-701"),
)
def recovers(subject: Subject) -> None:
    """Run each type of cycle while calls are refused, and then without faults; a thing is busy."""
    with subject.publishing() as publishing:
        if can_be_busy(subject):
            subject.harness.make_busy(subject.harness.things()[0])
        before = publishing.settle()
        subject.harness.expect(None, Fault.RAISE)
        for run in (publishing.cycle.sync, publishing.cycle.poll, publishing.cycle.drift):
            _passes_or_fails(run)
        subject.harness.expect()
        after = subject.placement.contents()
        if after != before:
            raise Violation(difference(before, after), "no difference")
        see_nothing_done(subject, before, publishing.cycle.sync())


for _id, _fault, _says in (
    ("WHF-703", Fault.RAISE, "fails"),
    ("WHF-704", Fault.HALF, "is answered with half of an answer"),
    ("WHF-705", Fault.HANG, "hangs, while it hangs and after it"),
):

    @rule(
        _id,
        Level.MUST,
        "The driver publishes each tree as it was or as it is now, and no mixture, whichever call "
        f"to the backend {_says}.",
        "A mixture of an old tree and a new one describes hardware that never existed.",
        profile=Profile.EXTENDED,
        after=("WHF-303", "WHF-304", "WHF-401", "WHF-402", "WHF-506", "WHF-702"),
    )
    def each_call_fails(subject: Subject, fault: Fault = _fault) -> None:
        """Let each call fail in turn: while the backend changes, and when a driver starts."""
        Breaking(subject, fault).sweep()


@rule(
    "WHF-706",
    Level.SHOULD,
    "A call that is never answered ends by itself, in the time that is configured.",
    "An instance that waits for ever publishes nothing any more, and cannot be stopped in an "
    "orderly way.",
    profile=Profile.EXTENDED,
    after=("WHF-304", "WHF-702"),
)
def gives_up(subject: Subject) -> None:
    """Let the first call of a cycle hang."""
    with subject.publishing() as publishing:
        publishing.settle()
        patience = subject.harness.patience
        attempt = Breaking(subject, Fault.HANG).attempt(publishing.cycle.sync, 0, patience)
        if attempt.meanwhile is not None:
            raise Violation(f"it still waits after {patience:g} s", "a time-out")


@rule(
    "WHF-707",
    Level.MUST,
    "A backend that was restarted is found again, and what is published stays.",
    "Services are upgraded at any time, and none of their clients with them.",
    profile=Profile.EXTENDED,
    after=("WHF-303", "WHF-702"),
)
def found_again(subject: Subject) -> None:
    """Restart the backend; while one thing is busy, if it can be."""
    with subject.publishing() as publishing:
        if can_be_busy(subject):
            subject.harness.make_busy(subject.harness.things()[0])
        before = publishing.settle()
        subject.harness.restart()
        see_nothing_done(subject, before, publishing.cycle.sync())


@rule(
    "WHF-708",
    Level.MUST,
    "Whichever call is answered with an error, the listing raises, or is as it would have been.",
    "An error is no answer, however well it can be read: a load balancer's, or that a token is of "
    "yesterday.",
    profile=Profile.EXTENDED,
    after=("WHF-304", "WHF-702"),
)
def errors_are_none(subject: Subject) -> None:
    """Let the backend answer one call after the other with an error."""
    harness = subject.harness
    with subject.driver() as driver:
        live = subject.placement.contents()
        before = describe(driver, live)
        harness.expect()
        driver.get_available_nodes(refresh=True)
        calls = [*enumerate(harness.calls)]
        for fault, call in product(_REFUSALS, calls):
            see_listing_raise_or_stay(harness, driver, live, before, call=call, fault=fault)


@rule(
    "WHF-709",
    Level.MUST,
    "A backend that goes away in the middle of a listing, and stays away, takes nothing with it.",
    "A service ends in this way. A driver that skips the failed calls publishes a part.",
    profile=Profile.EXTENDED,
    after=("WHF-703", "WHF-705", "WHF-708"),
)
def gone_for_good(subject: Subject) -> None:
    """Let each call fail from one call of a listing on."""
    for fault in (Fault.RAISE, *_REFUSALS):
        Breaking(subject, fault).lasting()


def _passes_or_fails(run: Callable[[], object]) -> None:
    """Run a cycle that may fail. The check looks at Placement after it."""
    try:
        run()
    except WharfingerError:
        return
