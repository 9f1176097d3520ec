"""Rules on faults while a driver lists or looks up nodes and devices (WHF-451 and 452)."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Final

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.fault_sweep import see_listing_raise_or_stay
from wharfinger.conformance.growing import seconds_run, sizes
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, describe
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import WharfingerError, shown
from wharfinger.providers import DesiredProvider

#: More things than the pages of most backends have.
_PAGED: Final = 1280
#: Seconds after which no further faults of a large listing are tried.
_TRYING: Final = 20.0
#: Faults, beginning with the one that drivers most often take for an answer.
_FAULTS: Final = (Fault.ERROR, Fault.DENIED, Fault.RAISE, Fault.HALF)


@rule(
    "WHF-451",
    Level.MUST,
    "If any call of a listing fails, the listing raises, or returns the same as without the "
    "failure, also for a large backend.",
    "Backends answer by pages. An error in place of the second page is not the end of the list.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def complete_or_none(subject: Subject) -> str:
    """Check that a listing of a large backend is complete or raises."""
    harness = subject.harness
    with subject.driver() as driver:
        live = subject.placement.contents()
        before = describe(driver, live)
        try:
            for _ in sizes(subject, most=_PAGED):
                before = describe(driver, live)
            harness.expect()
            driver.get_available_nodes(refresh=True)
        except WharfingerError:  # the backend may be too slow for so many things
            return f"of few things: the driver raises with {len(harness.things())} things"
        calls = [*harness.calls]
        later = sorted({1, len(calls) // 2, len(calls) - 1} & {*range(1, len(calls))})
        began = seconds_run()
        denials = subject.possible((Fault.DENIED, Fault.FORBIDDEN))
        for fault, (number, at) in product(_FAULTS, enumerate(later)):
            if fault is not _FAULTS[0] and seconds_run() - began > _TRYING:
                break
            # A listing takes long, so each call meets only one of the denials.
            meets = denials[number % len(denials)] if fault is Fault.DENIED else fault
            see_listing_raise_or_stay(
                harness, driver, live, before, call=(at, calls[at]), fault=meets
            )
    return f"of {len(harness.things())} things"


@rule(
    "WHF-452",
    Level.MUST,
    "While the backend returns errors, the driver raises when the framework asks whether a node or "
    "a device exists, which function it has, or whether it is clean.",
    "The framework removes a node that the driver reports as gone, and releases a device that the "
    "driver reports as clean.",
    profile=Profile.EXTENDED,
    after=("WHF-401", "WHF-402"),
)
def errors_answer_nothing(subject: Subject) -> None:
    """Check that the driver gives no wrong answers while backend calls fail."""
    harness = subject.harness
    faults = subject.possible((*_FAULTS, Fault.FORBIDDEN))
    with subject.driver() as driver:
        described = describe(driver, subject.placement.contents())
        for call, ask, wrong in _questions(subject, driver, described):
            harness.expect()
            try:
                answer = ask()
            except Exception:
                answer = None
            calls = len(harness.calls)
            # The inherited provider_is_available makes no call, and returns False.
            is_asked = call.startswith("node_is") or (call.startswith("provider_is") and calls)
            if answer is False and is_asked:
                raise Violation(
                    f"{call} returns False, but the backend has this node or device",
                    "True while the backend has the node or device",
                )
            # An answer from memory meets no fault.
            for fault, at in product(faults, [None, *range(calls)] if calls else []):
                harness.expect(at, fault)
                try:
                    answer = ask()
                    has_asked = len(harness.calls) > (at or 0)
                except Exception:
                    continue
                finally:
                    harness.expect()
                if has_asked and wrong(answer, at is None):
                    backend_call = "every backend call" if at is None else f"backend call {at}"
                    raise Violation(
                        f"{backend_call} gets {fault}, and {call} returns {shown(answer)}",
                        "an error from the driver",
                    )


def _questions(
    subject: Subject, driver: ComputeDriver, described: dict[str, DesiredProvider]
) -> Iterator[tuple[str, Callable[[], object], Callable[[object, bool], bool]]]:
    thing = subject.harness.things()[0]
    if thing not in described:
        return
    its = described[thing].provider
    if its.parent_uuid is None:
        ask = partial(driver.node_is_available, thing)
        yield f"node_is_available({thing})", ask, lambda answer, _: answer is False
    else:
        ask = partial(driver.provider_is_available, its.uuid, thing)
        yield f"provider_is_available of {thing}", ask, lambda answer, _: answer is False
    # If only one call fails, a driver may repeat the call and get the right answer.
    if driver.capabilities.supports("programming"):
        ask_function = partial(driver.current_function, its.uuid)
        held = _answer(ask_function)
        yield (
            f"current_function of {thing}",
            ask_function,
            lambda answer, is_every: is_every or answer != held,
        )
    if driver.capabilities.supports("cleans_after_release"):
        is_clean = partial(driver.is_clean, its.uuid, datetime.now(UTC))
        known = _answer(is_clean)
        yield (
            f"is_clean of {thing}",
            is_clean,
            lambda answer, is_every: answer is True and (is_every or known is not True),
        )


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except Exception:
        return None
