"""Fixtures for tests of jobs, which run twice: with objects in this process and in another."""

import pytest

from tests.functional.reconcile.conftest import files_stay_open, keeper, no_waits, where
from tests.lab.cycles import Publishing
from tests.lab.devices import CARD, OWN, SIBLING, Device, ProgrammableDriver, publish_devices
from tests.lab.placement import PlacementFixture
from wharfinger.jobs import device_programming

__all__ = ["files_stay_open", "keeper", "no_waits", "where"]


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll at short intervals."""
    monkeypatch.setattr(device_programming, "_INTERVAL", 0.005)


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> ProgrammableDriver:
    """A driver that has published the devices of these tests."""
    return publish_devices(publishing, placement)


@pytest.fixture
def device(
    driver: ProgrammableDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    request: pytest.FixtureRequest,
) -> Device:
    """The device that the test's parameter names, or our own device."""
    return Device(publishing, placement, getattr(request, "param", OWN))


@pytest.fixture
def sibling(device: Device, driver: ProgrammableDriver) -> Device:
    """Another function (provider) of the device; a job programs both together."""
    sibling = Device(device.publishing, device.placement, SIBLING)
    for uuid in (device.uuid, sibling.uuid):
        driver.scopes[uuid] = [device.uuid, sibling.uuid]
    return sibling


@pytest.fixture
def card(device: Device) -> Device:
    """A device that another owner publishes."""
    return Device(device.publishing, device.placement, CARD)
