"""Polls of a real Cyborg: what they see, and what they cost; and devices that are being bound."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from keystoneauth1.exceptions import ConnectFailure

from tests.lab.accelerators import Cards, Clock, figures, traits
from tests.lab.cyborg_harness import LISTING, MARKS, Harness
from tests.lab.cycles import everything
from tests.lab.faults import FAULTS, Answer
from wharfinger.exceptions import BackendError, PlacementUnavailable
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import deployable, device

HOSTS: Final = ("fpga-host-1", "fpga-host-2")
TRAIT: Final = "CUSTOM_FPGA_LAB"
HELD: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_"
#: A card in two parts, and another card.
PARTS: Final = (deployable(accelerators=2), deployable("r1"))
OTHER: Final = device("1c")
FREE, FULL = (
    {"0c_r0": {"FPGA": (2, of)}, "0c_r1": {"FPGA": (1, of // 2)}, "1c_r0": {"FPGA": (1, 0)}}
    for of in (0, 2)
)


@pytest.fixture(scope="module")
def harness(placement_service: EmbeddedPlacement) -> Iterator[Harness]:
    with Harness(placement_service, *HOSTS) as harness:
        yield harness


@pytest.fixture
def in_background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.stopped(monkeypatch)


@pytest.fixture
def cards(harness: Harness, tmp_path: Path, clock: Clock) -> Iterator[Cards]:
    """What is on two hosts has been published; of the first card, programming waits for a go."""
    harness.begin(device("0c", *PARTS, hold=True), OTHER, more={HOSTS[1]: [device("0c")]})
    with Cards(harness.placement, harness.url, tmp_path) as cards:
        cards.sync()
        harness.between.expect()
        cards.placement.requests.clear()
        yield cards
    for _ in harness.cyborg.underway("0c"):
        harness.cyborg.go("0c")
    if harness.cyborg.programmings("0c"):
        harness.cyborg.wait_until_programmed("0c")


def asked(harness: Harness) -> list[str]:
    """What Cyborg was asked, since that was asked last."""
    paths = [one.path for one in harness.between.asked]
    harness.between.expect()
    return paths


def shown(harness: Harness) -> dict[str, object]:
    """What the first host has to give."""
    return {name: figures(f"{HOSTS[0]}_{name}") for name in FREE}


def binds(harness: Harness, name: str = "r0", **accel: str) -> str:
    """An accelerator request whose device is being programmed."""
    cyborg = harness.cyborg
    image = cyborg.create_image("3AFB")
    request = cyborg.bind(harness.uuid("0c", name), **(accel or {"bitstream_id": image}))
    cyborg.wait_for_programming("0c")
    return request


# What it costs.


def test_where_nothing_changes_only_cyborg_is_asked(harness: Harness, cards: Cards) -> None:
    before = everything()
    for _ in range(3):
        assert not cards.poll().steps
        assert asked(harness) == [*LISTING]
    assert not cards.placement.requests.seen
    assert everything() == before


@pytest.mark.parametrize("took", [0.1, 1.0, 5.0])
def test_a_slow_cyborg_is_asked_a_tenth_of_the_time(
    harness: Harness, cards: Cards, clock: Clock, took: float
) -> None:
    def take() -> None:
        clock.now += took

    harness.between.act(1, take)
    cards.poll()
    assert asked(harness) == [*LISTING]
    harness.cyborg.add_device("2c")
    harness.cyborg.discover()

    clock.now += took * 9.9
    assert not cards.poll().steps
    assert asked(harness) == []
    clock.now += took * 0.2
    assert len(cards.poll().steps) == 1
    assert asked(harness) == [*LISTING]
    # It was quick that time.
    cards.poll()
    assert asked(harness) == [*LISTING]


def test_the_slowest_is_asked_each_minute(harness: Harness, cards: Cards, clock: Clock) -> None:
    def take() -> None:
        clock.now += 300

    harness.between.act(1, take)
    cards.poll()
    asked(harness)
    clock.now += 59
    cards.poll()
    assert asked(harness) == []
    clock.now += 2
    cards.poll()
    assert asked(harness) == [*LISTING]


def test_a_complete_cycle_asks_whenever_it_is(harness: Harness, cards: Cards, clock: Clock) -> None:
    def take() -> None:
        clock.now += 5

    for _ in range(2):
        harness.between.act(1, take)
        cards.sync()
        assert asked(harness) == [*LISTING]
    cards.poll()
    assert asked(harness) == []


def test_one_that_fails_slowly_is_asked_as_rarely(
    harness: Harness, cards: Cards, clock: Clock
) -> None:
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
    clock.now += 2
    cards.poll()
    assert asked(harness) == [*LISTING]


# Being bound.


def test_what_is_being_bound_is_reserved_with_all_of_its_device(
    harness: Harness, cards: Cards
) -> None:
    before = everything()
    assert shown(harness) == FREE
    request = binds(harness)
    assert shown(harness) == FREE  # Cyborg reserves nothing

    assert len(cards.poll().steps) == 2

    assert shown(harness) == FULL
    reason = f"being bound to accelerator request {request}"
    for name in ("r0", "r1"):
        assert cards.reasons(harness.uuid("0c", name)) == [reason]
    assert not cards.poll().steps
    assert not cards.drift().steps

    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")
    cards.poll()

    assert shown(harness) == FREE
    assert cards.reasons(harness.uuid("0c")) == []
    before[harness.name("0c")]["traits"].add(f"{HELD}3AFB")  # which Cyborg says
    assert everything() == before


def test_it_takes_one_write(harness: Harness, cards: Cards) -> None:
    request = binds(harness)
    with cards.costing() as requests:
        cards.poll()
    assert requests.writes == ["POST /reshaper"]

    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")
    with cards.costing() as requests:
        cards.poll()
    assert requests.writes == ["POST /reshaper"]


def test_what_is_used_of_it_stays_so(harness: Harness, cards: Cards) -> None:
    consumer = str(uuid4())
    cards.allocate(harness.name("0c"), consumer, FPGA=1)
    request = binds(harness)

    cards.poll()
    assert shown(harness) == FULL
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")
    cards.poll()

    assert shown(harness) == FREE
    assert everything()[harness.name("0c")]["allocations"] == {(consumer, "FPGA"): 1}


@pytest.mark.parametrize("programming", ["fails", "raises"])
def test_what_could_not_be_bound_is_free_again(
    harness: Harness, cards: Cards, programming: str
) -> None:
    harness.cyborg.change_device("0c", programming=programming)
    request = binds(harness)
    cards.poll()
    assert shown(harness) == FULL

    harness.cyborg.go("0c")
    harness.cyborg.wait_for_nova(request)
    cards.poll()

    expected = {"fails": "Bound", "raises": "BindFailed"}
    assert harness.cyborg.request(request)["state"] == expected[programming]
    assert shown(harness) == FREE


def test_what_is_bound_without_programming_is_free(harness: Harness, cards: Cards) -> None:
    request = harness.cyborg.bind(harness.uuid("1c"))
    harness.cyborg.wait_for_request(request, "Bound")
    assert not cards.poll().steps
    assert shown(harness) == FREE


def test_it_is_reserved_as_long_as_any_is_being_bound(
    harness: Harness, cards: Cards, in_background: ThreadPoolExecutor
) -> None:
    first, second = binds(harness), binds(harness, "r1")
    harness.cyborg.wait_for_programming("0c", count=2)
    cards.poll()
    assert shown(harness) == FULL
    assert len(cards.reasons(harness.uuid("0c"))) == 2

    tells = {in_background.submit(harness.cyborg.wait_for_nova, one) for one in (first, second)}
    harness.cyborg.go("0c")
    told = next(as_completed(tells)).result()["tag"]
    cards.poll()
    assert shown(harness) == FULL
    (left,) = {first, second} - {told}
    assert cards.reasons(harness.uuid("0c")) == [f"being bound to accelerator request {left}"]

    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(left, "Bound")
    cards.poll()
    assert shown(harness) == FREE


def test_an_operators_reservation_outlasts_it(harness: Harness, cards: Cards) -> None:
    cards.hold(harness.uuid("0c"))
    request = binds(harness)
    cards.poll()
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")
    cards.poll()
    assert shown(harness) == FREE | {"0c_r0": {"FPGA": (2, 2)}}
    cards.release(harness.uuid("0c"))
    assert shown(harness) == FREE


def test_a_resize_while_it_is_bound_does_not_free_it(harness: Harness, cards: Cards) -> None:
    request = binds(harness)
    cards.poll()
    harness.cyborg.resize("0c", 4)
    harness.cyborg.discover()
    assert figures(harness.name("0c")) == {"FPGA": (4, 0)}
    cards.poll()
    assert figures(harness.name("0c")) == {"FPGA": (4, 4)}
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")
    cards.poll()
    assert figures(harness.name("0c")) == {"FPGA": (4, 0)}


def test_what_was_being_bound_when_we_came_is_reserved(harness: Harness, cards: Cards) -> None:
    request = binds(harness)
    cards.restarted()
    cards.sync()
    assert shown(harness) == FULL
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")
    cards.restarted()
    cards.poll()
    assert shown(harness) == FREE


# Who is away.


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_change_that_a_failed_poll_has_missed_is_seen_by_the_next(
    harness: Harness, cards: Cards, at: int
) -> None:
    request = binds(harness)
    before = everything()
    harness.between.expect(at, FAULTS["503"])
    with pytest.raises(BackendError, match="answers 503"):
        cards.cycle.poll()
    assert not cards.placement.requests.seen
    assert everything() == before

    harness.between.expect()
    cards.poll()
    assert shown(harness) == FULL
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")


def test_a_change_that_placement_did_not_take_is_tried_again(
    harness: Harness, cards: Cards
) -> None:
    request = binds(harness)
    cards.placement.adapter.before = is_away
    with pytest.raises(PlacementUnavailable):
        cards.cycle.poll()
    assert shown(harness) == FREE

    cards.placement.adapter.before = lambda _method, _path: None
    cards.poll()
    assert shown(harness) == FULL
    harness.cyborg.go("0c")
    harness.cyborg.wait_for_request(request, "Bound")


def is_away(method: str, path: str) -> None:
    """Placement takes no writes."""
    if method != "GET":
        raise ConnectFailure(f"{method} {path}: there is nobody")


def test_a_mark_of_another_life_names_all(harness: Harness, cards: Cards) -> None:
    _, mark = cards.driver.changed_nodes(None)
    assert cards.driver.changed_nodes(mark)[0] == set()
    cards.restarted()
    cards.driver.get_available_nodes(refresh=True)

    names, new = cards.driver.changed_nodes(mark)

    assert names == {*HOSTS}
    assert cards.driver.changed_nodes(new)[0] == set()


def test_cyborg_may_come_back(harness: Harness, cards: Cards) -> None:
    """With an agent that reports all anew."""
    before = everything()
    with Cards(cards.placement, harness.cyborg.url, cards.configuration.parent / "more") as direct:
        direct.sync()
        harness.cyborg.stop()
        try:
            with pytest.raises(BackendError, match="Unable to establish connection"):
                direct.cycle.poll()
        finally:
            harness.cyborg.start_again()
        assert not direct.poll().steps
    assert everything() == before
    assert traits(harness.name("0c")) == {TRAIT} | MARKS
