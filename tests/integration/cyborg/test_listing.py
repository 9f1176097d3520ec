"""Listings of a real Cyborg that the driver rejects.

tests/unit/cyborg/test_client.py has more wrong answers.
"""

from collections.abc import Callable
from typing import Final

import pytest

from tests.integration.cyborg.conftest import Publish
from tests.lab.accelerators import Cards, figures
from tests.lab.between import edited
from tests.lab.cyborg_harness import LISTING, Harness
from tests.lab.cycles import everything
from tests.lab.faults import Answer
from wharfinger.exceptions import BackendError
from wharfinger_harnesses.cyborg import deployable, device

DEVICES: Final = (
    device("0c", deployable(accelerators=2), deployable("r1")),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
)


@pytest.fixture
def cards(harness: Harness, publish: Publish) -> Cards:
    harness.begin(*DEVICES)
    cards = publish()
    cards.sync()
    return cards


def fails(cards: Cards) -> str:
    """Return the error of a cycle whose listing fails; assert that the cycle writes nothing."""
    before, requests = everything(), len(cards.placement.requests)
    with pytest.raises(BackendError) as caught:
        cards.cycle.sync()
    assert everything() == before
    assert len(cards.placement.requests) == requests
    return str(caught.value)


def emptied(name: str) -> Callable[[Answer], Answer]:
    """Return a change that empties the list with this name in an answer."""
    return edited(lambda content: content[name].clear())


def test_empty_list_is_rejected_and_an_empty_list_of_requests_accepted(
    harness: Harness, cards: Cards
) -> None:
    for at, name, lacking in (
        (0, "deployables", "deployables"),
        (2, "devices", "hosts with devices"),
    ):
        for _ in range(2):  # a repeated empty list is rejected, too
            harness.between.replace(at, emptied(name))
            assert f"Cyborg lists no {lacking}" in fails(cards)
    harness.between.replace(1, emptied("arqs"))
    assert not cards.sync().steps


def test_cyborg_that_lost_all_devices_is_rejected(harness: Harness, cards: Cards) -> None:
    cyborg = harness.cyborg
    cyborg.set_hardware()
    cyborg.discover()
    assert "Cyborg lists no deployables" in fails(cards)
    cyborg.set_hardware(*DEVICES)
    cyborg.discover()
    assert len(cards.sync().steps) == 3


def test_cyborg_error_is_reported(harness: Harness, cards: Cards) -> None:
    harness.cyborg.execute("ALTER TABLE deployables RENAME TO away")
    try:
        told = fails(cards)
    finally:
        harness.cyborg.execute("ALTER TABLE away RENAME TO deployables")
    assert "answers 500" in told
    assert "deployables" in told
    harness.between.expect()
    assert not cards.sync().steps
    assert [one.path for one in harness.between.asked] == [*LISTING]
    assert figures(harness.name("0c")) == {"FPGA": (2, 0)}
