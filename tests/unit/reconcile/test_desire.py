"""Desired trees of a driver: a node that fails blocks only its own tree."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from oslo_config import cfg

from tests.lab.drivers import ScriptedDriver
from tests.unit.reconcile.states import child, root, state_of
from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import (
    BackendError,
    InvalidName,
    InvalidTree,
    ReshapeNeeded,
    WharfingerError,
)
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, Provider, ProviderTree, names
from wharfinger.providers.provider import Record
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.desire import collect_desired
from wharfinger.reconcile.driver_calls import list_nodes

SHARING = "MISC_SHARES_VIA_AGGREGATE"
A_UUID = "00000000-0000-0000-0000-0000000000aa"

Update = Callable[[ProviderTree, str, Allocations | None], None]


class Driver(ComputeDriver):
    """A driver whose answers a test can replace; by default, each node is one provider."""

    default_owner = "OWNER_NOVA"
    capabilities = ScriptedDriver.capabilities

    def __init__(
        self,
        nodes: Any = (),
        *,
        updates: Mapping[str, Update] | None = None,
        resources: Mapping[str, Any] | None = None,
        traits: Any = None,
    ) -> None:
        super().__init__(cfg.ConfigOpts(), "service-host", "gpus")
        self.nodes = list(nodes) if isinstance(nodes, tuple) else nodes
        self.updates = updates or {}
        self.resources = resources or {}
        self.traits = traits or {}

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if isinstance(self.nodes, Exception):
            raise self.nodes
        nodes: list[str] = self.nodes
        return nodes

    def get_available_resource(self, nodename: str) -> ComputeNode:
        if nodename not in self.resources:
            return super().get_available_resource(nodename)
        answer = self.resources[nodename]
        if isinstance(answer, Exception):
            raise answer
        resource: ComputeNode = answer
        return resource

    def capabilities_as_traits(self) -> dict[str, bool]:
        traits: dict[str, bool] = self.traits
        return traits

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: object = None,
    ) -> None:
        if nodename in self.updates:
            self.updates[nodename](provider_tree, nodename, allocations)
        else:
            fill(provider_tree, nodename)


class DriverWithoutReshape(Driver):
    capabilities = Capabilities(
        nested_providers=SUPPORTED,
        reshape=unsupported("never"),
        change_feed=unsupported("test"),
        programming=unsupported("test"),
        cleans_after_release=unsupported("test"),
    )


def fill(tree: ProviderTree, name: str, total: int = 1) -> None:
    tree.update_inventory(name, {"VGPU": {"total": total}})


def fails(error: BaseException) -> Update:
    def update(tree: ProviderTree, node: str, _: Allocations | None) -> None:
        fill(tree, node)
        raise error

    return update


def with_child(name: str, uuid: str | None = None) -> Update:
    def update(tree: ProviderTree, node: str, _: Allocations | None) -> None:
        tree.new_child(name, node, uuid=uuid)
        fill(tree, name)

    return update


def no_allocations(_uuids: Iterable[str]) -> Allocations:
    return {}


def collected(
    driver: ComputeDriver,
    *live: Provider,
    records: Mapping[str, Record] | None = None,
    allocations: Callable[[Iterable[str]], Allocations] = no_allocations,
    **facts: Any,
) -> CycleState:
    """Return the state after all nodes of the driver were read."""
    state = state_of(*live, nodes=list_nodes(driver), records=records or {}, **facts)
    return collect_desired(state, driver, allocations)


def desired_names(state: CycleState) -> list[str]:
    return [wanted.provider.name for wanted in state.desired.values()]


def problem_types(state: CycleState) -> list[type]:
    return [type(problem) for problem in state.problems]


# The list of nodes.


def test_list_nodes_returns_the_uuids_of_the_roots() -> None:
    given = ComputeNode(host="h", hypervisor_hostname="b", uuid=A_UUID)
    listing = list_nodes(Driver(("a", "b"), resources={"b": given}))
    assert [(one.name, one.uuid) for one in listing.nodes] == [
        ("a", names.root_uuid("a")),
        ("b", A_UUID),
    ]
    assert (listing.failed, listing.problems) == ((), ())


@pytest.mark.parametrize("nodes", [None, "ab", {"a": 1}, iter("ab"), ["a", "a"]])
def test_list_nodes_without_a_list_of_different_names_raises_backend_error(nodes: Any) -> None:
    with pytest.raises(BackendError, match="list of different names") as caught:
        list_nodes(Driver(nodes))
    assert (caught.value.driver, caught.value.operation) == ("gpus", "get_available_nodes")


@pytest.mark.parametrize("error", [OSError("refused"), KeyError("x"), AssertionError("odd")])
def test_list_nodes_of_a_driver_that_raises_is_a_backend_error(error: Exception) -> None:
    with pytest.raises(BackendError, match=type(error).__name__) as caught:
        list_nodes(Driver(error))
    assert caught.value.__cause__ is error


def test_list_nodes_of_a_driver_that_raises_backend_error_raises_the_same_error() -> None:
    error = BackendError(driver="gpus", operation="connect", reason="no route")
    with pytest.raises(BackendError) as caught:
        list_nodes(Driver(error))
    assert caught.value is error


@pytest.mark.parametrize(
    ("name", "resource"),
    [("", None), ("a" * 201, None), (5, None), ("bad", OSError("gone")), ("bad", {})],
    ids=["empty name", "long name", "a number", "raises", "a dict"],
)
def test_node_without_description_fails_alone(name: Any, resource: Any) -> None:
    resources = {} if resource is None else {name: resource}
    state = collected(Driver(["a", name, "b"], resources=resources))
    assert desired_names(state) == ["a", "b"]
    assert len(state.problems) == 1
    # Placement cannot have a root with an impossible name.
    assert state.blocked == ({names.root_uuid(name)} if name == "bad" else set())


@pytest.mark.parametrize("resource", [None, 5], ids=repr)
def test_node_whose_description_is_no_compute_node_fails_alone(resource: Any) -> None:
    state = collected(Driver(("a", "bad", "b"), resources={"bad": resource}))
    assert desired_names(state) == ["a", "b"]
    assert problem_types(state) == [BackendError]


# The tree of each node.


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("odd"), BackendError),
        (BackendError(driver="gpus", operation="read", reason="gone"), BackendError),
        (ValueError("odd"), BackendError),
        (InvalidName(kind="trait", name="x", problem="is none"), InvalidTree),
    ],
    ids=["any", "backend", "value", "wharfinger"],
)
def test_node_that_raises_is_reported_and_the_others_are_desired(
    error: Exception, kind: type
) -> None:
    state = collected(Driver(("a", "bad", "b"), updates={"bad": fails(error)}))
    assert desired_names(state) == ["a", "b"]
    assert problem_types(state) == [kind]
    assert state.blocked == {names.root_uuid("bad")}


def test_error_of_a_node_names_the_driver_and_the_node() -> None:
    state = collected(Driver(("bad",), updates={"bad": fails(RuntimeError("odd"))}))
    (problem,) = state.problems
    assert str(problem) == "driver gpus: update_provider_tree(bad) failed: RuntimeError: odd"


def test_node_that_fails_blocks_its_root_in_placement() -> None:
    state = collected(Driver(("bad",), updates={"bad": fails(OSError())}), root("bad", uuid=A_UUID))
    assert state.blocked == {A_UUID}


def test_node_without_description_blocks_its_root_in_placement() -> None:
    state = collected(Driver(("bad",), resources={"bad": OSError()}), root("bad", uuid=A_UUID))
    assert state.blocked == {A_UUID}


def test_node_of_a_blocked_tree_is_not_read() -> None:
    def update(_tree: ProviderTree, name: str, _: Allocations | None) -> None:
        asked_for.append(name)

    asked_for: list[str] = []
    a, b = root("a"), root("b")
    error = WharfingerError(reason="this answer is no inventory")
    driver = Driver(("a", "b"), updates=dict.fromkeys(("a", "b"), update))

    state = collected(driver, a, b, blocked=frozenset([a.uuid]), problems=(error,))

    assert asked_for == ["b"]
    assert state.blocked == {a.uuid}
    assert state.problems == (error,)


def test_driver_sees_a_renamed_root_under_the_name_of_the_node() -> None:
    seen: list[str] = []

    def update(tree: ProviderTree, _name: str, _: Allocations | None) -> None:
        seen.extend(tree.data(uuid).name for uuid in tree.get_provider_uuids())

    renamed = replace(root("a"), name="renamed")
    state = collected(Driver(("a",), updates={"a": update}), renamed)
    assert seen == ["a"]
    assert state.problems == ()


def test_sharing_provider_that_two_nodes_reserve_has_both_reasons() -> None:
    def reserves(reason: str) -> Update:
        def update(tree: ProviderTree, _name: str, _: Allocations | None) -> None:
            tree.reserve("nfs", reason)

        return update

    shared = root("nfs", traits=frozenset([SHARING]))
    updates = {"a": reserves("cleaning"), "b": reserves("maintenance")}
    state = collected(Driver(("a", "b"), updates=updates), shared)
    assert state.desired[shared.uuid].reservations == ("cleaning", "maintenance")


def test_two_nodes_with_children_of_one_uuid_block_the_second() -> None:
    updates = {"a": with_child("gpu", A_UUID), "b": with_child("card", A_UUID)}
    state = collected(Driver(("a", "b"), updates=updates))
    (problem,) = state.problems
    assert isinstance(problem, InvalidTree)
    assert A_UUID in problem.problem
    assert state.blocked == {names.root_uuid("b")}


def test_driver_sees_the_tree_of_the_node_and_sharing_providers() -> None:
    seen: dict[str, list[str]] = {}

    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        seen[name] = [tree.data(uuid).name for uuid in tree.get_provider_uuids()]

    a, b, shared = root("a"), root("b"), root("nfs", traits=frozenset([SHARING]))
    driver = Driver(("a", "b", "new"), updates=dict.fromkeys(("a", "b", "new"), update))
    collected(driver, a, child("gpu", a), b, shared)
    assert seen == {"a": ["a", "gpu", "nfs"], "b": ["b", "nfs"], "new": ["new", "nfs"]}


def test_driver_sees_the_own_reserved_amounts_of_a_reserved_provider() -> None:
    seen: list[int] = []

    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        seen.append(tree.data(name).inventory["VCPU"]["reserved"])

    full = root("a", inventories={"VCPU": Inventory(total=8, reserved=8)})
    record = Record(own_reserved={"VCPU": 2}, reservations=("cleaning",))
    collected(Driver(("a",), updates={"a": update}), full, records={full.uuid: record})
    assert seen == [2]


def test_two_nodes_with_children_of_one_name_block_the_second() -> None:
    updates = {"a": with_child("gpu"), "b": with_child("gpu")}
    state = collected(Driver(("a", "b"), updates=updates))
    assert desired_names(state) == ["a", "gpu"]
    (problem,) = state.problems
    assert isinstance(problem, InvalidTree)
    assert (problem.driver, problem.provider) == ("gpus", "gpu")
    assert "node a has another" in problem.problem
    assert state.blocked == {names.root_uuid("b")}


def removes_root(tree: ProviderTree, node: str, _: Allocations | None) -> None:
    tree.remove(node)


def replaces_root(tree: ProviderTree, node: str, _: Allocations | None) -> None:
    tree.remove(node)
    tree.new_root(node, A_UUID)
    fill(tree, node)


@pytest.mark.parametrize("update", [removes_root, replaces_root])
def test_node_whose_root_was_removed_fails_alone(update: Update) -> None:
    state = collected(Driver(("a", "b"), updates={"a": update}))
    assert desired_names(state) == ["b"]
    (problem,) = state.problems
    assert isinstance(problem, InvalidTree)
    assert problem.provider == "a"
    assert "removed the root" in problem.problem


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_sharing_provider_that_one_node_reports_is_desired(order: tuple[str, str]) -> None:
    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        fill(tree, name)
        tree.update_inventory("nfs", {"DISK_GB": {"total": 7}})

    shared = root("nfs", traits=frozenset([SHARING]))
    state = collected(Driver(order, updates={"a": update}), shared)
    assert state.problems == ()
    wanted = state.desired[shared.uuid]
    assert wanted.stated
    assert wanted.provider.inventories == {"DISK_GB": Inventory(total=7)}


def test_sharing_provider_that_is_named_after_its_uuid_may_be_in_two_trees() -> None:
    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        fill(tree, name)
        fill(tree, A_UUID)

    shared = root(A_UUID, uuid=A_UUID, traits=frozenset([SHARING]))
    state = collected(Driver(("a", "b"), updates=dict.fromkeys(("a", "b"), update)), shared)
    assert state.problems == ()
    assert state.desired[A_UUID].stated


def test_sharing_provider_that_no_node_reports_is_blocked_if_a_node_fails() -> None:
    def removes(tree: ProviderTree, _name: str, _: Allocations | None) -> None:
        tree.remove("nfs")

    shared = root("nfs", traits=frozenset([SHARING]))
    updates = {"a": fails(OSError()), "b": removes}
    state = collected(Driver(("a", "b"), updates=updates), shared)
    assert state.blocked == {names.root_uuid("a"), shared.uuid}


# Capabilities as traits.


def test_capabilities_are_traits_of_the_root() -> None:
    there = root("a", traits=frozenset(["HW_CPU_X86_SVM"]))
    driver = Driver(("a",), traits={"HW_CPU_X86_VMX": True, "HW_CPU_X86_SVM": False})
    state = collected(driver, there)
    assert state.desired[there.uuid].provider.traits == {"HW_CPU_X86_VMX"}


@pytest.mark.parametrize("traits", [["CUSTOM_A"], {"GOLD": True}], ids=["a list", "no trait"])
def test_wrong_capabilities_as_traits_block_the_node(traits: Any) -> None:
    state = collected(Driver(("a",), traits=traits))
    assert len(state.problems) == 1
    assert state.blocked == {names.root_uuid("a")}


# Reshapes.


def reshapes(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    if allocations is None:
        raise ReshapeNeeded
    fill(tree, name)
    held = allocations["consumer"]["allocations"]
    held[tree.data(name).uuid] = held.pop(tree.data("gpu").uuid)


def test_driver_that_raises_reshape_needed_is_called_again_with_the_allocations() -> None:
    asked_for: list[str] = []

    def allocations(uuids: Iterable[str]) -> Allocations:
        asked_for.extend(uuids)
        return {"consumer": {"allocations": {gpu.uuid: {"resources": {"VGPU": 1}}}}}

    a = root("a")
    gpu = child("gpu", a)
    driver = Driver(("a", "b"), updates={"a": reshapes})
    state = collected(driver, a, gpu, allocations=allocations)
    assert asked_for == [a.uuid, gpu.uuid]
    before, after = state.reshapes[a.uuid]
    assert before == {"consumer": {"allocations": {gpu.uuid: {"resources": {"VGPU": 1}}}}}
    assert after == {"consumer": {"allocations": {a.uuid: {"resources": {"VGPU": 1}}}}}
    assert state.reshapes.keys() == {a.uuid}
    assert desired_names(state) == ["a", "gpu", "b"]


def test_reshape_after_edits_of_the_tree_gets_the_allocations_of_all_live_providers() -> None:
    def update(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        if tree.exists("gpu"):
            tree.remove("gpu")
        reshapes(tree, name, allocations)

    asked_for: list[str] = []

    def allocations(uuids: Iterable[str]) -> Allocations:
        asked_for.extend(uuids)
        return {"consumer": {"allocations": {}}}

    a = root("a")
    gpu = child("gpu", a)
    collected(Driver(("a",), updates={"a": update}), a, gpu, allocations=allocations)
    assert set(asked_for) == {a.uuid, gpu.uuid}


def test_reshape_by_a_driver_without_the_capability_fails_the_node_alone() -> None:
    state = collected(DriverWithoutReshape(("a", "b"), updates={"a": reshapes}))
    assert desired_names(state) == ["b"]
    (problem,) = state.problems
    assert isinstance(problem, BackendError)
    assert "ReshapeNeeded" in str(problem)
    assert state.reshapes == {}


def test_driver_that_raises_reshape_needed_twice_fails_the_node_alone() -> None:
    state = collected(Driver(("a", "b"), updates={"a": fails(ReshapeNeeded())}))
    assert desired_names(state) == ["b"]
    (problem,) = state.problems
    assert isinstance(problem, BackendError)
    assert "again" in str(problem)


# Errors of other kinds.


class UnprintableError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [SystemExit(0), GeneratorExit(), UnprintableError(), OSError("\udc80")], ids=repr
)
def test_driver_that_raises_any_exception_fails_the_node_alone(error: BaseException) -> None:
    state = collected(Driver(("a", "b"), updates={"a": fails(error)}))
    assert desired_names(state) == ["b"]
    (problem,) = state.problems
    assert isinstance(problem, BackendError)
    str(problem).encode()


def test_keyboard_interrupt_during_a_driver_call_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        collected(Driver(("a",), updates={"a": fails(KeyboardInterrupt())}))


def test_node_whose_name_cannot_be_encoded_fails_alone() -> None:
    state = collected(Driver(("a", "\udc80", "b")))
    assert desired_names(state) == ["a", "b"]
    str(state.problems[0]).encode()
