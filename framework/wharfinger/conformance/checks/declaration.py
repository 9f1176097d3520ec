"""Rules on loading a driver and creating an instance of it (WHF-1xx)."""

from collections.abc import Iterator
from importlib.metadata import entry_points

from keystoneauth1 import loading
from oslo_config import cfg

from wharfinger.conf.driver_instance import OPTIONS as FRAMEWORKS
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.rules import Level, rule
from wharfinger.conformance.side_effects import watching
from wharfinger.conformance.subject import Subject
from wharfinger.driver import loader


@rule(
    "WHF-101",
    Level.MUST,
    "The framework finds the driver by its name, and the driver's class fits the contract.",
    "An operator sees the faults of a driver when the framework loads it, not in the middle of "
    "the night.",
)
def declared(subject: Subject) -> None:
    """Check that the framework's loader finds no fault in the driver."""
    for problem in loader.check(subject.name):
        raise Violation(f"{problem.subject}: {problem.found}", problem.expected)


@rule(
    "WHF-102",
    Level.MUST,
    "The constructor of the driver reads the configuration, and does nothing else.",
    "Commands that only read the configuration create instances, too. They must not fail when "
    "the backend does not answer.",
    after=("WHF-101",),
)
def quiet(subject: Subject) -> None:
    """Check that the constructor has no side effects and does not call the backend."""
    subject.load()  # imports the driver's libraries, whose side effects do not count
    conf = subject.configured()
    if subject.has_harness:
        subject.harness.expect()
    with watching() as seen:
        subject.kind(conf, "conformance", subject.instance_name)
    if subject.has_harness:
        seen += subject.harness.calls
    if seen:
        raise Violation(
            f"the constructor has side effects: {', '.join(seen)}",
            "a constructor that only reads the configuration",
        )


@rule(
    "WHF-103",
    Level.MAY,
    "The driver's package lists its options under the entry point group oslo.config.opts.",
    "Then generated configuration samples have the options.",
    after=("WHF-101",),
)
def options_listed(subject: Subject) -> None:
    """Check that the driver's package lists all options that the driver registers."""
    driver = subject.load().driver
    registered = {one.key for one in driver.conf.effective(subject.instance_name)}
    others = {option.dest for option in (*FRAMEWORKS, *_of_plugins())}
    missing = registered - others - {*_listed(subject.name)}
    if missing:
        raise Violation(
            f"the driver's package does not list its options {', '.join(sorted(missing))}",
            "an entry point of the group oslo.config.opts that lists all options of the driver",
        )


def _of_plugins() -> Iterator[cfg.Opt]:
    for name in sorted(loading.get_available_plugin_names()):
        yield from loading.get_auth_plugin_conf_options(name)


def _listed(driver: str) -> Iterator[str]:
    found = entry_points(group=loader.NAMESPACE, name=driver)
    packages = {one.dist.name for one in found if one.dist}
    for entry_point in entry_points(group="oslo.config.opts"):
        if entry_point.dist and entry_point.dist.name in packages:
            for _section, options in entry_point.load()():
                yield from (str(option.dest) for option in options)
