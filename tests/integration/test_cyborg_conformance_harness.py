"""The Cyborg driver's harness: what it does to a real Cyborg, as the driver sees it."""

from collections.abc import Iterator
from typing import Final
from uuid import uuid4

import pytest

from tests.lab.accelerators import Clock
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.subject import Publishing, Subject, describe
from wharfinger.conformance.trees import Contents
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
    """A driver that has published what there is after a reset."""
    with subject.publishing() as publishing:
        publishing.settle()
        harness.expect()
        yield publishing


@pytest.fixture
def before(published: Publishing, placement: RunPlacement) -> Contents:
    return placement.contents()


def figures(contents: Contents, thing: str) -> tuple[int, int]:
    """Total and reserved."""
    inventory = contents[thing].inventories["FPGA"]
    return inventory.total, inventory.reserved


def functions(contents: Contents, thing: str) -> list[str]:
    """What Cyborg says that it holds."""
    found = [one for one in contents[thing].traits if one.startswith(FUNCTION)]
    return [trait.removeprefix(FUNCTION) for trait in found]


# A reset.


def test_a_reset_leaves_two_free_things(harness: CyborgHarness, before: Contents) -> None:
    assert [*harness.things()] == [ONE, TWO]
    assert before.keys() == {HOST, GPU, ONE, TWO}
    assert [figures(before, thing) for thing in (ONE, TWO)] == [(1, 0), (1, 0)]
    assert before[ONE].traits == before[TWO].traits
    assert "OWNER_NOVA" in before[HOST].traits


def test_a_reset_forgets_whatever_has_been(
    subject: Subject, harness: CyborgHarness, before: Contents, placement: RunPlacement
) -> None:
    harness.grow(3)
    harness.remove(ONE)
    last = harness.things()[-1]
    harness.make_busy(last)
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


# Things.


def test_a_new_thing_is_like_the_others(harness: CyborgHarness, published: Publishing) -> None:
    new = harness.add()
    contents = published.settle()
    assert [*harness.things()] == [ONE, TWO, new]
    assert figures(contents, new) == (1, 0)
    assert contents[new].traits == contents[ONE].traits


def test_many_new_things_are_there_at_once(harness: CyborgHarness, published: Publishing) -> None:
    harness.grow(5)
    assert len(harness.things()) == 7
    assert published.settle().keys() == {HOST, GPU, *harness.things()}


def test_a_thing_that_is_removed_and_put_back_ends_as_before(
    harness: CyborgHarness, published: Publishing, before: Contents
) -> None:
    harness.remove(ONE)
    assert [*harness.things()] == [TWO]
    assert published.settle().keys() == {HOST, GPU, TWO}
    harness.put_back(ONE)
    assert published.settle() == before


def test_all_things_may_go(harness: CyborgHarness, published: Publishing, before: Contents) -> None:
    for thing in (ONE, TWO):
        harness.remove(thing)
    assert not harness.things()
    assert published.settle().keys() == {HOST, GPU}
    for thing in (TWO, ONE):
        harness.put_back(thing)
    assert published.settle() == before


def test_a_thing_that_an_instance_uses_cannot_be_removed(
    harness: CyborgHarness, before: Contents, placement: RunPlacement
) -> None:
    placement.allocate(str(uuid4()), {before[ONE].uuid: {"FPGA": 1}})
    with pytest.raises(LabError, match="allocations"):
        harness.remove(ONE)


# Busy, and free again.


def test_a_busy_thing_is_reserved_until_it_is_free(
    harness: CyborgHarness, published: Publishing, before: Contents
) -> None:
    for _ in range(2):
        harness.make_busy(ONE)
        contents = published.settle()
        assert [figures(contents, thing) for thing in (ONE, TWO)] == [(1, 1), (1, 0)]
        harness.make_free(ONE)
        assert published.settle() == before


def test_a_busy_thing_that_is_removed_comes_back_free(
    harness: CyborgHarness, published: Publishing, before: Contents
) -> None:
    harness.make_busy(ONE)
    harness.remove(ONE)
    assert ONE not in published.settle()
    harness.put_back(ONE)
    assert published.settle() == before


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


# A restart.


def test_after_a_restart_everything_is_as_before(
    harness: CyborgHarness, published: Publishing, before: Contents
) -> None:
    configuration = harness.configuration("fpga")
    harness.restart()
    assert harness.configuration("fpga") == configuration
    assert published.settle() == before


def test_a_busy_thing_is_so_over_a_restart(
    harness: CyborgHarness, published: Publishing, before: Contents
) -> None:
    harness.make_busy(ONE)
    harness.restart()
    assert figures(published.settle(), ONE) == (1, 1)
    harness.make_free(ONE)
    assert published.settle() == before


# What breaks.


def test_the_calls_of_a_listing_are_written_down(
    harness: CyborgHarness, published: Publishing
) -> None:
    published.sync()
    assert [*harness.calls] == [f"GET /accelerator/v2{path}" for path in LISTING]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("at", [0, 1, 2, None])
def test_each_call_can_break_and_nothing_is_lost(
    subject: Subject, published: Publishing, before: Contents, at: int | None, fault: Fault
) -> None:
    harness = subject.harness
    harness.expect(at, fault)
    with pytest.raises(BackendError):
        published.cycle.sync()
    assert len(harness.calls) == (at or 0) + 1
    assert subject.placement.contents() == before

    harness.expect()
    assert published.settle() == before


def test_what_the_harness_asks_itself_breaks_never(harness: CyborgHarness) -> None:
    harness.expect(fault=Fault.RAISE)
    harness.remove(ONE)
    harness.put_back(ONE)
    harness.make_busy(ONE)
    harness.make_free(ONE)
    assert not harness.calls


# Programming.


def test_a_thing_holds_its_image_when_it_was_programmed(
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
        harness.add()  # Cyborg looks at what its devices hold when it looks for devices
    assert functions(placement.contents(), ONE) == [function]

    harness.make_busy(ONE)
    harness.make_free(ONE)
    assert functions(placement.contents(), ONE) == [function]


def test_what_was_not_started_can_be_stopped(subject: Subject) -> None:
    CyborgHarness(subject.harness.directory, subject.placement).stop()
