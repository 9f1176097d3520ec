"""Takeovers of overlaid nodes: nova publishes the roots, and our instance the devices below.

"near" is the former host of node x, and "far" the new one.
"""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from tests.functional.reconcile.test_nova_root import Nova
from tests.functional.reconcile.test_takeover import FAR, force_down, publish, recorded, report
from tests.lab.allocating import Desk, flavor
from tests.lab.cycles import HOST, Publishing, allocate, contents, everything, execute, stored
from tests.lab.drivers import Edit
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import ReservingDriver, drives, is_full, summary
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    AdoptionRefused,
    AllocationLost,
    DuplicateProvider,
    MassRemoval,
    NodeTaken,
    PlacementUnavailable,
)
from wharfinger.objects import Instance, ProviderRecordList, ReservationList
from wharfinger.providers import ProviderTree, PublishingMode
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations

pytestmark = pytest.mark.usefixtures("no_waiting")

CONSUMER, CARD = str(uuid4()), str(uuid4())
BOTH_MODES = pytest.mark.parametrize("is_silent", [False, True], ids=["overlays", "silent"])


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


def move(near: Publishing, far: Publishing, edit: Edit) -> None:
    """Let far list node x instead of near."""
    del near.driver.nodes["x"]
    far.driver.nodes["x"] = edit


def reserve_gpu(one: Publishing, placement: PlacementFixture) -> None:
    holds = Reservations(one.client, one.context)
    holds.reserve(summary(placement, "x_gpu"), holder="operator", reason="burns")


def says(one: Publishing, *reasons: str) -> None:
    """Let the driver reserve the device of node x for these reasons."""
    assert isinstance(one.driver, ReservingDriver)
    one.driver.says("x", "x_gpu", *reasons)


# Devices that are reserved.


@BOTH_MODES
def test_near_without_the_node_deletes_a_device_that_far_reserves_at_most_once(
    near: Publishing, far: Publishing, placement: PlacementFixture, *, is_silent: bool
) -> None:
    edit = below("gpu", is_silent=is_silent)
    start(near, far, edit)
    reserve_gpu(near, placement)
    sync(near)

    move(near, far, edit)
    deleted = 0
    for _ in range(8):
        deleted += [one.verb for one in sync(near).steps].count("delete")
        sync(far)

    assert deleted <= 1
    assert is_full(placement, "x_gpu")


@BOTH_MODES
def test_reserved_device_below_a_root_that_was_created_again_for_far_stays_reserved(
    near: Publishing, far: Publishing, placement: PlacementFixture, *, is_silent: bool
) -> None:
    edit = below("gpu", is_silent=is_silent)
    start(near, far, edit)
    reserve_gpu(near, placement)
    sync(near)
    Nova(placement, "x").delete_service()
    del near.driver.nodes["x"]
    sync(near)
    Nova(placement, "x").create_root()
    far.driver.nodes["x"] = edit

    sync(far, near, far, near)

    assert is_full(placement, "x_gpu")
    assert not sync(near).pending


@BOTH_MODES
def test_reserved_device_that_near_no_longer_listed_stays_reserved_below_a_new_root(
    near: Publishing, far: Publishing, placement: PlacementFixture, *, is_silent: bool
) -> None:
    edit = below("gpu", is_silent=is_silent)
    start(near, far, edit)
    del near.driver.nodes["x"]
    sync(near)
    reserve_gpu(near, placement)
    Nova(placement, "x").delete_service()
    sync(near)
    Nova(placement, "x").create_root()
    far.driver.nodes["x"] = edit

    sync(far)

    assert is_full(placement, "x_gpu")


@BOTH_MODES
def test_reserved_device_without_a_record_stays_reserved_below_a_new_root(
    near: Publishing, placement: PlacementFixture, *, is_silent: bool
) -> None:
    near.driver.nodes |= dict.fromkeys(("x", "stays"), below("gpu", is_silent=is_silent))
    sync(near)
    reserve_gpu(near, placement)
    gpu = everything()["x_gpu"]["uuid"]
    Nova(placement, "x").delete_service()
    execute(near, "DELETE FROM provider_records WHERE provider_uuid = ?", gpu)
    Nova(placement, "x").create_root()

    sync(near)

    assert is_full(placement, "x_gpu")


@pytest.mark.parametrize("nodes", [["x"], ["x", "stays"]], ids=["host", "fleet"])
def test_device_without_a_record_moves_from_a_renamed_root_below_the_new_root(
    near: Publishing, placement: PlacementFixture, nodes: list[str]
) -> None:
    near.driver.nodes |= dict.fromkeys(nodes, below("gpu"))
    sync(near)
    reserve_gpu(near, placement)
    before = everything()
    request = {"json": {"name": "x-old"}, "microversion": "1.39"}
    placement.adapter.request(f"/resource_providers/{before['x']['uuid']}", "PUT", **request)
    execute(near, "DELETE FROM provider_records")
    Nova(placement, "x").create_root()

    assert not sync(near).problems

    assert everything()["x_gpu"] == before["x_gpu"]


def with_card(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
    """Add a child with the uuid of the card below nova's root."""
    if not tree.exists(CARD):
        tree.new_child("card", node, uuid=CARD)
    tree.update_inventory(CARD, {"VGPU": {"total": 4}})


@pytest.mark.parametrize("nodes", [["x"], ["x", "stays"]], ids=["host", "fleet"])
def test_device_of_far_with_the_uuid_of_a_device_of_near_stays_below_the_node_of_far(
    near: Publishing, far: Publishing, placement: PlacementFixture, nodes: list[str]
) -> None:
    far.driver.nodes["other"] = with_card
    sync(far)
    near.driver.nodes |= dict.fromkeys(nodes, below()) | {"x": with_card}

    for _ in range(2):
        outcome = sync(near)
        assert [type(problem) for problem in outcome.problems] == [DuplicateProvider]
        assert not outcome.pending
        assert not sync(far).steps

    assert contents(placement)["card"]["parent"] == "other"


@pytest.mark.parametrize("nodes", [["x"], ["x", "stays"]], ids=["host", "fleet"])
@pytest.mark.parametrize("is_read", [False, True])
def test_device_that_far_created_after_near_intended_it_stays_below_the_node_of_far(
    near: Publishing,
    far: Publishing,
    placement: PlacementFixture,
    nodes: list[str],
    *,
    is_read: bool,
) -> None:
    """Far creates the device before near reads Placement, or just before near sends its POST."""

    def is_creation(method: str, path: str) -> bool:
        return (method, path) == ("POST", "/resource_providers")

    def fail() -> None:
        raise PlacementUnavailable(request="POST", status=0, code="", detail="no answer")

    def create() -> None:
        far.driver.nodes["other"] = with_card
        sync(far)

    near.driver.nodes |= dict.fromkeys(nodes, below()) | {"x": with_card}
    placement.adapter.once_before(is_creation, fail)
    with pytest.raises(PlacementUnavailable):
        near.cycle.sync()
    if is_read:
        create()
    else:
        placement.adapter.once_before(is_creation, create)

    for _ in range(2):
        outcome = sync(near)
        assert [type(problem) for problem in outcome.problems] == [DuplicateProvider]
        assert not sync(far).steps

    assert contents(placement)["card"]["parent"] == "other"


def test_adoption_of_a_device_that_far_publishes_is_refused(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    far.driver.nodes["other"] = with_card
    sync(far)
    with Publishing(placement, near.state_path, adopts=frozenset([CARD])) as adopting:
        adopting.driver.nodes["x"] = with_card

        with pytest.raises(AdoptionRefused):
            adopting.cycle.adopt()

    assert contents(placement)["card"]["parent"] == "other"


def test_near_that_returns_with_the_node_leaves_a_device_reserved_that_far_cleans(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    says(near, "cleaning")
    start(near, far, below("gpu"))
    assert is_full(placement, "x_gpu")
    force_down(near)
    far.driver.nodes["x"] = below("gpu")
    says(far, "cleaning")
    sync(far, far)
    force_down(near, down=False)
    says(near)  # near does not know that far cleans the device

    outcome = sync(near)

    assert is_full(placement, "x_gpu")
    assert [type(one) for one in outcome.problems] == [NodeTaken]


@BOTH_MODES
def test_cleaning_that_near_reported_before_it_went_down_ends_when_far_reports_its_end(
    near: Publishing, far: Publishing, placement: PlacementFixture, *, is_silent: bool
) -> None:
    edit = below("gpu", is_silent=is_silent)
    says(near, "cleaning")
    start(near, far, edit)
    force_down(near)
    far.driver.nodes["x"] = edit
    says(far, "cleaning")
    assert not sync(far).foreign
    assert is_full(placement, "x_gpu")
    says(far)

    sync(far)

    assert contents(placement)["x_gpu"]["inventories"] == {"VGPU": (4, 0)}


# Processes that ended with an intent.


@pytest.mark.parametrize("is_late", [False, True])
@BOTH_MODES
def test_device_that_far_creates_after_a_process_of_near_ended_stays_fars(
    near: Publishing,
    far: Publishing,
    placement: PlacementFixture,
    *,
    is_silent: bool,
    is_late: bool,
) -> None:
    """Far creates the device before near reads Placement, or just before near's own POST."""
    start(near, far, below(is_silent=is_silent))
    near.driver.nodes["x"] = below("gpu", is_silent=is_silent)
    far.driver.nodes["x"] = below("gpu", is_silent=is_silent, total=2)
    end_before(near, placement, lambda method, path: method == "POST")
    if is_late:
        placement.adapter.once_before(lambda method, path: method == "POST", lambda: sync(far))
    else:
        sync(far)

    outcome = sync(near)

    assert [type(one) for one in outcome.problems] == [NodeTaken]
    assert contents(placement)["x_gpu"]["inventories"] == {"VGPU": (2, 0)}
    assert not sync(far).steps


@BOTH_MODES
def test_device_whose_creation_two_hosts_began_is_published_by_the_host_that_keeps_the_node(
    near: Publishing, far: Publishing, placement: PlacementFixture, *, is_silent: bool
) -> None:
    def tags(method: str, path: str) -> bool:
        created = everything().get("x_gpu", {"uuid": "not yet"})
        return (method, path) == ("PUT", f"/resource_providers/{created['uuid']}/traits")

    start(near, far, below(is_silent=is_silent))
    near.driver.nodes["x"] = below("gpu", is_silent=is_silent)
    far.driver.nodes["x"] = below("gpu", is_silent=is_silent, total=2)
    end_before(near, placement, lambda method, path: method == "POST")
    end_before(far, placement, tags)
    for one in (near, far):
        assert [type(problem) for problem in sync(one).problems] == [NodeTaken]
    assert contents(placement)["x_gpu"]["traits"] == set()
    del near.driver.nodes["x"]

    outcome = sync(near, far)

    assert not outcome.problems
    assert contents(placement)["x_gpu"]["inventories"] == {"VGPU": (2, 0)}
    assert "x_gpu" not in recorded(near)


def end_before(
    one: Publishing, placement: PlacementFixture, is_it: Callable[[str, str], bool]
) -> None:
    """Let a process end while the first request that ``is_it`` selects is under way."""

    def fail() -> None:
        raise PlacementUnavailable(request="a write", status=0, code="", detail="no answer")

    placement.adapter.once_before(is_it, fail)
    with pytest.raises(PlacementUnavailable):
        one.restarted().sync()


# Instances and allocations.


def test_lost_allocation_of_a_node_of_a_down_host_is_found_by_its_new_host(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    start(near, far, below("gpu"))
    near.driver.nodes["x"] = below("gpu", total=5)  # the claim below fits only there
    sync(near)
    with Desk(near.client, near.context) as desk:
        claimed = desk.claim(flavor("f", 1, **{"resources:VGPU": "5"}), uuid=CONSUMER).instance
        assert (claimed.host, claimed.node) == (HOST, "x")
        force_down(near)
        far.driver.nodes["x"] = below("gpu", total=5)
        sync(far, far)
        moved = Instance.get_by_uuid(far.context, CONSUMER)

        desk.client.delete_allocations(CONSUMER)
        outcome = sync(far)

    assert moved.host == FAR
    assert [type(one) for one in outcome.problems] == [AllocationLost]
    assert is_full(placement, "x_gpu")


@pytest.mark.parametrize(
    ("before", "after"), [(("a", "b"), "b"), (("a",), "a")], ids=["only near", "both"]
)
def test_node_that_has_moved_is_published_although_a_device_that_near_reported_is_in_use(
    near: Publishing,
    far: Publishing,
    placement: PlacementFixture,
    before: tuple[str, ...],
    after: str,
) -> None:
    """The device in use is reported by near only, or by both hosts."""
    start(near, far, below(*before))
    allocate(placement, CONSUMER, x_a={"VGPU": 1})
    move(near, far, below(after))

    for _ in range(3):
        outcome = sync(near, far)

    assert not outcome.problems
    assert not outcome.foreign
    assert contents(placement)[f"x_{after}"]["inventories"] == {"VGPU": (4, 0)}


def test_claim_on_a_node_that_has_moved_there_and_back_gets_its_present_host(
    near: Publishing, far: Publishing
) -> None:
    near.driver.nodes |= {"x": below("gpu"), "stays": below()}
    far.driver.nodes["other"] = below()
    sync(near, far)
    far.driver.nodes["x"] = near.driver.nodes.pop("x")
    sync(near, far, near, far)
    near.driver.nodes["x"] = far.driver.nodes.pop("x")
    for _ in range(3):
        sync(far, near)

    with Desk(near.client, near.context) as desk:
        claimed = desk.claim(flavor("f", 1, **{"resources:VGPU": "1"})).instance

    assert (claimed.host, claimed.node) == (HOST, "x")
    assert not ReservationList.get_by_filters(near.context)


def test_nodes_that_two_hosts_swap_are_taken_over_by_both(
    near: Publishing, far: Publishing, caplog: pytest.LogCaptureFixture
) -> None:
    start(near, far, below("gpu"))
    there = near.driver.nodes.pop("x")
    near.driver.nodes["other"] = far.driver.nodes.pop("other")
    far.driver.nodes["x"] = there

    sync(near, far, near, far)

    assert "the providers below root x (" in caplog.text
    assert not sync(near).problems
    assert not sync(far).problems
    assert recorded(near) == {"stays", "stays_gpu", "other", "other_gpu"}
    assert recorded(far) == {"x", "x_gpu"}


def test_device_in_use_that_was_detached_on_near_is_free_below_the_new_root_of_far(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    start(near, far, below("gpu"))
    allocate(placement, CONSUMER, x_gpu={"VGPU": 1})
    Reservations(near.client, near.context).detach(summary(placement, "x_gpu"))
    Nova(placement, "x").recreate_root()
    move(near, far, below("gpu"))

    sync(near, far, near, far, near, far)

    assert contents(placement)["x_gpu"]["parent"] == "x"
    assert contents(placement)["x_gpu"]["inventories"] == {"VGPU": (4, 0)}
    assert not sync(near).pending


# Removals and orphans.


def test_node_of_a_down_host_with_a_damaged_record_is_published_or_reported(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    start(near, far, below("a", "b"))
    sql = "UPDATE provider_records SET live = 'what' WHERE provider_uuid = ?"
    execute(near, sql, everything()["x_a"]["uuid"])
    force_down(near)
    far.driver.nodes["x"] = below("b", total=2)

    for _ in range(3):
        outcome = sync(far)

    is_published = contents(placement)["x_b"]["inventories"] == {"VGPU": (2, 0)}
    assert is_published or outcome.problems


def test_devices_of_a_down_host_are_removed_if_the_driver_does_not_report_the_root(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    """The host and its devices have new names."""
    start(near, far, below("a", is_silent=True))
    force_down(near)
    far.driver.nodes["x"] = below("b", is_silent=True)

    for _ in range(3):
        outcome = sync(far)

    assert not outcome.pending
    assert "x_a" not in contents(placement)


def test_devices_of_a_node_that_has_moved_are_no_orphans_on_near(
    near: Publishing, far: Publishing
) -> None:
    start(near, far, below("gpu"))
    move(near, far, below("gpu"))
    for _ in range(3):
        sync(near, far)

    outcome = sync(near)

    assert not [one for one in outcome.pending if "no record shows" in one.reason]


def test_devices_of_nodes_that_only_far_lists_are_no_orphans_on_near(
    near: Publishing, far: Publishing
) -> None:
    start(near, far, below("gpu"))
    assert not sync(near).pending
    # Without its record, the provider is an orphan again.
    gpu = everything()["other_gpu"]["uuid"]
    assert len(ProviderRecordList.get_by_filters(far.context, provider_uuid=gpu)) == 1
    ProviderRecordList.replace(
        far.context, FAR, near.cycle.instance, ProviderRecordList(far.context), [gpu]
    )

    assert [one.name for one in sync(near).pending] == ["other_gpu"]


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


def test_tree_to_which_another_program_moved_its_root_is_no_orphan(
    near: Publishing, placement: PlacementFixture
) -> None:
    near.driver.nodes |= {"x": below(is_silent=True), "stays": below("gpu", is_silent=True)}
    sync(near)
    rack = placement.client.create_provider(str(uuid4()), "rack", None).uuid
    placement.client.update_provider(everything()["x"]["uuid"], "renamed", rack)

    assert not sync(near).pending


def test_move_of_most_nodes_is_no_mass_removal(
    near: Publishing, far: Publishing, placement: PlacementFixture
) -> None:
    names = [f"n{number}" for number in range(7)]
    for name in names:
        Nova(placement, name).create_root()
    near.driver.nodes |= dict.fromkeys(names, below("gpu"))
    start(near, far, below("gpu"))
    for name in names:
        far.driver.nodes[name] = near.driver.nodes.pop(name)

    for _ in range(3):
        outcome = sync(far, near)

    assert not any(isinstance(one, MassRemoval) for one in outcome.problems)


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
