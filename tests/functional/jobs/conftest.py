"""Each test is run twice, as the tracker's are: with objects here, and kept by another process."""

import pytest

from tests.functional.reconcile.conftest import files_stay_open, keeper, nobody_waits, where
from tests.lab.cycles import Publishing
from tests.lab.devices import CARD, OWN, SIBLING, Device, ProgrammableDriver, publish_devices
from tests.lab.placement import PlacementFixture
from wharfinger.jobs import device_programming

__all__ = ["files_stay_open", "keeper", "nobody_waits", "where"]


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for is looked at often."""
    monkeypatch.setattr(device_programming, "_INTERVAL", 0.005)


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> ProgrammableDriver:
    """One that has published all devices."""
    return publish_devices(publishing, placement)


@pytest.fixture
def device(
    driver: ProgrammableDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    request: pytest.FixtureRequest,
) -> Device:
    """The one of the parameter, or ours."""
    return Device(publishing, placement, getattr(request, "param", OWN))


@pytest.fixture
def sibling(device: Device, driver: ProgrammableDriver) -> Device:
    """Another part of the device, which is programmed with it."""
    sibling = Device(device.publishing, device.placement, SIBLING)
    for uuid in (device.uuid, sibling.uuid):
        driver.scopes[uuid] = [device.uuid, sibling.uuid]
    return sibling


@pytest.fixture
def card(device: Device) -> Device:
    """One that somebody else publishes."""
    return Device(device.publishing, device.placement, CARD)
