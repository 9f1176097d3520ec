"""The harness of the Ironic driver: its changes and faults, as the driver sees them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from wharfinger.conf import load
from wharfinger.conformance.harness import COMMON_FAULTS, Fault
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.conformance.subject import describe
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import BackendError
from wharfinger.providers import DesiredProvider, Inventory
from wharfinger.reconcile import driver_instance_loader
from wharfinger_harnesses.ironic_harness import IronicHarness

ONE_NODE = Inventory(total=1, min_unit=1, max_unit=1, step_size=1)
KINDS = [{f"CUSTOM_BAREMETAL_{kind}": ONE_NODE} for kind in ("GOLD", "SILVER")]


class Unused:
    """A Placement for a driver that does not use it."""

    @property
    def url(self) -> str:
        raise AssertionError("Ironic does not use Placement")

    @property
    def client(self) -> WritingClient:
        raise AssertionError("Ironic does not use Placement")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IronicHarness]:
    harness = IronicHarness(tmp_path_factory.mktemp("harness"), Unused())
    try:
        harness.start()
        yield harness
    finally:
        harness.stop()


@pytest.fixture
def harness(started: IronicHarness) -> IronicHarness:
    started.reset()
    return started


@pytest.fixture
def driver(harness: IronicHarness, tmp_path: Path) -> Iterator[ComputeDriver]:
    file = tmp_path / "wharfinger.conf"
    file.write_text(
        "[DEFAULT]\nenabled_drivers = metal\n"
        f"{harness.configuration('metal')}[metal]\ndriver = ironic\n"
    )
    driver = driver_instance_loader.load(load([str(file)]), "metal").driver
    with driver_instance_loader.connected(driver):
        yield driver


def seen(driver: ComputeDriver) -> dict[str, DesiredProvider]:
    """Return the driver's description of its nodes."""
    return describe(driver)


def free(driver: ComputeDriver) -> set[str]:
    return {uuid for uuid, one in seen(driver).items() if not one.reservations}


def polled(driver: ComputeDriver, mark: str, thing: str) -> tuple[str, ...]:
    """Poll since the mark; return the node's reasons for a reservation."""
    changed, _ = driver.changed_nodes(mark)
    assert thing in changed
    return describe(driver, refresh=False)[thing].reservations


def test_reset_restores_free_and_equal_nodes(harness: IronicHarness, driver: ComputeDriver) -> None:
    before = seen(driver)
    assert [*before] == harness.things()
    assert len(before) == 3
    for one in before.values():
        assert one.reservations == ()
        assert one.provider.inventories in KINDS
        assert one.provider.traits == {"CUSTOM_FAST", "HW_CPU_X86_VMX"}

    busy, gone, _ = harness.things()
    harness.add()
    harness.make_busy(busy)
    harness.remove(gone)
    harness.expect(None, Fault.RAISE)
    harness.reset()

    assert seen(driver) == before


def test_new_node_is_like_the_others_and_does_not_change(
    harness: IronicHarness, driver: ComputeDriver
) -> None:
    before = seen(driver)
    _, mark = driver.changed_nodes(None)

    uuid = harness.add()

    assert polled(driver, mark, uuid) == ()
    after = seen(driver)
    assert after.keys() - before.keys() == {uuid}
    assert after[uuid].provider.inventories in KINDS

    harness.grow(20)
    assert [*seen(driver)] == harness.things()
    assert len(harness.things()) == 24
    _, mark = driver.changed_nodes(None)
    harness.expect()
    assert driver.changed_nodes(mark) == (set(), mark)
    assert len(harness.calls) == 1


def test_removed_node_returns_unchanged(harness: IronicHarness, driver: ComputeDriver) -> None:
    first, *others = harness.things()
    before = seen(driver)

    harness.remove(first)
    assert [*seen(driver)] == others == harness.things()
    _, mark = driver.changed_nodes(None)
    harness.put_back(first)
    assert polled(driver, mark, first) == ()
    assert seen(driver) == before

    harness.make_busy(first)
    harness.remove(first)
    assert [*seen(driver)] == others
    harness.put_back(first)
    assert harness.things() == [*others, first]
    assert free(driver) == {*others}


def test_busy_node_is_cleaned_until_it_is_free_despite_restarts(
    harness: IronicHarness, driver: ComputeDriver
) -> None:
    first, *others = harness.things()
    before = seen(driver)
    _, mark = driver.changed_nodes(None)

    for restarts in (False, True):
        harness.make_busy(first)
        assert free(driver) == {*others}
        assert seen(driver)[first].provider == before[first].provider
        [reason] = polled(driver, mark, first)
        assert reason.startswith("clean wait")
        if restarts:
            busy = seen(driver)
            harness.restart()
            assert seen(driver) == busy
        _, mark = driver.changed_nodes(mark)

        harness.make_free(first)
        assert polled(driver, mark, first) == ()
        _, mark = driver.changed_nodes(mark)
        assert seen(driver) == before


def read_all(driver: ComputeDriver) -> None:
    driver.get_available_nodes(refresh=True)


def begin_to_follow(driver: ComputeDriver) -> None:
    driver.changed_nodes(None)


def test_each_call_meets_its_fault(harness: IronicHarness, driver: ComputeDriver) -> None:
    before = seen(driver)
    for ask, fault in product((read_all, begin_to_follow), COMMON_FAULTS):
        harness.expect()
        ask(driver)
        calls = harness.calls
        assert calls

        for index in range(len(calls)):
            harness.expect(index, fault)
            with pytest.raises(BackendError):
                ask(driver)
            assert harness.calls == calls[: index + 1], (ask, fault, index)
            assert describe(driver, refresh=False) == before

        harness.expect()
        ask(driver)
        assert harness.calls == calls


def test_call_that_hangs_is_released_by_the_next_expect(
    harness: IronicHarness, driver: ComputeDriver
) -> None:
    harness.expect(None, Fault.HANG)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(read_all, driver)
        while not harness.calls:
            assert not asking.done()

        harness.expect()
        with pytest.raises(BackendError) as caught:
            asking.result()

    assert "ConnectionResetError" in str(caught.value)
    read_all(driver)
