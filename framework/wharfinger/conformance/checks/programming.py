"""Rules on programmed devices and their reported functions (WHF-925 to 929)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from wharfinger.conformance.device_function import UNKNOWN, held_function
from wharfinger.conformance.exceptions import NotShown, Unproven, Violation
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, as_contents, describe, provider_of, uuid_of
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import shown
from wharfinger.providers import Provider

#: Faults with which the backend does not execute the call.
_NOT_DONE: Final = (Fault.RAISE, Fault.ERROR, Fault.DENIED, Fault.FORBIDDEN)
#: The name of a function that no image has.
NO_FUNCTION: Final = "function-of-no-image"
#: The most calls of one ``program`` that meet a fault in turn.
_MOST: Final = 20


@rule(
    "WHF-925",
    Level.MUST,
    "current_function returns the function that the device has, and not the one that the driver "
    "was asked to load: also after another driver instance has programmed the device, and after a "
    "reset of the backend.",
    "Instances find the device by this function. A remembered request is wrong as soon as another "
    "program changes the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def says_what_is_held(subject: Subject) -> None:
    """Check that ``current_function`` returns the backend's function, not the requested one."""
    thing = subject.harness.things()[0]
    with subject.driver() as first:
        uuid = uuid_of(subject, first, thing)
        before = held_function(first, uuid)
        image, function = subject.harness.image(thing)
        _check_another_function(thing, before, function)
        first.program(uuid, image, function)
        with subject.driver() as second:
            uuid_of(subject, second, thing)
            # A backend may still report the function that it read before.
            text = f"{thing} was programmed with {function}"
            _check_function(text, "second", second, uuid, (function, before))
            another, other = subject.harness.image(thing)
            if other != function and _programs(second, uuid, another, other):
                text = f"the second driver instance has loaded {other} into {thing}"
                _check_function(text, "first", first, uuid, (other,))
                if _programs(first, uuid, image, function):
                    text = f"the first driver instance has loaded {function} again"
                    _check_function(text, "second", second, uuid, (function,))
            _check_no_echo(second, thing, uuid, image)
        subject.begin()
        if thing in subject.harness.things():
            with subject.driver() as third:
                is_same = uuid_of(subject, third, thing) == uuid
                _, absent = subject.harness.image(thing)
                for driver in (first, third) if is_same else ():
                    _check_another_function(
                        f"{thing} after a reset of the backend", held_function(driver, uuid), absent
                    )
    if other == function:
        raise Unproven("the harness's image returns the same function twice for one thing")


@rule(
    "WHF-926",
    Level.MUST,
    "After program has raised, current_function returns the requested function only if the device "
    "has it.",
    "By this function, the framework decides whether it releases the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-922", "WHF-925"),
)
def says_no_failure(subject: Subject) -> None:
    """Check that the driver does not report a function that it failed to load."""
    for fault in subject.possible(_NOT_DONE):
        _check_failed_programming(subject, None, fault)
    for fault in (Fault.RAISE, Fault.HALF):
        at, calls = 0, 1
        while at < min(calls, _MOST):
            calls = _check_failed_programming(subject, at, fault)
            at += 1


@rule(
    "WHF-927",
    Level.MUST,
    "The driver programs only the device of the requested provider, also after devices were added "
    "and removed.",
    "Backends number their devices anew. If the driver programs another device, the work of that "
    "device's user ends.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-401", "WHF-402", "WHF-925"),
)
def programs_what_is_meant(subject: Subject) -> None:
    """Check that the driver programs the right device after additions and removals."""
    harness = subject.harness
    with subject.driver() as driver:
        describe(driver, subject.placement.contents())
        subject.add()
        describe(driver, subject.placement.contents())
        harness.remove(harness.things()[0])
        done: set[str] = set()
        for thing in reversed(harness.things()):
            if uuid_of(subject, driver, thing) not in done:
                done |= check_programming(subject, driver, thing)


@rule(
    "WHF-928",
    Level.MUST,
    "current_function raises if the backend does not tell the function of the device.",
    "A device that has lost its power has no function, whatever the driver remembers.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def says_nothing_unasked(subject: Subject) -> None:
    """Check that ``current_function`` raises if its backend calls fail."""
    harness = subject.harness
    thing = harness.things()[0]
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        image, function = harness.image(thing)
        driver.program(uuid, image, function)
        for fault in subject.possible(_NOT_DONE):
            harness.expect(None, fault)
            held = held_function(driver, uuid)
            calls = [*harness.calls]
            harness.expect()
            if calls and held is not UNKNOWN:
                raise Violation(
                    f"each backend call of current_function gets {fault} (the first call: "
                    f"{calls[0]}), but current_function returns {shown(held)}",
                    "an error from current_function",
                )


@rule(
    "WHF-929",
    Level.MUST,
    "The providers of a device keep their names and uuids when the driver programs the device.",
    "The framework removes a provider whose name changes, and creates another one. Other programs "
    "and operators know only the first one.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def keeps_names(subject: Subject) -> None:
    """Check that programming keeps the names and uuids of providers."""
    with subject.driver() as driver:
        live = subject.placement.contents()
        before = as_contents(describe(driver, live))
        done: set[str] = set()
        for thing in subject.harness.things():
            uuid = before[thing].uuid if thing in before else ""
            if not uuid or uuid in done:
                continue
            done |= {*driver.programming_scope(uuid)}
            driver.program(uuid, *subject.harness.image(thing))
            after = as_contents(describe(driver, {**live, **before}))
            if renamed := _renamed(before, after):
                raise Violation(
                    f"when {thing} was programmed, a provider got another name or uuid: "
                    f"{difference(before, after)}",
                    f"provider {renamed.name} keeps its name and its uuid {renamed.uuid}",
                )
            before = after


def _renamed(before: Contents, after: Contents) -> Provider | None:
    news = [one for name, one in after.items() if name not in before]
    for name, old in before.items():
        if name in after and after[name].uuid != old.uuid:
            return old
        if name not in after and any(
            replace(new, name=old.name, uuid=old.uuid) == old for new in news
        ):
            return old
    return None


def check_programming(subject: Subject, driver: ComputeDriver, thing: str) -> set[str]:
    """Program a device, and check the reported functions; return ``programming_scope``."""
    things = subject.harness.things()
    described = describe(driver, subject.placement.contents())
    for one in things:
        provider_of(described, one)
    uuids = {
        name: one.provider.uuid for name, one in described.items() if one.stated or name in things
    }
    before = {name: held_function(driver, uuid) for name, uuid in uuids.items()}
    image, function = subject.harness.image(thing)
    if before[thing] == function:
        raise NotShown(f"the harness returns an image of {function}, which {thing} already has")
    driver.program(uuids[thing], image, function)
    scope = {*driver.programming_scope(uuids[thing])}
    for name, uuid in uuids.items():
        held = held_function(driver, uuid)
        expected = function if name == thing else before[name]
        is_of_device = name != thing and uuid in scope
        is_known = UNKNOWN not in (held, expected)
        if is_known and held != expected and not is_of_device:
            raise Violation(
                f"{thing} was programmed with function {function}; then current_function of {name} "
                f"returns {shown(held)}",
                f"the function {shown(expected)} of {name}, or an error from current_function",
            )
    old = before[thing]
    if isinstance(old, str):
        both = {driver.function_trait(uuids[thing], one) for one in (old, function)}
        traits = describe(driver, subject.placement.contents())[thing].provider.traits
        if len(both) > 1 and both <= traits:
            raise Violation(
                f"after programming, {thing} has the traits of its old and its new function: "
                f"{', '.join(sorted(both))}",
                "only the trait of the function that the device has now",
            )
    return scope


def _check_no_echo(driver: ComputeDriver, thing: str, uuid: str, image: str) -> None:
    if _programs(driver, uuid, image, NO_FUNCTION):
        held = held_function(driver, uuid)
        if held == NO_FUNCTION:
            raise Violation(
                f"program of {thing} was called with {held}, a function that the image does not "
                f"have, and current_function then returns {held}",
                "the function that the device has, or an error from current_function",
            )


def _check_failed_programming(subject: Subject, at: int | None, fault: Fault) -> int:
    subject.begin()
    harness = subject.harness
    thing = harness.things()[0]
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        image, function = harness.image(thing)
        harness.expect(at, fault)
        has_raised = not _programs(driver, uuid, image, function)
        calls = len(harness.calls)
        harness.expect()
        says = held_function(driver, uuid)
    with subject.driver() as later:
        uuid_of(subject, later, thing)
        later_says = held_function(later, uuid)
    if has_raised and says == function and later_says not in (function, UNKNOWN):
        backend_call = "each backend call" if at is None else f"backend call {at}"
        raise Violation(
            f"{backend_call} of program got {fault}, and program raised; then current_function "
            f"returns {shown(says)} in the same driver instance, and {shown(later_says)} in a new "
            "one",
            "the same function in both instances, or an error from current_function",
        )
    is_unreached = at is None and fault is Fault.RAISE
    if has_raised and is_unreached and function in (says, later_says):
        raise Violation(
            f"the backend was unreachable during program, but current_function then returns the "
            f"requested function {shown(function)}",
            "the function from before program, or an error from current_function",
        )
    return calls


def _programs(driver: ComputeDriver, uuid: str, image: str, function: str) -> bool:
    try:
        driver.program(uuid, image, function)
    except Exception:
        return False
    return True


def _check_function(
    event: str, which: str, driver: ComputeDriver, uuid: str, right: Sequence[object]
) -> None:
    held = held_function(driver, uuid)
    if held is not UNKNOWN and held not in right:
        raise Violation(
            f"{event}; in the {which} driver instance, current_function returns {shown(held)}",
            f"the device's function {right[0]}, or an error from current_function",
        )


def _check_another_function(thing: str, held: object, function: str) -> None:
    if held == function:
        raise Violation(
            f"current_function of {thing} returns {function}, but the harness's image() returns "
            f"{function} only if the device has another function",
            "the function that the device has, or an error from current_function",
        )
