"""Rules of what a driver declares (WHF-1..)."""

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
    "The driver is found by its name, and its class fits the contract.",
    "An operator sees what is wrong with a driver when it is loaded, and not at three in the "
    "morning.",
)
def declared(subject: Subject) -> None:
    """Raise Violation for a fault that the loader finds."""
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
    """Watch what an instance does while it is created."""
    subject.load()  # changes of a first import are not the driver's
    conf = subject.configured()
    if subject.has_harness:
        subject.harness.expect()
    with watching() as seen:
        subject.kind(conf, "conformance", subject.instance_name)
    if subject.has_harness:
        seen += subject.harness.calls
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
    missing = registered - others - {*_listed(subject.name)}
    if missing:
        raise Violation(f"no entry point lists {', '.join(sorted(missing))}")


def _of_plugins() -> Iterator[cfg.Opt]:
    """Options that keystoneauth registers for the configured way to authenticate."""
    for name in sorted(loading.get_available_plugin_names()):
        yield from loading.get_auth_plugin_conf_options(name)


def _listed(driver: str) -> Iterator[str]:
    """The options that the driver's package lists, by name."""
    found = entry_points(group=loader.NAMESPACE, name=driver)
    packages = {one.dist.name for one in found if one.dist}
    for entry_point in entry_points(group="oslo.config.opts"):
        if entry_point.dist and entry_point.dist.name in packages:
            for _section, options in entry_point.load()():
                yield from (str(option.dest) for option in options)
