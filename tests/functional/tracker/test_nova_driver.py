"""A driver as nova has them: its signature, its plain dicts, its way to reshape a tree."""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import ScriptedDriver, flat
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations, signatures
from wharfinger.exceptions import ReshapeNeeded, WharfingerError
from wharfinger.providers import ProviderTree

NODE, STORAGE = "cn", "shared-storage"
AGGREGATE = "2f8f6f0e-0b0b-4f4e-8d0a-6d7f1f2a9b10"
SOCKETS = (f"{NODE}_numa_0", f"{NODE}_numa_1")
GPUS = (f"{SOCKETS[0]}_gpu_a", f"{SOCKETS[0]}_gpu_b", f"{SOCKETS[1]}_gpu_c")
GPU_SIZE = 4
MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}
#: What is served until its reshape is over, and after it.
OLD = {"VCPU": (16, 0), "MEMORY_MB": (65536, 512), "VGPU": (12, 0)}
NEW = {name: figures for name, figures in OLD.items() if name != "VGPU"}

Move = Callable[["NovaDriver", ProviderTree, str, Allocations], None]


def figures(total: int, **others: Any) -> dict[str, Any]:
    """One inventory, all six figures written out."""
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
    """Take away what is held of a provider's VGPUs; returns how many."""
    resources = held.get(provider, {}).get("resources", {})
    vgpus: int = resources.pop("VGPU", 0)
    if provider in held and not resources:
        del held[provider]
    return vgpus


def spread(driver: "NovaDriver", tree: ProviderTree, node: str, allocations: Allocations) -> None:
    """Move what instances hold of the node's VGPUs to its GPUs, filling one after the other."""
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
    """A host with two NUMA nodes, three GPUs below them and a storage that it shares.

    As long as it is ``old``, its VGPUs are the node's own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.old = False
        self.gpus = list(GPUS)
        self.move: Move = spread
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
                self.move(self, provider_tree, nodename, allocations)
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
    """By consumer, what it holds of which provider."""
    client = placement.client
    held: dict[str, dict[str, dict[str, int]]] = {}
    for provider in client.list_providers():
        for consumer, one in client.get_provider_allocations(provider.uuid).items():
            held.setdefault(consumer, {})[provider.name] = one["resources"]
    return held


def by_class(held: dict[str, dict[str, dict[str, int]]]) -> dict[str, Counter[str]]:
    """By consumer, what it holds, wherever that is."""
    return {
        consumer: sum((Counter(one) for one in providers.values()), Counter[str]())
        for consumer, providers in held.items()
    }


def inventories(placement: PlacementFixture) -> dict[str, dict[str, tuple[int, int]]]:
    """By provider, (total, reserved) of each class."""
    client = placement.client
    return {
        provider.name: {
            name: (one.total, one.reserved)
            for name, one in client.get_inventories(provider.uuid).inventories.items()
        }
        for provider in client.list_providers()
    }


@pytest.fixture
def reshaping(
    publishing: Publishing, placement: PlacementFixture, driver: NovaDriver
) -> NovaDriver:
    """The driver, its node published with VGPUs of its own, which instances hold.

    From now on it wants them at the GPUs.
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


def reported(publishing: Publishing) -> list[WharfingerError]:
    """What a sync says went wrong, in its outcome or instead of one."""
    try:
        return list(publishing.cycle.sync().problems)
    except WharfingerError as error:
        return [error]


def is_reshaped(placement: PlacementFixture) -> bool:
    """Whether everything is where the new shape has it, and held by whom it was held by."""
    found = inventories(placement)
    assert found == {
        NODE: NEW,
        STORAGE: {"DISK_GB": (1000, 0)},
        **{socket: {"PCPU": (8, 0)} for socket in SOCKETS},
        **{gpu: {"VGPU": (GPU_SIZE, 0)} for gpu in GPUS},
    }
    held = all_allocations(placement)
    assert all("VGPU" not in one.get(NODE, {}) for one in held.values())
    return True


def test_novas_signature_fits_and_is_asked_for_no_migrations() -> None:
    wrong = {error.subject for error in signatures.check("nova", NovaDriver)}

    assert "update_provider_tree" not in wrong
    assert not signatures.takes_migrations(NovaDriver)


def test_three_levels_and_a_sharing_provider_are_published(
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
    assert all(one["traits"] >= MARKS for one in found.values())
    in_aggregate = {name for name, one in found.items() if one["aggregates"]}
    assert in_aggregate == {NODE, STORAGE}
    assert found[NODE]["aggregates"] == found[STORAGE]["aggregates"] == {AGGREGATE}


def test_its_second_sync_is_empty_and_one_request(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.cycle.sync()

    for cycle in (publishing.cycle, publishing.restarted()):
        placement.requests.clear()
        outcome = cycle.sync()
        assert (outcome.steps, outcome.pending, outcome.problems) == ((), (), ())
        assert len(placement.requests) == 1, placement.requests.seen


def test_a_candidate_has_vgpus_of_a_grandchild_and_disk_of_the_sharing_provider(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.cycle.sync()

    answer = placement.adapter.request(
        "/allocation_candidates?resources=VCPU:1,DISK_GB:1,VGPU:4", "GET", microversion="1.39"
    ).json()

    names = {one.uuid: one.name for one in placement.client.list_providers()}
    candidates = [
        {names[provider]: one["resources"] for provider, one in candidate["allocations"].items()}
        for candidate in answer["allocation_requests"]
    ]
    assert sorted(candidates, key=str) == sorted(
        ({NODE: {"VCPU": 1}, STORAGE: {"DISK_GB": 1}, gpu: {"VGPU": 4}} for gpu in GPUS),
        key=str,
    )


def test_a_gpu_that_is_gone_is_removed_and_its_neighbours_stay(
    publishing: Publishing, placement: PlacementFixture, driver: NovaDriver
) -> None:
    publishing.cycle.sync()
    driver.gpus.remove(GPUS[1])

    publishing.cycle.sync()
    publishing.cycle.sync()

    found = inventories(placement)
    assert GPUS[1] not in found
    assert found[GPUS[0]] == found[GPUS[2]] == {"VGPU": (GPU_SIZE, 0)}


# The reshape.


def test_a_reshape_moves_what_instances_hold_and_loses_and_doubles_nothing(
    publishing: Publishing, placement: PlacementFixture, reshaping: NovaDriver
) -> None:
    before = all_allocations(placement)
    assert inventories(placement)[NODE] == OLD

    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert reshaping.calls == [False, True]
    assert is_reshaped(placement)
    after = all_allocations(placement)
    assert by_class(after) == by_class(before)
    assert after == {
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
    found = contents(placement)
    assert all(one["traits"] >= MARKS for one in found.values())


def test_after_a_reshape_there_is_nothing_left_to_do(
    publishing: Publishing, placement: PlacementFixture, reshaping: NovaDriver
) -> None:
    publishing.cycle.sync()

    assert not publishing.cycle.sync().steps
    for cycle in (publishing.cycle, publishing.restarted()):
        placement.requests.clear()
        assert not cycle.sync().steps
        assert len(placement.requests) == 1, placement.requests.seen
    assert reshaping.calls == [False, True, False, False, False]


def claim_more(placement: PlacementFixture, number: int) -> None:
    """Have an instance take one more VCPU, as if it were resized.

    Nova tries again too where another tree is written at the same moment.
    """
    for _ in range(10):
        allocation = placement.client.get_allocations(instance(number))
        root = next(one.uuid for one in placement.client.list_providers() if one.name == NODE)
        resources = allocation["allocations"][root]["resources"]
        resources["VCPU"] = resources.get("VCPU", 0) + 1
        response = placement.adapter.request(
            f"/allocations/{instance(number)}",
            "PUT",
            microversion="1.28",
            raise_exc=False,
            json=allocation,
        )
        if response.status_code != 409:
            break
    assert response.status_code == 204, response.text


def test_a_reshape_that_an_instance_comes_between_is_planned_again_with_what_it_holds_now(
    publishing: Publishing, placement: PlacementFixture, reshaping: NovaDriver
) -> None:
    placement.adapter.once_before(
        lambda method, path: path == "/reshaper", lambda: claim_more(placement, 3)
    )
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert is_reshaped(placement)
    assert by_class(all_allocations(placement))[instance(3)] == Counter(VCPU=1, VGPU=1)


def refuse_the_role(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ask for the reshape without the service role: Placement itself refuses it."""
    request = placement.adapter.request

    def with_another_token(path: str, method: str, **kwargs: Any) -> Any:
        if path == "/reshaper":
            kwargs["headers"] = {**kwargs.get("headers", {}), "X-Roles": "admin,member,reader"}
        return request(path, method, **kwargs)

    monkeypatch.setattr(placement.adapter, "request", with_another_token)


def change_an_instance_each_time(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have a consumer's generation rise before each try."""

    def interfere(method: str, path: str) -> None:
        if path == "/reshaper":
            claim_more(placement, 4)

    monkeypatch.setattr(placement.adapter, "before", interfere)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)


def moving(move: Move) -> Callable[..., None]:
    """A driver that edits the allocations wrongly."""

    def spoil(
        publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(publishing.driver, "move", move)

    return spoil


def forget_to_move(
    driver: NovaDriver, tree: ProviderTree, node: str, allocations: Allocations
) -> None:
    pass


def move_all_to_one(
    driver: NovaDriver, tree: ProviderTree, node: str, allocations: Allocations
) -> None:
    root, gpu = tree.data(node).uuid, tree.data(GPUS[0]).uuid
    for consumer in allocations.values():
        vgpus = take_vgpus(consumer["allocations"], root)
        if vgpus:
            consumer["allocations"][gpu] = {"resources": {"VGPU": vgpus}}


def forget_an_instance(
    driver: NovaDriver, tree: ProviderTree, node: str, allocations: Allocations
) -> None:
    spread(driver, tree, node, allocations)
    del allocations[instance(1)]


def hand_back_nonsense(nonsense: Any) -> Move:
    def move(driver: NovaDriver, tree: ProviderTree, node: str, allocations: Allocations) -> None:
        spread(driver, tree, node, allocations)
        allocations[instance(1)] = nonsense

    return move


def break_off(driver: NovaDriver, tree: ProviderTree, node: str, allocations: Allocations) -> None:
    spread(driver, tree, node, allocations)
    raise KeyError(instance(1))


FAILURES = {
    "the-role-is-refused": (refuse_the_role, ("reshaper", "403", "role")),
    "an-instance-keeps-changing": (change_an_instance_each_time, ("reshaper", "409")),
    "nothing-was-moved": (moving(forget_to_move), ("reshaper",)),
    "one-gpu-got-it-all": (moving(move_all_to_one), ("reshaper", "capacity")),
    "an-instance-was-forgotten": (moving(forget_an_instance), ("same consumers", NODE)),
    "allocations-of-nothing": (moving(hand_back_nonsense(None)), ("None", NODE)),
    "allocations-of-text": (moving(hand_back_nonsense("x")), ("'x'", NODE)),
    "allocations-unsendable": (moving(hand_back_nonsense(object())), ("object", NODE)),
    "the-driver-broke-off": (moving(break_off), ("KeyError", instance(1), NODE)),
}


@pytest.mark.parametrize(("spoil", "told"), FAILURES.values(), ids=FAILURES)
def test_a_reshape_that_fails_moves_nothing_and_the_next_sync_completes_it(
    publishing: Publishing,
    placement: PlacementFixture,
    reshaping: NovaDriver,
    spoil: Callable[..., None],
    told: tuple[str, ...],
) -> None:
    held, found = all_allocations(placement), inventories(placement)

    with pytest.MonkeyPatch.context() as spoiling:
        spoil(publishing, placement, spoiling)
        (problem,) = reported(publishing)

    assert [word for word in told if word not in str(problem)] == [], str(problem)
    assert str(problem).isprintable()
    after = inventories(placement)
    # A provider that is new may be there already; it has nothing to give.
    assert {name: one for name, one in after.items() if one} == found
    now = all_allocations(placement)
    for consumer in held.keys() - {instance(4)}:
        assert now[consumer] == held[consumer]
    assert now[instance(4)].keys() == {NODE}

    assert not publishing.cycle.sync().problems
    assert is_reshaped(placement)
    assert by_class(all_allocations(placement)) == by_class(now)
    assert not publishing.cycle.sync().steps


@pytest.mark.parametrize(
    "failure", ["the-role-is-refused", "an-instance-was-forgotten", "allocations-unsendable"]
)
def test_a_reshape_that_fails_does_not_stop_the_other_nodes(
    publishing: Publishing, placement: PlacementFixture, reshaping: NovaDriver, failure: str
) -> None:
    reshaping.nodes = {"a": flat(CUSTOM_GOLD=1), NODE: flat(), "z": flat(CUSTOM_GOLD=1)}

    with pytest.MonkeyPatch.context() as spoiling:
        FAILURES[failure][0](publishing, placement, spoiling)
        assert len(reported(publishing)) == 1

    found = inventories(placement)
    assert [found.get(node) for node in ("a", "z")] == [{"CUSTOM_GOLD": (1, 0)}] * 2
    assert found[NODE] == OLD
