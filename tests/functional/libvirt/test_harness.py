"""The libvirt driver's harness: what it does is seen by the driver, and what it breaks breaks."""

import threading
from collections.abc import Callable, Iterator
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
from wharfinger.exceptions import BackendError
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.tracker.cycle import DriverCycle
from wharfinger_harnesses.libvirt_harness import NODE, LibvirtHarness
from wharfinger_libvirt.connection import Connection
from wharfinger_libvirt.host import read_devices

#: Seconds for what takes milliseconds.
SOON = 10.0
#: At two things, and the GPU that stays: two readings, each of a list and three devices.
CALLS = 3 + 2 * (1 + 3 * 2)
#: The same in the old layout, with three mdevs; and in a reshape, with two domains, too.
OLD_CALLS = 3 + 2 * (1 + 6 * 2)
RESHAPING = OLD_CALLS + 2 * (1 + 2)


@dataclass(frozen=True)
class Served:
    """What the harness is given of Placement."""

    url: str
    client: PlacementClient


class Host:
    """The harness, and an instance of the driver that publishes what is in it."""

    def __init__(self, harness: LibvirtHarness, publishing: Publishing) -> None:
        self.harness = harness
        self.publishing = publishing
        self.restarted()

    def restarted(self) -> None:
        """Another process from now on."""
        self.publishing.restarted()
        driver = make_driver(
            self.publishing.state_path,
            f"[DEFAULT]\nenabled_drivers = {INSTANCE}\n"
            + self.harness.configuration(INSTANCE).replace("]\n", "]\ndriver = libvirt\n", 1),
            HOST,
        )
        self.cycle = DriverCycle(
            driver,
            self.publishing.publisher,
            self.publishing.client,
            self.publishing.context,
            RemovalPolicy(delay=0, allow_mass=False),
        )

    def sync(self, times: int = 1) -> dict[str, dict[str, Any]]:
        """What is in Placement after cycles without a problem."""
        for _ in range(times):
            assert not self.cycle.sync().problems
        return contents(self.publishing.placement)

    def problems(self) -> list[str]:
        """What a cycle says went wrong, in its outcome or instead of one."""
        try:
            return list(map(str, self.cycle.sync().problems))
        except BackendError as error:
            return [str(error)]


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


# The world.


def test_a_thing_is_called_as_its_provider_is(host: Host) -> None:
    first = host.sync()

    assert first.keys() > set(host.harness.things())
    assert {name: one["inventories"] for name, one in first.items() if name != NODE} == {
        f"{NODE}_pci_0000_{bus}_00_0": {"VGPU": (8, 0)} for bus in ("01", "02", "03")
    }
    assert host.harness.things() == (f"{NODE}_pci_0000_02_00_0", f"{NODE}_pci_0000_03_00_0")


def test_what_is_added_is_published_and_what_is_removed_is_not(host: Host) -> None:
    before = host.sync()
    thing = host.harness.add()

    after = host.sync()

    assert after.keys() - before.keys() == {thing}
    assert thing in host.harness.things()
    host.harness.remove(thing)
    assert host.sync(times=2) == before
    host.harness.put_back(thing)
    assert host.sync() == after


def test_every_thing_may_go_and_come_back(host: Host) -> None:
    before = host.sync()
    things = host.harness.things()
    for thing in things:
        host.harness.remove(thing)

    assert before.keys() - host.sync(times=2).keys() == set(things)
    assert host.harness.things() == ()
    for thing in reversed(things):
        host.harness.put_back(thing)
    assert host.sync() == before
    assert set(host.harness.things()) == set(things)


def test_no_name_and_no_address_is_given_twice(harness: LibvirtHarness) -> None:
    harness.grow(600)
    things = harness.things()
    harness.remove(things[-1])

    assert len(set(things)) == 602
    assert harness.add() not in things
    # The driver refuses a host that has either twice.
    with Connection.open(f"test://{harness.directory}/host.xml", INSTANCE) as connection:
        assert len(read_devices(connection, INSTANCE)) == 603


def test_what_is_busy_is_reserved_in_full_until_it_is_free(host: Host) -> None:
    before = host.sync()
    thing = host.harness.things()[0]
    host.harness.make_busy(thing)

    assert {
        name: one["inventories"] for name, one in host.sync().items() if one != before[name]
    } == {thing: {"VGPU": (8, 8)}}
    host.harness.remove(thing)
    host.harness.put_back(thing)
    assert host.sync()[thing]["inventories"] == {"VGPU": (8, 8)}
    host.harness.make_free(thing)
    assert host.sync() == before


def test_a_reset_leaves_nothing_of_what_was(host: Host) -> None:
    before = host.sync()
    things = host.harness.things()
    host.harness.use_old_layout()
    host.harness.remove(host.harness.add())
    host.harness.make_busy(things[0])
    host.harness.remove(things[1])
    host.harness.expect(None, Fault.RAISE)
    host.harness.reset()

    assert host.sync() == before
    assert host.harness.things() == things


def test_a_restart_changes_nothing(host: Host) -> None:
    host.harness.make_busy(host.harness.things()[0])
    host.harness.add()
    before = host.sync()
    host.harness.restart()

    assert host.sync() == before


# Calls and faults.


def test_a_cycle_makes_one_snapshot_and_each_call_is_seen(host: Host) -> None:
    host.harness.expect()
    host.sync()

    calls = host.harness.calls
    assert len(calls) == CALLS
    assert calls[0] == f"open test://{host.harness.directory}/host.xml"
    assert calls[1:3] == ("getInfo", "listAllDevices")
    assert sorted(calls[3:5]) == sorted(
        f"{method} of {calls[3].rsplit(' ')[-1]}" for method in ("XMLDesc", "isActive")
    )
    assert calls[-1] == "getHostname"


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.HALF])
def test_each_call_can_break_and_nothing_is_changed_by_it(host: Host, fault: Fault) -> None:
    before = host.sync()
    exchanged = exchange(host.harness)

    for at in range(CALLS):
        host.harness.expect(at, fault)
        [problem] = host.problems()
        is_half = fault is Fault.HALF and host.harness.calls[at].startswith("XMLDesc")
        assert ("no XML" if is_half else "client socket is closed") in problem
        assert contents(host.publishing.placement) == before

    host.harness.expect()
    assert before.keys() ^ host.sync(times=2).keys() == exchanged


def exchange(harness: LibvirtHarness) -> set[str]:
    """Have another thing instead of the first; returns both."""
    old = harness.things()[0]
    harness.remove(old)
    return {old, harness.add()}


def test_each_call_can_hang_until_it_is_let_go(host: Host) -> None:
    before = host.sync()
    exchanged = exchange(host.harness)

    for at in range(CALLS):
        host.harness.expect(at, Fault.HANG)
        cycle = Cycle(host.problems)
        cycle.wait_for(host.harness, at)
        host.harness.expect()
        [problem] = cycle.answer()
        assert "client socket is closed" in problem
        assert host.harness.calls == ()
        assert contents(host.publishing.placement) == before

    assert before.keys() ^ host.sync(times=2).keys() == exchanged


def test_all_calls_break_until_they_are_to_pass(host: Host) -> None:
    before = host.sync()
    host.harness.expect(None, Fault.RAISE)
    for _ in range(2):
        [problem] = host.problems()
        assert "connecting to test:" in problem
    host.harness.expect()
    assert host.sync() == before


def test_a_stop_lets_go_and_leaves_libvirt_as_it_was(host: Host) -> None:
    seen = libvirt.open
    host.harness.expect(None, Fault.HANG)
    cycle = Cycle(host.problems)
    cycle.wait_for(host.harness, 0)

    host.harness.stop()

    [problem] = cycle.answer()
    assert "client socket is closed" in problem
    assert libvirt.open is not seen
    assert libvirt.open.__module__ == "libvirt"
    host.harness.stop()
    assert host.sync()
    assert host.harness.calls == ()


class Cycle(threading.Thread):
    """A cycle of the driver in a thread of its own."""

    def __init__(self, run: Callable[[], list[str]]) -> None:
        super().__init__(daemon=True)
        self._work = run
        self._answers: list[list[str]] = []
        self.start()

    def run(self) -> None:
        self._answers.append(self._work())

    def wait_for(self, harness: LibvirtHarness, at: int) -> None:
        """Wait until the driver has made the call with that index, and waits for its answer."""
        while len(harness.calls) <= at:
            self.join(0.001)
            assert self.is_alive(), harness.calls
        self.join(0.001)
        assert self.is_alive()
        assert len(harness.calls) == at + 1

    def answer(self) -> list[str]:
        self.join(SOON)
        [answer] = self._answers
        return answer


# The old layout.


@pytest.fixture
def old(host: Host) -> dict[str, dict[str, int]]:
    """Have the old layout published as an old release did, and used; what is allocated."""
    layout = host.harness.use_old_layout()
    publishing = host.publishing
    publishing.driver.nodes[NODE] = flat(
        **{kind: one.total for kind, one in layout.inventories.items()}
    )
    publishing.restarted()
    assert not publishing.cycle.sync().problems
    for consumer, amounts in layout.allocations.items():
        allocate(publishing.placement, consumer, "1.39", **{NODE: dict(amounts)})
    host.restarted()
    return {consumer: dict(amounts) for consumer, amounts in layout.allocations.items()}


def allocated() -> dict[str, dict[tuple[str, str], int]]:
    """What is allocated, by provider name and by consumer and class."""
    return {name: one["allocations"] for name, one in everything().items() if one["allocations"]}


def test_what_the_root_gave_moves_to_the_devices_of_the_domains(
    host: Host, old: dict[str, dict[str, int]]
) -> None:
    (one, two), (both, last) = host.harness.things(), old
    assert allocated()[NODE][both, "VGPU"] == 2
    assert allocated()[NODE][last, "VGPU"] == 1
    host.harness.expect()

    after = host.sync()

    assert len(host.harness.calls) == OLD_CALLS + RESHAPING
    assert after[NODE]["inventories"].keys() == {"VCPU", "MEMORY_MB"}
    assert after[one]["inventories"] == after[two]["inventories"] == {"VGPU": (8, 0)}
    assert allocated() == {
        NODE: {
            (consumer, kind): old[consumer][kind]
            for consumer in old
            for kind in ("VCPU", "MEMORY_MB")
        },
        one: {(both, "VGPU"): 1},
        two: {(both, "VGPU"): 1, (last, "VGPU"): 1},
    }


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.HALF])
def test_a_call_that_breaks_moves_nothing(
    host: Host, old: dict[str, dict[str, int]], fault: Fault
) -> None:
    before = everything()
    for at in range(OLD_CALLS, OLD_CALLS + RESHAPING):
        host.harness.expect(at, fault)
        [problem] = host.problems()
        assert f"driver {INSTANCE}" in problem
        assert everything() == before, host.harness.calls[at]

    host.harness.expect()
    host.sync()
    assert len(allocated()) == 1 + len(host.harness.things())
