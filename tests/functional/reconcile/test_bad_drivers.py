"""Wrong answers of drivers: the node is not written, and the other nodes are published.

``tests/unit/reconcile/test_wrong_answers.py`` has the table of mistakes.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from tests.lab.cycles import HOST, Publishing, contents
from tests.lab.drivers import Edit, also, flat, with_children
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture
from wharfinger.conf import DefaultSection, InstanceSection
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError, ReshapeNeeded
from wharfinger.objects import ComputeNode
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ProviderTree
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler

GOOD = "good"
UUID = "5d1f6a0c-1b0a-4c4e-9d0e-2f6b1c9e7a01"


def fails_with(error: BaseException) -> Callable[..., Any]:
    def fail(*_args: object, **_named: object) -> Any:
        raise error

    return fail


def loop_back(tree: ProviderTree, node: str) -> None:
    """Put the root below its own child."""
    root, gpu = tree.data(node), tree.data(f"{node}-gpu")
    tree.populate_from_iterable(
        [
            {"name": node, "uuid": root.uuid, "parent_provider_uuid": gpu.uuid},
            {"name": gpu.name, "uuid": gpu.uuid, "parent_provider_uuid": root.uuid},
        ]
    )


#: By node name: the driver's mistake in the node's tree, and words of the expected error.
MISTAKES: dict[str, tuple[Callable[[ProviderTree, str], Any], str]] = {
    "figures": (
        lambda tree, node: tree.update_inventory(f"{node}-gpu", {"VGPU": {"total": -1}}),
        "-gpu",
    ),
    "name": (lambda tree, node: tree.new_child("x" * 201, node), "1 to 200 characters"),
    "others-name": (lambda tree, node: tree.new_child(f"{GOOD}-gpu", node), "another provider"),
    "loop": (loop_back, "it is above its parent"),
    "owner": (
        lambda tree, node: tree.update_traits(f"{node}-gpu", ["OWNER_NOVA", "OWNER_CYBORG"]),
        "OWNER_CYBORG",
    ),
    "instance": (
        lambda tree, node: tree.update_traits(f"{node}-gpu", ["CUSTOM_WHARFINGER_X"]),
        "CUSTOM_WHARFINGER_X",
    ),
    "reason": (lambda tree, node: tree.reserve(f"{node}-gpu", "clean\ning"), "printable"),
    "error": (fails_with(OSError("the card is on fire")), "the card is on fire"),
    "exit": (fails_with(SystemExit(3)), "SystemExit"),
    "reshape": (fails_with(ReshapeNeeded()), "ReshapeNeeded again"),
    "description": (lambda tree, node: None, "get_available_resource"),
    "impossible\nname": (lambda tree, node: None, "impossible\\nname"),
}


def spoilt(spoil: Callable[[ProviderTree, str], Any]) -> Edit:
    """Return an edit that changes a node's tree, adds a GPU, and then makes a mistake."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        with_children({"VCPU": 9}, {f"{node}-gpu": {"VGPU": 4}})(tree, node, allocations)
        spoil(tree, node)

    return edit


def listed(placement: PlacementFixture) -> dict[str, ProviderSummary]:
    """Return all providers by name. Their generations show whether they were written."""
    return {provider.name: provider for provider in placement.client.list_providers()}


def describe(node: str) -> ComputeNode:
    if node == "description":
        raise OSError("gone")
    return ComputeNode(host="test-host", hypervisor_hostname=node)


@pytest.mark.parametrize("is_published", [False, True], ids=["new", "published"])
def test_sync_with_mistakes_of_a_driver_leaves_their_trees_and_publishes_the_others(
    publishing: Publishing, placement: PlacementFixture, is_published: bool
) -> None:
    driver = publishing.driver
    well = {name: flat(VCPU=8) for name in MISTAKES if name.isprintable()}
    if is_published:
        driver.nodes |= {GOOD: flat(VCPU=1), **well}
        assert not publishing.cycle.sync().problems
    before = listed(placement)
    good = with_children({"VCPU": 2}, {f"{GOOD}-gpu": {"VGPU": 2}})
    driver.nodes = {GOOD: good, **{name: spoilt(spoil) for name, (spoil, _) in MISTAKES.items()}}

    with pytest.MonkeyPatch.context() as spoiling:
        spoiling.setattr(driver, "get_available_resource", describe)
        problems = [str(one) for one in publishing.cycle.sync().problems]

    for name, (_, told) in MISTAKES.items():
        [problem] = [one for one in problems if repr(name)[1:-1] in one and told in one]
        assert problem.isprintable()
    assert len(problems) == len(MISTAKES)
    after = listed(placement)
    assert {after.pop(name).name for name in (GOOD, f"{GOOD}-gpu")} == {GOOD, f"{GOOD}-gpu"}
    assert after == {name: one for name, one in before.items() if name != GOOD}
    found = contents(placement)
    assert found[GOOD]["inventories"] == {"VCPU": (2, 0)}
    assert found[f"{GOOD}-gpu"]["inventories"] == {"VGPU": (2, 0)}

    driver.nodes = {GOOD: good, **well}
    assert not publishing.cycle.sync().problems
    assert contents(placement).keys() == {GOOD, f"{GOOD}-gpu", *well}
    assert not publishing.cycle.sync().steps


@pytest.mark.parametrize("method", ["get_available_nodes", "capabilities_as_traits"])
@pytest.mark.parametrize(
    "answer",
    [fails_with(SystemExit(3)), lambda refresh=False: None],
    ids=["raises", "returns nothing"],
)
def test_sync_without_a_list_of_nodes_or_capabilities_changes_nothing(
    publishing: Publishing,
    placement: PlacementFixture,
    method: str,
    answer: Callable[..., Any],
) -> None:
    publishing.driver.nodes |= {GOOD: flat(VCPU=8), "other": flat(VCPU=8)}
    assert not publishing.cycle.sync().problems
    before = contents(placement)
    publishing.driver.nodes |= {GOOD: flat(VCPU=9), "other": flat(VCPU=9)}

    with pytest.MonkeyPatch.context() as spoiling:
        spoiling.setattr(publishing.driver, method, answer)
        for _ in range(2):
            if method == "get_available_nodes":
                with pytest.raises(BackendError, match="driver scripted: get_available_nodes"):
                    publishing.cycle.sync()
            else:
                assert len(publishing.cycle.sync().problems) == 2
            assert contents(placement) == before

    assert not publishing.cycle.sync().problems
    assert contents(placement)[GOOD]["inventories"] == {"VCPU": (9, 0)}


# Unusual names.

HARMLESS = (
    "x" * 200,
    "\N{SNOWMAN}" * 200,
    "k\u00f6ln/\u6771\u4eac \N{GRINNING FACE}",
    "../../etc/passwd",
    "a/b?c=d&e=%2F#f+g,h;i",
    "[red]x[/red] :bus: {0} %s $HOME",
    "' OR 1=1; DROP TABLE resource_providers; --",
    str(uuid.UUID(int=7)),
    "in:a,b",
    "None",
    " ",
)


def test_unusual_but_valid_names_are_published_unchanged(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    children = {name: f"{name[:190]} child" for name in HARMLESS}
    publishing.driver.nodes |= {
        name: with_children({"VCPU": 1}, {child: {"VGPU": 2}}) for name, child in children.items()
    }

    assert not publishing.cycle.sync().problems

    found = contents(placement)
    assert found.keys() == {*children, *children.values()}
    for name, child in children.items():
        assert (found[child]["parent"], found[child]["inventories"]) == (name, {"VGPU": (2, 0)})
    again = publishing.restarted().sync()
    assert not again.steps
    assert not again.problems


class Number(int):
    """A subclass of int, such as a library may return."""


class Text(str):
    """A subclass of str, such as a library may return."""


class Size(IntEnum):
    FOUR = 4


class Kind(StrEnum):
    VGPU = "VGPU"
    GOLD = "CUSTOM_GOLD"


def test_values_of_derived_types_are_published_as_plain_values(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def node(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        for child in ("gpu", "card"):
            if not tree.exists(child):
                uuid = UUID if child == "card" else None
                tree.new_child(Text(child), Text(name), uuid=uuid and Text(uuid))
        ratio = type("Ratio", (float,), {})(1.5)
        tree.update_inventory(name, {Text("VCPU"): {Text("total"): Number(4)}})
        tree.update_inventory("gpu", {Kind.VGPU: {"total": Size.FOUR, "allocation_ratio": ratio}})
        tree.update_traits("gpu", {Text("CUSTOM_SILVER"), Kind.GOLD})
        tree.update_aggregates("gpu", {Text(UUID)})
        tree.reserve("gpu", Text("cleaning"))

    publishing.driver.nodes["node"] = node

    assert not publishing.cycle.sync().problems

    found = contents(placement)
    assert found["node"]["inventories"] == {"VCPU": (4, 0)}
    assert found["gpu"]["inventories"] == {"VGPU": (4, 4)}
    assert found["gpu"]["traits"] >= {"CUSTOM_SILVER", "CUSTOM_GOLD"}
    assert found["gpu"]["aggregates"] == {UUID}
    assert found["card"]["uuid"] == UUID
    assert not publishing.restarted().sync().steps


def test_name_used_by_two_nodes_stays_with_its_first_owner(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    rightful = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.driver.nodes = {GOOD: rightful}
    publishing.cycle.sync()
    before = contents(placement)
    publishing.driver.nodes = {
        "bad": with_children({"VCPU": 8}, {"gpu": {"VGPU": 1}}),
        GOOD: rightful,
    }

    for _ in range(2):
        assert publishing.cycle.sync().problems
        found = contents(placement)
        assert {name: found[name] for name in before} == before

    publishing.driver.nodes["bad"] = flat(VCPU=8)
    assert not publishing.cycle.sync().problems
    assert contents(placement).keys() == {GOOD, "gpu", "bad"}


def test_second_root_of_a_node_is_published_with_the_first(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def with_pool(tree: ProviderTree) -> None:
        if not tree.exists("pool"):
            tree.new_root("pool")
        tree.update_inventory("pool", {"DISK_GB": {"total": 100}})

    publishing.driver.nodes |= {"node": also(with_pool)(flat(VCPU=8)), GOOD: flat(VCPU=8)}

    assert not publishing.cycle.sync().problems

    assert contents(placement)["pool"]["parent"] is None
    again = publishing.restarted().sync()
    assert (again.steps, again.pending, again.problems) == ((), (), ())


# The start and the end of a driver.


def test_driver_whose_start_fails_is_an_error_before_the_first_request(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing.driver, "init_host", fails_with(SystemExit(3)))

    with (
        pytest.raises(BackendError, match=r"driver scripted: init_host.*SystemExit"),
        running(publishing, placement),
    ):
        pytest.fail("it has begun")

    assert not placement.requests.seen


def test_driver_whose_end_fails_is_logged_after_its_work(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(publishing.driver, "cleanup_host", fails_with(SystemExit(3)))
    publishing.driver.nodes[GOOD] = flat(VCPU=8)

    with running(publishing, placement) as cycle:
        assert not cycle.sync().problems

    assert contents(placement)[GOOD]["inventories"] == {"VCPU": (8, 0)}
    assert "driver scripted: cleanup_host failed" in caplog.text
    assert "SystemExit" in caplog.text


@contextmanager
def running(publishing: Publishing, placement: PlacementFixture) -> Iterator[Reconciler]:
    """Run the driver as the wharfinger program does; yield its reconciler."""
    instance = driver_instance_loader.Instance(
        InstanceSection("scripted", "scripted", None, 0),
        DefaultSection(("scripted",), HOST, publishing.state_path, timedelta(seconds=60)),
        publishing.driver,
        publishing.publisher,
        ("scripted",),
    )
    context = opened(publishing.state_path)
    try:
        with driver_instance_loader.running(
            instance, placement.new_client(), context, policy=RemovalPolicy(delay=0)
        ) as cycle:
            yield cycle
    finally:
        context.close()
