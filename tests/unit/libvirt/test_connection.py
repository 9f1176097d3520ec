"""Conversion of libvirt's answers and errors; the calls of libvirt are simulated."""

from collections.abc import Callable
from typing import TypeVar

import libvirt
import pytest

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.connection import Connection, Vanished
from wharfinger_libvirt.domains import Domain
from wharfinger_libvirt.nodedev import Mdev, NodeDevice

T = TypeVar("T")

MDEV = (
    "<device><name>mdev_1</name><parent>pci_0000_84_00_0</parent>"
    "<capability type='mdev'><type id='nvidia-35'/></capability></device>"
)

GUEST = "6c3f7d0e-41d1-4d4b-b2ac-0e5b1f0a9c01"


def refusal(code: int) -> libvirt.libvirtError:
    """Return the error that libvirt raises with this code."""
    libvirt.virResetLastError()  # clears the error of an earlier test in this thread
    error = libvirt.libvirtError("refused")
    error.err = (code, 0, "refused", 0, "", None, None, -1, -1)
    return error


class Handle:
    """A simulated virNodeDevice."""

    def __init__(self, xml: str | Exception, active: int | Exception = 1) -> None:
        self._xml = xml
        self._active = active

    def name(self) -> str:
        return "mdev_1"

    def XMLDesc(self, flags: int) -> str:  # noqa: N802
        return _answer(self._xml)

    def isActive(self) -> int:  # noqa: N802
        return _answer(self._active)


class Host:
    """A simulated virConnect; its domains have the same descriptions as its devices."""

    def __init__(
        self, *devices: Handle | Exception, info: list[str | int] | Exception | None = None
    ) -> None:
        self._devices = devices
        self._info = info or ["x86_64", 1024, 4, 3000, 1, 1, 4, 1]

    def getInfo(self) -> list[str | int]:  # noqa: N802
        return _answer(self._info)

    def getHostname(self) -> str:  # noqa: N802
        raise refusal(libvirt.VIR_ERR_INTERNAL_ERROR)

    def listAllDevices(self, flags: int) -> list[Handle]:  # noqa: N802
        return [_answer(device) for device in self._devices]

    listAllDomains = listAllDevices  # noqa: N815


def _answer(answer: T | Exception) -> T:
    if isinstance(answer, Exception):
        raise answer
    return answer


@pytest.mark.parametrize(
    ("answer", "active"),
    [(1, True), (0, False), (refusal(libvirt.VIR_ERR_NO_SUPPORT), True)],
)
def test_device_is_active_unless_libvirt_reports_otherwise(
    answer: int | Exception, active: bool
) -> None:
    assert Connection(Host(Handle(MDEV, answer)), "gpus").devices() == [
        NodeDevice(
            name="mdev_1",
            parent="pci_0000_84_00_0",
            mdev=Mdev(type_id="nvidia-35", active=active),
        )
    ]


@pytest.mark.parametrize(
    "handle",
    [
        Handle(refusal(libvirt.VIR_ERR_NO_NODE_DEVICE)),
        Handle(MDEV, refusal(libvirt.VIR_ERR_NO_NODE_DEVICE)),
    ],
)
def test_missing_device_has_vanished(handle: Handle) -> None:
    with pytest.raises(Vanished):
        Connection(Host(handle), "gpus").devices()


@pytest.mark.parametrize(
    "handle",
    [
        Handle(refusal(libvirt.VIR_ERR_RPC)),
        Handle(MDEV, refusal(libvirt.VIR_ERR_RPC)),
    ],
)
def test_unreadable_device_is_an_error(handle: Handle) -> None:
    with pytest.raises(BackendError, match="driver gpus: reading device mdev_1 failed: refused"):
        Connection(Host(handle), "gpus").devices()


def test_device_with_invalid_xml_is_an_error() -> None:
    with pytest.raises(
        BackendError, match=r"driver gpus: reading device mdev_1 failed: its description is not XML"
    ):
        Connection(Host(Handle("garbage")), "gpus").devices()


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        (Connection.devices, "listing the host's devices"),
        (Connection.domains, "listing the host's domains"),
        (Connection.hostname, "asking for the host's name"),
        (Connection.figures, "asking for the host's CPUs and memory"),
    ],
)
def test_refused_call_is_an_error(call: Callable[[Connection], object], operation: str) -> None:
    error = refusal(libvirt.VIR_ERR_INTERNAL_ERROR)
    with pytest.raises(BackendError, match=f"driver gpus: {operation} failed: refused"):
        call(Connection(Host(error, info=error), "gpus"))


def test_domain_has_its_uuid() -> None:
    xml = f"<domain><uuid>{GUEST}</uuid></domain>"
    assert Connection(Host(Handle(xml)), "gpus").domains() == [Domain(uuid=GUEST)]


def test_missing_domain_has_vanished() -> None:
    with pytest.raises(Vanished):
        Connection(Host(Handle(refusal(libvirt.VIR_ERR_NO_DOMAIN))), "gpus").domains()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refusal(libvirt.VIR_ERR_RPC), "refused"),
        ("garbage", "its description is not XML"),
        ("<domain/>", "it has no <uuid>"),
        ("<!DOCTYPE domain><domain/>", "its description declares entities or a DTD"),
    ],
)
def test_unreadable_domain_is_an_error(answer: str | Exception, problem: str) -> None:
    with pytest.raises(BackendError, match=f"driver gpus: reading domain mdev_1 failed: {problem}"):
        Connection(Host(Handle(answer)), "gpus").domains()


@pytest.mark.parametrize("info", [["x86_64", 0, 4], ["x86_64", 1024, 0]])
def test_host_without_cpus_or_memory_is_an_error(info: list[str | int]) -> None:
    with pytest.raises(BackendError, match=r"libvirt reports \d+ CPUs and \d+ MiB"):
        Connection(Host(info=info), "gpus").figures()


def test_failed_connection_is_an_error() -> None:
    uri = "qemu:///system?socket=/nowhere/libvirt-sock"
    with (
        pytest.raises(BackendError, match=r"driver gpus: connecting to qemu:///system"),
        Connection.open(uri, "gpus"),
    ):
        pass
