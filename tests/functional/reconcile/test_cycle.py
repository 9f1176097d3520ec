"""Syncs publish the driver's trees with few requests, and change no other provider."""

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.cycles import Publishing, contents
from tests.lab.drawing import Draw
from tests.lab.drivers import flat, with_children
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import (
    ConcurrentUpdate,
    NameTaken,
    PlacementUnavailable,
    WharfingerError,
)
from wharfinger.objects import RecordBatch
from wharfinger.providers import names
from wharfinger.providers.plan import SetInventories

MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}


def test_sync_sends_few_requests_and_an_unchanged_sync_sends_one(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    edit = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.driver.nodes["cn"] = edit
    plan = publishing.cycle.plan()
    assert len(plan.steps) == 6
    assert not placement.requests.writes
    assert not publishing.store.records
    placement.requests.clear()

    outcome = publishing.cycle.sync()

    assert outcome.steps == plan.steps
    assert not outcome.problems
    writes = [request.rsplit("/", 1)[-1] for request in placement.requests.writes]
    assert writes[-1] == "reshaper", "both have their traits before they have anything to give"
    assert writes.count("traits") == 2
    assert len(placement.requests) == 10
    found = contents(placement)
    assert found["cn"]["inventories"] == {"VCPU": (8, 0)}
    assert found["gpu"]["inventories"] == {"VGPU": (4, 0)}
    assert found["gpu"]["parent"] == "cn"
    assert found["cn"]["traits"] == found["gpu"]["traits"] == MARKS

    for cycle in (publishing.cycle, publishing.restarted()):
        placement.requests.clear()
        assert not cycle.sync().steps
        [request] = placement.requests.seen
        assert request.startswith("GET /resource_providers?in_tree=")

    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 5}})
    placement.requests.clear()
    outcome = publishing.cycle.sync()
    assert [type(step) for step in outcome.steps] == [SetInventories]
    assert len(placement.requests.writes) == 1


def test_first_sync_of_a_fleet_sends_three_requests_for_each_node_and_the_next_sends_one(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {f"node-{number}": flat(CUSTOM_GOLD=1) for number in range(20)}
    placement.requests.clear()

    publishing.cycle.sync()

    assert len(placement.requests) <= 3 * 20 + 8
    placement.requests.clear()
    publishing.restarted().sync()
    assert placement.requests.seen == [
        "GET /resource_providers?required=CUSTOM_WHARFINGER_SCRIPTED"
    ]


def test_tree_changed_by_another_client_is_read_and_planned_again(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    cn = contents(placement)["cn"]["uuid"]
    publishing.driver.nodes["cn"] = flat(VCPU=9)
    placement.client.create_trait("CUSTOM_OPERATORS")
    other = placement.new_client()

    placement.adapter.once_before(
        lambda method, path: method == "PUT" and path.endswith("/inventories"),
        lambda: other.set_traits(
            cn,
            other.get_traits(cn).resource_provider_generation,
            MARKS | {"CUSTOM_OPERATORS"},
        ),
    )
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert contents(placement)["cn"]["inventories"] == {"VCPU": (9, 0)}
    assert contents(placement)["cn"]["traits"] == MARKS | {"CUSTOM_OPERATORS"}


def test_tree_with_endless_conflicts_is_reported_and_the_other_trees_are_written(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes |= {"a": flat(VCPU=8), "b": flat(VCPU=8)}
    publishing.cycle.sync()
    a = contents(placement)["a"]["uuid"]
    publishing.driver.nodes |= {"a": flat(VCPU=9), "b": flat(VCPU=9)}
    tries: Counter[str] = Counter()

    def refuse(method: str, path: str) -> None:
        if path == "/reshaper" or (method == "PUT" and a in path):
            tries[path] += 1
            raise ConcurrentUpdate(
                request=path, status=409, code="placement.concurrent_update", detail="again"
            )

    placement.adapter.before = refuse
    outcome = publishing.cycle.sync()
    placement.adapter.before = lambda method, path: None

    assert [type(problem) for problem in outcome.problems] == [ConcurrentUpdate]
    assert max(tries.values()) == 5
    assert contents(placement)["b"]["inventories"] == {"VCPU": (9, 0)}


def test_name_used_by_another_provider_is_reported(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.client.create_provider(str(uuid.uuid4()), "gpu", None)
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu": {"VGPU": 4}, "gpu-1": {"VGPU": 4}}
    )

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [NameTaken]
    assert contents(placement)["gpu"]["inventories"] == {}
    assert contents(placement)["gpu-1"]["inventories"] == {"VGPU": (4, 0)}


def test_orphan_after_loss_of_records_is_reported_and_kept(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["cn"] = with_children(
        {"VCPU": 8}, {"gpu": {"VGPU": 4}, "old": {"VGPU": 4}}
    )
    publishing.cycle.sync()
    publishing.state_path = tmp_path / "new"
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    cycle = publishing.restarted()

    outcomes = [cycle.sync(), cycle.sync()]

    for outcome in outcomes:
        assert (outcome.steps, outcome.problems) == ((), ())
        assert [item.name for item in outcome.pending] == ["old"]
        assert "not changed" in outcome.pending[0].reason
    assert contents(placement)["old"]["inventories"] == {"VGPU": (4, 0)}


def test_orphaned_node_of_a_fleet_is_reported_and_kept(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in ("a", "b", "c")}
    publishing.cycle.sync()
    publishing.state_path = tmp_path / "new"
    del publishing.driver.nodes["c"]

    outcome = publishing.restarted().sync()

    assert [item.name for item in outcome.pending] == ["c"]
    assert set(contents(placement)) == {"a", "b", "c"}


def test_first_sync_of_a_host_does_not_read_providers_of_other_hosts(
    publishing: Publishing, placement: PlacementFixture, tmp_path: Path
) -> None:
    publishing.driver.nodes["host-1"] = with_children({"VCPU": 8}, {"gpu-1": {"VGPU": 4}})
    publishing.cycle.sync()
    placement.requests.clear()
    with Publishing(placement, tmp_path / "host-2") as other:
        other.driver.nodes["host-2"] = with_children({"VCPU": 8}, {"gpu-2": {"VGPU": 4}})
        other.cycle.sync()

    reads = [request for request in placement.requests.seen if request.startswith("GET")]
    assert reads == [
        f"GET /resource_providers?in_tree={names.root_uuid('host-2')}",
        "GET /resource_providers?name=host-2",
        "GET /resource_providers?name=gpu-2",
        "GET /traits?name=in:OWNER_NOVA",
    ]


def test_sync_of_a_tree_that_another_program_changed_repairs_it(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.cycle.sync()
    before = contents(placement)
    cn, gpu = before["cn"]["uuid"], before["gpu"]["uuid"]
    acts: tuple[Callable[[], object], ...] = (
        lambda: placement.client.update_provider(cn, "renamed", None),
        lambda: placement.client.update_provider(gpu, "renamed", cn),
        lambda: placement.client.delete_provider(gpu),
    )
    for act in acts:
        act()
        assert contents(placement) != before

        assert not publishing.cycle.sync().problems

        assert contents(placement) == before


def test_sync_cut_off_at_any_request_is_completed_by_the_next(
    publishing: Publishing, placement: PlacementFixture, draw: Draw
) -> None:
    """The request fails before it is sent, or its answer is lost."""
    moments = Moments(publishing.state_path)
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.restarted()
    start = moments.take()
    cases = [(number, when) for number in range(10) for when in ("before", "after")]
    for number, when in draw(cases, 4):
        moments.go_back(start)
        count = 0

        def cut(method: str, path: str, number: int = number) -> None:
            nonlocal count
            count += 1
            if count == number + 1:
                raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(placement.adapter, when, cut)
            with pytest.raises(PlacementUnavailable):
                publishing.restarted().sync()

        outcome = publishing.restarted().sync()

        assert not outcome.problems, (number, when)
        found = contents(placement)
        assert set(found) == {"cn", "gpu"}, (number, when)
        assert found["cn"]["traits"] == found["gpu"]["traits"] == MARKS, (number, when)
        assert found["gpu"]["inventories"] == {"VGPU": (4, 0)}, (number, when)
        assert not publishing.cycle.sync().steps


def test_unwritable_state_directory_stops_the_sync_before_placement_is_written(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.driver.nodes["cn"] = flat(VCPU=8)

    def full(*args: object) -> None:
        raise WharfingerError(reason="the disk is full")

    monkeypatch.setattr(RecordBatch, "save", full)
    with pytest.raises(WharfingerError, match="the disk is full"):
        publishing.cycle.sync()

    assert not contents(placement)
