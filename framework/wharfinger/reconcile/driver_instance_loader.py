"""Load, check and connect the driver instances that the configuration enables."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from oslo_log import log as logging

from wharfinger import conf as configuration
from wharfinger.conf import DefaultSection, InstanceSection, Options
from wharfinger.conf.driver_instance import Adopt
from wharfinger.conf.option_reading import reading
from wharfinger.conf.unread_keys import DEFAULT
from wharfinger.driver import ComputeDriver, loader
from wharfinger.exceptions import (
    ConfigurationError,
    ConfigurationFileError,
    InvalidName,
    WharfingerError,
)
from wharfinger.objects import AGENT_BINARY, Context, Service
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.ownership import Publisher, check_owner
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.driver_calls import guarded
from wharfinger.reconcile.driver_instance_lock import exclusive

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instance:
    """A configured driver instance."""

    section: InstanceSection
    default: DefaultSection
    #: The driver, not yet connected to its backend.
    driver: ComputeDriver
    publisher: Publisher
    #: The configuration sections that the instance reads; the first has its name.
    sections: tuple[str, ...]


def check(conf: Options) -> tuple[list[str], list[WharfingerError]]:
    """Check the configuration; return the sections that are read, and the problems."""
    sections = list(configuration.OWN)
    for group in configuration.SERVICES:
        try:
            sections += configuration.service_sections(conf, group)
        except WharfingerError:
            sections.append(group)  # reported below
    problems = list(configuration.problems(conf))
    try:
        instances = DefaultSection.read(conf).enabled_drivers
    except WharfingerError:
        instances = ()  # reported already
    for name in instances:
        sections.append(name)
        try:
            instance = _make(conf, name)
            sections += instance.sections[1:]
            problems += _unknown(conf, instance)
        except WharfingerError as error:
            problems.append(error)
    return list(dict.fromkeys(sections)), problems


def load(conf: Options, name: str) -> Instance:
    """Create the driver of an instance, and check its configuration.

    Raises ConfigurationError, ConfigurationFileError, DriverLoadError and BackendError.
    """
    instance = _make(conf, name)
    for problem in _unknown(conf, instance):
        raise problem
    return instance


def _make(conf: Options, name: str) -> Instance:
    default = DefaultSection.read(conf)
    if name not in default.enabled_drivers:
        raise ConfigurationError(
            section=DEFAULT,
            key="enabled_drivers",
            value=", ".join(default.enabled_drivers),
            problem=f"there is no driver instance {name!r}.",
            remedy=f"Name a driver instance of enabled_drivers, or add {name} to the option.",
        )
    section = InstanceSection.read(conf, name)
    kind = loader.load(section.driver)
    try:
        owner = check_owner(section.owner or kind.default_owner)
    except InvalidName as error:
        raise ConfigurationError(
            section=name,
            key="owner",
            value=section.owner,
            problem=f"the owner trait {error.problem}.",
            remedy="Correct the option. Or remove the option, and the driver's default owner trait "
            "applies.",
        ) from error
    made = reading(name)(lambda: kind(conf, default.host, name))
    driver = guarded(name, "__init__", made)
    publisher = Publisher(name, owner, adopts_matching=section.adopt is Adopt.MATCHING)
    more = guarded(name, "config_sections", lambda: list(driver.config_sections(conf, name)))
    return Instance(section, default, driver, publisher, (name, *sorted(more)))


@contextmanager
def running(
    instance: Instance,
    client: PlacementClient,
    context: Context,
    *,
    policy: RemovalPolicy,
    may_write: bool = True,
) -> Iterator[Reconciler]:
    """Connect a driver instance for a block, and yield its reconciler.

    With ``may_write``, hold the lock of the instance. Raises StateError and BackendError.
    """
    driver, default = instance.driver, instance.default
    down_time = default.service_down_time
    with exclusive(default.state_path, instance.section.name) if may_write else nullcontext():
        cycle = Reconciler(driver, instance.publisher, client, context, policy, down_time=down_time)
        with connected(driver):
            yield cycle


@contextmanager
def connected(driver: ComputeDriver) -> Iterator[None]:
    """Connect a driver to its backend for a block. Raises BackendError."""
    guarded(
        driver.name,
        "init_host",
        lambda: driver.init_host(Service(host=driver.host, binary=AGENT_BINARY)),
    )
    try:
        yield
    finally:
        try:
            guarded(driver.name, "cleanup_host", driver.cleanup_host)
        except WharfingerError as error:
            # The cycle has succeeded nevertheless.
            LOG.warning("%s", error)


def _unknown(conf: Options, instance: Instance) -> Iterator[ConfigurationFileError]:
    name, known = instance.section.name, instance.sections
    for section in conf.list_all_sections():
        if section.startswith(f"{name}:") and section not in known:
            yield ConfigurationFileError(
                problem=f"driver instance {name} does not read section [{section}].",
                remedy="Remove the section, or rename it to one that the driver reads: "
                f"{', '.join(f'[{one}]' for one in known)}.",
            )
    for section in known:
        yield from conf.unknown(section)
