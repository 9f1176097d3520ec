"""A tree that cannot be read, looked up or written delays no other tree."""

from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents, execute
from tests.lab.drivers import also, flat
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import (
    CleaningDriver,
    ReservingDriver,
    drives,
    is_full,
    rows,
    summary,
)
from tests.lab.samples import uuid
from wharfinger.exceptions import PlacementUnavailable, UnexpectedAnswer
from wharfinger.objects import ComputeNodeList
from wharfinger.placement.client import PlacementClient
from wharfinger.reconcile.reserve_and_release import Reservations


@pytest.mark.parametrize("table", ["compute_nodes", "provider_records"])
def test_node_of_another_host_with_a_damaged_revision_stops_no_other_node(
    publishing: Publishing, placement: PlacementFixture, table: str
) -> None:
    publishing.driver.nodes["cn"] = flat(CUSTOM_GOLD=2)
    publishing.cycle.sync()
    del publishing.driver.nodes["cn"]
    publishing.cycle.sync()
    execute(publishing, f"UPDATE {table} SET revision = -1")
    with Publishing(placement, publishing.state_path, host="far") as far:
        far.driver.nodes |= {"cn": flat(CUSTOM_GOLD=2), "new": flat(CUSTOM_GOLD=2)}
        assert far.cycle.sync().problems
    assert "new" in contents(placement)


def test_own_node_with_a_damaged_revision_stops_no_other_node(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(CUSTOM_GOLD=2)
    publishing.cycle.sync()
    execute(publishing, "UPDATE compute_nodes SET revision = -1")
    publishing.driver.nodes["new"] = flat(CUSTOM_GOLD=2)
    assert publishing.restarted().sync().problems
    assert "new" in contents(placement)


def test_consumer_that_cannot_be_looked_up_stops_no_other_node(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes["cn"] = flat(CUSTOM_GOLD=2)
    publishing.cycle.sync()
    consumer = uuid("a consumer")
    allocate(placement, consumer, cn={"CUSTOM_GOLD": 1})
    reservations = Reservations(publishing.client, publishing.context)
    reservations.before_release(consumer, [summary(placement, "cn").uuid])
    driver.nodes["new"] = flat(CUSTOM_GOLD=2)

    def garbled(_client: PlacementClient, _consumer: str) -> Any:
        raise UnexpectedAnswer(request="GET", status=200, code="", detail="garbled")

    monkeypatch.setattr(PlacementClient, "get_allocations", garbled)
    assert publishing.cycle.sync().problems
    assert "new" in contents(placement)
    assert rows(publishing.context)
    assert is_full(placement, "cn")


def test_rows_of_nodes_keep_their_amounts_when_placement_stops_answering(
    publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"cn-{number}" for number in range(3)]
    publishing.driver.nodes |= {name: flat(VCPU=2) for name in names}
    publishing.cycle.sync()
    publishing.driver.nodes |= {name: flat(VCPU=8) for name in names}

    def no_answer(*_args: Any, **_kwargs: Any) -> None:
        raise PlacementUnavailable(request="POST /reshaper", status=503, code="", detail="away")

    with monkeypatch.context() as patched:
        patched.setattr(PlacementClient, "command", no_answer)
        with pytest.raises(PlacementUnavailable):
            publishing.cycle.sync()
    nodes = ComputeNodeList.get_by_filters(publishing.context)
    assert {one.vcpus for one in nodes} == {2}


def test_slow_tree_with_a_conflict_in_each_attempt_delays_no_other_reservation(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program writes before each attempt, and each attempt takes 31 seconds."""
    driver = ReservingDriver()
    drives(publishing, driver)
    driver.nodes |= {name: flat(CUSTOM_GOLD=2) for name in ("slow", "good-1", "good-2")}
    publishing.cycle.sync()
    slow = summary(placement, "slow").uuid
    driver.nodes["slow"] = also(lambda tree: tree.add_traits("slow", "CUSTOM_B"))(
        flat(CUSTOM_GOLD=2)
    )
    for name in ("good-1", "good-2"):
        driver.says(name, name, "cleaning")
    seconds = [0.0]
    theirs, adapter = placement.new_client(), placement.adapter

    def before(method: str, path: str) -> None:
        if method == "PUT" and path.endswith(f"{slow}/traits"):
            seconds[0] += 31
            adapter.before = lambda method, path: None
            generation = theirs.get_traits(slow).resource_provider_generation
            theirs.set_aggregates(slow, generation, [])
            adapter.before = before

    monkeypatch.setattr(adapter, "before", before)
    monkeypatch.setattr("wharfinger.reconcile.apply.boottime", lambda: seconds[0])
    assert publishing.cycle.sync().problems
    assert is_full(placement, "good-1")
    assert is_full(placement, "good-2")
