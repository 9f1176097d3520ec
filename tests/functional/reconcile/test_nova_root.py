"""Our children below nova's root when nova deletes the root or creates it again."""

import itertools
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents, everything, execute
from tests.lab.drivers import Edit, does_not_answer
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import Crash, summary, writes
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    ChildReplaced,
    ConcurrentSave,
    DetachmentRefused,
    MicroversionUnsupported,
    NameTaken,
    ProviderInUse,
    ProviderMissing,
    RootDeletionBlocked,
)
from wharfinger.objects import ReservationList
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import Microversion
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, ProviderTree, PublishingMode
from wharfinger.reconcile.reserve_and_release import Reservations

pytestmark = pytest.mark.usefixtures("no_waiting")

NODE, GPU, FPGA = "cn", "cn_gpu", "cn_fpga"
CONSUMER = str(uuid.uuid4())


def below(*children: str, **uuids: str) -> Edit:
    """Return an edit that overlays the node and adds children, with the given ``uuids``."""

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
    """Return an edit that adds children and does not report the root of the node."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        for name in children:
            if not tree.exists(name):
                tree.new_child(name, node)
            tree.update_inventory(name, {"VGPU": {"total": 4}})

    return edit


class Nova:
    """The calls by which nova's report client creates and deletes the root of a node."""

    def __init__(self, placement: PlacementFixture, node: str = NODE) -> None:
        self._client = placement.client
        self._node = node

    def create_root(self, uuid_: str | None = None) -> str:
        """Create the root with its inventory, as nova-compute does when it starts."""
        made = self._client.create_provider(uuid_ or str(uuid.uuid4()), self._node, None)
        generation = self._client.set_inventories(
            made.uuid, made.generation, {"VCPU": Inventory(total=8)}
        )
        self._client.set_traits(made.uuid, generation, ["OWNER_NOVA"])
        return made.uuid

    def delete_service(self) -> None:
        """Delete all providers of the tree, children first, as nova does with a service."""
        root = self._client.list_providers(name=self._node)[0].uuid
        for one in self._client.list_providers(in_tree=root):
            if one.uuid != root:
                self._client.delete_provider(one.uuid)
        self._client.delete_provider(root)

    def recreate_root(self) -> None:
        """Delete the service, and create a root with a new uuid."""
        self.delete_service()
        self.create_root()


@pytest.fixture
def nova(placement: PlacementFixture) -> Nova:
    nova = Nova(placement)
    nova.create_root()
    return nova


@pytest.fixture
def holds(publishing: Publishing) -> Reservations:
    return Reservations(publishing.client, publishing.context)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("edit", [below, silent], ids=["overlays", "silent"])
@pytest.mark.parametrize("sees_it_missing", [True, False])
@pytest.mark.parametrize("nodes", [[NODE], [NODE, "other"]], ids=["host", "fleet"])
@pytest.mark.parametrize("is_new", [True, False], ids=["new", "same"])
def test_children_after_the_root_was_created_again_keep_uuids_and_reservations(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    *,
    edit: Callable[..., Edit],
    sees_it_missing: bool,
    nodes: list[str],
    is_new: bool,
) -> None:
    publishing.driver.nodes |= dict.fromkeys(nodes, edit())
    publishing.driver.nodes[NODE] = edit(GPU, FPGA)
    for name in nodes[1:]:
        placement.client.create_provider(str(uuid.uuid4()), name, None)
    assert not publishing.cycle.sync().problems
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    publishing.cycle.sync()
    before = contents(placement)
    placement.requests.clear()
    publishing.restarted().sync()
    unchanged = len(placement.requests)

    nova.delete_service()
    if sees_it_missing:
        publishing.restarted().sync()
        publishing.restarted().drift()
    nova.create_root(None if is_new else before[NODE]["uuid"])
    outcome = publishing.restarted().sync()

    assert not outcome.problems
    after = contents(placement)
    assert (after[NODE].pop("uuid") != before[NODE].pop("uuid")) is is_new
    assert after == before
    assert after[GPU]["inventories"] == {"VGPU": (4, 4)}
    placement.requests.clear()
    assert not publishing.restarted().sync().steps
    assert len(placement.requests) == unchanged
    holds.release(summary(placement, GPU), "operator")
    assert contents(placement)[GPU]["inventories"] == {"VGPU": (4, 0)}


def test_children_after_a_failure_in_the_first_cycle_with_a_new_root_keep_uuids(
    publishing: Publishing, placement: PlacementFixture, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    before = contents(placement)[GPU]
    nova.recreate_root()
    publishing.driver.nodes[NODE] = does_not_answer

    assert publishing.restarted().sync().problems
    assert GPU not in contents(placement)
    publishing.driver.nodes[NODE] = below(GPU)
    assert not publishing.restarted().sync().problems

    assert contents(placement)[GPU] == before


def test_reserved_child_without_a_record_is_published_below_a_new_root_in_one_cycle(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    gpu = str(uuid.uuid4())
    publishing.driver.nodes[NODE] = below(**{GPU: gpu})
    publishing.cycle.sync()
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    before = contents(placement)[GPU]
    nova.recreate_root()
    execute(publishing, "DELETE FROM provider_records WHERE provider_uuid = ?", gpu)

    assert not publishing.restarted().sync().problems

    assert contents(placement)[GPU] == before


def test_child_whose_name_was_taken_meanwhile_keeps_its_uuid(
    publishing: Publishing, placement: PlacementFixture, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    before = contents(placement)[GPU]
    nova.recreate_root()
    other = placement.client.create_provider(str(uuid.uuid4()), GPU, None)

    (problem,) = publishing.restarted().sync().problems
    assert isinstance(problem, NameTaken)
    placement.client.delete_provider(other.uuid)
    assert not publishing.restarted().sync().problems

    assert contents(placement)[GPU] == before


@pytest.mark.parametrize("is_reserved", [True, False])
def test_children_after_a_crash_at_each_request_below_a_new_root_keep_uuids(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    *,
    is_reserved: bool,
) -> None:
    publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.cycle.sync()
    if is_reserved:
        holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    before = contents(placement)
    nova.recreate_root()
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
            gpu = contents(placement).get(GPU, {"inventories": {}})
            assert gpu["inventories"] in ({}, before[GPU]["inventories"])
        else:
            break

    after = contents(placement)
    assert 5 < crashes < 30
    assert after[NODE].pop("uuid") != before[NODE].pop("uuid")
    assert after == before


def test_device_with_a_new_uuid_stays_reserved_until_the_reservation_of_the_old_uuid_ends(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    publishing.driver.nodes[NODE] = below(**{GPU: first})
    publishing.cycle.sync()
    holds.reserve(summary(placement, GPU), holder="ann", reason="burns")
    nova.recreate_root()
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


def test_device_with_a_new_uuid_is_not_published_while_the_old_provider_has_an_allocation(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    """The old provider still has the name of the device in Placement."""
    first, second = (str(uuid.uuid4()) for _ in range(2))
    publishing.driver.nodes[NODE] = below(**{GPU: first})
    publishing.cycle.sync()
    allocate(placement, CONSUMER, cn_gpu={"VGPU": 1})
    holds.detach(summary(placement, GPU))
    nova.recreate_root()
    publishing.driver.nodes[NODE] = below(**{GPU: second})

    for _ in range(3):
        publishing.restarted().sync()

        found = contents(placement)
        assert found.keys() == {NODE, GPU}
        assert (found[GPU]["uuid"], found[GPU]["inventories"]) == (first, {"VGPU": (4, 4)})


def test_removed_device_that_was_reserved_returns_reserved_below_a_new_root(
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
    nova.recreate_root()
    publishing.restarted().sync()
    publishing.driver.nodes[NODE] = below(GPU)

    assert not publishing.restarted().sync().problems

    assert contents(placement)[GPU] == before


# The root is missing.


def test_sync_of_a_missing_root_reports_since_when_it_is_missing_and_keeps_all_records(
    publishing: Publishing, placement: PlacementFixture, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.cycle.sync()
    before = contents(placement)
    nova.delete_service()

    messages, moments = set(), set()
    for cycle in ("sync", "drift", "sync"):
        (problem,) = getattr(publishing.restarted(), cycle)().problems
        assert isinstance(problem, ProviderMissing)
        messages.add(str(problem))
        moments.add(publishing.store.records[before[NODE]["uuid"]].absence)
        publishing.driver.nodes[NODE] = does_not_answer
        publishing.restarted().sync()
        publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.driver.nodes[NODE] = below(GPU)  # the driver reports one device less
    publishing.restarted().sync()
    publishing.driver.nodes[NODE] = below(GPU, FPGA)

    (message,) = messages
    (absence,) = moments
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


# A child with allocations, because of which nova cannot delete the root.


@pytest.fixture
def blocking(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> dict[str, dict[str, Any]]:
    """The contents of Placement, in which a child has an allocation and is reserved."""
    publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.cycle.sync()
    allocate(placement, CONSUMER, cn_gpu={"VGPU": 1})
    holds.reserve(summary(placement, GPU), holder="operator", reason="burns")
    publishing.cycle.sync()
    with pytest.raises(ProviderInUse):
        nova.delete_service()
    publishing.cycle.sync()
    return everything()


def detached_from(root: dict[str, Any]) -> str:
    return f"detached from {NODE} ({root['uuid']})"


def test_detached_child_frees_the_root_and_returns_below_the_new_root(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
) -> None:
    holds.detach(summary(placement, GPU))

    def is_detached() -> bool:
        """Return whether the child has become a root and is otherwise unchanged."""
        return everything()[GPU] == blocking[GPU] | {"parent": None}

    assert is_detached()
    for cycle in ("sync", "drift", "sync"):
        outcome = getattr(publishing.restarted(), cycle)()
        assert (outcome.problems, outcome.steps, outcome.pending) == ((), (), ())
        assert is_detached()
    placement.requests.clear()
    publishing.restarted().sync()
    assert len(placement.requests) == 1

    nova.delete_service()
    for _ in range(2):
        writes(placement, GPU, VGPU=(4, 0))  # another program overwrites the reservation
        (problem,) = publishing.restarted().sync().problems
        assert isinstance(problem, ProviderMissing)
        assert is_detached()
    nova.create_root()
    assert not publishing.restarted().sync().problems

    after = everything()
    assert after[NODE].pop("uuid") != blocking[NODE].pop("uuid")
    assert after == blocking
    (held,) = ReservationList.get_by_filters(publishing.context, provider_uuid=after[GPU]["uuid"])
    assert held.holder == "operator"
    placement.requests.clear()
    assert not publishing.restarted().sync().steps
    assert len(placement.requests) == 1


def test_sync_reports_a_root_that_could_not_be_deleted(
    publishing: Publishing, placement: PlacementFixture, blocking: dict[str, dict[str, Any]]
) -> None:
    """nova has deleted the children without allocations, and has kept the root."""
    placement.client.delete_provider(blocking[FPGA]["uuid"])

    (problem,) = publishing.restarted().sync().problems

    assert isinstance(problem, RootDeletionBlocked)
    assert (problem.root, problem.uuid) == (NODE, blocking[NODE]["uuid"])
    assert (problem.deleted, problem.children) == (FPGA, GPU)
    for name in (GPU, FPGA):
        assert f"`wharfinger provider detach {blocking[name]['uuid']}`" in str(problem)
    assert everything() == blocking
    assert not publishing.restarted().sync().problems


def test_sync_without_allocations_on_children_reports_no_root(
    publishing: Publishing, placement: PlacementFixture, nova: Nova
) -> None:
    publishing.driver.nodes[NODE] = below(GPU, FPGA)
    publishing.cycle.sync()
    before = everything()
    placement.client.delete_provider(before[FPGA]["uuid"])

    assert not publishing.restarted().sync().problems
    assert everything() == before


def test_detached_child_without_other_reservations_is_free_below_the_new_root(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
) -> None:
    holds.release(summary(placement, GPU), "operator")
    holds.detach(summary(placement, GPU))
    assert everything()[GPU]["inventories"] == {"VGPU": (4, 4)}
    nova.recreate_root()

    publishing.restarted().sync()

    assert everything()[GPU] == blocking[GPU] | {"inventories": {"VGPU": (4, 0)}}


def test_detached_child_returns_below_a_former_root_that_was_created_again(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
) -> None:
    """nova keeps the uuid of a compute node in a file and creates the root with it."""
    holds.detach(summary(placement, GPU))
    nova.delete_service()
    publishing.restarted().sync()
    nova.create_root(blocking[NODE]["uuid"])

    assert not publishing.restarted().sync().problems

    assert everything() == blocking


def test_detached_child_whose_detachment_is_released_returns_below_the_former_root(
    publishing: Publishing,
    placement: PlacementFixture,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
) -> None:
    root = holds.detach(summary(placement, GPU))
    assert root.holder == detached_from(blocking[NODE])
    holds.release(summary(placement, GPU), root.holder)

    assert not publishing.restarted().sync().problems

    assert everything() == blocking


@pytest.mark.parametrize("gone", ["node", "device"])
def test_detached_child_that_the_driver_does_not_report_is_kept(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
    *,
    gone: str,
) -> None:
    holds.detach(summary(placement, GPU))
    client = placement.client
    client.command("DELETE", f"/allocations/{CONSUMER}")
    nova.delete_service()
    if gone == "node":
        publishing.driver.nodes.clear()
    else:
        publishing.driver.nodes[NODE] = below()

    for _ in range(3):
        outcome = publishing.restarted().sync()

    (pending,) = outcome.pending
    root = detached_from(blocking[NODE])
    assert f"wharfinger provider release {blocking[GPU]['uuid']} --holder '{root}'" in (
        pending.reason
    )
    assert everything()[GPU] == blocking[GPU] | {"parent": None, "allocations": {}}
    nova.create_root()
    publishing.driver.nodes[NODE] = below(GPU)
    assert not publishing.restarted().sync().problems
    assert everything()[GPU] == blocking[GPU] | {"allocations": {}}


def test_detachment_that_crashed_after_each_request_is_finished_by_the_next_sync(
    publishing: Publishing,
    placement: PlacementFixture,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
) -> None:
    holds.release(summary(placement, GPU), "operator")
    seen = []
    for at in range(2):
        count = itertools.count()

        def crash(method: str, path: str) -> None:
            if method != "GET" and next(count) == at:  # noqa: B023
                seen.append(path.rsplit("/", 1)[-1])
                raise Crash

        placement.adapter.after = crash
        with pytest.raises(Crash):
            holds.detach(summary(placement, GPU))
        placement.adapter.after = lambda method, path: None

        assert not publishing.restarted().sync().problems

        assert everything()[GPU] == blocking[GPU] | {"parent": None}
        holds.release(summary(placement, GPU), detached_from(blocking[NODE]))
        assert not publishing.restarted().sync().problems
        assert everything()[GPU]["parent"] == NODE
    assert seen == ["inventories", blocking[GPU]["uuid"]]


def test_detach_of_a_provider_other_than_our_child_is_refused(
    publishing: Publishing, placement: PlacementFixture, nova: Nova, holds: Reservations
) -> None:
    def nested(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        below(GPU)(tree, node, allocations)
        if not tree.exists("part"):
            tree.new_child("part", GPU)

    publishing.driver.nodes[NODE] = nested
    publishing.cycle.sync()
    root = contents(placement)[NODE]["uuid"]
    placement.client.create_provider(str(uuid.uuid4()), "theirs", root)
    before = contents(placement)

    for name, why in {
        NODE: "which another program publishes",
        "theirs": "no driver instance publishes it",
        "part": f"wharfinger provider detach {before[GPU]['uuid']}",
    }.items():
        with pytest.raises(DetachmentRefused, match=why):
            holds.detach(summary(placement, name))
    holds.detach(summary(placement, GPU))
    with pytest.raises(DetachmentRefused, match="it is a root provider already"):
        holds.detach(summary(placement, GPU))

    del before[GPU]["inventories"]
    after = contents(placement)
    assert after[GPU].pop("inventories") == {"VGPU": (4, 4)}
    before[GPU]["parent"] = None
    assert after == before


def test_detach_below_microversion_1_37_is_refused_and_stores_nothing(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    holds: Reservations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publishing.driver.nodes[NODE] = below(GPU)
    publishing.cycle.sync()
    before = everything()
    monkeypatch.setattr(PlacementClient, "microversion", Microversion(1, 36))

    with pytest.raises(MicroversionUnsupported, match=f"detaching provider {GPU}"):
        holds.detach(summary(placement, GPU))

    assert everything() == before
    assert not ReservationList.get_by_filters(publishing.context)


def test_detach_whose_reservation_meets_conflicts_does_not_repeat_the_reservation(
    placement: PlacementFixture,
    blocking: dict[str, dict[str, Any]],
    holds: Reservations,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = []

    def conflicts(_self: Reservations, provider: ProviderSummary, **_more: Any) -> None:
        attempts.append(provider.name)
        raise ConcurrentSave(kind="Reservation", keys=[provider.uuid])

    monkeypatch.setattr(Reservations, "reserve", conflicts)

    with pytest.raises(ConcurrentSave):
        holds.detach(summary(placement, GPU))

    assert attempts == [GPU]


def test_children_below_a_renamed_root_move_below_the_new_root_of_the_node(
    publishing: Publishing,
    placement: PlacementFixture,
    nova: Nova,
    blocking: dict[str, dict[str, Any]],
) -> None:
    former = blocking[NODE]["uuid"]
    placement.client.update_provider(former, "old", None)
    calls: list[str] = []
    publishing.driver.nodes[NODE] = asserting_child(GPU, calls)(below(GPU, FPGA))
    nova.create_root()

    assert not publishing.restarted().sync().problems
    assert calls == [NODE]

    after = everything()
    assert after.pop("old")["uuid"] == former
    assert after[NODE].pop("uuid") != blocking[NODE].pop("uuid")
    assert {after[name].pop("parent") for name in (GPU, FPGA)} == {NODE}
    for name in (GPU, FPGA):
        del blocking[name]["parent"]
    assert after == blocking
    assert not publishing.restarted().sync().steps


@pytest.mark.parametrize("cycle", ["sync", "drift"])
def test_driver_edits_a_detached_child_below_the_root(
    publishing: Publishing,
    placement: PlacementFixture,
    holds: Reservations,
    blocking: dict[str, dict[str, Any]],
    cycle: str,
) -> None:
    publishing.cycle.sync()
    holds.detach(summary(placement, GPU))
    calls: list[str] = []
    publishing.driver.nodes[NODE] = asserting_child(GPU, calls)(below(GPU, FPGA))
    placement.client.set_aggregates(blocking[FPGA]["uuid"], 3, [str(uuid.uuid4())])

    assert not getattr(publishing.cycle, cycle)().problems

    assert calls == [NODE]


def asserting_child(child: str, calls: list[str]) -> Callable[[Edit], Edit]:
    """Return a wrapper of an edit; it asserts that the tree has the child below the node."""

    def wrap(edit: Edit) -> Edit:
        def checked(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
            assert tree.data(tree.data(child).parent_uuid or "").name == node
            assert tree.data(child).inventory["VGPU"]["total"] == 4
            calls.append(node)
            edit(tree, node, allocations)

        return checked

    return wrap
