"""Polls of a real Cyborg: their results and requests, and devices that are bound to instances."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final
from uuid import uuid4

import pytest
from keystoneauth1.exceptions import ConnectFailure

from tests.integration.cyborg.conftest import Publish
from tests.lab.accelerators import Cards, Clock, figures
from tests.lab.cyborg_harness import LISTING, Harness
from tests.lab.cycles import everything
from tests.lab.faults import FAULTS, Answer
from wharfinger.exceptions import BackendError, PlacementUnavailable
from wharfinger_harnesses.cyborg import deployable, device

HELD: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_"
#: The functions of the first card; the second card has one function.
PARTS: Final = (deployable(accelerators=2), deployable("r1"))
FREE, FULL = (
    {"0c_r0": {"FPGA": (2, of)}, "0c_r1": {"FPGA": (1, of // 2)}, "1c_r0": {"FPGA": (1, 0)}}
    for of in (0, 2)
)


@pytest.fixture
def cards(harness: Harness, publish: Publish) -> Cards:
    """A driver instance that has published the cards. The first card is programmed at a signal."""
    harness.begin(device("0c", *PARTS, hold=True), device("1c"))
    cards = publish()
    cards.sync()
    harness.between.expect()
    cards.placement.requests.clear()
    return cards


def asked(harness: Harness) -> list[str]:
    """Return the requests to Cyborg since the last call."""
    paths = [one.path for one in harness.between.asked]
    harness.between.expect()
    return paths


def shown(harness: Harness) -> dict[str, object]:
    """Return the inventories of the first host's devices, by name without the host."""
    return {name: figures(f"{harness.hosts[0]}_{name}") for name in FREE}


def binds(harness: Harness, name: str = "r0") -> str:
    """Begin to bind an accelerator request; wait until its device is being programmed."""
    cyborg = harness.cyborg
    request = cyborg.bind(harness.uuid("0c", name), bitstream_id=cyborg.create_image("3AFB"))
    cyborg.wait_for_programming("0c")
    return request


def goes_on(harness: Harness, request: str) -> None:
    """Let the programming end, and wait until the request is bound."""
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")


# The requests of a poll.


def test_poll_without_changes_asks_only_cyborg(harness: Harness, cards: Cards) -> None:
    before = everything()
    for _ in range(2):
        assert not cards.poll().steps
        assert asked(harness) == [*LISTING]
    assert not cards.placement.requests.seen
    assert everything() == before


def test_slow_cyborg_is_polled_for_at_most_a_tenth_of_the_time(
    harness: Harness, cards: Cards, clock: Clock
) -> None:
    def take() -> None:
        clock.now += 5

    harness.between.act(1, take)
    cards.poll()
    assert asked(harness) == [*LISTING]
    harness.cyborg.add_device("2c")
    harness.cyborg.discover()
    clock.now += 49
    assert not cards.poll().steps
    assert asked(harness) == []
    harness.between.act(1, take)
    cards.sync()  # a full cycle lists without this limit
    assert asked(harness) == [*LISTING]
    cards.poll()
    assert asked(harness) == []
    clock.now += 51
    cards.poll()
    assert asked(harness) == [*LISTING]

    def late(_answer: Answer) -> Answer:
        clock.now += 5
        return Answer(503)

    harness.between.replace(0, late)
    with pytest.raises(BackendError, match=r"listing the deployables failed.* answers 503"):
        cards.cycle.poll()
    asked(harness)
    clock.now += 49
    cards.poll()
    assert asked(harness) == []


# Devices that are being bound.


def test_device_that_is_being_bound_is_reserved_with_all_its_parts(
    harness: Harness, cards: Cards
) -> None:
    before = everything()
    assert shown(harness) == FREE
    request = binds(harness)
    assert harness.cyborg.request(request)["state"] == "BindStarted"
    assert shown(harness) == FREE  # Cyborg reserves nothing

    with cards.costing() as requests:
        assert len(cards.poll().steps) == 2
    assert requests.writes == ["POST /reshaper"]
    assert shown(harness) == FULL
    reason = f"being bound to accelerator request {request}"
    for name in ("r0", "r1"):
        assert cards.reasons(harness.uuid("0c", name)) == [reason]
    assert not cards.poll().steps
    assert not cards.drift().steps
    cards.restarted()
    cards.sync()
    assert shown(harness) == FULL

    goes_on(harness, request)
    with cards.costing() as requests:
        cards.poll()
    assert requests.writes == ["POST /reshaper"]
    assert shown(harness) == FREE
    assert cards.reasons(harness.uuid("0c")) == []
    before[harness.name("0c")]["traits"].add(
        f"{HELD}3AFB"
    )  # Cyborg reports the programmed function
    assert everything() == before


def test_allocation_resize_and_reservation_outlast_the_binding(
    harness: Harness, cards: Cards
) -> None:
    consumer = str(uuid4())
    cards.allocate(harness.name("0c"), consumer, FPGA=1)
    request = binds(harness)
    cards.poll()
    assert shown(harness) == FULL
    harness.cyborg.resize("0c", 4)
    harness.cyborg.discover()
    assert figures(harness.name("0c")) == {"FPGA": (4, 0)}
    cards.poll()
    assert figures(harness.name("0c")) == {"FPGA": (4, 4)}
    cards.hold(harness.uuid("0c"))
    goes_on(harness, request)
    cards.poll()
    assert shown(harness) == FREE | {"0c_r0": {"FPGA": (4, 4)}}
    cards.release(harness.uuid("0c"))
    assert shown(harness) == FREE | {"0c_r0": {"FPGA": (4, 0)}}
    assert everything()[harness.name("0c")]["allocations"] == {(consumer, "FPGA"): 1}


@pytest.mark.parametrize(("programming", "state"), [("fails", "Bound"), ("raises", "BindFailed")])
def test_device_that_could_not_be_bound_is_free_again(
    harness: Harness, cards: Cards, programming: str, state: str
) -> None:
    harness.cyborg.change_device("0c", programming=programming)
    request = binds(harness)
    cards.poll()
    assert shown(harness) == FULL
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_nova(request)
    cards.poll()
    assert harness.cyborg.request(request)["state"] == state
    assert harness.cyborg.programmed("0c") is None
    assert shown(harness) == FREE


def test_device_that_is_bound_without_programming_is_free(harness: Harness, cards: Cards) -> None:
    request = harness.cyborg.bind(harness.uuid("1c"))
    harness.cyborg.wait_for_request(request, "Bound")
    assert not cards.poll().steps
    assert shown(harness) == FREE


def test_device_is_reserved_as_long_as_any_part_is_being_bound(
    harness: Harness, cards: Cards
) -> None:
    first, second = binds(harness), binds(harness, "r1")
    harness.cyborg.wait_for_programming("0c", count=2)
    cards.poll()
    assert shown(harness) == FULL
    assert len(cards.reasons(harness.uuid("0c"))) == 2

    with ThreadPoolExecutor() as background:
        tells = {background.submit(harness.cyborg.wait_for_nova, one) for one in (first, second)}
        harness.cyborg.go("0c")
        told = next(as_completed(tells)).result()["tag"]
        cards.poll()
        assert shown(harness) == FULL
        (left,) = {first, second} - {told}
        assert cards.reasons(harness.uuid("0c")) == [f"being bound to accelerator request {left}"]
        goes_on(harness, left)
    cards.poll()
    assert shown(harness) == FREE


# Failures.


def test_change_during_failed_polls_is_written_by_the_next_poll(
    harness: Harness, cards: Cards
) -> None:
    request = binds(harness)
    before = everything()
    for at in range(len(LISTING)):
        harness.between.expect(at, FAULTS["503"])
        with pytest.raises(BackendError, match="answers 503"):
            cards.cycle.poll()
    assert not cards.placement.requests.seen
    harness.between.expect()
    cards.placement.adapter.before = is_away
    with pytest.raises(PlacementUnavailable):
        cards.cycle.poll()
    assert everything() == before

    cards.placement.adapter.before = lambda _method, _path: None
    cards.poll()
    assert shown(harness) == FULL
    goes_on(harness, request)


def is_away(method: str, path: str) -> None:
    """Fail a write, as if Placement did not answer; let a GET pass."""
    if method != "GET":
        raise ConnectFailure(f"{method} {path}: no server answers")


def test_cyborg_after_an_outage_has_all_its_devices(
    harness: Harness, cards: Cards, publish: Publish
) -> None:
    """Cyborg's agent reports all devices again."""
    before = everything()
    direct = publish(harness.cyborg.url)
    direct.sync()
    known = harness.cyborg.deployables()
    harness.cyborg.stop()
    try:
        for cycle in (direct.cycle.poll, direct.cycle.sync):
            with pytest.raises(BackendError, match="Unable to establish connection"):
                cycle()
    finally:
        harness.start_again()
    assert not direct.poll().steps
    assert not direct.sync().steps
    assert everything() == before
    assert harness.cyborg.deployables() == known
