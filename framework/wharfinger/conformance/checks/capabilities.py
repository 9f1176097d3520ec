"""Rules of capabilities: supported ones work, and unsupported ones do nothing (WHF-9..)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from wharfinger.conformance.checks.programming import see_programmed
from wharfinger.conformance.device_function import held_function
from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, describe, provider_of, uuid_of
from wharfinger.driver import ComputeDriver
from wharfinger.driver.capabilities import METHODS
from wharfinger.exceptions import ProgrammingRefused, ReshapeNeeded, shown
from wharfinger.providers.names import check_trait

#: A time after each cleaning, also by the backend's clock.
_LATER: Final = (timedelta(minutes=2), timedelta(days=1))
#: Snapshots in which a driver may see that a thing is free before it offers it.
_LOOKS: Final = 3
#: The uuid of a provider that does not exist.
_NOBODYS: Final = "0d5cfdf0-7a3e-4c3c-9a86-3f5a7f6f7b11"


@rule(
    "WHF-901",
    Level.MUST,
    "Where nested_providers is supported there are children.",
    "A capability is declared for what is done, and not for what may be done some day.",
    profile=Profile.EXTENDED,
    supports="nested_providers",
    after=("WHF-203",),
)
def nests(subject: Subject) -> None:
    """Look for a child."""
    if not _children(subject):
        raise Violation("roots alone", "children with inventory or traits")


@rule(
    "WHF-902",
    Level.MUST,
    "Where nested_providers is not supported there are no children.",
    "The framework and operators go by what is declared.",
    denies="nested_providers",
    after=("WHF-203",),
)
def nests_not(subject: Subject) -> None:
    """Look for a child."""
    if children := _children(subject):
        raise Violation(f"+ {', '.join(children)}", "roots alone")


@rule(
    "WHF-903",
    Level.MUST,
    "Where reshape is not supported ReshapeNeeded is never raised.",
    "The node could not be published at all.",
    denies="reshape",
    after=("WHF-203",),
)
def reshapes_not(subject: Subject) -> None:
    """Let the driver describe each node three times: new, as published, and all on its root."""
    with subject.driver() as driver:
        try:
            described = describe(driver, subject.placement.contents())
            there = {name: one.provider for name, one in described.items()}
            for live in (there, _on_roots(there)):
                describe(driver, live)
        except ReshapeNeeded as error:
            raise Violation("it raises ReshapeNeeded", "an edited tree") from error


def _on_roots(contents: Contents) -> Contents:
    """The same inventories as they may have been published before there were children."""
    roots = {one.uuid: one for one in contents.values() if one.parent_uuid is None}
    for one in contents.values():
        if root := roots.get(one.root_uuid):
            inventories = {**one.inventories, **root.inventories}
            roots[root.uuid] = replace(root, inventories=inventories)
    return {root.name: root for root in roots.values()}


@rule(
    "WHF-904",
    Level.MUST,
    "The methods of a capability that is not supported raise NotImplementedError, and is_clean is "
    "never True without cleans_after_release.",
    "A caller gets an error for its mistake, and the driver does nothing.",
    after=("WHF-101",),
)
def refused(subject: Subject) -> None:
    """Call the methods of unsupported capabilities."""
    driver = subject.load().driver
    calls: dict[str, Callable[[], object]] = {
        "changed_nodes": lambda: driver.changed_nodes(None),
        "program": lambda: driver.program(_NOBODYS, str(uuid4()), None),
        "current_function": lambda: driver.current_function(_NOBODYS),
    }
    for capability, methods in METHODS.items():
        for method in methods if not driver.capabilities.supports(capability) else ():
            try:
                answer = calls[method]()
            except NotImplementedError:
                continue
            raise Violation(f"{method} returns {shown(answer)}", "NotImplementedError")
    cleans = driver.capabilities.supports("cleans_after_release")
    if not cleans and driver.is_clean(_NOBODYS, datetime.now(UTC)):
        raise Violation("is_clean returns True", "False")


@rule(
    "WHF-921",
    Level.MUST,
    "After program the device holds the function, or the driver raises: current_function never "
    "returns another one. No other device has lost its own.",
    "The returned function becomes the trait by which instances find the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-208",),
)
def programs(subject: Subject) -> None:
    """Program the last thing and, after a reset, the first; compare the functions of all things."""
    for index in (-1, 0):
        subject.begin()
        with subject.driver() as driver:
            see_programmed(subject, driver, subject.harness.things()[index])


@rule(
    "WHF-922",
    Level.MUST,
    "program raises if it cannot program: a provider of another driver, an image that does not "
    "exist, a backend that is away.",
    "A job that returns has programmed the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-208",),
)
def programs_not(subject: Subject) -> None:
    """Program an unknown provider, with an unknown image, and while the backend is away."""
    harness = subject.harness
    thing = harness.things()[0]
    image, function = harness.image(thing)
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        _refused(driver, "another's provider", _NOBODYS, image, function)
        _refused(driver, "an image that does not exist", uuid, str(uuid4()), function)
        harness.expect(None, Fault.RAISE)
        _refused(driver, "a backend that is away", uuid, image, function)


@rule(
    "WHF-923",
    Level.MUST,
    "programming_scope has the provider itself, and only existing providers; function_trait names "
    "a trait.",
    "All of the scope is reserved while one of it is programmed.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-208",),
)
def programs_these(subject: Subject) -> None:
    """Ask for the scope of each thing."""
    harness = subject.harness
    with subject.driver() as driver:
        described = describe(driver, subject.placement.contents())
        known = {one.provider.uuid for one in described.values()}
        for thing in harness.things():
            uuid = provider_of(described, thing).uuid
            scope = {*driver.programming_scope(uuid)}
            if uuid not in scope or not scope <= known:
                raise Violation(f"{thing}: {sorted(scope)}", f"{uuid}, and others of {thing} only")
            check_trait(driver.function_trait(uuid, harness.image(thing)[1]), thing)


@rule(
    "WHF-924",
    Level.MUST,
    "ProgrammingRefused is raised only of a device that was not touched: never where an answer was "
    "lost.",
    "The framework releases a refused device at once, and the next user gets it with another "
    "function.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def refuses_what_was_not_begun(subject: Subject) -> None:
    """Break off the answer to each call of a job that the backend has done."""
    at, calls = 0, 1
    while at < calls:
        subject.begin()
        thing = subject.harness.things()[0]
        image, function = subject.harness.image(thing)
        with subject.driver() as driver:
            uuid = uuid_of(subject, driver, thing)
            subject.harness.expect(at, Fault.HALF)
            refused = False
            try:
                driver.program(uuid, image, function)
            except ProgrammingRefused:
                refused = True
            except Exception:
                pass  # it is unknown, or has failed: the framework looks
            calls = len(subject.harness.calls)
            subject.harness.expect()
            if refused and held_function(driver, uuid) == function:
                raise Violation(f"{thing} holds {function}, and was refused", "BackendError")
        at += 1


@rule(
    "WHF-931",
    Level.MUST,
    "is_clean is True of nothing that is busy, and of nothing that is not there.",
    "The next user would get the last one's data.",
    profile=Profile.EXTENDED,
    supports="cleans_after_release",
    after=("WHF-501",),
)
def cleans(subject: Subject) -> None:
    """Ask while a thing is busy, and for a provider that does not exist."""
    harness = subject.harness
    if not harness.busy.supported:
        raise NotShown("the driver declares cleaning, but the harness makes nothing busy")
    since = datetime.now(UTC)
    thing = harness.things()[0]
    harness.make_busy(thing)
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        for what, provider in ((thing, uuid), ("a provider that does not exist", _NOBODYS)):
            if _is_clean(driver, provider, since):
                raise Violation(f"is_clean of {what} returns True", "False")


@rule(
    "WHF-932",
    Level.MUST,
    "The driver returns True from is_clean only for a thing that was cleaned after that moment, "
    "and not for a thing that is merely free.",
    "Cleaning begins some time after a device is released. Until then it has the data of its last "
    "user.",
    profile=Profile.EXTENDED,
    supports="cleans_after_release",
    cleaning=True,
    after=("WHF-931",),
)
def cleaned_since(subject: Subject) -> None:
    """Ask for a thing that was not cleaned after the given time: never busy, and free again."""
    harness = subject.harness
    thing = harness.things()[0]
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        _see_not_clean(driver, uuid, f"{thing}, which has been free")
        if harness.busy.supported:
            harness.make_busy(thing)
            uuid_of(subject, driver, thing)
            harness.make_free(thing)
        for _ in range(_LOOKS):
            uuid_of(subject, driver, thing)
        _see_not_clean(driver, uuid, f"{thing}, which is free again")
    with subject.driver() as driver:
        uuid_of(subject, driver, thing)
        _see_not_clean(driver, uuid, f"{thing}, which was free at the start")


def _is_clean(driver: ComputeDriver, uuid: str, since: datetime) -> bool:
    """Return the answer of the driver, False if it raises: the provider stays reserved."""
    try:
        return driver.is_clean(uuid, since)
    except Exception:
        return False


def _see_not_clean(driver: ComputeDriver, uuid: str, text: str) -> None:
    """Raise Violation if a thing is reported as clean after a time that is still to come."""
    for later in _LATER:
        if _is_clean(driver, uuid, datetime.now(UTC) + later):
            raise Violation(
                f"{text}, is reported as clean after {later} from now",
                "False; or a harness that declares that free things need no cleaning (cleaning)",
            )


def _children(subject: Subject) -> list[str]:
    """The children with inventory or traits."""
    with subject.driver() as driver:
        live = subject.placement.contents()
        described = describe(driver, live)
    return sorted(
        name
        for name, one in described.items()
        if one.stated and one.provider.parent_uuid is not None
    )


def _refused(driver: ComputeDriver, what: str, uuid: str, image: str, function: str) -> None:
    try:
        driver.program(uuid, image, function)
    except Exception:
        return
    raise Violation(f"{what}: program returns", "an error")
