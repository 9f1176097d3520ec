"""The host at one moment, as libvirt describes it.

Devices and domains are read until two readings in a row are equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol, TypeVar

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.connection import Connection, Vanished
from wharfinger_libvirt.domains import Domain
from wharfinger_libvirt.nodedev import NodeDevice

#: The largest number of readings. Two are enough on a quiet host.
MAX_READINGS: Final = 8

_T = TypeVar("_T")


class _DeviceSource(Protocol):  # a Connection
    def devices(self) -> list[NodeDevice]: ...


class _Source(_DeviceSource, Protocol):
    def domains(self) -> list[Domain]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """A host at one moment."""

    hostname: str
    cpus: int
    memory_mb: int
    devices: tuple[NodeDevice, ...] = ()
    #: Empty unless they were requested.
    domains: tuple[Domain, ...] = ()


def take_snapshot(uri: str, instance: str, *, with_domains: bool = False) -> HostSnapshot:
    """Read the host from libvirt. Raises BackendError."""
    with Connection.open(uri, instance) as connection:
        figures = connection.figures()
        if with_domains:
            devices, domains = read_devices_and_domains(connection, instance)
        else:
            devices, domains = read_devices(connection, instance), ()
        return HostSnapshot(
            hostname=connection.hostname(),
            cpus=figures.cpus,
            memory_mb=figures.memory_mb,
            devices=devices,
            domains=domains,
        )


def read_devices(source: _DeviceSource, instance: str) -> tuple[NodeDevice, ...]:
    """Return the devices, sorted by name, once two readings agree. Raises BackendError."""
    devices = _read_until_equal(lambda: _devices(source), "devices", instance)
    _check_names(devices, instance)
    return devices


def read_devices_and_domains(
    source: _Source, instance: str
) -> tuple[tuple[NodeDevice, ...], tuple[Domain, ...]]:
    """Return sorted devices and domains, once two readings agree. Raises BackendError."""

    def read() -> tuple[tuple[NodeDevice, ...], tuple[Domain, ...]]:
        domains = tuple(sorted(source.domains(), key=lambda domain: domain.uuid))
        return _devices(source), domains

    devices, domains = _read_until_equal(read, "devices and domains", instance)
    _check_names(devices, instance)
    return devices, domains


def _devices(source: _DeviceSource) -> tuple[NodeDevice, ...]:
    return tuple(sorted(source.devices(), key=lambda device: device.name))


def _read_until_equal(read: Callable[[], _T], what: str, instance: str) -> _T:
    last = None
    for _ in range(MAX_READINGS):
        try:
            reading = read()
        except Vanished:
            last = None
            continue
        if reading == last:
            return reading
        last = reading
    raise BackendError(
        driver=instance,
        operation=f"reading the host's {what}",
        reason=f"the {what} kept changing: of {MAX_READINGS} readings no two in a row agreed. "
        "The next cycle tries again",
    )


def _check_names(devices: Sequence[NodeDevice], instance: str) -> None:
    addresses = sorted(
        (device.pci.address, device.name) for device in devices if device.pci is not None
    )
    problems = [
        *(
            f"two devices have the name {one.name}"
            for one, other in pairwise(devices)
            if one.name == other.name
        ),
        *(
            f"{one} and {other} both have PCI address {address}"
            for (address, one), (same, other) in pairwise(addresses)
            if address == same
        ),
    ]
    if problems:
        raise BackendError(
            driver=instance,
            operation="reading the host's devices",
            reason=f"{problems[0]}, but the driver can only tell devices apart by names and PCI "
            "addresses",
        )
