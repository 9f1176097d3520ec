"""Devices that come and go while they are read."""

from collections.abc import Iterator

import pytest

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.connection import DeviceVanished
from wharfinger_libvirt.host import MAX_READINGS, read_devices
from wharfinger_libvirt.nodedev import Mdev, NodeDevice

GPU = NodeDevice(name="pci_0000_84_00_0")
MDEV = NodeDevice(name="mdev_1", parent=GPU.name, mdev=Mdev(type_id="a", active=True))


class Readings:
    """What a restless host says, one reading after the other; an error is raised."""

    def __init__(self, *readings: list[NodeDevice] | Exception) -> None:
        self._readings: Iterator[list[NodeDevice] | Exception] = iter(readings)

    def devices(self) -> list[NodeDevice]:
        reading = next(self._readings)
        if isinstance(reading, Exception):
            raise reading
        return reading


def test_two_readings_that_agree_are_believed() -> None:
    assert read_devices(Readings([GPU], [GPU]), "gpus") == (GPU,)


def test_the_order_of_a_listing_does_not_count() -> None:
    assert read_devices(Readings([GPU, MDEV], [MDEV, GPU]), "gpus") == (MDEV, GPU)


def test_no_devices_are_believed_too() -> None:
    assert read_devices(Readings([], []), "gpus") == ()


def test_an_mdev_that_is_born_meanwhile_is_seen() -> None:
    assert read_devices(Readings([GPU], [GPU, MDEV], [GPU, MDEV]), "gpus") == (MDEV, GPU)


def test_a_device_that_vanishes_meanwhile_is_no_reading() -> None:
    source = Readings([GPU, MDEV], DeviceVanished("mdev_1"), [GPU], [GPU])
    assert read_devices(source, "gpus") == (GPU,)


@pytest.mark.parametrize(
    "readings",
    [
        [[GPU], [GPU, MDEV]] * MAX_READINGS,
        [DeviceVanished("mdev_1")] * MAX_READINGS,
        [[GPU], DeviceVanished("mdev_1")] * MAX_READINGS,
    ],
)
def test_a_host_that_never_rests_is_an_error(readings: list[list[NodeDevice] | Exception]) -> None:
    with pytest.raises(BackendError, match=r"driver gpus: reading the host's devices failed"):
        read_devices(Readings(*readings), "gpus")
