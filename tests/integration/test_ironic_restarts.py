"""A real Ironic that is restarted, down, or out of its mind: nothing changes in Placement then."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.lab.bare_metal import GOLD, Metal, free, reserved, with_template
from tests.lab.between import Between
from tests.lab.cycles import everything
from tests.lab.faults import FAULTS, Answer, Fault
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import BackendError
from wharfinger_harnesses.ironic import Ironic
from wharfinger_ironic import client
from wharfinger_ironic.node import Node
from wharfinger_ironic.states import PROVISION_STATES

#: Nodes that this Ironic has on a page at most; a poll asks for as many.
PAGE: Final = 10
PACES = ["poll", "sync"]
SIGNALS = [signal.SIGTERM, signal.SIGKILL]


@pytest.fixture(scope="module")
def ironic() -> Iterator[Ironic]:
    with Ironic({"api": {"max_limit": PAGE}}) as ironic:
        yield with_template(ironic)


@pytest.fixture
def metal(placement: PlacementFixture, ironic: Ironic, tmp_path: Path) -> Iterator[Metal]:
    with Metal(placement, ironic, tmp_path / "state") as metal:
        yield metal


@pytest.fixture(autouse=True)
def up(ironic: Ironic) -> Iterator[None]:
    """Whatever a test has done to it, the next one finds it up."""
    yield
    if ironic.process.poll() is not None:
        ironic.start_again()


def fails(metal: Metal, pace: str) -> None:
    """Have a cycle fail, with nothing changed."""
    before = everything()
    writes = len(metal.placement.requests.writes)
    with pytest.raises(BackendError):
        getattr(metal.cycle, pace)()
    assert len(metal.placement.requests.writes) == writes
    assert everything() == before


# Restarted.


def test_a_cleaning_that_a_restart_cuts_short_is_seen_to_have_failed(
    metal: Metal, ironic: Ironic
) -> None:
    node = metal.available(clean="hold")
    metal.sync()
    metal.goes(node, "manage", "manageable")
    metal.goes(node, "provide", "cleaning")
    assert metal.shows(node) == reserved("cleaning")

    ironic.stop()
    fails(metal, "poll")
    assert metal.shows(node) == reserved("cleaning")
    ironic.start_again()
    ironic.wait_for(node, "clean failed")
    metal.poll()
    figures, [failed] = metal.shows(node)
    assert figures == {GOLD: (1, 1)}
    assert failed.startswith(f"{PROVISION_STATES['clean failed']}: ")

    metal.told(node)
    metal.goes(node, "manage", "manageable")
    metal.goes(node, "provide", "available")
    assert metal.shows(node) == free()


def test_a_cleaning_that_waits_outlives_a_restart(metal: Metal, ironic: Ironic) -> None:
    node = metal.available(clean="wait")
    metal.sync()
    metal.goes(node, "manage", "manageable")
    metal.goes(node, "provide", "clean wait")
    before = metal.shows(node)
    assert before == reserved(str(PROVISION_STATES["clean wait"]))

    ironic.stop(signal.SIGTERM)
    fails(metal, "poll")
    ironic.start_again()
    metal.poll()
    assert metal.shows(node) == before
    metal.goes_on(node, "available")
    assert metal.shows(node) == free()


@pytest.mark.parametrize("by", SIGNALS, ids=lambda by: by.name)
def test_a_listing_that_a_restart_cuts_short_is_none(
    by: signal.Signals,
    metal: Metal,
    ironic: Ironic,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends between two pages; the first has all the nodes that are on it."""
    nodes = ironic.insert_nodes(PAGE + 5, owner=metal.owner, updated_at=None)
    metal.sync()
    assert all(metal.shows(node) == free() for node in nodes)
    new = metal.available()
    metal.write(nodes[0], maintenance=True)
    metal.write(nodes[-1], maintenance=True)
    pages = []
    page = client.Ironic.page

    def page_and_stop(self: client.Ironic, after: str | None) -> list[Node]:
        pages.append(after)
        found = page(self, after)
        ironic.stop(by)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(client.Ironic, "page", page_and_stop)
        fails(metal, "sync")
    assert len(pages) == 2

    ironic.start_again()
    metal.sync()
    assert metal.shows(nodes[0]) == metal.shows(nodes[-1]) == reserved("maintenance")
    assert all(metal.shows(node) == free() for node in (*nodes[1:-1], new))


def test_what_changed_while_ironic_was_down_is_seen_in_the_first_poll_after(
    metal: Metal, ironic: Ironic
) -> None:
    nodes = [metal.available() for _ in range(4)]
    metal.sync()
    ironic.set_maintenance(nodes[3], "rack 7 moves")
    metal.poll()
    ironic.set_maintenance(nodes[0], "before it went down")
    ironic.stop()
    for _ in range(3):
        fails(metal, "poll")
    metal.write(nodes[1], maintenance=True, maintenance_reason="while it was down")
    fails(metal, "poll")
    fails(metal, "sync")
    fails(metal, "poll")
    ironic.start_again()
    ironic.end_maintenance(nodes[3])

    metal.poll()

    assert metal.shows(nodes[0]) == reserved("maintenance: before it went down")
    assert metal.shows(nodes[1]) == reserved("maintenance: while it was down")
    assert metal.shows(nodes[2]) == metal.shows(nodes[3]) == free()


def test_a_process_that_starts_while_ironic_is_down_removes_nothing(
    metal: Metal, ironic: Ironic
) -> None:
    node = metal.available()
    metal.sync()
    ironic.stop()
    metal.restarted()
    for pace in (*PACES, *PACES):
        fails(metal, pace)
    ironic.start_again()
    ironic.set_maintenance(node, "a look at its fans")
    metal.poll()
    assert metal.shows(node) == reserved("maintenance: a look at its fans")


# Out of its mind.

#: What may come instead of an answer, by name.
ANSWERS: Final = {
    "500": FAULTS["500"],
    "401": FAULTS["401"],
    "503": FAULTS["503"],
    "a page": FAULTS["page"],
    "garbage": FAULTS["latin-1"],
    "nonsense": FAULTS["nonsense when done"],
    "half": FAULTS["truncated when done"],
    "reset": FAULTS["reset"],
    "nobody": FAULTS["refused"],
    "nothing": Fault("nothing", "", answer=lambda answer: Answer(200, b"")),
    "another": Fault("another", "", answer=lambda answer: Answer(200, b"{}")),
    "null": Fault("null", "", answer=lambda answer: Answer(200, b'{"nodes": null}')),
}


@pytest.fixture
def between(ironic: Ironic) -> Iterator[Between]:
    with Between(ironic.url) as between:
        yield between


@pytest.fixture
def answered(
    placement: PlacementFixture, ironic: Ironic, between: Between, tmp_path: Path
) -> Iterator[Metal]:
    """An instance that has what stands between for its Ironic."""
    with Metal(placement, ironic, tmp_path / "state", url=between.url) as metal:
        yield metal


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_none_fails_a_poll_and_nothing_else(
    name: str, answered: Metal, between: Between
) -> None:
    node, other = answered.available(), answered.available()
    answered.sync()
    answered.ironic.set_maintenance(node, "rack 7 moves")

    between.expect(0, ANSWERS[name])
    fails(answered, "poll")
    assert between.struck == 1

    between.expect()
    answered.poll()
    assert answered.shows(node) == reserved("maintenance: rack 7 moves")
    assert answered.shows(other) == free()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_is_none_fails_a_listing_whichever_it_is(
    name: str, answered: Metal, between: Between
) -> None:
    nodes = [*answered.ironic.insert_nodes(PAGE, owner=answered.owner, updated_at=None)]
    nodes += [answered.available() for _ in range(2)]
    answered.sync()
    between.expect()
    answered.sync()
    count = len(between.seen)
    assert count >= 4
    answered.write(nodes[-1], maintenance=True)

    for number in range(count):
        between.expect(number, ANSWERS[name])
        fails(answered, "sync")
        assert between.struck == 1

    between.expect()
    answered.sync()
    assert answered.shows(nodes[-1]) == reserved("maintenance")
    assert all(answered.shows(node) == free() for node in nodes[:-1])
