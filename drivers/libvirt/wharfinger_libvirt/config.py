"""Options of a libvirt driver instance and of its mdev types."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.exceptions import ConfigurationError, InvalidName
from wharfinger.providers import PublishingMode
from wharfinger.providers.names import check_provider_name, check_resource_class, check_trait
from wharfinger.providers.ownership import owners
from wharfinger_libvirt import options

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
#: The kernel's name of an mdev type ("nvidia-35", "i915-GVTg_V5_4") that is valid in a section
#: name.
_TYPE_ID: Final = re.compile(r"[A-Za-z0-9_.+-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class MdevTypeSection:
    """Options of an mdev type."""

    section: str
    type_id: str
    #: PCI addresses of the devices to which the type is limited; empty for no limit.
    addresses: tuple[str, ...] = ()
    resource_class: str = "VGPU"
    traits: frozenset[str] = frozenset()
    #: For the whole host; None for no limit.
    max_instances: int | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for address in self.addresses:
            self._check_address(address, seen)
            seen.add(address)
        self._check_resource_class()
        for trait in sorted(self.traits):
            self._check_trait(trait)

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, instance: str, type_id: str) -> Self:
        """Read the section of an mdev type. Raises ConfigurationError."""
        section = section_of(instance, type_id)
        values = options.read(conf, section, options.MDEV_TYPE)
        return cls(
            section=section,
            type_id=type_id,
            addresses=tuple(address.lower() for address in values["device_addresses"]),
            resource_class=values["resource_class"],
            traits=frozenset(values["traits"]),
            max_instances=values["max_instances"],
        )

    def _check_address(self, address: str, seen: set[str]) -> None:
        if not _ADDRESS.match(address):
            raise ConfigurationError(
                section=self.section,
                key="device_addresses",
                value=address,
                problem="the value is not a PCI address.",
                remedy="Write domain:bus:slot.function in hexadecimal, as `lspci -D` does: "
                "0000:84:00.0.",
            )
        if address in seen:
            raise ConfigurationError(
                section=self.section,
                key="device_addresses",
                value=address,
                problem="the option names this device twice.",
                remedy="Name the device once.",
            )

    def _check_resource_class(self) -> None:
        try:
            check_resource_class(self.resource_class)
            wrong = self.resource_class != "VGPU" and not self.resource_class.startswith("CUSTOM_")
        except InvalidName:
            wrong = True
        if wrong:
            raise ConfigurationError(
                section=self.section,
                key="resource_class",
                value=self.resource_class,
                problem="vGPUs cannot have this resource class.",
                remedy="Use VGPU, or a name of CUSTOM_ and upper case letters, digits and "
                "underscores.",
            )

    def _check_trait(self, trait: str) -> None:
        if owners((trait,)):
            raise ConfigurationError(
                section=self.section,
                key="traits",
                value=trait,
                problem="this is an owner trait, and Wharfinger itself adds the owner trait to all "
                "providers of the driver instance.",
                remedy="Remove the trait here. To publish for another owner, set `owner` in the "
                "section of the driver instance.",
            )
        try:
            check_trait(trait)
        except InvalidName as error:
            raise ConfigurationError(
                section=self.section,
                key="traits",
                value=trait,
                problem=f"this trait {error.problem}.",
                remedy="Use a standard trait, or a name of CUSTOM_ and upper case letters, digits "
                "and underscores.",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSection:
    """Options of a driver instance, with those of its mdev types."""

    section: str
    connection_uri: str = "qemu:///system"
    #: In seconds.
    timeout: float = 30.0
    #: None means the name that libvirt reports.
    hypervisor_hostname: str | None = None
    publish_root: PublishingMode = PublishingMode.AUTO
    nova_compute_id_file: str = "/var/lib/nova/compute_id"
    reserved_host_cpus: int = 0
    reserved_host_memory_mb: int = 512
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    mdev_types: tuple[MdevTypeSection, ...] = ()

    def __post_init__(self) -> None:
        if not self.connection_uri:
            raise ConfigurationError(
                section=self.section,
                key="connection_uri",
                value="",
                problem="the URI is empty.",
                remedy="Set a connection URI such as qemu:///system, or remove the option.",
            )
        if self.hypervisor_hostname is not None:
            self._check_hypervisor_hostname(self.hypervisor_hostname)
        self._check_each_device_has_one_type()

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, instance: str) -> Self:
        """Read the options of a driver instance and its mdev types. Raises ConfigurationError."""
        values = options.read(conf, instance, options.INSTANCE)
        type_ids = values.pop("enabled_mdev_types")
        _check_type_ids(instance, type_ids)
        return cls(
            section=instance,
            mdev_types=tuple(MdevTypeSection.read(conf, instance, type_id) for type_id in type_ids),
            publish_root=PublishingMode(values.pop("publish_root")),
            hypervisor_hostname=values.pop("hypervisor_hostname") or None,
            **values,
        )

    def _check_hypervisor_hostname(self, name: str) -> None:
        try:
            check_provider_name(name)
        except InvalidName as error:
            raise ConfigurationError(
                section=self.section,
                key="hypervisor_hostname",
                value=name,
                problem=f"the name of the root provider {error.problem}.",
                remedy="Use the host's name, or remove the option.",
            ) from None

    def _check_each_device_has_one_type(self) -> None:
        named: dict[str, MdevTypeSection] = {}
        for mdev_type in self.mdev_types:
            for address in mdev_type.addresses:
                other = named.setdefault(address, mdev_type)
                if other is not mdev_type:
                    raise ConfigurationError(
                        section=mdev_type.section,
                        key="device_addresses",
                        value=address,
                        problem=f"section [{other.section}] names this device, too, but only one "
                        "mdev type of a device can be published.",
                        remedy="Name the device for one type only.",
                    )


def section_of(instance: str, type_id: str) -> str:
    """Return the name of the section of an mdev type."""
    return f"{instance}:{type_id}"


def enabled_type_ids(conf: cfg.ConfigOpts, instance: str) -> tuple[str, ...]:
    """Return the mdev types in enabled_mdev_types, without validating them."""
    type_ids: tuple[str, ...] = options.read(conf, instance, options.INSTANCE)["enabled_mdev_types"]
    return type_ids


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options by section, for oslo-config-generator."""
    return [
        ("<instance with driver = libvirt>", options.INSTANCE),
        ("<instance with driver = libvirt>:<mdev type>", options.MDEV_TYPE),
    ]


def _check_type_ids(instance: str, type_ids: Sequence[str]) -> None:
    for type_id in type_ids:
        if not _TYPE_ID.match(type_id):
            raise _wrong_type_id(
                instance,
                type_id,
                "this is not an mdev type.",
                "Write it as `mdevctl types` shows it, e.g. nvidia-35.",
            )
        if type_ids.count(type_id) > 1:
            raise _wrong_type_id(
                instance, type_id, "this type is enabled more than once.", "Name it once."
            )


def _wrong_type_id(instance: str, type_id: str, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        section=instance, key="enabled_mdev_types", value=type_id, problem=problem, remedy=remedy
    )
