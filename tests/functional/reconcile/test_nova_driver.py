"""A driver with the method signatures and the plain dicts of nova's drivers, and reshapes."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import ScriptedDriver, flat
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations, signatures
from wharfinger.exceptions import ReshapeNeeded
from wharfinger.providers import ProviderTree

NODE, STORAGE = "cn", "shared-storage"
AGGREGATE = "2f8f6f0e-0b0b-4f4e-8d0a-6d7f1f2a9b10"
SOCKETS = (f"{NODE}_numa_0", f"{NODE}_numa_1")
GPUS = (f"{SOCKETS[0]}_gpu_a", f"{SOCKETS[0]}_gpu_b", f"{SOCKETS[1]}_gpu_c")
GPU_SIZE = 4
MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}
#: Inventories of the node before and after the reshape.
OLD = {"VCPU": (16, 0), "MEMORY_MB": (65536, 512), "VGPU": (12, 0)}
NEW = {name: figures for name, figures in OLD.items() if name != "VGPU"}


def figures(total: int, **others: Any) -> dict[str, Any]:
    """Return an inventory with all six fields of Placement."""
    return {
        "total": total,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": total,
        "step_size": 1,
        "allocation_ratio": 1.0,
        **others,
    }


def take_vgpus(held: dict[str, Any], provider: str) -> int:
    """Remove a provider's VGPUs from the allocations; return the amount."""
    resources = held.get(provider, {}).get("resources", {})
    vgpus: int = resources.pop("VGPU", 0)
    if provider in held and not resources:
        del held[provider]
    return vgpus


def spread(driver: "NovaDriver", tree: ProviderTree, node: str, allocations: Allocations) -> None:
    """Move the instances' VGPUs from the node to its GPUs; fill one GPU after the other."""
    root = tree.data(node).uuid
    free = {tree.data(gpu).uuid: GPU_SIZE for gpu in driver.gpus}
    for consumer in allocations.values():
        held = consumer["allocations"]
        wanted = take_vgpus(held, root)
        for gpu, room in free.items():
            taken = min(room, wanted)
            if taken:
                held[gpu] = {"resources": {"VGPU": taken}}
                free[gpu] -= taken
                wanted -= taken


class NovaDriver(ScriptedDriver):
    """A host with two NUMA nodes, three GPUs below them, and a storage provider that it shares.

    While ``old`` is set, the node itself has the VGPUs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.old = False
        self.gpus = list(GPUS)
        self.calls: list[bool] = []
        self.nodes[NODE] = flat()

    def update_provider_tree(  # type: ignore[override]
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        if nodename != NODE:
            self.nodes[nodename](provider_tree, nodename, allocations)
            return
        self.calls.append(allocations is not None)
        inventory = {
            "VCPU": figures(16, allocation_ratio=4.0),
            "MEMORY_MB": figures(65536, reserved=512),
        }
        if self.old:
            inventory["VGPU"] = figures(len(self.gpus) * GPU_SIZE)
        elif "VGPU" in provider_tree.data(nodename).inventory and allocations is None:
            raise ReshapeNeeded
        provider_tree.add_traits(nodename, "COMPUTE_NODE", "HW_CPU_X86_AVX2")
        provider_tree.remove_traits(nodename, "COMPUTE_TRUSTED_CERTS")
        self._storage(provider_tree, nodename)
        if not self.old:
            self._topology(provider_tree, nodename)
            if allocations is not None:
                spread(self, provider_tree, nodename, allocations)
        if provider_tree.has_inventory_changed(nodename, inventory):
            provider_tree.update_inventory(nodename, inventory)

    def _storage(self, tree: ProviderTree, node: str) -> None:
        if not tree.exists(STORAGE):
            tree.new_root(STORAGE, str(uuid.uuid5(uuid.UUID(AGGREGATE), STORAGE)), generation=0)
        tree.update_inventory(STORAGE, {"DISK_GB": figures(1000, max_unit=100)})
        tree.update_traits(STORAGE, ["MISC_SHARES_VIA_AGGREGATE", "STORAGE_DISK_SSD"])
        for name in (STORAGE, node):
            if not tree.in_aggregates(name, [AGGREGATE]):
                tree.update_aggregates(name, [AGGREGATE])
        assert tree.has_sharing_provider("DISK_GB")

    def _topology(self, tree: ProviderTree, node: str) -> None:
        for socket in SOCKETS:
            if not tree.exists(socket):
                tree.new_child(socket, node)
            tree.update_inventory(socket, {"PCPU": figures(8)})
            tree.update_traits(socket, {"HW_NUMA_ROOT"})
        for gpu in GPUS:
            if gpu not in self.gpus:
                if tree.exists(gpu):
                    tree.remove(gpu)
                continue
            if not tree.exists(gpu):
                tree.new_child(gpu, tree.data(gpu.rpartition("_gpu_")[0]).uuid)
            wanted = {"VGPU": figures(GPU_SIZE)}
            if tree.has_inventory_changed(gpu, wanted):
                assert tree.update_inventory(gpu, wanted)
            if tree.have_traits_changed(gpu, {"CUSTOM_VGPU_T4"}):
                tree.update_traits(gpu, {"CUSTOM_VGPU_T4"})


@pytest.fixture
def driver() -> NovaDriver:
    return NovaDriver()


@pytest.fixture
def publishing(
    placement: PlacementFixture, tmp_path: Path, driver: NovaDriver
) -> Iterator[Publishing]:
    with Publishing(placement, tmp_path / "state") as fixture:
        fixture.driver = driver
        fixture.restarted()
        yield fixture


def instance(number: int) -> str:
    return str(uuid.UUID(int=number))


def all_allocations(placement: PlacementFixture) -> dict[str, dict[str, dict[str, int]]]:
    """Return the allocations of each consumer."""
    client = placement.client
    held: dict[str, dict[str, dict[str, int]]] = {}
    for provider in client.list_providers():
        for consumer, one in client.get_provider_allocations(provider.uuid).items():
            held.setdefault(consumer, {})[provider.name] = one["resources"]
    return held


def inventories(placement: PlacementFixture) -> dict[str, dict[str, tuple[int, int]]]:
    """Return (total, reserved) of each class, by provider name."""
    return {name: one["inventories"] for name, one in contents(placement).items()}


@pytest.fixture
def reshaping(
    publishing: Publishing, placement: PlacementFixture, driver: NovaDriver
) -> NovaDriver:
    """The driver after it has published VGPUs on the node, which instances use.

    The driver now reports the VGPUs on the GPUs.
    """
    driver.old = True
    assert not publishing.cycle.sync().problems
    allocate(placement, instance(1), cn={"VCPU": 2, "MEMORY_MB": 1024, "VGPU": 3})
    two: dict[str, Any] = {NODE: {"VCPU": 1, "VGPU": 2}, STORAGE: {"DISK_GB": 10}}
    allocate(placement, instance(2), **two)
    allocate(placement, instance(3), cn={"VGPU": 1})
    allocate(placement, instance(4), cn={"VCPU": 4})
    driver.old = False
    driver.calls.clear()
    return driver


def is_reshaped(placement: PlacementFixture) -> bool:
    """Assert the inventories of the new layout; return whether the allocations also fit it."""
    assert inventories(placement) == {
        NODE: NEW,
        STORAGE: {"DISK_GB": (1000, 0)},
        **{socket: {"PCPU": (8, 0)} for socket in SOCKETS},
        **{gpu: {"VGPU": (GPU_SIZE, 0)} for gpu in GPUS},
    }
    return True


def test_update_provider_tree_with_novas_signature_is_accepted() -> None:
    wrong = {error.subject for error in signatures.check("nova", NovaDriver)}

    assert "update_provider_tree" not in wrong
    assert not signatures.takes_migrations(NovaDriver)


def test_three_levels_and_a_sharing_provider_are_published_and_are_candidates(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert is_reshaped(placement)
    found = contents(placement)
    assert {name: one["parent"] for name, one in found.items()} == {
        NODE: None,
        STORAGE: None,
        SOCKETS[0]: NODE,
        SOCKETS[1]: NODE,
        GPUS[0]: SOCKETS[0],
        GPUS[1]: SOCKETS[0],
        GPUS[2]: SOCKETS[1],
    }
    assert {name: one["traits"] - MARKS for name, one in found.items()} == {
        NODE: {"COMPUTE_NODE", "HW_CPU_X86_AVX2"},
        STORAGE: {"MISC_SHARES_VIA_AGGREGATE", "STORAGE_DISK_SSD"},
        **{socket: {"HW_NUMA_ROOT"} for socket in SOCKETS},
        **{gpu: {"CUSTOM_VGPU_T4"} for gpu in GPUS},
    }
    in_aggregate = {name for name, one in found.items() if one["aggregates"]}
    assert in_aggregate == {NODE, STORAGE}
    assert found[NODE]["aggregates"] == found[STORAGE]["aggregates"] == {AGGREGATE}
    for cycle in (publishing.cycle, publishing.restarted()):
        placement.requests.clear()
        again = cycle.sync()
        assert (again.steps, again.pending, again.problems) == ((), (), ())
        assert len(placement.requests) == 1, placement.requests.seen

    answer = placement.adapter.request(
        "/allocation_candidates?resources=VCPU:1,DISK_GB:1,VGPU:4", "GET", microversion="1.39"
    ).json()

    names = {one["uuid"]: name for name, one in found.items()}
    candidates = [
        {names[provider]: one["resources"] for provider, one in candidate["allocations"].items()}
        for candidate in answer["allocation_requests"]
    ]
    assert sorted(candidates, key=str) == sorted(
        ({NODE: {"VCPU": 1}, STORAGE: {"DISK_GB": 1}, gpu: {"VGPU": 4}} for gpu in GPUS),
        key=str,
    )


# The reshape.


def test_reshape_of_novas_layout_moves_allocations_and_loses_none(
    publishing: Publishing, placement: PlacementFixture, reshaping: NovaDriver
) -> None:
    assert inventories(placement)[NODE] == OLD

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert reshaping.calls == [False, True]
    assert is_reshaped(placement)
    assert all_allocations(placement) == {
        instance(1): {NODE: {"VCPU": 2, "MEMORY_MB": 1024}, GPUS[0]: {"VGPU": 3}},
        instance(2): {
            NODE: {"VCPU": 1},
            STORAGE: {"DISK_GB": 10},
            GPUS[0]: {"VGPU": 1},
            GPUS[1]: {"VGPU": 1},
        },
        instance(3): {GPUS[1]: {"VGPU": 1}},
        instance(4): {NODE: {"VCPU": 4}},
    }
    assert placement.client.get_allocations(instance(1))["project_id"] == "project"
    publishing.cycle.sync()
    for cycle in (publishing.cycle, publishing.restarted()):
        placement.requests.clear()
        assert not cycle.sync().steps
        assert len(placement.requests) == 1, placement.requests.seen
    assert reshaping.calls == [False, True, False, False, False]
