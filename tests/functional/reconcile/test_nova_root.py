"""Children below nova's root: the root is deleted, comes back, and gets another uuid."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.lab.cycles import Publishing, contents
from tests.lab.drivers import Edit, does_not_answer
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import Crash, summary
from wharfinger.driver import Allocations
from wharfinger.exceptions import ChildReplaced, ProviderMissing
from wharfinger.objects import ReservationList
from wharfinger.providers import Inventory, ProviderTree, PublishingMode
from wharfinger.reconcile.stored_reservations import Reservations

pytestmark = pytest.mark.usefixtures("no_waiting")

NODE, GPU, FPGA = "cn", "cn_gpu", "cn_fpga"
CONSUMER = str(uuid.uuid4())


def below(*children: str, **uuids: str) -> Edit:
    """Return a driver that overlays the node, with children; ``uuids`` are explicit ones."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.set_publishing_mode(node, PublishingMode.OVERLAY)
        for one in tree.get_provider_uuids(node)[1:]:
            if tree.exists(one) and tree.data(one).name not in (*children, *uuids):
                tree.remove(one)
        for name in (*children, *uuids):
            if not tree.exists(uuids.get(name, name)):
                tree.new_child(name, node, uuid=uuids.get(name))
            tree.update_inventory(name, {"VGPU": {"total": 4}})

    return edit


def silent(*children: str) -> Edit:
    """Return a driver that says nothing of the node."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        for name in children:
            if not tree.exists(name):
                tree.new_child(name, node)
            tree.update_inventory(name, {"VGPU": {"total": 4}})

    return edit


class Nova:
    """nova's report client, as far as its root is concerned."""

    def __init__(self, placement: PlacementFixture) -> None:
        self._client = placement.client

    def create_root(self, uuid_: str | None = None) -> str:
        """Create the root with its inventory, as nova-compute does when it starts."""
        made = self._client.create_provider(uuid_ or str(uuid.uuid4()), NODE, None)
        generation = self._client.set_inventories(
            made.uuid, made.generation, {"VCPU": Inventory(total=8)}
        )
        self._client.set_traits(made.uuid, generation, ["OWNER_NOVA"])
        return made.uuid

    def delete_service(self) -> None:
        """Delete each provider of the tree, children first, as nova does; nothing is checked."""
        root = self._client.list_providers(name=NODE)[0].uuid
        for one in self._client.list_providers(in_tree=root):
            if one.uuid != root:
                self._client.delete_provider(one.uuid)
        self._client.delete_provider(root)


@pytest.fixture
def nova(placement: PlacementFixture) -> Nova:
    nova = Nova(placement)
    nova.create_root()
    return nova


@pytest.fixture
def holds(publishing: Publishing) -> Reservations:
    return Reservations(publishing.client, publishing.context)


def reserved(publishing: Publishing) -> set[str]:
    return {one.provider_uuid for one in ReservationList.get_by_filters(publishing.context)}


@pytest.mark.parametrize("edit", [below, silent])
@pytest.mark.parametrize("sees_it_missing", [True, False])
def test_children_after_a_new_uuid_of_the_root_keep_uuids_and_reservations(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    *,
    edit: Callable[..., Edit],
    sees_it_missing: bool,
) -> None:
    publishing.driver.nodes[NODE] = edit(GPU, FPGA)
    assert not publishing.cycle.sync().problems
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    publishing.cycle.sync()
    before = contents(placement)

    nova.delete_service()
    if sees_it_missing:
        publishing.restarted().sync()
        publishing.restarted().drift()
    nova.create_root()
    outcome = publishing.restarted().sync()

    assert not outcome.problems
    after = contents(placement)
    assert after[NODE].pop("uuid") != before[NODE].pop("uuid")
    assert after == before
    assert after[GPU]["inventories"] == {"VGPU": (4, 4)}
    placement.requests.clear()
    assert not publishing.restarted().sync().steps
    assert len(placement.requests) == 1
    holds.release(summary(placement, GPU), "operator")
    assert contents(placement)[GPU]["inventories"] == {"VGPU": (4, 0)}


def test_children_after_a_failure_in_the_first_cycle_with_a_new_root_keep_uuids(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    before = contents(placement)[GPU]
    nova.delete_service()
    nova.create_root()
    publishing.driver.nodes[NODE] = does_not_answer

    assert publishing.restarted().sync().problems
    assert GPU not in contents(placement)
    publishing.driver.nodes[NODE] = below(GPU)
    assert not publishing.restarted().sync().problems

    assert contents(placement)[GPU] == before


def test_children_after_a_crash_at_each_request_below_a_new_root_keep_uuids(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.cycle.sync()
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    before = contents(placement)
    nova.delete_service()
    nova.create_root()
    crashes = 0
    while crashes < 30:

        def crash(method: str, path: str) -> None:
            if method != "GET" and not path.startswith("/traits"):
                raise Crash

        placement.adapter.after = crash
        try:
            publishing.restarted().sync()
        except Crash:
            crashes += 1
            assert contents(placement).get(GPU, {"inventories": {}})["inventories"] in (
                {},
                {"VGPU": (4, 4)},
            )
        else:
            break

    after = contents(placement)
    assert 5 < crashes < 30
    assert after[NODE].pop("uuid") != before[NODE].pop("uuid")
    assert after == before


def test_device_with_a_new_uuid_of_its_own_is_held_until_the_former_reservation_ends(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    publishing.driver.nodes[NODE] = below(**{GPU: first})
    publishing.cycle.sync()
    holds.reserve(summary(placement, GPU), holder="ann", reason="burns")
    nova.delete_service()
    nova.create_root()
    publishing.driver.nodes[NODE] = below(**{GPU: second})

    for _ in range(2):
        (problem,) = publishing.restarted().sync().problems

        assert isinstance(problem, ChildReplaced)
        assert f"`wharfinger provider release {first} --holder ann`" in str(problem)
        assert second in str(problem)
        found = contents(placement)[GPU]
        assert (found["uuid"], found["inventories"]) == (second, {"VGPU": (4, 4)})
    (held,) = ReservationList.get_by_filters(publishing.context, provider_uuid=first)
    holds.release_one(held.uuid)

    assert not publishing.restarted().sync().problems
    assert contents(placement)[GPU]["inventories"] == {"VGPU": (4, 0)}
    assert first not in publishing.store.records


def test_reserved_device_that_was_removed_comes_back_below_a_new_root_reserved(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    before = contents(placement)[GPU]
    publishing.driver.nodes[NODE] = below()
    for _ in range(2):
        publishing.cycle.sync()
    assert GPU not in contents(placement)
    nova.delete_service()
    nova.create_root()
    publishing.restarted().sync()
    publishing.driver.nodes[NODE] = below(GPU)

    assert not publishing.restarted().sync().problems

    assert contents(placement)[GPU] == before


# The root is missing.


def test_sync_without_the_root_reports_since_when_and_keeps_all_records(
    publishing: Publishing, placement: PlacementFixture, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.cycle.sync()
    before = contents(placement)
    nova.delete_service()

    messages = set()
    for cycle in ("sync", "drift", "sync"):
        (problem,) = getattr(publishing.restarted(), cycle)().problems
        assert isinstance(problem, ProviderMissing)
        messages.add(str(problem))
    publishing.driver.nodes[NODE] = below(GPU)  # a listing that lacks a device
    publishing.restarted().sync()
    publishing.driver.nodes[NODE] = below(GPU, FPGA)

    (message,) = messages
    absence = publishing.store.records[before[NODE]["uuid"]].absence
    assert absence is not None
    since = datetime.fromtimestamp(absence.since, UTC)
    assert f"{NODE} ({before[NODE]['uuid']})" in message
    assert f"since {since.isoformat(timespec='seconds')}" in message
    assert not contents(placement)
    assert {one["uuid"] for one in before.values()} == publishing.store.records.keys()

    nova.create_root(before[NODE]["uuid"])
    assert not publishing.restarted().sync().problems
    assert contents(placement) == before
    assert publishing.store.records[before[NODE]["uuid"]].absence is None


def test_children_of_a_missing_root_are_created_again_by_a_drift_cycle(
    publishing: Publishing, placement: PlacementFixture, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    before = contents(placement)[GPU]
    nova.delete_service()
    publishing.cycle.sync()
    nova.create_root()

    assert not publishing.cycle.drift().problems

    assert contents(placement)[GPU] == before


def test_missing_root_of_a_node_that_is_no_longer_listed_is_forgotten(
    publishing: Publishing, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    nova.delete_service()
    publishing.cycle.sync()
    publishing.driver.nodes.clear()

    publishing.restarted().sync()

    assert not publishing.restarted().sync().problems
    assert not publishing.store.records
