"""Takeovers of overlaid nodes: nova publishes the roots, and our instance the devices below.

"near" is the former host of node x, and "far" the new one.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.functional.reconcile.test_nova_root import Nova
from tests.functional.reconcile.test_takeover import FAR, force_down, publish, report
from tests.lab.cycles import Publishing, contents, everything, stored
from tests.lab.drivers import Edit
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import ReservingDriver, drives, is_full, summary
from wharfinger.driver import Allocations
from wharfinger.providers import ProviderTree, PublishingMode
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations

pytestmark = pytest.mark.usefixtures("no_waiting")


def below(*children: str, is_silent: bool = False, total: int = 4) -> Edit:
    """Return an edit that adds children NODE_CHILD below nova's root.

    A silent driver does not report the root, as libvirt's driver.
    """

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        if not is_silent:
            tree.set_publishing_mode(node, PublishingMode.OVERLAY)
        names = [f"{node}_{child}" for child in children]
        for one in tree.get_provider_uuids(node)[1:]:
            if tree.exists(one) and tree.data(one).name not in names:
                tree.remove(one)
        for name in names:
            if not tree.exists(name):
                tree.new_child(name, node)
            tree.update_inventory(name, {"VGPU": {"total": total}})

    return edit


@pytest.fixture
def near(publishing: Publishing, placement: PlacementFixture) -> Publishing:
    for name in ("x", "stays", "other"):
        Nova(placement, name).create_root()
    drives(publishing, ReservingDriver())
    return publishing


@pytest.fixture
def far(near: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    with publish(placement, near, FAR) as fixture:
        driver = ReservingDriver()
        driver.host = FAR
        drives(fixture, driver)
        yield fixture


def sync(*every: Publishing) -> CycleResult:
    """Run a full cycle of each host in a new process, and return the result of the last."""
    for one in every:
        outcome = one.restarted().sync()
        report(one)
    return outcome


def start(near: Publishing, far: Publishing, edit: Edit) -> None:
    near.driver.nodes |= {"x": edit, "stays": edit}
    far.driver.nodes["other"] = edit
    sync(near, far)


def reserve_gpu(one: Publishing, placement: PlacementFixture) -> None:
    holds = Reservations(one.client, one.context)
    holds.reserve(summary(placement, "x_gpu"), holder="operator", reason="burns")


def test_first_cycle_of_a_node_with_a_reserved_device_publishes_it_and_reports_no_orphan(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    start(near, far, below("gpu"))
    reserve_gpu(near, placement)
    del near.driver.nodes["x"]
    sync(near, near)
    assert "x_gpu" not in contents(placement)
    far.driver.nodes["x"] = below("gpu")

    outcome = sync(far)

    assert not outcome.pending
    assert is_full(placement, "x_gpu")


def test_orphan_that_a_down_host_has_seen_but_not_published_is_reported(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    start(near, far, below("gpu"))
    Nova(placement, "y").create_root()
    far.driver.nodes["y"] = below()
    lost = placement.client.create_provider(str(uuid4()), "lost", everything()["x"]["uuid"])
    marks = everything()["x_gpu"]["traits"]
    placement.client.set_traits(lost.uuid, lost.generation, marks)
    assert "lost" in [one.name for one in sync(near).pending]
    assert stored(near.state_path)[lost.uuid].applied is None
    force_down(near)

    assert [one.name for one in sync(far).pending] == ["lost"]
