"""The host at one moment, as libvirt describes it.

libvirt has no call that describes all devices at once: they are listed, then read one
by one, while mdevs come and go. So they are read until two readings in a row agree.
Without that, an mdev created between the reading of its parent and of itself would be
counted twice, or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.connection import Connection, DeviceVanished
from wharfinger_libvirt.nodedev import NodeDevice

#: How many readings are tried before the host is called too restless to be described.
#: Two are enough on a quiet host; each event in between costs one more.
MAX_READINGS: Final = 8


class DeviceSource(Protocol):
    """Where the devices are read from; a Connection."""

    def devices(self) -> list[NodeDevice]:
        """All devices; raises DeviceVanished where one went away meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSnapshot:
    """A host: its name, CPUs, MiB of memory, and devices in the order of their names."""

    hostname: str
    cpus: int
    memory_mb: int
    devices: tuple[NodeDevice, ...] = ()


def take_snapshot(uri: str, instance: str) -> HostSnapshot:
    """Describe the host.

    A connection lasts for one snapshot: none is ever found stale, a libvirt that was
    restarted is simply connected to, and libvirt's test driver, which reads its file when
    it is opened, sees the file as it is. Raises BackendError; a host is never described in
    part.
    """
    with Connection.open(uri, instance) as connection:
        figures = connection.figures()
        return HostSnapshot(
            hostname=connection.hostname(),
            cpus=figures.cpus,
            memory_mb=figures.memory_mb,
            devices=read_devices(connection, instance),
        )


def read_devices(source: DeviceSource, instance: str) -> tuple[NodeDevice, ...]:
    """The devices by name, read until two readings agree; raises BackendError."""
    last = None
    for _ in range(MAX_READINGS):
        try:
            reading = tuple(sorted(source.devices(), key=lambda device: device.name))
        except DeviceVanished:
            last = None
            continue
        if reading == last:
            _check_names(reading, instance)
            return reading
        last = reading
    raise BackendError(
        driver=instance,
        operation="reading the host's devices",
        reason=f"they kept changing: of {MAX_READINGS} readings no two in a row agreed",
    )


def _check_names(devices: Sequence[NodeDevice], instance: str) -> None:
    """Refuse two devices of one name or PCI address: one would hide the other."""
    addresses = sorted(
        (device.pci.address, device.name) for device in devices if device.pci is not None
    )
    problems = [
        *(
            f"two are called {one.name}"
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
            reason=f"{problems[0]}, and one would hide the other",
        )
