"""Rules of what a driver declares (WHF-1..)."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Final

from oslo_utils import versionutils

from wharfinger.conf import InstanceSection
from wharfinger.conf.instance import OPTIONS as FRAMEWORKS
from wharfinger.conformance.rules import Level, Violation, rule
from wharfinger.conformance.subject import Subject, describe, listed
from wharfinger.driver import ComputeDriver, loader
from wharfinger.objects import ComputeNode, Migration, Service, WharfingerObject

#: What the interpreter tells of that leaves the process.
_LEAVES: Final = ("os.exec", "os.fork", "os.posix_spawn", "os.system", "socket.connect")
_LEAVES_TOO: Final = ("socket.getaddrinfo", "subprocess.Popen", "urllib.Request")


@rule(
    "WHF-101",
    Level.MUST,
    "The driver is found by its name, and its class fits the contract.",
    "An operator sees what is wrong with a driver when it is loaded, and not at three in the "
    "morning.",
)
def declared(subject: Subject) -> None:
    """See that the loader finds nothing wrong."""
    for problem in loader.check(subject.name):
        raise Violation(f"{problem.subject}: {problem.found}", problem.expected)


@rule(
    "WHF-102",
    Level.MUST,
    "Making an instance reads its configuration, and does nothing else.",
    "Commands that only look at the configuration make instances, too; a backend that is away is "
    "no reason for them to fail.",
    after=("WHF-101",),
)
def quiet(subject: Subject) -> None:
    """Watch what leaves the process while an instance is made."""
    before = {*threading.enumerate()}
    with _watching() as seen:
        subject.load()
    if subject.has_harness:
        seen += subject.harness.calls
    seen += [f"thread {one.name} started" for one in {*threading.enumerate()} - before]
    if seen:
        raise Violation(", ".join(seen))


@rule(
    "WHF-103",
    Level.MUST,
    "Objects that the driver returns have nothing that their declared versions have not, and those "
    "that it is given may lack what is newer.",
    "Old and new services run side by side, and each object says what it holds by its version.",
    after=("WHF-101",),
)
def versions_kept(subject: Subject) -> None:
    """Give it objects of its versions, and look at the fields of those that it returns."""
    declared = subject.kind.object_versions
    driver = subject.load().driver
    service = Service(host=driver.host, binary="wharfinger", version=1)
    driver.init_host(_older(service, declared.get("Service")))
    try:
        for node in listed(driver).nodes:
            resource = driver.get_available_resource(node.name)
            _see_fields(resource, declared)
        migration = Migration(
            uuid="a3f0c2fe-55d8-4d4e-8d85-8a1d3a7dbb67",
            instance_uuid="0d5fdc3c-a3d3-4cd9-8ed6-6a3a0b2e7a55",
            migration_type="migration",
            status="accepted",
        )
        describe(driver, migrations=[_older(migration, declared.get("Migration"))])
    finally:
        driver.cleanup_host()


@rule(
    "WHF-104",
    Level.SHOULD,
    "The driver declares the versions of the kinds of objects that it returns (object_versions).",
    "Without that, an object of another version is noticed when it is used, and not when the "
    "driver is loaded.",
    after=("WHF-101",),
)
def versions_declared(subject: Subject) -> None:
    """Look for each kind of object that its methods return."""
    declared = subject.kind.object_versions
    if subject.kind.get_available_resource is ComputeDriver.get_available_resource:
        return
    with subject.driver() as driver:
        resources = [driver.get_available_resource(node.name) for node in listed(driver).nodes]
    for kind in sorted({kind for one in resources for kind in _kinds(one)} - declared.keys()):
        raise Violation(f"object_versions has no {kind}", f"such as {{{kind!r}: '1.0'}}")


@rule(
    "WHF-105",
    Level.MAY,
    "The driver lists its options under the entry point group oslo.config.opts.",
    "They are in generated samples of the configuration then.",
    after=("WHF-101",),
)
def options_listed(subject: Subject) -> None:
    """Look for the options that an instance registers among those that its package lists."""
    conf = subject.configured()
    InstanceSection.read(conf, subject.instance_name)
    subject.load()
    instance = subject.load()
    registered = {one.key for one in instance.driver.conf.effective(subject.instance_name)}
    missing = registered - {option.dest for option in FRAMEWORKS} - set(_listed(subject.kind))
    if missing:
        raise Violation(f"nobody lists {', '.join(sorted(missing))}")


@contextmanager
def _watching() -> Iterator[list[str]]:
    """What leaves the process meanwhile, from this thread."""
    _install()
    seen: list[str] = []
    _SEEN.by_thread = seen
    try:
        yield seen
    finally:
        _SEEN.by_thread = None


class _Seen(threading.local):
    by_thread: list[str] | None = None


_SEEN: Final = _Seen()
_INSTALLED: Final[list[bool]] = []


def _install() -> None:
    """Have the interpreter tell; such a hook stays for good."""
    if not _INSTALLED:
        _INSTALLED.append(True)
        sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _SEEN.by_thread is not None and event in (*_LEAVES, *_LEAVES_TOO):
        _SEEN.by_thread.append(f"{event} {arguments[1] if len(arguments) > 1 else ''}".strip())


def _older(given: WharfingerObject, version: str | None) -> Any:
    """An object as a service has it that knows no later version."""
    primitive = given.obj_to_primitive(target_version=version)
    return type(given).obj_from_primitive(primitive)


def _kinds(resource: ComputeNode) -> Iterator[str]:
    """The kinds of an object and of those in it."""
    yield resource.obj_name()
    for field in resource.obj_what_changed():
        value = getattr(resource, field)
        if isinstance(value, WharfingerObject):
            yield value.obj_name()
            yield from (one.obj_name() for one in getattr(value, "objects", ())[:1])


def _see_fields(resource: ComputeNode, declared: Any) -> None:
    version = declared.get(resource.obj_name())
    if version is None:
        return
    target = versionutils.convert_version_to_tuple(version)
    for step in resource.HISTORY:
        if versionutils.convert_version_to_tuple(step.version) > target:
            for field in step.fields:
                if field in resource:
                    raise Violation(
                        f"{resource.obj_name()} {version} is declared, and {field} is set",
                        f"{resource.obj_name()} {step.version}, which has it",
                    )


def _listed(kind: type[ComputeDriver]) -> Iterator[str]:
    """The options that the driver's package lists, by name."""
    mine = {one.dist.name for one in entry_points(group=loader.NAMESPACE) if one.dist}
    package = kind.__module__.partition(".")[0]
    for entry_point in entry_points(group="oslo.config.opts"):
        if entry_point.dist and entry_point.dist.name in mine and package in entry_point.value:
            for _section, options in entry_point.load()():
                yield from (str(option.dest) for option in options)
