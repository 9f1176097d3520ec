"""From the configuration to driver instances, ready for their cycles."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from oslo_config import cfg
from oslo_log import log as logging

from wharfinger.conf import DefaultSection, InstanceSection
from wharfinger.conf.reading import reading
from wharfinger.driver import ComputeDriver, loader
from wharfinger.exceptions import (
    ConfigurationError,
    ConfigurationFileError,
    InvalidName,
    WharfingerError,
)
from wharfinger.objects import Service
from wharfinger.objects.provider_records import ProviderRecords
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.ownership import Publisher, check_owner
from wharfinger.tracker.cycle import DriverCycle
from wharfinger.tracker.desired import guarded
from wharfinger.tracker.memory import InstanceMemory

LOG: Final = logging.getLogger(__name__)
BINARY: Final = "wharfinger"


@dataclass(frozen=True, slots=True)
class Instance:
    """A configured driver instance: the driver, not yet connected, and its owner."""

    section: InstanceSection
    driver: ComputeDriver
    publisher: Publisher


def load(conf: cfg.ConfigOpts, name: str) -> Instance:
    """Load the driver of an instance and make it.

    Raises ConfigurationError (for a name that is not enabled too), ConfigurationFileError,
    DriverLoadError, or BackendError where the driver's __init__ fails.
    """
    default = DefaultSection.read(conf)
    if name not in default.enabled_drivers:
        raise ConfigurationError(
            section="DEFAULT",
            key="enabled_drivers",
            value=", ".join(default.enabled_drivers),
            problem=f"there is no driver instance {name!r}.",
            remedy="Name one of these, or add it.",
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
            problem=f"it {error.problem}.",
            remedy="Correct it, or leave it out for the driver's own.",
        ) from error
    driver = guarded(name, "__init__", lambda: _make(kind, conf, default.host, name))
    _refuse_unknown_sections(conf, driver)
    return Instance(section, driver, Publisher(name, owner))


@contextmanager
def running(
    instance: Instance,
    client: PlacementClient,
    records: ProviderRecords,
    *,
    may_write: bool = True,
    removal_delay: float | None = None,
    allow_mass_removal: bool = False,
) -> Iterator[DriverCycle]:
    """Connect a driver instance to its backend, and let go of it at the end.

    An instance that may write is run by one process at a time; one that only plans may be
    run beside it. ``removal_delay`` in place of the configured one. Raises BackendError,
    StateError.
    """
    section = instance.section
    with records.exclusive(section.name) if may_write else nullcontext():
        cycle = DriverCycle(
            instance.driver,
            instance.publisher,
            client,
            InstanceMemory(records, section.name),
            removal_delay=section.removal_delay if removal_delay is None else removal_delay,
            allow_mass_removal=allow_mass_removal,
        )
        with _connected(instance.driver):
            yield cycle


@contextmanager
def _connected(driver: ComputeDriver) -> Iterator[None]:
    guarded(
        driver.name,
        "init_host",
        lambda: driver.init_host(Service(host=driver.host, binary=BINARY)),
    )
    try:
        yield
    finally:
        try:
            guarded(driver.name, "cleanup_host", driver.cleanup_host)
        except WharfingerError as error:
            # What the cycle did stands.
            LOG.warning("%s", error)


def _refuse_unknown_sections(conf: cfg.ConfigOpts, driver: ComputeDriver) -> None:
    """Refuse sections [<instance>:...] that the driver has no use for: a slip of the pen."""
    name = driver.name
    known = sorted(guarded(name, "config_sections", lambda: driver.config_sections(conf, name)))
    for section in conf.list_all_sections():
        if section.startswith(f"{name}:") and section not in known:
            raise ConfigurationFileError(
                problem=f"driver instance {name} has no use for section [{section}].",
                remedy=f"It reads {', '.join(f'[{one}]' for one in (name, *known))}.",
            )


def _make(kind: type[ComputeDriver], conf: cfg.ConfigOpts, host: str, name: str) -> ComputeDriver:
    with reading(name):
        return kind(conf, host, name)
