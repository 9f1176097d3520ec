"""Transactions of a cycle, and its requests to another process that stores the objects."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.cycles import Publishing
from tests.lab.database_writes import Transactions
from tests.lab.drivers import flat
from tests.lab.objects import questions, statements
from tests.lab.placement import PlacementFixture
from wharfinger.reconcile.apply import BATCH


@pytest.fixture
def publishing(placement: PlacementFixture, tmp_path: Path) -> Iterator[Publishing]:
    """A driver instance whose service counts as up in the whole test, even on a slow machine."""
    with Publishing(placement, tmp_path / "state", down_time=timedelta(days=1)) as fixture:
        yield fixture


def fleet(publishing: Publishing, size: int, vcpus: int = 1) -> None:
    publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=vcpus) for number in range(size)}


def test_unchanged_cycle_reads_once_and_writes_nothing(publishing: Publishing) -> None:
    for size in (1, 50):
        fleet(publishing, size)
        publishing.cycle.sync()
        for cycle in ("sync", "drift", "poll"):
            with Transactions() as transactions:
                assert not getattr(publishing.cycle, cycle)().problems
            assert len(transactions.reads) == (cycle != "poll"), cycle
            assert transactions.writes == [], cycle
    publishing.restarted()
    with Transactions() as transactions:
        publishing.cycle.sync()
    assert (len(transactions.reads), transactions.writes) == (1, [])


def test_changed_cycle_writes_twice_for_each_batch_of_trees(publishing: Publishing) -> None:
    size = BATCH + 20
    fleet(publishing, size)
    publishing.cycle.sync()
    for changed, batches in ((1, 1), (BATCH, 1), (size, 2)):
        fleet(publishing, changed, vcpus=1 + changed)
        with Transactions() as transactions:
            result = publishing.cycle.sync()
        assert len(result.steps) == changed
        assert not result.problems
        assert len(transactions.reads) == 1
        assert len(transactions.writes) == 2 * batches


@ANYWHERE
def test_cycle_with_remote_objects_sends_one_request_and_reads_few_rows(
    publishing: Publishing, where: str
) -> None:
    for size in (1, 50):
        fleet(publishing, size)
        publishing.cycle.sync()
        for cycle in ("sync", "drift"):
            with statements(publishing.state_path) as said, questions() as asked:
                getattr(publishing.cycle, cycle)()
            assert len(said) == 7, "one for each table, and one to begin"
            assert len(asked) == (where != "here")
