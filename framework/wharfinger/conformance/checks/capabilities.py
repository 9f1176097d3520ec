"""Rules on declared capabilities (WHF-901 to 904, 921 to 924, 931 and 932)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

from wharfinger.conformance.checks.programming import NO_FUNCTION, check_programming
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

#: Times so far ahead that no cleaning can be later.
_LATER: Final = (timedelta(minutes=2), timedelta(days=1))
#: Listings after which a driver reports a thing as free that was made free.
_LOOKS: Final = 3
#: The uuid of a provider that does not exist.
_NOBODYS: Final = "0d5cfdf0-7a3e-4c3c-9a86-3f5a7f6f7b11"


@rule(
    "WHF-901",
    Level.MUST,
    "A driver that supports nested_providers publishes child providers.",
    "A capability says what the driver does, not what it may do some day.",
    profile=Profile.EXTENDED,
    supports="nested_providers",
    after=("WHF-203",),
)
def nests(subject: Subject) -> None:
    """Check that a driver that supports nested_providers describes child providers."""
    if not _children(subject):
        raise Violation(
            "the driver supports nested_providers, but describes no child provider with inventory "
            "or traits",
            "at least one child provider, or nested_providers declared as unsupported",
        )


@rule(
    "WHF-902",
    Level.MUST,
    "A driver that does not support nested_providers publishes no child providers.",
    "The framework and operators rely on the declared capabilities.",
    denies="nested_providers",
    after=("WHF-203",),
)
def nests_not(subject: Subject) -> None:
    """Check that a driver without nested_providers describes no child providers."""
    if children := _children(subject):
        raise Violation(f"+ {', '.join(children)}", "only root providers")


@rule(
    "WHF-903",
    Level.MUST,
    "A driver that does not support reshape never raises ReshapeNeeded.",
    "The framework could not publish the node at all.",
    denies="reshape",
    after=("WHF-203",),
)
def reshapes_not(subject: Subject) -> None:
    """Check that a driver without reshape does not raise ReshapeNeeded."""
    with subject.driver() as driver:
        try:
            described = describe(driver, subject.placement.contents())
            there = {name: one.provider for name, one in described.items()}
            for live in (there, _with_all_inventory_on_roots(there)):
                describe(driver, live)
        except ReshapeNeeded as error:
            raise Violation("update_provider_tree raises ReshapeNeeded", "no error") from error


def _with_all_inventory_on_roots(contents: Contents) -> Contents:
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
    "A caller that uses an unsupported capability gets an error, and the driver does nothing.",
    after=("WHF-101",),
)
def refused(subject: Subject) -> None:
    """Check that the driver refuses calls for capabilities that it does not support."""
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
        raise Violation(
            "is_clean returns True, but the driver declares cleans_after_release as unsupported",
            "False from is_clean",
        )


@rule(
    "WHF-921",
    Level.MUST,
    "When program has returned, current_function of the device returns the requested function or "
    "raises. No other device has lost its function.",
    "The returned function becomes the trait by which instances find the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-208",),
)
def programs(subject: Subject) -> None:
    """Check the functions that devices report after ``program``."""
    for index in (-1, 0):
        subject.begin()
        with subject.driver() as driver:
            check_programming(subject, driver, subject.harness.things()[index])


@rule(
    "WHF-922",
    Level.MUST,
    "program raises if it cannot program the device: for a provider of another driver, for a "
    "removed device, for an image that does not exist, and while the backend does not answer.",
    "The framework takes a device as programmed when program returns.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-208",),
)
def programs_not(subject: Subject) -> None:
    """Check that ``program`` raises if it cannot program the device."""
    harness = subject.harness
    thing = harness.things()[0]
    image, function = harness.image(thing)
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        _refused(driver, "for a provider of another driver", _NOBODYS, image, function)
        _refused(driver, "with an image that does not exist", uuid, str(uuid4()), function)
        harness.expect(None, Fault.RAISE)
        _refused(driver, "while the backend does not answer", uuid, image, function)
        harness.expect()
        harness.remove(thing)
        _refused(driver, "for a device that was removed", uuid, image, function)


@rule(
    "WHF-923",
    Level.MUST,
    "programming_scope returns the uuid of the provider itself, and only uuids of existing "
    "providers. function_trait returns the name of a trait.",
    "The framework reserves all providers of the scope while the driver programs the device.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-208",),
)
def programs_these(subject: Subject) -> None:
    """Check the results of ``programming_scope`` and ``function_trait``."""
    harness = subject.harness
    with subject.driver() as driver:
        described = describe(driver, subject.placement.contents())
        known = {one.provider.uuid for one in described.values()}
        for thing in harness.things():
            uuid = provider_of(described, thing).uuid
            scope = {*driver.programming_scope(uuid)}
            if uuid not in scope or not scope <= known:
                raise Violation(
                    f"programming_scope of {thing} ({uuid}) returns {sorted(scope)}",
                    f"the uuid {uuid} itself, and only uuids of providers that the driver "
                    "describes",
                )
            check_trait(driver.function_trait(uuid, harness.image(thing)[1]), thing)


@rule(
    "WHF-924",
    Level.MUST,
    "The driver raises ProgrammingRefused only if it has not changed the device: never after it "
    "has lost an answer of the backend.",
    "The framework releases a refused device at once. If the device was programmed, the next user "
    "gets it with the wrong function.",
    profile=Profile.EXTENDED,
    supports="programming",
    after=("WHF-921",),
)
def refuses_what_was_not_begun(subject: Subject) -> None:
    """Check that the device is unchanged if ``program`` raises ProgrammingRefused."""
    _check_refused_device_is_unchanged(subject, requested=NO_FUNCTION)
    at, calls = 0, 1
    while at < calls:
        calls = _check_refused_device_is_unchanged(subject, at)
        at += 1


def _check_refused_device_is_unchanged(
    subject: Subject, at: int | None = None, requested: str | None = None
) -> int:
    subject.begin()
    harness = subject.harness
    thing = harness.things()[0]
    image, function = harness.image(thing)
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        harness.expect(at, None if at is None else Fault.HALF)
        refused = False
        try:
            driver.program(uuid, image, requested or function)
        except ProgrammingRefused:
            refused = True
        except Exception:
            pass  # the framework then asks for the function of the device
        calls = len(harness.calls)
        harness.expect()
        if refused and held_function(driver, uuid) == function:
            raise Violation(
                f"program was called with function {requested or function} and raises "
                f"ProgrammingRefused, but {thing} now has {function}, the function of the image",
                "ProgrammingRefused only if the device is unchanged, otherwise another error such "
                "as BackendError",
            )
    return calls


@rule(
    "WHF-931",
    Level.MUST,
    "is_clean returns False for a busy thing, and for a provider that does not exist.",
    "The next user would get the data of the last one.",
    profile=Profile.EXTENDED,
    supports="cleans_after_release",
    after=("WHF-501",),
)
def cleans(subject: Subject) -> None:
    """Check that ``is_clean`` returns False for busy and unknown providers."""
    harness = subject.harness
    if not harness.busy.supported:
        raise NotShown(
            "the driver supports cleans_after_release, but the harness declares busy as unsupported"
        )
    since = datetime.now(UTC)
    thing = harness.things()[0]
    harness.make_busy(thing)
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        busy = f"busy {thing}"
        for what, provider in ((busy, uuid), ("a provider that does not exist", _NOBODYS)):
            if _is_clean(driver, provider, since):
                raise Violation(
                    f"is_clean returns True for {what}",
                    "False for a busy thing and for a provider that does not exist",
                )


@rule(
    "WHF-932",
    Level.MUST,
    "is_clean returns True only for a thing that was cleaned after the given time, and not for a "
    "thing that is merely free.",
    "Cleaning begins some time after a device is released. Until then it has the data of its last "
    "user.",
    profile=Profile.EXTENDED,
    supports="cleans_after_release",
    cleaning=True,
    after=("WHF-931",),
)
def cleaned_since(subject: Subject) -> None:
    """Check that ``is_clean`` is not True merely because a device is free."""
    harness = subject.harness
    thing = harness.things()[0]
    with subject.driver() as driver:
        uuid = uuid_of(subject, driver, thing)
        _check_not_clean(driver, uuid, f"{thing} (free so far)")
        if harness.busy.supported:
            harness.make_busy(thing)
            uuid_of(subject, driver, thing)
            harness.make_free(thing)
        for _ in range(_LOOKS):
            uuid_of(subject, driver, thing)
        _check_not_clean(driver, uuid, f"{thing} (free again)")
    with subject.driver() as driver:
        uuid_of(subject, driver, thing)
        _check_not_clean(driver, uuid, f"{thing} (free since the start of the driver)")


def _is_clean(driver: ComputeDriver, uuid: str, since: datetime) -> bool:
    try:
        return driver.is_clean(uuid, since)
    except Exception:  # the framework keeps the device reserved, as after False
        return False


def _check_not_clean(driver: ComputeDriver, uuid: str, thing: str) -> None:
    for later in _LATER:
        if _is_clean(driver, uuid, datetime.now(UTC) + later):
            raise Violation(
                f"is_clean of {thing} returns True for a time {later} in the future",
                "False, since no cleaning can have taken place after a future time. If free things "
                "of the backend never have to be cleaned, set the harness's attribute cleaning to "
                "unsupported(REASON)",
            )


def _children(subject: Subject) -> list[str]:
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
    raise Violation(f"program returns {what}", "an error")
