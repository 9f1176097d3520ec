"""Rules on the function of a device after programming, also a failed one (WHF-925 to 929)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from wharfinger.conformance.device_function import UNKNOWN, held_function
from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, as_contents, describe, provider_of, uuid_of
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import shown
from wharfinger.providers import Provider

#: Faults of calls that the backend does not execute.
_NOT_DONE: Final = (Fault.RAISE, Fault.ERROR, Fault.DENIED)
#: The name of a function that no image holds.
_NO_FUNCTION: Final = "function-of-no-image"
#: Calls of one job that are broken in their turn.
_MOST: Final = 20


@rule(
    "WHF-925",
    Level.MUST,
    "The driver returns as current_function what the device holds, and not what the driver was "
    "asked to load: also after another instance has programmed the device, and after a reset.",
    "Instances find the device by that function. A note of a request is right only until another "
    "program changes the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def says_what_is_held(subject: Subject) -> None:
    """Program a thing with one instance, then with another one, and reset the backend."""
    thing = subject.harness.things()[0]
    with subject.driver() as first:
        uuid = uuid_of(subject, first, thing)
        before = held_function(first, uuid)
        image, function = subject.harness.image(thing)
        _see_another(thing, before, function)
        first.program(uuid, image, function)
        with subject.driver() as second:
            uuid_of(subject, second, thing)
            # A backend may report the function of its last look at the device.
            _see(f"{thing}, asked of a second instance", second, uuid, (function, before))
            another, other = subject.harness.image(thing)
            if other != function and _programs(second, uuid, another, other):
                text = f"{thing}, after another instance has loaded {other}"
                _see(text, first, uuid, (other,))
                if _programs(first, uuid, image, function):
                    text = f"{thing}, after the first instance has loaded {function} again"
                    _see(text, second, uuid, (function,))
            _see_no_echo(second, thing, uuid, image)
        subject.begin()
        if thing not in subject.harness.things():
            return
        with subject.driver() as third:
            is_same = uuid_of(subject, third, thing) == uuid
            _, absent = subject.harness.image(thing)
            for driver in (first, third) if is_same else ():
                _see_another(f"{thing}, after a reset", held_function(driver, uuid), absent)


@rule(
    "WHF-926",
    Level.MUST,
    "After program has raised, the driver returns the requested function as current_function only "
    "if the device holds it.",
    "The framework decides by that function whether it releases the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-922", "WHF-925"),
)
def says_no_failure(subject: Subject) -> None:
    """Program while all calls fail, then while one call after the other fails; compare answers."""
    for fault in _NOT_DONE:
        _see_failed(subject, None, fault)
    for fault in (Fault.RAISE, Fault.HALF):
        at, calls = 0, 1
        while at < min(calls, _MOST):
            calls = _see_failed(subject, at, fault)
            at += 1


@rule(
    "WHF-927",
    Level.MUST,
    "The driver programs the device of the requested provider and no other, also after devices "
    "were added and removed.",
    "Backends number their devices anew. An image in another device ends the work of its user.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-401", "WHF-402", "WHF-925"),
)
def programs_what_is_meant(subject: Subject) -> None:
    """Add a thing, remove the first one, and program each of the others."""
    harness = subject.harness
    with subject.driver() as driver:
        describe(driver, subject.placement.contents())
        subject.add()
        describe(driver, subject.placement.contents())
        harness.remove(harness.things()[0])
        done: set[str] = set()
        for thing in reversed(harness.things()):
            if uuid_of(subject, driver, thing) not in done:
                done |= see_programmed(subject, driver, thing)


@rule(
    "WHF-928",
    Level.MUST,
    "The driver raises in current_function if the backend refuses the question.",
    "A device that lost its power holds nothing, whatever the driver remembers.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def says_nothing_unasked(subject: Subject) -> None:
    """Program a thing, and let every call fail by which the driver reads its function."""
    harness = subject.harness
    thing = harness.things()[0]
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        image, function = harness.image(thing)
        driver.program(uuid, image, function)
        for fault in _NOT_DONE:
            harness.expect(None, fault)
            held = held_function(driver, uuid)
            calls = [*harness.calls]
            harness.expect()
            if calls and held is not UNKNOWN:
                raise Violation(
                    f"call {calls[0]} met {fault}: current_function: {shown(held)}", "an error"
                )


@rule(
    "WHF-929",
    Level.MUST,
    "The providers of a device keep their names and uuids when the driver programs the device.",
    "A provider with another name is another provider: the first one is removed, with all that "
    "operators and other programs know of it.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def keeps_names(subject: Subject) -> None:
    """Program each thing in turn, and compare all providers by what they are.

    An image may bring other functions, with other inventory or traits. A provider that differs
    from a removed one in its name only is the same provider.
    """
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
                text = f"{thing} was programmed: {difference(before, after)}"
                raise Violation(text, f"{renamed.name} ({renamed.uuid})")
            before = after


def _renamed(before: Contents, after: Contents) -> Provider | None:
    """Return a provider that has another uuid, or another name and nothing else that is new."""
    news = [one for name, one in after.items() if name not in before]
    for name, old in before.items():
        if name in after and after[name].uuid != old.uuid:
            return old
        if name not in after and any(
            replace(new, name=old.name, uuid=old.uuid) == old for new in news
        ):
            return old
    return None


def see_programmed(subject: Subject, driver: ComputeDriver, thing: str) -> set[str]:
    """Program a thing; raises Violation unless it has the function and the others are unchanged.

    Returns the scope.
    """
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
        raise NotShown(f"the harness has an image of {function}, which {thing} holds already")
    driver.program(uuids[thing], image, function)
    scope = {*driver.programming_scope(uuids[thing])}
    for name, uuid in uuids.items():
        held = held_function(driver, uuid)
        expected = function if name == thing else before[name]
        is_of_device = name != thing and uuid in scope
        is_known = UNKNOWN not in (held, expected)
        if is_known and held != expected and not is_of_device:
            raise Violation(f"{name}: current_function: {shown(held)}", str(expected))
    old = before[thing]
    if isinstance(old, str):
        both = {driver.function_trait(uuids[thing], one) for one in (old, function)}
        traits = describe(driver, subject.placement.contents())[thing].provider.traits
        if len(both) > 1 and both <= traits:
            raise Violation(f"{thing}: {', '.join(sorted(both))}", "one of them")
    return scope


def _see_no_echo(driver: ComputeDriver, thing: str, uuid: str, image: str) -> None:
    """Program with the name of a function that no image holds: the device cannot hold it."""
    if _programs(driver, uuid, image, _NO_FUNCTION):
        held = held_function(driver, uuid)
        if held == _NO_FUNCTION:
            raise Violation(
                f"{thing} was programmed with a function that its image does not have, and "
                f"current_function is {held}",
                "the function that the device holds, or an error",
            )


def _see_failed(subject: Subject, at: int | None, fault: Fault) -> int:
    """Program while a call fails; raises Violation if the driver then reports a wrong function.

    Returns the number of calls. Without ``at``, all calls fail.
    """
    subject.begin()
    says, later_says, function, calls = _fail(subject, at, fault)
    text = "every call" if at is None else f"call {at}"
    if says == function and later_says not in (function, UNKNOWN):
        raise Violation(
            f"{text} met {fault}: current_function: {shown(says)}, and {shown(later_says)} when "
            "another instance is asked",
            "the same, or an error",
        )
    if function in (says, later_says) and at is None and fault is Fault.RAISE:
        raise Violation(f"{text} met {fault}: current_function: {shown(function)}", "another")
    return calls


def _fail(subject: Subject, at: int | None, fault: Fault) -> tuple[object, object, object, int]:
    """Program with a fault.

    Returns the function by the driver, the function by a new instance, the requested function,
    and the number of calls. If ``program`` returns, the third one equals no function.
    """
    harness = subject.harness
    thing = harness.things()[0]
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        image, function = harness.image(thing)
        harness.expect(at, fault)
        raised = False
        try:
            driver.program(uuid, image, function)
        except Exception:
            raised = True
        calls = len(harness.calls)
        harness.expect()
        says = held_function(driver, uuid)
    with subject.driver() as later:
        uuid_of(subject, later, thing)
        return says, held_function(later, uuid), function if raised else object(), calls


def _programs(driver: ComputeDriver, uuid: str, image: str, function: str) -> bool:
    try:
        driver.program(uuid, image, function)
    except Exception:
        return False
    return True


def _see(text: str, driver: ComputeDriver, uuid: str, right: Sequence[object]) -> None:
    held = held_function(driver, uuid)
    if held is not UNKNOWN and held not in right:
        raise Violation(f"{text}: current_function: {shown(held)}", f"{right[0]}, or an error")


def _see_another(text: str, held: object, function: str) -> None:
    """Raise Violation if a device holds a function for which the harness has an image."""
    if held == function:
        raise Violation(
            f"{text}: current_function: {function}",
            "another one: the harness has an image of this for the device, and does not have "
            "images of what a device holds",
        )
