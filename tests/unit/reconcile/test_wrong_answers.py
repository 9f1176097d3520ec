"""Wrong answers of drivers: the error names the node and the mistake; only that node is blocked.

In each case, the driver first edits the tree of the node correctly, and then makes a mistake.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab.drivers import Edit, ScriptedDriver, flat, with_children
from tests.unit.reconcile.states import child as child_of
from tests.unit.reconcile.states import root, state_of
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError, InvalidTree, ProviderNotFound, ReshapeNeeded
from wharfinger.objects import ComputeNode
from wharfinger.providers import Provider, ProviderTree, names
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.desire import collect_desired
from wharfinger.reconcile.driver_calls import list_nodes

Mistake = Callable[[ProviderTree, str], Any]

GOOD = "good"
BAD = "bad"
UUID = "5d1f6a0c-1b0a-4c4e-9d0e-2f6b1c9e7a01"
LARGEST = 2**31 - 1


class UnprintableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Unprintable:
    """A value that has no text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@dataclass(frozen=True)
class Case:
    """A mistake, and the words that its error contains in addition to the node's name."""

    name: str
    mistake: Mistake
    words: tuple[str, ...]
    resource: Callable[[str], Any] | None = None

    def __str__(self) -> str:
        return self.name


def figures(name: str, *words: str, **record: Any) -> Case:
    """Return a case in which the driver reports these amounts of VGPU for the GPU."""
    record = {"total": 4, **record}
    return Case(
        name,
        lambda tree, node: tree.update_inventory(f"{node}-gpu", {"VGPU": record}),
        ("-gpu", "VGPU", *words),
    )


def inventories(name: str, given: Any, *words: str) -> Case:
    """Return a case in which the driver reports these inventories for the GPU."""
    return Case(
        name, lambda tree, node: tree.update_inventory(f"{node}-gpu", given), ("-gpu", *words)
    )


def child(name: str, child_name: Any, *words: str) -> Case:
    """Return a case in which the driver creates a child with this name."""
    return Case(name, lambda tree, node: tree.new_child(child_name, node), words)


def traits(name: str, given: Any, *words: str) -> Case:
    """Return a case in which the driver reports these traits for the GPU."""
    return Case(name, lambda tree, node: tree.update_traits(f"{node}-gpu", given), ("-gpu", *words))


def aggregates(name: str, given: Any, *words: str) -> Case:
    """Return a case in which the driver reports these aggregates for the GPU."""
    return Case(
        name, lambda tree, node: tree.update_aggregates(f"{node}-gpu", given), ("-gpu", *words)
    )


def reason(name: str, given: Any, *words: str) -> Case:
    """Return a case in which the driver reserves the GPU with this reason."""
    return Case(
        name,
        lambda tree, node: tree.reserve(f"{node}-gpu", given),
        ("-gpu", "reason", "printable", *words),
    )


def raises(name: str, error: BaseException | type[BaseException], *words: str) -> Case:
    """Return a case in which update_provider_tree raises this error."""

    def fail(tree: ProviderTree, node: str) -> None:
        raise error

    return Case(name, fail, words)


def describes(name: str, resource: Callable[[str], Any], *words: str) -> Case:
    """Return a case in which get_available_resource returns this answer."""
    return Case(name, lambda tree, node: None, words, resource)


def parents(name: str, *links: tuple[int, int], words: tuple[str, ...]) -> Case:
    """Return a case in which the driver adds providers; ``links`` pairs each with its parent."""

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

    return Case(name, populate, words)


def put_root_below_child(tree: ProviderTree, node: str) -> None:
    top, gpu = tree.data(node), tree.data(f"{node}-gpu")
    tree.populate_from_iterable(
        [
            {"name": node, "uuid": top.uuid, "parent_provider_uuid": gpu.uuid},
            {"name": gpu.name, "uuid": gpu.uuid, "parent_provider_uuid": top.uuid},
        ]
    )


def recurse(tree: ProviderTree, node: str) -> None:
    recurse(tree, node)


def fail(error: BaseException) -> Callable[[str], Any]:
    def raise_it(node: str) -> Any:
        raise error

    return raise_it


def with_uuid(value: Any) -> Callable[[str], ComputeNode]:
    """Return a function that describes a node with this uuid."""

    def describe(node: str) -> ComputeNode:
        described = ComputeNode(host="test-host", hypervisor_hostname=node)
        described.uuid = value
        return described

    return describe


def without_uuid(node: str) -> ComputeNode:
    return ComputeNode(host="test-host", hypervisor_hostname=node)


CASES = (
    # Amounts.
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
    figures("figure-unknown", "unknown keys: totl", "total", totl=4),
    inventories("total-missing", {"VGPU": {"reserved": 1}}, "VGPU", "total is missing"),
    inventories("record-nothing", {"VGPU": None}, "VGPU", "None", "dict"),
    inventories("record-number", {"VGPU": 4}, "VGPU", "4", "dict"),
    inventories("record-text", {"VGPU": "total"}, "VGPU", "'total'", "dict"),
    inventories("record-list", {"VGPU": [4]}, "VGPU", "[4]", "dict"),
    inventories("record-keys-no-text", {"VGPU": {1: 2, "total": 4}}, "VGPU", "unknown keys: 1"),
    # Resource classes.
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
    child("name-newline", "a\nb", "a\\nb", "only printable characters"),
    child("name-escape", "\x1b[31mred", "\\x1b[31mred", "only printable characters"),
    child("name-nul", "a\0b", "a\\x00b", "only printable characters"),
    child("name-surrogate", "a\udc80", "a\\udc80", "characters"),
    child("name-right-to-left", "a\u202eb", "a\\u202eb", "characters"),
    Case(
        "uuid-wrong",
        lambda tree, node: tree.new_child(f"{node}-x", node, uuid="../../traits"),
        ("../../traits", "not a uuid"),
    ),
    Case(
        "uuid-number",
        lambda tree, node: tree.new_child(f"{node}-x", node, uuid=7),  # type: ignore[arg-type]
        ("7", "not a uuid"),
    ),
    Case(
        "uuid-of-the-other-node",
        lambda tree, node: tree.new_child(f"{node}-x", node, uuid=UUID),
        (UUID, "another provider"),
    ),
    Case(
        "name-twice",
        lambda tree, node: tree.new_child(f"{node}-gpu", node),
        ("-gpu", "already has a provider"),
    ),
    Case(
        "name-of-itself", lambda tree, node: tree.new_child(node, node), ("already has a provider",)
    ),
    child("name-of-the-other-node", GOOD, f"provider {GOOD}", "another provider"),
    child("name-of-its-child", f"{GOOD}-gpu", f"provider {GOOD}-gpu", "another provider"),
    child("name-is-uuid-of-the-other-node", UUID, UUID, "another provider"),
    Case(
        "no-parent",
        lambda tree, node: tree.new_child(f"{node}-x", "gpu-7"),
        ("no provider with the name or uuid gpu-7",),
    ),
    Case(
        "parent-unknown",
        lambda tree, node: tree.populate_from_iterable(
            [{"name": f"{node}-x", "uuid": str(uuid.uuid4()), "parent_provider_uuid": UUID}]
        ),
        ("-x", "no parent", UUID),
    ),
    parents("own-parent", (1, 1), words=("it is above its parent",)),
    parents("own-grandparent", (1, 2), (2, 1), words=("it is above its parent",)),
    parents("own-ancestor", (1, 2), (2, 3), (3, 1), words=("it is above its parent",)),
    Case("root-below-its-child", put_root_below_child, ("it is above its parent",)),
    Case("root-removed", lambda tree, node: tree.remove(node), ("removed the root",)),
    Case(
        "provider-without-uuid",
        lambda tree, node: tree.populate_from_iterable([{"name": "x"}]),
        ("uuid",),
    ),
    # Traits, aggregates, reservations and modes.
    traits("trait-small", {"CUSTOM_gold"}, "CUSTOM_gold", "CUSTOM_[A-Z0-9_]+"),
    traits("trait-unknown", {"HW_GPU_API_NONSENSE"}, "HW_GPU_API_NONSENSE", "os-traits"),
    traits("trait-long", {f"CUSTOM_{'X' * 249}"}, "at most 255"),
    traits("trait-empty", {""}, "''", "CUSTOM_[A-Z0-9_]+"),
    traits("trait-nothing", {None}, "None", "CUSTOM_[A-Z0-9_]+"),
    traits("trait-surrogate", {"CUSTOM_\udc80"}, "\\udc80", "CUSTOM_[A-Z0-9_]+"),
    traits("traits-nothing", None, "None"),
    traits("traits-text", "CUSTOM_GOLD", "'CUSTOM_GOLD'"),
    traits("traits-nested", [["CUSTOM_GOLD"]], "CUSTOM_GOLD"),
    aggregates("aggregate-wrong", {"rack-1"}, "rack-1", "not a uuid"),
    aggregates("aggregate-nothing", {None}, "None", "not a uuid"),
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
    raises("unprintable", UnprintableError(), "UnprintableError"),
    raises("several", BaseExceptionGroup("two", [OSError(), SystemExit()]), "Group", "two"),
    raises(
        "provider-not-found",
        ProviderNotFound(name_or_uuid="gpu-7"),
        "no provider with the name or uuid gpu-7",
    ),
    raises("reshape-twice", ReshapeNeeded(), "ReshapeNeeded again"),
    Case("recursion", recurse, ("RecursionError",)),
    # Descriptions of nodes.
    describes("node-error", fail(OSError("gone")), "get_available_resource", "gone"),
    describes("node-exit", fail(SystemExit(3)), "get_available_resource", "SystemExit"),
    describes(
        "node-unprintable", fail(UnprintableError()), "get_available_resource", "UnprintableError"
    ),
    describes("node-reshape", fail(ReshapeNeeded()), "get_available_resource"),
    describes("node-nothing", lambda node: None, "ComputeNode", "None"),
    describes("node-dict", lambda node: {"uuid": UUID}, "ComputeNode", UUID),
    describes("node-uuid-taken", with_uuid(UUID), GOOD, UUID),
)


def with_mistake(mistake: Mistake) -> Edit:
    """Return an edit that changes the root, adds a GPU, and then makes a mistake."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        with_children({"VCPU": 9}, {f"{node}-gpu": {"VGPU": 4}})(tree, node, allocations)
        mistake(tree, node)

    return edit


class WrongDriver(ScriptedDriver):
    """A driver with a wrong node between two correct nodes."""

    def __init__(
        self, edit: Edit | None = None, resource: Callable[[str], Any] = without_uuid
    ) -> None:
        super().__init__()
        good = with_children({"VCPU": 2}, {f"{GOOD}-gpu": {"VGPU": 2}})
        self.nodes = {GOOD: good, BAD: edit or flat(VCPU=1), "other": flat(VCPU=1)}
        self.resource = resource
        self.traits: Any = {}

    def get_available_resource(self, nodename: str) -> ComputeNode:
        describe = {GOOD: with_uuid(UUID), BAD: self.resource}.get(nodename, without_uuid)
        described: ComputeNode = describe(nodename)
        return described

    def capabilities_as_traits(self) -> dict[str, bool]:
        if isinstance(self.traits, BaseException):
            raise self.traits
        traits: dict[str, bool] = self.traits
        return traits


def collected(driver: ScriptedDriver, *live: Provider) -> CycleState:
    """Return the state after all nodes of the driver were read."""
    state = state_of(*live, nodes=list_nodes(driver))
    return collect_desired(state, driver, lambda _uuids: {})


def with_gpu(name: str, uuid: str | None = None) -> tuple[Provider, Provider]:
    """Return a node and its GPU, as Placement has them."""
    node = root(name, uuid)
    return node, child_of(f"{name}-gpu", node)


THERE = (*with_gpu(GOOD, UUID), *with_gpu(BAD))


@pytest.mark.parametrize("live", [(), THERE], ids=["new", "published"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_collect_desired_with_a_mistake_in_one_node_names_it_and_blocks_that_node_alone(
    case: Case, live: tuple[Provider, ...]
) -> None:
    driver = WrongDriver(with_mistake(case.mistake), case.resource or without_uuid)

    state = collected(driver, *live)

    [problem] = state.problems
    assert str(problem).isprintable()
    assert [word for word in (BAD, *case.words) if word not in str(problem)] == [], str(problem)
    assert state.blocked == {names.root_uuid(BAD)}
    desired = {one.provider.name for one in state.desired.values()}
    assert desired == {GOOD, f"{GOOD}-gpu", "other"}


# Lists of nodes, and capabilities.

ERRORS = (
    OSError("the backend is not there"),
    KeyError("nodes"),
    SystemExit(3),
    RecursionError("too deep"),
    MemoryError(),
    GeneratorExit(),
    StopIteration(),
    asyncio.CancelledError(),
    UnprintableError(),
    ReshapeNeeded(),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_list_nodes_of_a_driver_that_raises_is_a_backend_error_that_names_it(
    error: BaseException,
) -> None:
    driver = WrongDriver()

    def failing(refresh: bool = False) -> list[str]:
        raise error

    driver.get_available_nodes = failing  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="driver scripted: get_available_nodes") as caught:
        list_nodes(driver)
    assert type(error).__name__ in str(caught.value)


@pytest.mark.parametrize(
    "listed",
    [
        {GOOD: 1, "other": 2},
        (GOOD, "other"),
        {GOOD},
        GOOD,
        7,
        [GOOD, "other", GOOD],
        Unprintable(),
    ],
    ids=lambda listed: type(listed).__name__,
)
def test_list_nodes_without_a_list_of_different_names_raises_backend_error(listed: Any) -> None:
    driver = WrongDriver()
    driver.get_available_nodes = lambda refresh=False: listed  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="list of different names") as caught:
        list_nodes(driver)
    assert (caught.value.driver, caught.value.operation) == ("scripted", "get_available_nodes")


@pytest.mark.parametrize(
    ("name", "text"),
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
def test_collect_desired_with_a_node_of_an_impossible_name_reports_it_and_blocks_no_tree(
    name: Any, text: str
) -> None:
    driver = WrongDriver()
    driver.nodes = {name: flat(VCPU=1), GOOD: flat(VCPU=1)}

    state = collected(driver)

    [problem] = state.problems
    assert text in str(problem)
    assert "characters" in str(problem)
    assert [one.provider.name for one in state.desired.values()] == [GOOD]
    assert state.blocked == set()


WRONG = (
    ({"compute_small": True}, "compute_small"),
    ({7: True}, "7"),
    (["CUSTOM_GOLD"], "CUSTOM_GOLD"),
    ("CUSTOM_GOLD", "CUSTOM_GOLD"),
    (3, "3"),
    *((error, type(error).__name__) for error in ERRORS),
)


@pytest.mark.parametrize(
    ("capabilities", "text"), WRONG, ids=[f"{text} {type(one).__name__}" for one, text in WRONG]
)
def test_collect_desired_with_wrong_capabilities_reports_each_node(
    capabilities: Any, text: str
) -> None:
    driver = WrongDriver()
    driver.traits = capabilities

    state = collected(driver)

    for node, problem in zip((GOOD, BAD, "other"), state.problems, strict=True):
        assert isinstance(problem, BackendError | InvalidTree)
        assert node in str(problem)
        assert text in str(problem)
    assert state.desired == {}
