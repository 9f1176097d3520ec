"""The trees that a scripted driver reports of a host or a fleet, before and after changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import NAMESPACE_OID, uuid5

from tests.lab.drivers import Edit, flat, with_children
from wharfinger.driver import Allocations
from wharfinger.providers import ProviderTree

#: The edit of each node's tree, by node name.
World = Mapping[str, Edit]

FIRST_AGGREGATE = str(uuid5(NAMESPACE_OID, "first aggregate"))
SECOND_AGGREGATE = str(uuid5(NAMESPACE_OID, "second aggregate"))


@dataclass(frozen=True, kw_only=True)
class Device:
    """A provider below a node. Its uuid is made of ``serial``; ``reserved`` is a reason or ""."""

    name: str
    serial: str
    parent: str
    totals: Mapping[str, int]
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    reserved: str = ""

    @property
    def uuid(self) -> str:
        return str(uuid5(NAMESPACE_OID, self.serial))


@dataclass(frozen=True)
class Host:
    """An edit that gives a node these totals, and exactly these devices below it, parents first."""

    totals: Mapping[str, int]
    devices: tuple[Device, ...]

    def __call__(self, tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        flat(**self.totals)(tree, node, allocations)
        for uuid in tree.get_provider_uuids(node)[1:]:
            if tree.exists(uuid):
                tree.remove(uuid)
        for device in self.devices:
            tree.new_child(device.name, device.parent, device.uuid)
            tree.update_inventory(
                device.name, {name: {"total": total} for name, total in device.totals.items()}
            )
            tree.update_traits(device.name, device.traits)
            tree.update_aggregates(device.name, device.aggregates)
            if device.reserved:
                tree.reserve(device.name, device.reserved)


def _numa(number: int) -> Device:
    name = f"numa-{number}"
    return Device(name=name, serial=name, parent="cn", totals={"PCPU": 8})


def _gpu(
    number: int,
    parent: str,
    total: int = 4,
    *traits: str,
    name: str = "",
    aggregate: str = "",
    reserved: str = "",
) -> Device:
    serial = f"gpu-{number}"
    return Device(
        name=name or serial,
        serial=serial,
        parent=parent,
        totals={"VGPU": total},
        traits=frozenset(traits),
        aggregates=frozenset({aggregate} - {""}),
        reserved=reserved,
    )


#: Ten providers in three levels. gpu-5 is being cleaned.
HOST: World = MappingProxyType(
    {
        "cn": Host(
            {"VCPU": 8, "MEMORY_MB": 4096},
            (
                _numa(0),
                _numa(1),
                _gpu(0, "numa-0"),
                _gpu(1, "numa-0", 4, "CUSTOM_KILL_FAST"),
                _gpu(2, "numa-0", aggregate=FIRST_AGGREGATE),
                _gpu(3, "numa-0"),
                _gpu(4, "numa-1"),
                _gpu(5, "numa-1", reserved="cleaning"),
                _gpu(6, "numa-1"),
            ),
        )
    }
)

#: HOST with other inventories (cn, gpu-0, gpu-6), traits (gpu-1), and another name and aggregate
#: (gpu-2). gpu-3 has another parent. gpu-4 is reserved, and gpu-5 no longer.
HOST_CHANGED: World = MappingProxyType(
    {
        "cn": Host(
            {"VCPU": 16, "MEMORY_MB": 4096},
            (
                _numa(0),
                _numa(1),
                _gpu(0, "numa-0", 3),
                _gpu(1, "numa-0", 4, "CUSTOM_KILL_FASTER", "HW_GPU_API_VULKAN"),
                _gpu(2, "numa-0", name="gpu-2-renamed", aggregate=SECOND_AGGREGATE),
                _gpu(3, "numa-1"),
                _gpu(4, "numa-1", reserved="maintenance"),
                _gpu(5, "numa-1"),
                _gpu(6, "numa-1", 6),
            ),
        )
    }
)

#: HOST_CHANGED without gpu-0, gpu-4, gpu-5 and numa-1, whose other children are below numa-0.
HOST_SHRUNK: World = MappingProxyType(
    {
        "cn": Host(
            {"VCPU": 16, "MEMORY_MB": 4096},
            (
                _numa(0),
                _gpu(1, "numa-0", 4, "CUSTOM_KILL_FASTER", "HW_GPU_API_VULKAN"),
                _gpu(2, "numa-0", name="gpu-2-renamed", aggregate=SECOND_AGGREGATE),
                _gpu(3, "numa-0"),
                _gpu(6, "numa-0", 6),
            ),
        )
    }
)

FLEET: World = MappingProxyType(
    {
        f"node-{number}": with_children({"CUSTOM_KILL_GOLD": 1}, {f"fpga-{number}": {"FPGA": 2}})
        for number in range(8)
    }
)

FLEET_CHANGED: World = MappingProxyType(
    {
        f"node-{number}": with_children(
            {"CUSTOM_KILL_GOLD": 2},
            {f"fpga-{number}": {"FPGA": 3}, f"fpga-{number}-new": {"FPGA": 1}},
        )
        for number in range(8)
    }
)
