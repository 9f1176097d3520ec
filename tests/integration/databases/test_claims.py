"""Claims whose instances are in a real PostgreSQL."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.claimants import together
from tests.lab.claiming import noted, taken
from tests.lab.cycles import Publishing
from tests.lab.drivers import flat
from tests.lab.placement import PlacementFixture
from tests.lab.postgresql import PostgreSQL
from tests.lab.samples import uuid
from wharfinger.exceptions import AllocationRefused, NoCandidates, ObjectError, PlacementError
from wharfinger.objects import InstanceList

ONE = uuid("an instance")
SMALL = flavor("small")
THREADS = 16


@pytest.fixture
def publishing(
    postgresql: PostgreSQL, placement: PlacementFixture, tmp_path: Path
) -> Iterator[Publishing]:
    with Publishing(
        placement, tmp_path / "state", database=postgresql.create_database()
    ) as fixture:
        yield fixture


def desk(publishing: Publishing, nodes: int) -> Desk:
    """Return a desk with ``nodes`` nodes of one VCPU each."""
    publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=1) for number in range(nodes)}
    assert not publishing.cycle.sync().problems
    made = Desk(publishing.client, publishing.context)
    made.setUp()
    return made


def test_last_unit_goes_to_one_of_many_threads(publishing: Publishing) -> None:
    one = desk(publishing, 1)
    ends = together([lambda: one.claim(SMALL)] * THREADS)

    assert [isinstance(end, NoCandidates) for end in ends].count(False) == 1
    [instance] = InstanceList.get_by_filters(publishing.context)
    assert held() == {instance.uuid: {"cn-0": {"VCPU": 1}}}
    assert noted(publishing.context) == taken(publishing.context)
    assert faults(publishing.context) == []


def test_claims_of_many_threads_succeed_if_there_is_a_unit_for_each(publishing: Publishing) -> None:
    one = desk(publishing, THREADS)
    together([lambda: one.claim(SMALL)] * THREADS)

    assert {name for its in held().values() for name in its} == publishing.driver.nodes.keys()
    assert len(held()) == len(list(InstanceList.get_by_filters(publishing.context))) == THREADS
    assert noted(publishing.context) == taken(publishing.context)
    assert faults(publishing.context) == []


def test_instance_claimed_and_released_at_once_has_one_allocation_or_none(
    publishing: Publishing,
) -> None:
    one = desk(publishing, 2)
    documented = (AllocationRefused, ObjectError, PlacementError)

    def claim() -> None:
        with suppress(*documented):
            one.claim(SMALL, uuid=ONE)

    def release() -> None:
        with suppress(*documented):
            one.claims.release(ONE)

    for _ in range(5):
        together([claim, release] * 4)
        with suppress(ObjectError):
            one.claims.release(ONE)
        assert held() == {}
        assert not list(InstanceList.get_by_filters(publishing.context))
    assert faults(publishing.context) == []
