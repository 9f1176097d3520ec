"""Rules of what a driver declares (WHF-1..)."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Final

from keystoneauth1 import loading
from oslo_config import cfg

from wharfinger.conf.instance import OPTIONS as FRAMEWORKS
from wharfinger.conformance.rules import Level, Violation, rule
from wharfinger.conformance.subject import Subject
from wharfinger.driver import ComputeDriver, loader

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
    Level.MAY,
    "The driver lists its options under the entry point group oslo.config.opts.",
    "They are in generated samples of the configuration then.",
    after=("WHF-101",),
)
def options_listed(subject: Subject) -> None:
    """Look for the options that an instance registers among those that its package lists."""
    driver = subject.load().driver
    registered = {one.key for one in driver.conf.effective(subject.instance_name)}
    others = {option.dest for option in (*FRAMEWORKS, *_of_plugins())}
    missing = registered - others - set(_listed(subject.kind))
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


def _of_plugins() -> Iterator[cfg.Opt]:
    """What keystoneauth registers for ways to authenticate; which, the configuration says."""
    for name in sorted(loading.get_available_plugin_names()):
        yield from loading.get_auth_plugin_conf_options(name)


def _listed(kind: type[ComputeDriver]) -> Iterator[str]:
    """The options that the driver's package lists, by name."""
    mine = {one.dist.name for one in entry_points(group=loader.NAMESPACE) if one.dist}
    package = kind.__module__.partition(".")[0]
    for entry_point in entry_points(group="oslo.config.opts"):
        if entry_point.dist and entry_point.dist.name in mine and package in entry_point.value:
            for _section, options in entry_point.load()():
                yield from (str(option.dest) for option in options)
