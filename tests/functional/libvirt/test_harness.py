"""The libvirt driver's harness: the driver sees the changes and faults that the harness makes.

tests/integration/test_conformance.py runs the conformance kit with the rest of the harness.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
import pytest

from tests.lab.cycles import HOST, Publishing, allocate, contents, everything
from tests.lab.drivers import flat
from tests.lab.libvirt_driver import INSTANCE, make_driver
from tests.lab.placement import PlacementFixture
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import BackendError
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger_harnesses.libvirt_harness import NODE, LibvirtHarness
from wharfinger_libvirt.connection import Connection
from wharfinger_libvirt.host_snapshot import read_devices

#: Seconds to wait for an event, which usually takes milliseconds.
SOON = 10.0


@dataclass(frozen=True)
class Served:
    """The attributes of Placement that the harness uses."""

    url: str
    client: WritingClient


class Host:
    """The harness, and a driver instance that publishes its host."""

    def __init__(self, harness: LibvirtHarness, publishing: Publishing) -> None:
        self.harness = harness
        self.publishing = publishing
        self.restarted()

    def restarted(self) -> None:
        """Restart the driver instance, as in a new process."""
        self.publishing.restarted()
        driver = make_driver(
            self.publishing.state_path,
            f"[DEFAULT]\nenabled_drivers = {INSTANCE}\n"
            + self.harness.configuration(INSTANCE).replace("]\n", "]\ndriver = libvirt\n", 1),
            HOST,
        )
        self.cycle = Reconciler(
            driver,
            self.publishing.publisher,
            self.publishing.client,
            self.publishing.context,
            RemovalPolicy(delay=0, allow_mass=False),
        )

    def sync(self, times: int = 1) -> dict[str, dict[str, Any]]:
        """Run cycles without problems; return the contents of Placement."""
        for _ in range(times):
            assert not self.cycle.sync().problems
        return contents(self.publishing.placement)

    def problem(self) -> str:
        try:
            [problem] = self.cycle.sync().problems
        except BackendError as error:
            return str(error)
        return str(problem)


@pytest.fixture
def harness(tmp_path: Path, placement: PlacementFixture) -> Iterator[LibvirtHarness]:
    directory = tmp_path / "backend"
    directory.mkdir()
    harness = LibvirtHarness(directory, Served("", placement.client))
    try:
        harness.start()
        harness.reset()
        yield harness
    finally:
        harness.stop()


@pytest.fixture
def host(harness: LibvirtHarness, placement: PlacementFixture, tmp_path: Path) -> Iterator[Host]:
    with Publishing(placement, tmp_path / "state", name=INSTANCE) as publishing:
        yield Host(harness, publishing)


def test_removal_and_return_of_devices_restores_the_first_host(host: Host) -> None:
    harness, before = host.harness, host.sync()
    one, two = harness.things()
    assert {name for name in before if name != NODE} > {one, two}

    thing = harness.add()
    harness.make_busy(one)
    after = host.sync()
    assert after.keys() - before.keys() == {thing}
    assert after[one]["inventories"] == {"VGPU": (8, 8)}
    for removed in (thing, two):
        harness.remove(removed)
    assert host.sync(times=2).keys() == before.keys() - {two}
    harness.put_back(two)
    harness.restart()
    assert host.sync() == {**before, one: after[one]}
    harness.make_free(one)
    assert host.sync() == before

    harness.use_old_layout()
    harness.expect(None, Fault.RAISE)
    harness.reset()
    assert host.sync() == before
    assert harness.things() == (one, two)


def test_new_thing_never_reuses_a_name_or_an_address(harness: LibvirtHarness) -> None:
    harness.grow(300)
    things = harness.things()
    harness.remove(things[-1])

    assert len(set(things)) == 302
    assert harness.add() not in things
    # The driver refuses a host in which two devices have the same name or address.
    with Connection.open(f"test://{harness.directory}/host.xml", INSTANCE) as connection:
        assert len(read_devices(connection, INSTANCE)) == 303


def test_calls_fail_or_hang_as_expected_and_a_stop_restores_libvirt(
    host: Host,
) -> None:
    harness, seen = host.harness, libvirt.open
    before = host.sync()
    harness.expect()
    host.sync()
    calls = harness.calls
    assert calls[:3] == (f"open test://{harness.directory}/host.xml", "getInfo", "listAllDevices")
    xml = next(at for at, call in enumerate(calls) if call.startswith("XMLDesc"))

    for at, fault, problem in (
        (xml, Fault.RAISE, "client socket is closed"),
        (xml, Fault.HALF, "not XML"),
        (len(calls) - 1, Fault.HALF, "client socket is closed"),
    ):
        harness.expect(at, fault)
        assert problem in host.problem()
        assert contents(host.publishing.placement) == before

    answers: list[str] = []
    for let_go in (harness.expect, harness.stop):
        harness.expect(2, Fault.HANG)
        cycle = threading.Thread(target=lambda: answers.append(host.problem()), daemon=True)
        cycle.start()
        while len(harness.calls) <= 2:
            cycle.join(0.001)
            assert cycle.is_alive(), harness.calls
        let_go()
        cycle.join(SOON)
        assert "client socket is closed" in answers.pop()
        assert contents(host.publishing.placement) == before
    assert libvirt.open is not seen
    assert libvirt.open.__module__ == "libvirt"
    assert host.sync() == before


def test_stale_description_is_the_last_one_read_and_a_late_one_comes_after_the_next_expect(
    harness: LibvirtHarness,
) -> None:
    harness.expect()
    connection = libvirt.open(f"test://{harness.directory}/host.xml")
    (device,) = (one for one in connection.listAllDevices(0) if one.name() == "pci_0000_02_00_0")
    before = device.XMLDesc(0)
    harness.expect(0, Fault.STALE)
    assert device.XMLDesc(0) == before
    assert harness.calls == ("XMLDesc of pci_0000_02_00_0",)

    harness.make_busy(harness.things()[0])
    connection = libvirt.open(f"test://{harness.directory}/host.xml")
    device = connection.nodeDeviceLookupByName("pci_0000_02_00_0")
    harness.expect(0, Fault.STALE)
    assert device.XMLDesc(0) == before
    harness.forget()
    harness.expect(0, Fault.STALE)
    assert device.XMLDesc(0) != before

    harness.expect(0, Fault.LATE)
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(device.XMLDesc(0)), daemon=True)
    asking.start()
    while not harness.calls:
        asking.join(0.001)
    assert not answers
    harness.expect()
    asking.join(SOON)
    assert answers == [device.XMLDesc(0)]


def test_old_layout_allocations_move_to_the_devices_of_the_domains(
    host: Host,
) -> None:
    layout, publishing = host.harness.use_old_layout(), host.publishing
    publishing.driver.nodes[NODE] = flat(
        **{kind: one.total for kind, one in layout.inventories.items()}
    )
    assert not publishing.restarted().sync().problems
    for consumer, amounts in layout.allocations.items():
        allocate(publishing.placement, consumer, "1.39", **{NODE: dict(amounts)})
    host.restarted()
    (one, two), (both, last) = host.harness.things(), layout.allocations
    before = everything()
    assert before[NODE]["allocations"][both, "VGPU"] == 2
    host.harness.expect()

    after = host.sync()

    assert after[NODE]["inventories"].keys() == {"VCPU", "MEMORY_MB"}
    assert after[one]["inventories"] == {"VGPU": (8, 0)}
    assert after[two]["inventories"] == {"VGPU": (12, 0)}
    assert {
        name: its["allocations"] for name, its in everything().items() if its["allocations"]
    } == {
        NODE: {
            (consumer, kind): amounts[kind]
            for consumer, amounts in layout.allocations.items()
            for kind in ("VCPU", "MEMORY_MB")
        },
        one: {(both, "VGPU"): 1},
        two: {(both, "VGPU"): 1, (last, "VGPU"): 1},
    }
    assert any("listAllDomains" in call for call in host.harness.calls), host.harness.calls


def test_missing_device_is_not_found_and_other_calls_break(harness: LibvirtHarness) -> None:
    connection = libvirt.open(f"test://{harness.directory}/host.xml")
    (device,) = (one for one in connection.listAllDevices(0) if one.name() == "pci_0000_02_00_0")
    harness.expect(None, Fault.MISSING)

    with pytest.raises(libvirt.libvirtError) as raised:
        device.XMLDesc(0)
    assert raised.value.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE

    with pytest.raises(libvirt.libvirtError) as raised:
        connection.listAllDevices(0)
    assert raised.value.get_error_code() == libvirt.VIR_ERR_INTERNAL_ERROR
