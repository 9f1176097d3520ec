"""Drivers that are wrong: it is told where and how, and nothing of that tree is written.

Each case is a node of one driver, in a tree of its own, which changes something rightly
before it goes wrong: were half of it written, it would be seen.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from tests.lab.cycles import Publishing, contents
from tests.lab.drivers import Edit, flat, with_children
from tests.lab.objects import opened
from tests.lab.placement import PlacementFixture
from wharfinger.conf import InstanceSection
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    BackendError,
    ProviderNotFound,
    ReshapeNeeded,
    WharfingerError,
)
from wharfinger.objects import ComputeNode
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ProviderTree
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.tracker import instances
from wharfinger.tracker.cycle import DriverCycle

Spoil = Callable[[ProviderTree, str], Any]

GOOD = "good"
UUID = "5d1f6a0c-1b0a-4c4e-9d0e-2f6b1c9e7a01"
LARGEST = 2**31 - 1


class Unspeakable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Unprintable:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


@dataclass(frozen=True)
class Case:
    """A mistake, and the words that an error about it has besides the node's name."""

    name: str
    spoil: Spoil
    told: tuple[str, ...]
    resource: Callable[[str], Any] | None = None

    def __str__(self) -> str:
        return self.name


def figures(name: str, *told: str, **record: Any) -> Case:
    """The GPU's inventory with these figures."""
    record = {"total": 4, **record}
    return Case(
        name,
        lambda tree, node: tree.update_inventory(f"{node}-gpu", {"VGPU": record}),
        ("-gpu", "VGPU", *told),
    )


def inventories(name: str, given: Any, *told: str) -> Case:
    """Something else than inventories by class, for the GPU."""
    return Case(
        name, lambda tree, node: tree.update_inventory(f"{node}-gpu", given), ("-gpu", *told)
    )


def child(name: str, child_name: Any, *told: str) -> Case:
    """A child of that name."""
    return Case(name, lambda tree, node: tree.new_child(child_name, node), told)


def traits(name: str, given: Any, *told: str) -> Case:
    """These traits, for the GPU."""
    return Case(name, lambda tree, node: tree.update_traits(f"{node}-gpu", given), ("-gpu", *told))


def aggregates(name: str, given: Any, *told: str) -> Case:
    """These aggregates, for the GPU."""
    return Case(
        name, lambda tree, node: tree.update_aggregates(f"{node}-gpu", given), ("-gpu", *told)
    )


def reason(name: str, given: Any, *told: str) -> Case:
    """A reservation of the GPU with that reason."""
    return Case(
        name,
        lambda tree, node: tree.reserve(f"{node}-gpu", given),
        ("-gpu", "reason", "printable", *told),
    )


def raises(name: str, error: BaseException | type[BaseException], *told: str) -> Case:
    """An error from the middle of update_provider_tree."""

    def fail(tree: ProviderTree, node: str) -> None:
        raise error

    return Case(name, fail, told)


def describes(name: str, resource: Callable[[str], Any], *told: str) -> Case:
    """Another answer of get_available_resource."""
    return Case(name, lambda tree, node: None, told, resource)


def parents(name: str, *links: tuple[int, int], told: tuple[str, ...]) -> Case:
    """Providers by number, each with its parent's, put into the tree all at once."""

    def populate(tree: ProviderTree, node: str) -> None:
        made = {one: str(uuid.uuid5(uuid.UUID(UUID), f"{node} {one}")) for one in range(5)}
        tree.populate_from_iterable(
            {
                "name": f"{node}-ring-{one}",
                "uuid": made[one],
                "parent_provider_uuid": made[parent],
            }
            for one, parent in links
        )

    return Case(name, populate, told)


def loop_back(tree: ProviderTree, node: str) -> None:
    """Put the root below its own child."""
    root, gpu = tree.data(node), tree.data(f"{node}-gpu")
    tree.populate_from_iterable(
        [
            {"name": node, "uuid": root.uuid, "parent_provider_uuid": gpu.uuid},
            {"name": gpu.name, "uuid": gpu.uuid, "parent_provider_uuid": root.uuid},
        ]
    )


def recurse(tree: ProviderTree, node: str) -> None:
    recurse(tree, node)


def fail(error: BaseException) -> Callable[[str], Any]:
    def raise_it(node: str) -> Any:
        raise error

    return raise_it


def with_uuid(value: Any) -> Callable[[str], ComputeNode]:
    """A node that says it has that uuid."""

    def describe(node: str) -> ComputeNode:
        described = ComputeNode(host="test-host", hypervisor_hostname=node)
        described.uuid = value
        return described

    return describe


def with_no_uuid(node: str) -> ComputeNode:
    return ComputeNode(host="test-host", hypervisor_hostname=node)


CASES = (
    # Figures.
    figures("reserved-above-total", "reserved 5", "more than total 4", reserved=5),
    figures("negative-total", "total", "-1", f"from 1 to {LARGEST}", total=-1),
    figures("negative-reserved", "reserved", "-1", f"from 0 to {LARGEST}", reserved=-1),
    figures("negative-ratio", "allocation_ratio", "above 0", allocation_ratio=-1.0),
    figures("zero-total", "total", "not 0", f"from 1 to {LARGEST}", total=0),
    figures("zero-step", "step_size", "not 0", f"from 1 to {LARGEST}", step_size=0),
    figures("zero-min-unit", "min_unit", "not 0", f"from 1 to {LARGEST}", min_unit=0),
    figures("zero-ratio", "allocation_ratio", "above 0", allocation_ratio=0),
    figures("fraction", "total", "whole number", "1.5", total=1.5),
    figures("text", "total", "whole number", "'3'", total="3"),
    figures("truth", "total", "whole number", "True", total=True),
    figures("nothing", "total", "whole number", "None", total=None),
    figures("not-a-number", "total", "whole number", "nan", total=float("nan")),
    figures("infinite-total", "total", "whole number", "inf", total=float("inf")),
    figures("ratio-not-a-number", "allocation_ratio", "above 0", allocation_ratio=float("nan")),
    figures("infinite-ratio", "allocation_ratio", "at most", allocation_ratio=float("inf")),
    figures("ratio-as-text", "allocation_ratio", "number", "'2'", allocation_ratio="2"),
    figures("ratio-is-truth", "allocation_ratio", "number", "True", allocation_ratio=True),
    figures("ratio-beyond-float", "allocation_ratio", "at most", allocation_ratio=10**400),
    figures("total-2**31", "total", str(2**31), f"to {LARGEST}", total=2**31),
    figures("total-2**63", "total", str(2**63), f"to {LARGEST}", total=2**63),
    figures("max-unit-2**31", "max_unit", str(2**31), f"to {LARGEST}", max_unit=2**31),
    figures("total-without-end", "total", f"to {LARGEST}", total=10**5000),
    figures("min-above-max", "min_unit 3", "more than max_unit 2", min_unit=3, max_unit=2),
    figures("figure-unknown", "unknown totl", "total", totl=4),
    inventories("total-missing", {"VGPU": {"reserved": 1}}, "VGPU", "total is missing"),
    inventories("record-nothing", {"VGPU": None}, "VGPU", "None", "dict"),
    inventories("record-number", {"VGPU": 4}, "VGPU", "4", "dict"),
    inventories("record-text", {"VGPU": "total"}, "VGPU", "'total'", "dict"),
    inventories("record-list", {"VGPU": [4]}, "VGPU", "[4]", "dict"),
    inventories("record-keys-no-text", {"VGPU": {1: 2, "total": 4}}, "VGPU", "unknown 1"),
    # What there is.
    inventories("class-unknown", {"VGUP": {"total": 4}}, "VGUP", "CUSTOM_[A-Z0-9_]+"),
    inventories("class-small", {"CUSTOM_gold": {"total": 4}}, "CUSTOM_gold", "CUSTOM_[A-Z0-9_]+"),
    inventories("class-bare", {"CUSTOM_": {"total": 4}}, "'CUSTOM_'", "CUSTOM_[A-Z0-9_]+"),
    inventories("class-newline", {"CUSTOM_X\n": {"total": 4}}, "CUSTOM_X\\n", "[A-Z0-9_]+"),
    inventories("class-surrogate", {"CUSTOM_\udc80": {"total": 4}}, "\\udc80", "[A-Z0-9_]+"),
    inventories("class-long", {f"CUSTOM_{'X' * 249}": {"total": 4}}, "at most 255"),
    inventories("class-nothing", {None: {"total": 4}}, "None", "CUSTOM_[A-Z0-9_]+"),
    inventories("inventories-nothing", None, "None", "dict"),
    inventories("inventories-text", "VGPU", "'VGPU'", "dict"),
    inventories("inventories-list", ["VGPU"], "['VGPU']", "dict"),
    # Names and places.
    child("name-201", "x" * 201, "x" * 201, "1 to 200 characters"),
    child("name-empty", "", "''", "1 to 200 characters"),
    child("name-nothing", None, "None", "1 to 200 characters"),
    child("name-number", 7, "7", "1 to 200 characters"),
    child("name-newline", "a\nb", "a\\nb", "control characters"),
    child("name-escape", "\x1b[31mred", "\\x1b[31mred", "control characters"),
    child("name-nul", "a\0b", "a\\x00b", "control characters"),
    child("name-surrogate", "a\udc80", "a\\udc80", "characters"),
    child("name-right-to-left", "a\u202eb", "a\\u202eb", "characters"),
    Case(
        "uuid-wrong",
        lambda tree, node: tree.new_child(f"{node}-x", node, uuid="../../traits"),
        ("../../traits", "no uuid"),
    ),
    Case(
        "uuid-nothing-like-it",
        lambda tree, node: tree.new_child(f"{node}-x", node, uuid=7),  # type: ignore[arg-type]
        ("7", "no uuid"),
    ),
    Case(
        "uuid-of-the-other-node",
        lambda tree, node: tree.new_child(f"{node}-x", node, uuid=UUID),
        (UUID, "another provider"),
    ),
    Case(
        "name-twice",
        lambda tree, node: tree.new_child(f"{node}-gpu", node),
        ("-gpu", "already exists"),
    ),
    Case("name-of-itself", lambda tree, node: tree.new_child(node, node), ("already exists",)),
    child("name-of-the-other-node", GOOD, f"provider {GOOD}", "another provider"),
    child("name-of-its-child", f"{GOOD}-gpu", f"provider {GOOD}-gpu", "another provider"),
    child("name-is-the-others-uuid", UUID, UUID, "another provider"),
    Case(
        "no-parent",
        lambda tree, node: tree.new_child(f"{node}-x", "nobody"),
        ("no provider nobody",),
    ),
    Case(
        "parent-unknown",
        lambda tree, node: tree.populate_from_iterable(
            [{"name": f"{node}-x", "uuid": str(uuid.uuid4()), "parent_provider_uuid": UUID}]
        ),
        ("-x", "no parent", UUID),
    ),
    parents("own-parent", (1, 1), told=("each other's parents",)),
    parents("own-grandparent", (1, 2), (2, 1), told=("each other's parents",)),
    parents("own-ancestor", (1, 2), (2, 3), (3, 1), told=("each other's parents",)),
    Case("root-below-its-child", loop_back, ("each other's parents",)),
    Case("root-removed", lambda tree, node: tree.remove(node), ("removed the root",)),
    Case(
        "provider-without-uuid",
        lambda tree, node: tree.populate_from_iterable([{"name": "x"}]),
        ("uuid",),
    ),
    # Marks.
    traits("trait-small", {"CUSTOM_gold"}, "CUSTOM_gold", "CUSTOM_[A-Z0-9_]+"),
    traits("trait-unknown", {"HW_GPU_API_NONSENSE"}, "HW_GPU_API_NONSENSE", "os-traits"),
    traits("trait-long", {f"CUSTOM_{'X' * 249}"}, "at most 255"),
    traits("trait-empty", {""}, "''", "CUSTOM_[A-Z0-9_]+"),
    traits("trait-nothing", {None}, "None", "CUSTOM_[A-Z0-9_]+"),
    traits("trait-surrogate", {"CUSTOM_\udc80"}, "\\udc80", "CUSTOM_[A-Z0-9_]+"),
    traits("traits-nothing", None, "None"),
    traits("traits-text", "CUSTOM_GOLD", "'CUSTOM_GOLD'"),
    traits("traits-nested", [["CUSTOM_GOLD"]], "CUSTOM_GOLD"),
    traits("trait-of-the-owner", {"OWNER_NOVA", "OWNER_CYBORG"}, "OWNER_CYBORG", "framework's"),
    traits("trait-of-some-owner", {"CUSTOM_OWNER_ACME"}, "CUSTOM_OWNER_ACME", "framework's"),
    traits("trait-of-an-instance", {"CUSTOM_WHARFINGER_X"}, "CUSTOM_WHARFINGER_X", "framework's"),
    aggregates("aggregate-wrong", {"rack-1"}, "rack-1", "no uuid"),
    aggregates("aggregate-nothing", {None}, "None", "no uuid"),
    aggregates("aggregates-text", UUID, UUID),
    aggregates("aggregates-nothing", None, "None"),
    reason("reason-newline", "clean\ning", "clean\\ning"),
    reason("reason-escape", "\x1b[2J", "\\x1b[2J"),
    reason("reason-surrogate", "\udc80", "\\udc80"),
    reason("reason-empty", "", "''"),
    reason("reason-nothing", None, "None"),
    Case(
        "mode-unknown",
        lambda tree, node: tree.set_publishing_mode(node, "loan"),  # type: ignore[arg-type]
        ("loan", "PublishingMode"),
    ),
    # Errors.
    raises("os-error", OSError("the card is on fire"), "OSError", "the card is on fire"),
    raises("key-error", KeyError("pci"), "KeyError", "pci"),
    raises("assertion", AssertionError(), "AssertionError"),
    raises("not-implemented", NotImplementedError, "NotImplementedError"),
    raises("exit", SystemExit(3), "SystemExit", "3"),
    raises("stop", StopIteration, "StopIteration"),
    raises("generator-exit", GeneratorExit, "GeneratorExit"),
    raises("cancelled", asyncio.CancelledError(), "CancelledError"),
    raises("no-memory", MemoryError(), "MemoryError"),
    raises("control-characters", ValueError("a\x1b[2J\r\nb"), "a\\x1b[2J\\r\\nb"),
    raises("surrogates", ValueError("a\udc80"), "a\\udc80"),
    raises("unspeakable", Unspeakable(), "Unspeakable"),
    raises("several", BaseExceptionGroup("two", [OSError(), SystemExit()]), "Group", "two"),
    raises("of-ours", ProviderNotFound(name_or_uuid="somebody"), "no provider somebody"),
    raises("reshape-for-ever", ReshapeNeeded(), "ReshapeNeeded again"),
    Case("recursion", recurse, ("RecursionError",)),
    # The node as an object.
    describes("node-error", fail(OSError("gone")), "get_available_resource", "gone"),
    describes("node-exit", fail(SystemExit(3)), "get_available_resource", "SystemExit"),
    describes("node-unspeakable", fail(Unspeakable()), "get_available_resource", "Unspeakable"),
    describes("node-reshape", fail(ReshapeNeeded()), "get_available_resource"),
    describes("node-nothing", lambda node: None, "ComputeNode", "None"),
    describes("node-dict", lambda node: {"uuid": UUID}, "ComputeNode", UUID),
    describes("node-uuid-taken", with_uuid(UUID), GOOD, UUID),
)


def spoilt(spoil: Spoil) -> Edit:
    """A node that changes, gains a GPU, and then goes wrong."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        with_children({"VCPU": 9}, {f"{node}-gpu": {"VGPU": 4}})(tree, node, allocations)
        spoil(tree, node)

    return edit


@dataclass(frozen=True)
class Round:
    """What came of all cases in one cycle, and of the next, when all is well again.

    Providers are by name, with their generations: these rise with every write.
    """

    before: dict[str, ProviderSummary]
    after: dict[str, ProviderSummary]
    problems: list[WharfingerError]
    good: dict[str, tuple[int, int]]
    mended: dict[str, ProviderSummary]
    problems_mended: list[WharfingerError]
    steps_after_that: int


def listed(placement: PlacementFixture) -> dict[str, ProviderSummary]:
    return {provider.name: provider for provider in placement.client.list_providers()}


def trees(found: dict[str, ProviderSummary], node: str) -> dict[str, ProviderSummary]:
    """What there is of the tree of a node."""
    return {name: one for name, one in found.items() if name == node or name.startswith(f"{node}-")}


def node_of(case: Case) -> str:
    return f"node.{CASES.index(case):03}"


@pytest.fixture(scope="module")
def rounds(
    where: str, placement_service: EmbeddedPlacement, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Round]:
    """All cases at once: in the first sync of their nodes, and in a later one."""
    with (
        PlacementFixture(placement_service) as placement,
        Publishing(placement, tmp_path_factory.mktemp("state")) as publishing,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        return {
            "a first sync": one_round(placement, publishing, monkeypatch, 2),
            "a later sync": one_round(placement, publishing, monkeypatch, 3),
        }


def one_round(
    placement: PlacementFixture,
    publishing: Publishing,
    monkeypatch: pytest.MonkeyPatch,
    good_total: int,
) -> Round:
    driver, cycle = publishing.driver, publishing.cycle
    good = {GOOD: with_children({"VCPU": good_total}, {f"{GOOD}-gpu": {"VGPU": good_total}})}
    before = listed(placement)
    driver.nodes |= good | {node_of(case): spoilt(case.spoil) for case in CASES}
    with monkeypatch.context() as spoiling:
        described = {node_of(case): case.resource for case in CASES if case.resource}
        spoiling.setattr(driver, "get_available_resource", described_by(described))
        problems = list(cycle.sync().problems)
    after = listed(placement)
    inventories = placement.client.get_inventories(after[f"{GOOD}-gpu"].uuid).inventories
    driver.nodes |= good | {node_of(case): flat(VCPU=8) for case in CASES}
    monkeypatch.setattr(driver, "get_available_resource", described_by({}))
    mended = cycle.sync()
    return Round(
        before=before,
        after=after,
        problems=problems,
        good={name: (one.total, one.reserved) for name, one in inventories.items()},
        mended=listed(placement),
        problems_mended=list(mended.problems),
        steps_after_that=len(cycle.sync().steps),
    )


def described_by(descriptions: dict[str, Callable[[str], Any]]) -> Callable[[str], Any]:
    def describe(node: str) -> Any:
        if node == GOOD:
            return with_uuid(UUID)(node)
        return descriptions.get(node, with_no_uuid)(node)

    return describe


@pytest.fixture(params=["a first sync", "a later sync"])
def one(request: pytest.FixtureRequest, rounds: dict[str, Round]) -> Round:
    return rounds[request.param]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_told_with_its_place_and_what_is_wrong(one: Round, case: Case) -> None:
    everything = [str(problem) for problem in one.problems]
    told = [message for message in everything if node_of(case) in message]

    assert len(told) == 1, "\n".join(told or everything)
    assert told[0].isprintable()
    assert [word for word in case.told if word not in told[0]] == [], told[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_tree_with_a_mistake_stays_as_it_was_until_it_is_mended(one: Round, case: Case) -> None:
    node = node_of(case)

    assert trees(one.after, node) == trees(one.before, node)
    assert trees(one.mended, node).keys() == {node}


def test_mistakes_of_other_nodes_do_not_touch_one_that_is_well(one: Round) -> None:
    assert one.good == {"VGPU": (one.good["VGPU"][0], 0)}
    assert one.after[f"{GOOD}-gpu"] != one.before.get(f"{GOOD}-gpu")
    assert len(one.problems) == len(CASES)
    assert not one.problems_mended
    assert one.steps_after_that == 0


# Lists of nodes.

ERRORS = (
    OSError("the backend is not there"),
    KeyError("nodes"),
    SystemExit(3),
    RecursionError("too deep"),
    MemoryError(),
    GeneratorExit(),
    StopIteration(),
    asyncio.CancelledError(),
    Unspeakable(),
    ReshapeNeeded(),
)


def published(publishing: Publishing, placement: PlacementFixture) -> dict[str, Any]:
    """What there is once two nodes are published."""
    publishing.driver.nodes |= {GOOD: flat(VCPU=8), "other": flat(VCPU=8)}
    assert not publishing.cycle.sync().problems
    found = contents(placement)
    assert found.keys() == {GOOD, "other"}
    publishing.driver.nodes |= {GOOD: flat(VCPU=9), "other": flat(VCPU=9)}
    return found


def completes(publishing: Publishing, placement: PlacementFixture) -> bool:
    """Whether a cycle brings both nodes up to date, and the next has nothing to do."""
    assert not publishing.cycle.sync().problems
    found = contents(placement)
    assert {found[name]["inventories"]["VCPU"] for name in (GOOD, "other")} == {(9, 0)}
    return not publishing.cycle.sync().steps


@pytest.mark.parametrize(
    "listed_as",
    [
        lambda: None,
        lambda: {GOOD: 1, "other": 2},
        lambda: (GOOD, "other"),
        lambda: (name for name in (GOOD, "other")),
        lambda: {GOOD},
        lambda: GOOD,
        lambda: 7,
        lambda: [GOOD, GOOD],
        lambda: [GOOD, "other", GOOD],
        Unprintable,
    ],
    ids=[
        *("nothing", "dict", "tuple", "generator", "set", "text", "number"),
        *("twice", "twice-apart", "unprintable"),
    ],
)
def test_a_list_of_nodes_that_is_none_changes_nothing(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    listed_as: Callable[[], Any],
) -> None:
    before = published(publishing, placement)

    with monkeypatch.context() as spoiling:
        spoiling.setattr(
            publishing.driver, "get_available_nodes", lambda refresh=False: listed_as()
        )
        for _ in range(2):
            with pytest.raises(BackendError, match="driver scripted: get_available_nodes") as told:
                publishing.cycle.sync()
            assert "list of different names" in str(told.value)

    assert contents(placement) == before
    assert completes(publishing, placement)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_list_of_nodes_that_fails_changes_nothing(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    before = published(publishing, placement)

    def failing(refresh: bool = False) -> list[str]:
        raise error

    with monkeypatch.context() as spoiling:
        spoiling.setattr(publishing.driver, "get_available_nodes", failing)
        for _ in range(2):
            with pytest.raises(BackendError, match="driver scripted: get_available_nodes") as told:
                publishing.cycle.sync()
            assert type(error).__name__ in str(told.value)

    assert contents(placement) == before
    assert completes(publishing, placement)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (None, "None"),
        (7, "7"),
        (b"node", "b'node'"),
        ("", "''"),
        ("x" * 201, "1 to 200 characters"),
        ("a\nb", "a\\nb"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\udc80", "a\\udc80"),
        ("a\u202eb", "a\\u202eb"),
    ],
    ids=ascii,
)
def test_a_node_of_an_impossible_name_is_told_and_the_others_are_published(
    publishing: Publishing, placement: PlacementFixture, name: Any, told: str
) -> None:
    publishing.driver.nodes |= {name: flat(VCPU=1), GOOD: flat(VCPU=8), "other": flat(VCPU=8)}

    for total in (8, 9):
        publishing.driver.nodes |= {GOOD: flat(VCPU=total), "other": flat(VCPU=total)}
        outcome = publishing.cycle.sync()
        assert [told in str(problem) for problem in outcome.problems] == [True]
        assert "characters" in str(outcome.problems[0])
        found = contents(placement)
        assert {node: one["inventories"] for node, one in found.items()} == {
            GOOD: {"VCPU": (total, 0)},
            "other": {"VCPU": (total, 0)},
        }

    del publishing.driver.nodes[name]
    assert completes(publishing, placement)


# What looks hostile and is a name like any other.

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


@pytest.mark.parametrize("name", HARMLESS, ids=ascii)
def test_a_name_that_placement_takes_is_published_as_it_is(
    publishing: Publishing, placement: PlacementFixture, name: str
) -> None:
    child_name = f"{name[:190]} child"
    publishing.driver.nodes |= {
        GOOD: flat(VCPU=8),
        name: with_children({"VCPU": 1}, {child_name: {"VGPU": 2}}),
    }

    assert not publishing.cycle.sync().problems

    found = contents(placement)
    assert found.keys() == {GOOD, name, child_name}
    assert found[child_name]["parent"] == name
    assert found[child_name]["inventories"] == {"VGPU": (2, 0)}
    again = publishing.restarted().sync()
    assert not again.steps
    assert not again.problems


class Number(int):
    """A whole number with a type of its own, as libraries have them."""


class Text(str):
    """Text with a type of its own."""


class Size(IntEnum):
    FOUR = 4


class Kind(StrEnum):
    VGPU = "VGPU"
    GOLD = "CUSTOM_GOLD"


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree, node: tree.update_inventory("gpu", {"VGPU": {"total": Number(4)}}),
        lambda tree, node: tree.update_inventory("gpu", {"VGPU": {"total": Size.FOUR}}),
        lambda tree, node: tree.update_inventory("gpu", {Text("VGPU"): {Text("total"): 4}}),
        lambda tree, node: tree.update_inventory("gpu", {Kind.VGPU: {"total": 4}}),
        lambda tree, node: tree.update_traits("gpu", {Text("CUSTOM_GOLD")}),
        lambda tree, node: tree.update_traits("gpu", {Kind.GOLD}),
        lambda tree, node: tree.update_aggregates("gpu", {Text(UUID)}),
        lambda tree, node: tree.reserve("gpu", Text("cleaning")),
        lambda tree, node: tree.new_child(Text("more"), Text(node), uuid=Text(UUID)),
        lambda tree, node: tree.update_inventory(
            "gpu",
            {"VGPU": {"total": 4, "allocation_ratio": type("Ratio", (float,), {})(1.5)}},
        ),
    ],
    ids=[
        *("number", "number-of-an-enum", "class", "class-of-an-enum", "trait", "trait-of-an-enum"),
        *("aggregate", "reason", "provider", "ratio"),
    ],
)
def test_a_value_of_a_derived_type_is_that_value(
    publishing: Publishing, placement: PlacementFixture, edit: Spoil
) -> None:
    def node(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}, "more": {"VGPU": 1}})(
            tree, name, allocations
        )
        tree.remove("more")
        edit(tree, name)

    publishing.driver.nodes |= {"node": node, GOOD: flat(VCPU=8)}

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    found = contents(placement)
    assert found["gpu"]["inventories"]["VGPU"][0] == 4
    assert found[GOOD]["inventories"] == {"VCPU": (8, 0)}
    assert not publishing.restarted().sync().steps


def test_a_name_stays_whose_it_is_whoever_is_listed_first(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    rightful = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.driver.nodes = {GOOD: rightful}
    publishing.cycle.sync()
    before = contents(placement)
    publishing.driver.nodes = {"bad": with_children({"VCPU": 8}, {"gpu": {"VGPU": 1}})}
    publishing.driver.nodes[GOOD] = rightful

    for _ in range(2):
        outcome = publishing.cycle.sync()
        assert outcome.problems
        found = contents(placement)
        assert {name: found[name] for name in before} == before

    publishing.driver.nodes["bad"] = flat(VCPU=8)
    assert not publishing.cycle.sync().problems
    assert contents(placement).keys() == {GOOD, "gpu", "bad"}


def test_a_second_root_is_published_with_the_first(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    def two_roots(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(VCPU=8)(tree, node, allocations)
        if not tree.exists("pool"):
            tree.new_root("pool")
        tree.update_inventory("pool", {"DISK_GB": {"total": 100}})

    publishing.driver.nodes |= {"node": two_roots, GOOD: flat(VCPU=8)}

    assert not publishing.cycle.sync().problems

    assert contents(placement)["pool"]["parent"] is None
    for _ in range(2):
        again = publishing.restarted().sync()
        assert (again.steps, again.pending, again.problems) == ((), (), ())


# The other methods.


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_capabilities_that_cannot_be_told_are_the_nodes_problem(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    before = published(publishing, placement)
    answers: Iterator[BaseException | dict[str, bool]] = iter([error, {}])

    def failing_once() -> dict[str, bool]:
        answer = next(answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    with monkeypatch.context() as spoiling:
        spoiling.setattr(publishing.driver, "capabilities_as_traits", failing_once)
        outcome = publishing.cycle.sync()

    assert [GOOD in str(problem) for problem in outcome.problems] == [True]
    assert type(error).__name__ in str(outcome.problems[0])
    found = contents(placement)
    assert found[GOOD] == before[GOOD]
    assert found["other"]["inventories"] == {"VCPU": (9, 0)}
    assert completes(publishing, placement)


@pytest.mark.parametrize(
    ("capabilities", "told"),
    [
        ({"compute_small": True}, "compute_small"),
        ({"OWNER_CYBORG": True}, "OWNER_CYBORG"),
        ({7: True}, "7"),
        (["CUSTOM_GOLD"], "CUSTOM_GOLD"),
        ("CUSTOM_GOLD", "CUSTOM_GOLD"),
        (3, "3"),
    ],
)
def test_capabilities_that_cannot_be_are_each_nodes_problem(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    capabilities: Any,
    told: str,
) -> None:
    before = published(publishing, placement)

    with monkeypatch.context() as spoiling:
        spoiling.setattr(publishing.driver, "capabilities_as_traits", lambda: capabilities)
        outcome = publishing.cycle.sync()

    assert [told in str(problem) for problem in outcome.problems] == [True, True]
    assert [GOOD in str(problem) for problem in outcome.problems] == [True, False]
    assert contents(placement) == before
    assert completes(publishing, placement)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_driver_that_cannot_begin_is_told_before_anything_is_read(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
) -> None:
    def failing(service: object) -> None:
        raise error

    monkeypatch.setattr(publishing.driver, "init_host", failing)
    with (
        pytest.raises(BackendError, match="driver scripted: init_host") as told,
        running(publishing, placement),
    ):
        pytest.fail("it has begun")

    assert type(error).__name__ in str(told.value)
    assert not placement.requests.seen


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_what_is_done_stands_although_the_driver_cannot_end(
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    def failing() -> None:
        raise error

    monkeypatch.setattr(publishing.driver, "cleanup_host", failing)
    publishing.driver.nodes[GOOD] = flat(VCPU=8)
    with running(publishing, placement) as cycle:
        assert not cycle.sync().problems

    assert contents(placement)[GOOD]["inventories"] == {"VCPU": (8, 0)}
    assert "driver scripted: cleanup_host failed" in caplog.text
    assert type(error).__name__ in caplog.text


@contextmanager
def running(publishing: Publishing, placement: PlacementFixture) -> Iterator[DriverCycle]:
    """The driver as the program runs it."""
    instance = instances.Instance(
        InstanceSection("scripted", "scripted", None, 0),
        publishing.state_path,
        publishing.driver,
        publishing.publisher,
    )
    context = opened(publishing.state_path)
    try:
        with instances.running(
            instance, placement.new_client(), context, policy=RemovalPolicy(delay=0)
        ) as cycle:
            yield cycle
    finally:
        context.close()
