"""The calls to libvirt that the driver makes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeVar

import libvirt

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.domains import Domain, parse_domain
from wharfinger_libvirt.nodedev import NodeDevice, parse
from wharfinger_libvirt.safexml import InvalidXML

_T = TypeVar("_T")
_KINDS: Final = (
    libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV
    | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
    | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
)
#: libvirt's error codes for a device or domain that does not exist.
_MISSING: Final = (libvirt.VIR_ERR_NO_NODE_DEVICE, libvirt.VIR_ERR_NO_DOMAIN)


class Vanished(Exception):
    """A listed device or domain no longer exists."""


@dataclass(frozen=True, slots=True)
class HostFigures:
    """The number of online CPUs of the host, and its memory in MiB."""

    cpus: int
    memory_mb: int


class Connection:
    """An open connection to libvirt.

    Methods raise BackendError, or Vanished if a device or domain disappears.
    """

    def __init__(self, handle: Any, instance: str) -> None:
        self._handle = handle
        self._instance = instance

    @classmethod
    @contextmanager
    def open(cls, uri: str, instance: str) -> Iterator[Self]:
        """Connect to libvirt, and close the connection after the block."""
        # By default, libvirt prints every error to stderr before it raises it.
        libvirt.registerErrorHandler(_print_nothing, None)
        with _translated(instance, f"connecting to {uri}"):
            handle = libvirt.open(uri)
        try:
            yield cls(handle, instance)
        finally:
            # A broken connection cannot be closed; the error that broke it has been raised.
            with suppress(libvirt.libvirtError):
                handle.close()

    def hostname(self) -> str:
        """Return the host name that libvirt reports."""
        with _translated(self._instance, "asking for the host's name"):
            return str(self._handle.getHostname())

    def figures(self) -> HostFigures:
        """Return the number of CPUs and the memory of the host."""
        with _translated(self._instance, "asking for the host's CPUs and memory"):
            _, memory_mb, cpus, *_ = self._handle.getInfo()
        if cpus < 1 or memory_mb < 1:
            raise BackendError(
                driver=self._instance,
                operation="asking for the host's CPUs and memory",
                reason=f"libvirt reports {cpus} CPUs and {memory_mb} MiB of memory, but both must "
                "be above 0. See `virsh nodeinfo`",
            )
        return HostFigures(cpus, memory_mb)

    def devices(self) -> list[NodeDevice]:
        """Return all PCI devices, mdevs and devices that offer mdevs."""
        with _translated(self._instance, "listing the host's devices"):
            handles = self._handle.listAllDevices(_KINDS)
        return [self._device(handle) for handle in handles]

    def device(self, name: str) -> NodeDevice | None:
        """Return the device with this name, or None."""
        try:
            with _translated(self._instance, f"asking for device {name}"):
                handle = self._handle.nodeDeviceLookupByName(name)
            return self._device(handle)
        except Vanished:
            return None

    def _device(self, handle: Any) -> NodeDevice:
        operation = f"reading device {handle.name()}"
        with _translated(self._instance, operation):
            xml = handle.XMLDesc(0)
            device_is_active = _is_active(handle)
        return self._parsed(partial(parse, xml, active=device_is_active), operation)

    def domains(self) -> list[Domain]:
        """Return all domains, running or not."""
        with _translated(self._instance, "listing the host's domains"):
            handles = self._handle.listAllDomains(0)
        return [self._domain(handle) for handle in handles]

    def _domain(self, handle: Any) -> Domain:
        operation = f"reading domain {handle.name()}"
        with _translated(self._instance, operation):
            xml = handle.XMLDesc(0)
        return self._parsed(partial(parse_domain, xml), operation)

    def _parsed(self, parsing: Callable[[], _T], operation: str) -> _T:
        try:
            return parsing()
        except InvalidXML as error:
            raise BackendError(
                driver=self._instance, operation=operation, reason=str(error)
            ) from error


def _is_active(handle: Any) -> bool:
    try:
        return bool(handle.isActive())
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            return True  # before libvirt 7.3, and in its test driver, all devices are active
        raise


@contextmanager
def _translated(instance: str, operation: str) -> Iterator[None]:
    try:
        yield
    except libvirt.libvirtError as error:
        if error.get_error_code() in _MISSING:
            raise Vanished(str(error)) from error
        raise BackendError(driver=instance, operation=operation, reason=str(error)) from error
    except (SystemError, UnicodeError) as error:  # libvirt-python cannot decode an error text
        reason = f"libvirt's error text is not UTF-8 ({error.__cause__ or error})"
        raise BackendError(driver=instance, operation=operation, reason=reason) from error


def _print_nothing(context: object, error: object) -> None:
    pass  # libvirt-python raises the error, too
