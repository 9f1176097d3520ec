"""Asking a driver: each node apart from the others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from oslo_config import cfg

from tests.lab.drivers import ScriptedDriver
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
from wharfinger.providers.record import Record
from wharfinger.reconcile.circumstances import Circumstances
from wharfinger.reconcile.desire import Answers, ask
from wharfinger.reconcile.node_list import list_nodes

SHARING = "MISC_SHARES_VIA_AGGREGATE"
A_UUID = "00000000-0000-0000-0000-0000000000aa"

Update = Callable[[ProviderTree, str, Allocations | None], None]


class Driver(ComputeDriver):
    """A driver whose every answer a test may replace; of itself it has flat nodes."""

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


class NoReshape(Driver):
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


def with_child(name: str) -> Update:
    def update(tree: ProviderTree, node: str, _: Allocations | None) -> None:
        tree.new_child(name, node)
        fill(tree, name)

    return update


def asked(
    driver: ComputeDriver,
    *live: Provider,
    records: Mapping[str, Record] | None = None,
    allocations: Callable[[Iterable[str]], Allocations] = lambda _uuids: {},
) -> Answers:
    by_uuid = {provider.uuid: provider for provider in live}
    return ask(
        driver,
        list_nodes(driver),
        by_uuid,
        records or {},
        allocations,
        circumstances=Circumstances(),
    )


def found(answers: Answers) -> list[str]:
    return [wanted.provider.name for wanted in answers.desired.values()]


def node(name: str, **contents: Any) -> Provider:
    uuid = names.root_uuid(name)
    return Provider(uuid=uuid, name=name, root_uuid=uuid, generation=1, **contents)


def child(name: str, parent: Provider, **contents: Any) -> Provider:
    uuid = names.child_uuid(parent.uuid, name)
    return Provider(
        uuid=uuid, name=name, root_uuid=parent.uuid, parent_uuid=parent.uuid, **contents
    )


# The list of nodes.


def test_nodes_are_listed_with_the_uuids_their_roots_will_have() -> None:
    given = ComputeNode(host="h", hypervisor_hostname="b", uuid=A_UUID)
    listing = list_nodes(Driver(("a", "b"), resources={"b": given}))
    assert [(one.name, one.uuid) for one in listing.nodes] == [
        ("a", names.root_uuid("a")),
        ("b", A_UUID),
    ]
    assert (listing.failed, listing.problems) == ([], [])


@pytest.mark.parametrize("nodes", [None, "ab", {"a": 1}, iter("ab"), ["a", "a"]])
def test_an_answer_that_is_no_list_of_different_names_is_a_backend_error(nodes: Any) -> None:
    with pytest.raises(BackendError, match="list of different names") as caught:
        list_nodes(Driver(nodes))
    assert (caught.value.driver, caught.value.operation) == ("gpus", "get_available_nodes")


@pytest.mark.parametrize("error", [OSError("refused"), KeyError("x"), AssertionError("odd")])
def test_a_listing_that_fails_is_a_backend_error_and_never_an_empty_list(error: Exception) -> None:
    with pytest.raises(BackendError, match=type(error).__name__) as caught:
        list_nodes(Driver(error))
    assert caught.value.__cause__ is error


def test_a_drivers_own_backend_error_is_passed_on_as_it_is() -> None:
    error = BackendError(driver="gpus", operation="connect", reason="no route")
    with pytest.raises(BackendError) as caught:
        list_nodes(Driver(error))
    assert caught.value is error


@pytest.mark.parametrize(
    ("name", "resource"),
    [("", None), ("a" * 201, None), (5, None), ("bad", OSError("gone")), ("bad", {})],
    ids=["no name", "long name", "no text", "raises", "a dict"],
)
def test_a_node_that_cannot_be_described_fails_alone(name: Any, resource: Any) -> None:
    resources = {} if resource is None else {name: resource}
    answers = asked(Driver(["a", name, "b"], resources=resources))
    assert found(answers) == ["a", "b"]
    assert len(answers.problems) == 1
    # A root that nothing can be called is nobody's.
    assert answers.failed == ({names.root_uuid(name)} if name == "bad" else set())


@pytest.mark.parametrize("resource", [None, 5], ids=repr)
def test_a_node_whose_description_is_nothing_fails_alone(resource: Any) -> None:
    answers = asked(Driver(("a", "bad", "b"), resources={"bad": resource}))
    assert found(answers) == ["a", "b"]
    assert [type(problem) for problem in answers.problems] == [BackendError]


# Each node's tree.


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("odd"), BackendError),
        (BackendError(driver="gpus", operation="read", reason="gone"), BackendError),
        (ValueError("odd"), BackendError),
        (InvalidName(kind="trait", name="x", problem="is none"), InvalidTree),
    ],
    ids=["any", "backend", "value", "ours"],
)
def test_a_node_that_raises_is_reported_and_does_not_stop_the_others(
    error: Exception, kind: type
) -> None:
    answers = asked(Driver(("a", "bad", "b"), updates={"bad": fails(error)}))
    assert found(answers) == ["a", "b"]
    assert [type(problem) for problem in answers.problems] == [kind]
    assert answers.failed == {names.root_uuid("bad")}


def test_the_error_of_a_node_names_the_driver_and_the_node() -> None:
    answers = asked(Driver(("bad",), updates={"bad": fails(RuntimeError("odd"))}))
    (problem,) = answers.problems
    assert str(problem) == "driver gpus: update_provider_tree(bad) failed: RuntimeError: odd"


def test_a_failed_node_is_known_by_the_uuid_that_placement_has() -> None:
    there = Provider(uuid=A_UUID, name="bad", root_uuid=A_UUID)
    answers = asked(Driver(("bad",), updates={"bad": fails(OSError())}), there)
    assert answers.failed == {A_UUID}


def test_a_node_that_cannot_be_described_is_known_by_the_uuid_that_placement_has() -> None:
    there = Provider(uuid=A_UUID, name="bad", root_uuid=A_UUID)
    answers = asked(Driver(("bad",), resources={"bad": OSError()}), there)
    assert answers.failed == {A_UUID}


def test_a_tree_that_cannot_be_understood_is_not_asked_for() -> None:
    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        asked_for.append(name)

    asked_for: list[str] = []
    a, b = node("a"), node("b")
    driver = Driver(("a", "b"), updates=dict.fromkeys(("a", "b"), update))
    error = WharfingerError(reason="this answer is no inventory")
    answers = ask(
        driver,
        list_nodes(driver),
        {one.uuid: one for one in (a, b)},
        {},
        lambda _uuids: {},
        circumstances=Circumstances(),
        unreadable={a.uuid: error},
    )
    assert asked_for == ["b"]
    assert answers.failed == {a.uuid}
    assert answers.problems == [error]


def test_a_root_that_somebody_renamed_is_shown_to_its_driver_under_its_own_name() -> None:
    seen: list[str] = []

    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        seen.extend(tree.data(uuid).name for uuid in tree.get_provider_uuids())

    renamed = replace(node("a"), name="renamed")
    answers = asked(Driver(("a",), updates={"a": update}), renamed)
    assert seen == ["a"]
    assert answers.problems == []


def test_what_two_nodes_reserve_of_a_sharing_provider_holds_together() -> None:
    def reserves(reason: str) -> Update:
        def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
            tree.reserve("nfs", reason)

        return update

    shared = node("nfs", traits=frozenset([SHARING]))
    updates = {"a": reserves("cleaning"), "b": reserves("maintenance")}
    answers = asked(Driver(("a", "b"), updates=updates), shared)
    assert answers.desired[shared.uuid].reservations == ("cleaning", "maintenance")


def test_one_uuid_in_the_trees_of_two_nodes_is_an_error_for_the_second() -> None:
    def with_uuid(name: str) -> Update:
        def update(tree: ProviderTree, node: str, _: Allocations | None) -> None:
            tree.new_child(name, node, uuid=A_UUID)

        return update

    answers = asked(Driver(("a", "b"), updates={"a": with_uuid("gpu"), "b": with_uuid("card")}))
    (problem,) = answers.problems
    assert isinstance(problem, InvalidTree)
    assert A_UUID in problem.problem
    assert answers.failed == {names.root_uuid("b")}


def test_a_node_gets_its_tree_as_placement_has_it_and_nobody_elses() -> None:
    seen: dict[str, list[str]] = {}

    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        seen[name] = [tree.data(uuid).name for uuid in tree.get_provider_uuids()]

    a, b, shared = node("a"), node("b"), node("nfs", traits=frozenset([SHARING]))
    driver = Driver(("a", "b", "new"), updates=dict.fromkeys(("a", "b", "new"), update))
    asked(driver, a, child("gpu", a), b, shared)
    assert seen == {"a": ["a", "gpu", "nfs"], "b": ["b", "nfs"], "new": ["nfs", "new"]}


def test_a_node_sees_its_own_reserved_figures_and_not_ours() -> None:
    seen: list[int] = []

    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        seen.append(tree.data(name).inventory["VCPU"]["reserved"])

    full = node("a", inventories={"VCPU": Inventory(total=8, reserved=8)})
    record = Record(own_reserved={"VCPU": 2}, reservations=("cleaning",))
    asked(Driver(("a",), updates={"a": update}), full, records={full.uuid: record})
    assert seen == [2]


def test_two_nodes_with_a_provider_of_one_name_are_an_error_for_the_second() -> None:
    answers = asked(Driver(("a", "b"), updates={"a": with_child("gpu"), "b": with_child("gpu")}))
    assert found(answers) == ["a", "gpu"]
    (problem,) = answers.problems
    assert isinstance(problem, InvalidTree)
    assert (problem.driver, problem.provider) == ("gpus", "gpu")
    assert "node a has another" in problem.problem
    assert answers.failed == {names.root_uuid("b")}


def test_a_node_without_its_root_is_an_error() -> None:
    driver = Driver(("a", "b"), updates={"a": lambda tree, name, _: tree.remove(name)})
    answers = asked(driver)
    assert found(answers) == ["b"]
    (problem,) = answers.problems
    assert isinstance(problem, InvalidTree)
    assert problem.provider == "a"
    assert "removed the root" in problem.problem


def test_one_node_may_speak_of_a_sharing_provider_that_the_others_only_see() -> None:
    def update(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        fill(tree, name)
        tree.update_inventory("nfs", {"DISK_GB": {"total": 7}})

    shared = node("nfs", traits=frozenset([SHARING]))
    for order in (("a", "b"), ("b", "a")):
        answers = asked(Driver(order, updates={"a": update}), shared)
        assert answers.problems == []
        wanted = answers.desired[shared.uuid]
        assert wanted.stated
        assert wanted.provider.inventories == {"DISK_GB": Inventory(total=7)}


def test_a_sharing_provider_is_left_alone_where_a_node_that_may_own_it_failed() -> None:
    def forgets(tree: ProviderTree, name: str, _: Allocations | None) -> None:
        tree.remove("nfs")

    shared = node("nfs", traits=frozenset([SHARING]))
    updates = {"a": fails(OSError()), "b": forgets}
    answers = asked(Driver(("a", "b"), updates=updates), shared)
    assert answers.failed == {names.root_uuid("a"), shared.uuid}


# Capabilities as traits.


def test_capabilities_are_traits_of_the_root() -> None:
    there = node("a", traits=frozenset(["HW_CPU_X86_SVM"]))
    driver = Driver(("a",), traits={"HW_CPU_X86_VMX": True, "HW_CPU_X86_SVM": False})
    answers = asked(driver, there)
    assert answers.desired[there.uuid].provider.traits == {"HW_CPU_X86_VMX"}


@pytest.mark.parametrize("traits", [["CUSTOM_A"], {"GOLD": True}], ids=["a list", "no trait"])
def test_wrong_capabilities_as_traits_are_a_problem_of_the_node_and_nothing_worse(
    traits: Any,
) -> None:
    answers = asked(Driver(("a",), traits=traits))
    assert len(answers.problems) == 1
    assert answers.failed == {names.root_uuid("a")}


# Reshapes.


def reshapes(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    if allocations is None:
        raise ReshapeNeeded
    fill(tree, name)
    held = allocations["consumer"]["allocations"]
    held[tree.data(name).uuid] = held.pop(tree.data("gpu").uuid)


def test_a_driver_that_needs_a_reshape_is_called_again_with_the_allocations() -> None:
    asked_for: list[str] = []

    def allocations(uuids: Iterable[str]) -> Allocations:
        asked_for.extend(uuids)
        return {"consumer": {"allocations": {gpu.uuid: {"resources": {"VGPU": 1}}}}}

    a = node("a")
    gpu = child("gpu", a)
    driver = Driver(("a", "b"), updates={"a": reshapes})
    answers = asked(driver, a, gpu, allocations=allocations)
    assert asked_for == [a.uuid, gpu.uuid]
    before, after = answers.reshapes[a.uuid]
    assert before == {"consumer": {"allocations": {gpu.uuid: {"resources": {"VGPU": 1}}}}}
    assert after == {"consumer": {"allocations": {a.uuid: {"resources": {"VGPU": 1}}}}}
    assert answers.reshapes.keys() == {a.uuid}
    assert found(answers) == ["a", "gpu", "b"]


def test_allocations_are_those_of_the_tree_in_placement_whatever_was_edited_before() -> None:
    def update(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        if tree.exists("gpu"):
            tree.remove("gpu")
        reshapes(tree, name, allocations)

    asked_for: list[str] = []

    def allocations(uuids: Iterable[str]) -> Allocations:
        asked_for.extend(uuids)
        return {"consumer": {"allocations": {}}}

    a = node("a")
    gpu = child("gpu", a)
    asked(Driver(("a",), updates={"a": update}), a, gpu, allocations=allocations)
    assert set(asked_for) == {a.uuid, gpu.uuid}


def test_a_reshape_that_was_not_declared_is_an_error_of_the_node() -> None:
    answers = asked(NoReshape(("a", "b"), updates={"a": reshapes}))
    assert found(answers) == ["b"]
    (problem,) = answers.problems
    assert isinstance(problem, BackendError)
    assert "ReshapeNeeded" in str(problem)
    assert answers.reshapes == {}


def test_a_driver_that_needs_a_reshape_twice_fails_for_that_node() -> None:
    answers = asked(Driver(("a", "b"), updates={"a": fails(ReshapeNeeded())}))
    assert found(answers) == ["b"]
    (problem,) = answers.problems
    assert isinstance(problem, BackendError)
    assert "again" in str(problem)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error", [SystemExit(0), GeneratorExit(), Unspeakable(), OSError("\udc80")], ids=repr
)
def test_whatever_a_driver_raises_is_an_error_of_the_node(error: BaseException) -> None:
    answers = asked(Driver(("a", "b"), updates={"a": fails(error)}))
    assert found(answers) == ["b"]
    (problem,) = answers.problems
    assert isinstance(problem, BackendError)
    str(problem).encode()


def test_an_interrupt_is_not_an_error_of_the_driver() -> None:
    with pytest.raises(KeyboardInterrupt):
        asked(Driver(("a",), updates={"a": fails(KeyboardInterrupt())}))


def test_a_node_name_that_cannot_be_encoded_fails_alone() -> None:
    answers = asked(Driver(("a", "\udc80", "b")))
    assert found(answers) == ["a", "b"]
    str(answers.problems[0]).encode()
