"""Devices and domains that are added or removed while the driver reads them."""

from collections.abc import Iterator

import pytest

from wharfinger.exceptions import BackendError
from wharfinger_libvirt.connection import Vanished
from wharfinger_libvirt.domains import Domain
from wharfinger_libvirt.host_snapshot import MAX_READINGS, read_devices, read_devices_and_domains
from wharfinger_libvirt.nodedev import Mdev, NodeDevice

GPU = NodeDevice(name="pci_0000_84_00_0")
MDEV = NodeDevice(name="mdev_1", parent=GPU.name, mdev=Mdev(type_id="a", active=True))


class Readings:
    """A host that returns these readings in order; an exception among them is raised."""

    def __init__(self, *readings: list[NodeDevice] | Exception) -> None:
        self._readings: Iterator[list[NodeDevice] | Exception] = iter(readings)

    def devices(self) -> list[NodeDevice]:
        reading = next(self._readings)
        if isinstance(reading, Exception):
            raise reading
        return reading


def test_two_equal_readings_are_accepted() -> None:
    assert read_devices(Readings([GPU], [GPU]), "gpus") == (GPU,)


def test_order_of_a_listing_does_not_matter() -> None:
    assert read_devices(Readings([GPU, MDEV], [MDEV, GPU]), "gpus") == (MDEV, GPU)


def test_two_empty_readings_are_accepted() -> None:
    assert read_devices(Readings([], []), "gpus") == ()


def test_mdev_created_during_the_reading_is_returned() -> None:
    assert read_devices(Readings([GPU], [GPU, MDEV], [GPU, MDEV]), "gpus") == (MDEV, GPU)


def test_reading_with_a_vanished_device_is_repeated() -> None:
    source = Readings([GPU, MDEV], Vanished("mdev_1"), [GPU], [GPU])
    assert read_devices(source, "gpus") == (GPU,)


@pytest.mark.parametrize(
    "readings",
    [
        [[GPU], [GPU, MDEV]] * MAX_READINGS,
        [Vanished("mdev_1")] * MAX_READINGS,
        [[GPU], Vanished("mdev_1")] * MAX_READINGS,
    ],
)
def test_host_that_always_changes_is_an_error(readings: list[list[NodeDevice] | Exception]) -> None:
    with pytest.raises(BackendError, match=r"driver gpus: reading the host's devices failed"):
        read_devices(Readings(*readings), "gpus")


# Readings of devices and domains.

IDLE = Domain(uuid="00000000-0000-0000-0000-000000000001")
BUSY = Domain(uuid="00000000-0000-0000-0000-000000000001", mdevs=("mdev",))
OTHER = Domain(uuid="00000000-0000-0000-0000-000000000002")


class Moments:
    """A host with these devices and domains, one pair for each reading."""

    def __init__(
        self, *moments: tuple[list[NodeDevice] | Exception, list[Domain] | Exception]
    ) -> None:
        self._devices = Readings(*(devices for devices, _ in moments))
        self._domains = iter(domains for _, domains in moments)
        self.count = 0

    def devices(self) -> list[NodeDevice]:
        return self._devices.devices()

    def domains(self) -> list[Domain]:
        self.count += 1
        reading = next(self._domains)
        if isinstance(reading, Exception):
            # The reading fails before its devices are read; skip them.
            self._devices.devices()
            raise reading
        return reading


def test_devices_and_domains_are_those_of_the_same_moment() -> None:
    source = Moments(
        ([GPU], [IDLE]),
        ([GPU, MDEV], [IDLE]),
        ([GPU, MDEV], [BUSY]),
        ([GPU, MDEV], [OTHER, BUSY]),
        ([MDEV, GPU], [BUSY, OTHER]),
    )
    assert read_devices_and_domains(source, "gpus") == ((MDEV, GPU), (BUSY, OTHER))
    assert source.count == 5


def test_reading_with_a_vanished_domain_is_repeated() -> None:
    source = Moments(([GPU], [IDLE]), ([GPU], Vanished("guest")), ([GPU], []), ([GPU], []))
    assert read_devices_and_domains(source, "gpus") == ((GPU,), ())


def test_domains_that_always_change_are_an_error() -> None:
    source = Moments(*[([GPU], [IDLE]), ([GPU], [BUSY])] * MAX_READINGS)
    with pytest.raises(BackendError, match=r"gpus: reading the host's devices and domains failed"):
        read_devices_and_domains(source, "gpus")


def test_two_devices_of_one_name_with_domains_are_refused() -> None:
    twins = [NodeDevice(name="pci_0", parent="a"), NodeDevice(name="pci_0", parent="b")]
    with pytest.raises(BackendError, match="two devices have the name pci_0"):
        read_devices_and_domains(Moments((twins, []), (twins, [])), "gpus")
