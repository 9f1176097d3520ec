"""What a cycle costs in the database, and over the wire where another process keeps it."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.functional.tracker.places import ANYWHERE
from tests.lab.cycles import Publishing
from tests.lab.drivers import flat
from tests.lab.objects import questions, statements
from tests.lab.placement import PlacementFixture
from wharfinger.reconcile.cycle import Outcome

pytestmark = ANYWHERE

#: Nodes of one provider each.
FLEET = 50
#: Statements of a cycle in which nothing has changed, whatever the size of the fleet; each is one
#: question to another process.
SYNC, DRIFT = 11, 9


@pytest.fixture
def publishing(placement: PlacementFixture, tmp_path: Path) -> Iterator[Publishing]:
    """An instance that need not say in mid-cycle that it is up, however slow the machine is."""
    with Publishing(placement, tmp_path / "state", down_time=timedelta(days=1)) as fixture:
        yield fixture


class Cost:
    """The statements and the questions of a cycle's paces."""

    def __init__(self, publishing: Publishing, where: str) -> None:
        self._publishing = publishing
        self._is_here = where == "here"

    def of(self, pace: str) -> tuple[Outcome, int]:
        with statements(self._publishing.state_path) as said, questions() as asked:
            outcome: Outcome = getattr(self._publishing.cycle, pace)()
        assert not outcome.problems
        if self._is_here:
            assert not asked
        else:
            assert 0 < len(asked) <= len(said)
        return outcome, len(said)


def test_a_fleet_costs_a_bounded_number_of_statements_first_and_then_a_constant_one(
    publishing: Publishing, where: str
) -> None:
    cost = Cost(publishing, where)
    for size, new in ((1, 1), (FLEET, FLEET - 1)):
        publishing.driver.nodes |= {f"cn-{number}": flat(CUSTOM_GOLD=1) for number in range(size)}

        outcome, first = cost.of("sync")
        assert len(outcome.steps) == 3 * new
        assert first <= 7 * new + 2 * SYNC

        for _ in range(2):
            assert cost.of("sync")[1] == SYNC
            assert cost.of("drift")[1] == DRIFT
    publishing.restarted()
    assert cost.of("sync")[1] == SYNC + 1  # the rows are read
    assert cost.of("sync")[1] == SYNC


def test_nodes_that_change_are_saved_together(publishing: Publishing, where: str) -> None:
    cost = Cost(publishing, where)
    publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=1) for number in range(50)}
    publishing.cycle.sync()
    for count in (10, 50):
        publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=1 + count) for number in range(count)}
        outcome, said = cost.of("sync")

        assert len(outcome.steps) == count
        assert said <= SYNC + 15
