"""The Cyborg driver's harness: changes that it makes in a real Cyborg, as the driver sees them."""

from collections.abc import Iterator
from itertools import product
from typing import Final
from uuid import uuid4

import pytest

from tests.lab.accelerators import Clock
from wharfinger.conformance.harness import COMMON_FAULTS, Fault
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.placement_diff import Contents
from wharfinger.conformance.subject import Publishing, Subject, describe
from wharfinger.exceptions import BackendError
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg_harness import HOST, CyborgHarness
from wharfinger_harnesses.daemons import LabError

LISTING: Final = ("/deployables", "/accelerator_requests", "/devices")
GPU: Final = f"{HOST}_00_r0"
ONE, TWO = (f"{HOST}_{bus}_r0" for bus in ("01", "02"))
FUNCTION: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_"


@pytest.fixture(scope="module")
def placement(placement_service: EmbeddedPlacement) -> Iterator[RunPlacement]:
    placement = RunPlacement(placement_service)
    yield placement
    placement.close()


@pytest.fixture(scope="module")
def subject(placement: RunPlacement, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    placement.empty()
    harness = CyborgHarness(tmp_path_factory.mktemp("harness"), placement)
    try:
        harness.start()
        yield Subject("cyborg", tmp_path_factory.mktemp("subject"), placement, harness=harness)
    finally:
        harness.stop()


@pytest.fixture
def harness(subject: Subject) -> CyborgHarness:
    subject.begin()
    assert isinstance(subject.harness, CyborgHarness)
    return subject.harness


@pytest.fixture
def published(subject: Subject, harness: CyborgHarness) -> Iterator[Publishing]:
    """A driver that has published all devices after a reset."""
    with subject.publishing() as publishing:
        publishing.settle()
        harness.expect()
        yield publishing


@pytest.fixture
def before(published: Publishing, placement: RunPlacement) -> Contents:
    return placement.contents()


def figures(contents: Contents, thing: str) -> tuple[int, int]:
    """Return (total, reserved) of the thing's FPGA inventory."""
    inventory = contents[thing].inventories["FPGA"]
    return inventory.total, inventory.reserved


def functions(contents: Contents, thing: str) -> list[str]:
    """Return the functions that Cyborg reports for the thing."""
    found = [one for one in contents[thing].traits if one.startswith(FUNCTION)]
    return [trait.removeprefix(FUNCTION) for trait in found]


def test_reset_after_any_change_restores_the_first_devices(
    subject: Subject, harness: CyborgHarness, before: Contents, placement: RunPlacement
) -> None:
    assert [*harness.things()] == [ONE, TWO]
    assert before.keys() == {HOST, GPU, ONE, TWO}
    assert [figures(before, thing) for thing in (ONE, TWO)] == [(1, 0), (2, 0)]
    assert "OWNER_NOVA" in before[HOST].traits

    harness.grow(3)
    harness.remove(ONE)
    harness.make_busy(harness.things()[-1])
    with subject.driver() as driver:
        described = describe(driver, placement.contents())
        driver.program(described[TWO].provider.uuid, *harness.image(TWO))
    subject.begin()

    with subject.publishing() as publishing:
        assert publishing.settle() == before
    harness.add()
    harness.remove(ONE)
    harness.put_back(ONE)
    assert sorted(harness.things()) == [ONE, TWO, f"{HOST}_03_r0"]


def test_removed_thing_returns_unchanged(
    harness: CyborgHarness, published: Publishing, before: Contents, placement: RunPlacement
) -> None:
    for thing in (ONE, TWO):
        harness.remove(thing)
    assert not harness.things()
    assert published.settle().keys() == {HOST, GPU}
    harness.put_back(TWO)
    assert [*harness.things()] == [TWO]
    harness.put_back(ONE)
    assert published.settle() == before

    new = harness.add()
    harness.grow(2)
    assert len(harness.things()) == 5
    contents = published.settle()
    assert contents.keys() == {HOST, GPU, *harness.things()}
    assert figures(contents, new) == (1, 0)
    assert contents[new].traits == contents[ONE].traits

    placement.allocate(str(uuid4()), {before[ONE].uuid: {"FPGA": 1}})
    with pytest.raises(LabError, match="allocations"):
        harness.remove(ONE)


def test_busy_thing_is_reserved_until_it_is_free(
    harness: CyborgHarness, published: Publishing, before: Contents
) -> None:
    configuration = harness.configuration("fpga")
    harness.make_busy(ONE)
    contents = published.settle()
    assert [figures(contents, thing) for thing in (ONE, TWO)] == [(1, 1), (2, 0)]
    harness.restart()
    assert harness.configuration("fpga") == configuration
    assert published.settle() == contents
    harness.make_free(ONE)
    assert published.settle() == before

    harness.make_busy(ONE)
    harness.remove(ONE)
    assert ONE not in published.settle()
    harness.put_back(ONE)
    assert published.settle() == before


def test_twelve_things_can_be_busy_at_once(harness: CyborgHarness, published: Publishing) -> None:
    harness.grow(10)
    for thing in harness.things():
        harness.make_busy(thing)
    contents = published.settle()
    for thing in harness.things():
        total, reserved = figures(contents, thing)
        assert reserved == total


def test_polls_see_that_a_thing_is_busy_and_free(
    subject: Subject, harness: CyborgHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock.stopped(monkeypatch)
    with subject.driver() as driver:
        driver.get_available_nodes(refresh=True)
        _, mark = driver.changed_nodes(None)
        for change in (harness.make_busy, harness.make_free):
            changed, later = driver.changed_nodes(mark)
            assert not changed
            change(ONE)
            changed, mark = driver.changed_nodes(later)
            assert changed == {HOST}


def test_fault_at_each_call_of_a_listing_changes_nothing(
    harness: CyborgHarness, published: Publishing, before: Contents, placement: RunPlacement
) -> None:
    published.sync()
    calls = [f"GET /accelerator/v2{path}" for path in LISTING]
    assert [*harness.calls] == calls
    for fault, at in product(COMMON_FAULTS, (*range(len(calls)), None)):
        harness.expect(at, fault)
        with pytest.raises(BackendError):
            published.cycle.sync()
        assert [*harness.calls] == calls[: (at or 0) + 1], (fault, at)
        assert placement.contents() == before

        harness.expect()
        assert published.settle() == before

    # The requests of the harness itself meet no faults.
    harness.expect(fault=Fault.RAISE)
    harness.make_busy(ONE)
    harness.make_free(ONE)
    assert not harness.calls


def test_programmed_thing_holds_its_image(
    subject: Subject, harness: CyborgHarness, before: Contents, placement: RunPlacement
) -> None:
    image, function = harness.image(ONE)
    assert functions(before, ONE) == functions(before, TWO) != [function]
    uuid = before[ONE].uuid
    for held in (functions(before, ONE), [function]):
        with subject.driver() as driver:
            describe(driver, before)
            assert [driver.current_function(uuid)] == held
            driver.program(uuid, image, function)
        harness.remove(harness.add())  # this discovery lets Cyborg read the function
    assert functions(placement.contents(), ONE) == [function]

    harness.make_busy(ONE)
    harness.make_free(ONE)
    assert functions(placement.contents(), ONE) == [function]


def test_stop_without_a_start_succeeds(subject: Subject) -> None:
    CyborgHarness(subject.harness.directory, subject.placement).stop()
