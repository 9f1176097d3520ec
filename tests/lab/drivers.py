"""A driver without a backend, and edits of its trees, for tests of the code that calls drivers."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final
from uuid import NAMESPACE_OID, uuid5

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import ReshapeNeeded
from wharfinger.objects import Migration
from wharfinger.providers import ProviderTree

Edit = Callable[[ProviderTree, str, Allocations | None], None]

#: The uuid of the device of ``with_device``, below any node.
DEVICE: Final = str(uuid5(NAMESPACE_OID, "device"))


class ScriptedDriver(ComputeDriver):
    """A driver whose nodes a test sets: ``nodes`` has the function that edits each node's tree."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=SUPPORTED,
        reshape=SUPPORTED,
        change_feed=unsupported("a test asks when it wants to"),
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("there is nothing to clean"),
    )
    default_owner: ClassVar[str] = "OWNER_NOVA"

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(cfg.ConfigOpts(), "test-host", name)
        self.nodes: dict[str, Edit] = {}
        self.fails = False

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if self.fails:
            raise ConnectionError("the backend is away")
        return list(self.nodes)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self.nodes[nodename](provider_tree, nodename, allocations)


class FeedingDriver(ScriptedDriver):
    """A scripted driver with a change feed that returns ``changes``."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        **dict(ScriptedDriver.capabilities.items()) | {"change_feed": SUPPORTED}
    )

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name)
        self.changes: list[str] = []
        self.marks: list[str | None] = []
        self.listings = 0

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        self.listings += refresh
        return super().get_available_nodes(refresh)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        self.marks.append(since)
        if since is None:
            return set(), "0"
        return set(self.changes[int(since) :]), str(len(self.changes))


def flat(**totals: int) -> Edit:
    """Return an edit that gives the root of a node these totals by resource class."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        tree.update_inventory(node, {name: {"total": total} for name, total in totals.items()})

    return edit


def with_children(root: dict[str, int], children: dict[str, dict[str, int]]) -> Edit:
    """Return an edit that gives a node these totals, and exactly these children with totals."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(**root)(tree, node, allocations)
        for uuid in tree.get_provider_uuids(node)[1:]:
            if tree.exists(uuid) and tree.data(uuid).name not in children:
                tree.remove(uuid)
        for name, totals in children.items():
            if not tree.exists(name):
                tree.new_child(name, node)
            tree.update_inventory(name, {key: {"total": total} for key, total in totals.items()})

    return edit


def also(*edits: Callable[[ProviderTree], Any]) -> Callable[[Edit], Edit]:
    """Return a decorator that adds further edits of the tree to the edit of a node."""

    def wrap(edit: Edit) -> Edit:
        def both(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
            edit(tree, node, allocations)
            for more in edits:
                more(tree)

        return both

    return wrap


def with_device(edit: Edit) -> Edit:
    """Return an edit that also puts the device DEVICE below the node, wherever it was before."""

    def both(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        edit(tree, node, allocations)
        if not tree.exists(DEVICE):
            tree.new_child("device", node, DEVICE)
        tree.update_inventory(DEVICE, {"FPGA": {"total": 2}})

    return both


def with_gpu_below(parent: str) -> Edit:
    """Return an edit that gives a node a child "card", and moves the GPU below ``parent``."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(VCPU=8)(tree, node, allocations)
        if not tree.exists("card"):
            tree.new_child("card", node)
        gpu = tree.data("gpu").uuid if tree.exists("gpu") else None
        if gpu is not None:
            tree.remove("gpu")
        tree.new_child("gpu", parent, uuid=gpu)
        tree.update_inventory("gpu", {"VGPU": {"total": 4}})

    return edit


def moves_vgpus(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
    """Edit that reshapes: move the node's VGPUs with their allocations to the child "gpu"."""
    root = tree.data(node)
    if "VGPU" in root.inventory and allocations is None:
        raise ReshapeNeeded
    if not tree.exists("gpu"):
        tree.new_child("gpu", node)
    tree.update_inventory("gpu", {"VGPU": {"total": 4}})
    tree.update_inventory(node, {"VCPU": {"total": 8}})
    for its in (allocations or {}).values():
        held: dict[str, Any] = its["allocations"]
        vgpus = held[root.uuid]["resources"].pop("VGPU", 0)
        if vgpus:
            held[tree.data("gpu").uuid] = {"resources": {"VGPU": vgpus}}
        if not held[root.uuid]["resources"]:
            del held[root.uuid]


def does_not_answer(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
    """Edit that raises, as a driver does whose node does not answer."""
    raise OSError("no answer")
