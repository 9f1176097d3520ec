"""A yard: machines of two hosts that change step by step, and a driver that publishes them.

A seed draws the changes. The same seed and number of steps give the same machines in each process.
"""

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar, Final
from uuid import NAMESPACE_OID, uuid5

from tests.lab.drivers import ScriptedDriver
from wharfinger.driver import SUPPORTED, Allocations, Capabilities
from wharfinger.exceptions import ReshapeNeeded
from wharfinger.objects import ComputeNode, Migration
from wharfinger.providers import ProviderTree

HOSTS: Final = ("quay-north", "quay-south")
_MACHINES: Final = 6
#: The amount of VCPUs that each machine reserves for itself.
_OWN: Final = 1
_VGPUS: Final = 4


@dataclass(frozen=True)
class Wanted:
    """A provider as the driver has to publish it.

    ``inventories`` has total and reserved amount by class. ``why`` is the reason to reserve the
    whole provider, or "".
    """

    uuid: str
    name: str
    parent: str | None
    inventories: Mapping[str, tuple[int, int]]
    why: str


@dataclass
class Device:
    """A device: its number of FPGAs, and the reason why it is reserved, or ""."""

    total: int
    why: str = ""


@dataclass
class Machine:
    """A node. Its vGPUs belong to the root provider, or with ``apart`` to a child of their own."""

    serial: str
    host: str
    name: str
    cpus: int = 8
    apart: bool = False
    why: str = ""
    devices: dict[str, Device] = field(default_factory=dict)
    changed_at: int = 0

    @property
    def uuid(self) -> str:
        return _uuid(self.serial)

    def providers(self) -> Iterator[Wanted]:
        """Yield the providers that the driver has to publish for the machine, the root first."""
        vgpus = {"VGPU": (_VGPUS, 0)}
        root = {"VCPU": (self.cpus, _OWN), "MEMORY_MB": (4096, 0)}
        yield Wanted(
            self.uuid, self.name, None, root if self.apart else {**root, **vgpus}, self.why
        )
        if self.apart:
            name = f"{self.serial}-vgpus"
            yield Wanted(_uuid(name), name, self.uuid, vgpus, "")
        for name, device in self.devices.items():
            yield Wanted(_uuid(name), name, self.uuid, {"FPGA": (device.total, 0)}, device.why)

    def edit(self, tree: ProviderTree, allocations: Allocations | None) -> None:
        """Edit the machine's tree to its present state; raise ReshapeNeeded as a driver does."""
        if self.apart and "VGPU" in tree.data(self.uuid).inventory and allocations is None:
            raise ReshapeNeeded
        wanted = list(self.providers())
        there = {one.uuid for one in wanted}
        for uuid in tree.get_provider_uuids(self.uuid)[1:]:
            if tree.exists(uuid) and uuid not in there:
                tree.remove(uuid)
        for one in wanted:
            if one.parent is not None and not tree.exists(one.uuid):
                tree.new_child(one.name, one.parent, one.uuid)
            tree.update_inventory(
                one.uuid,
                {
                    name: {"total": total, "reserved": reserved}
                    for name, (total, reserved) in one.inventories.items()
                },
            )
            if one.why:
                tree.reserve(one.uuid, one.why)
        for its in (allocations or {}).values():
            self._move(its["allocations"])

    def _move(self, held: dict[str, dict[str, dict[str, int]]]) -> None:
        """Move a consumer's allocated vGPUs from the root to the child for vGPUs."""
        vgpus = held.get(self.uuid, {"resources": {}})["resources"].pop("VGPU", 0)
        if vgpus:
            held[_uuid(f"{self.serial}-vgpus")] = {"resources": {"VGPU": vgpus}}
            if not held[self.uuid]["resources"]:
                del held[self.uuid]


class Yard:
    """The machines of both hosts after ``step`` steps. Threads may share a yard.

    ``machines`` has the present ones by serial number, ``gone`` those that were removed. ``places``
    has the serial number for each name that a machine has had. The driver reports released
    resources as clean at even steps, or always with ``always_clean``.
    """

    def __init__(self, seed: int, step: int = 0) -> None:
        self._random: Final = random.Random(seed)
        self._lock: Final = threading.Lock()
        self._number = 0
        self.step = 0
        self.always_clean = False
        self.machines: dict[str, Machine] = {}
        self.gone: dict[str, Machine] = {}
        self.places: dict[str, str] = {}
        for number in range(_MACHINES):
            serial = f"crane-{number}"
            machine = Machine(serial, HOSTS[number % 2], serial)
            self.machines[serial] = machine
            self.places[serial] = serial
            self._device_comes(machine)
        while self.step < step:
            self.advance()

    def advance(self) -> int:
        """Let a random event happen to a random machine; return the number of steps so far."""
        with self._lock:
            self.step += 1
            happens = self._random.choice(_EVENTS)
            machine = self.machines[self._random.choice(sorted(self.machines))]
            machine.changed_at = self.step
            happens(self, machine)
            return self.step

    def of(self, host: str) -> dict[str, Machine]:
        """Return copies of the present machines of a host, by name."""
        with self._lock:
            return {one.name: deepcopy(one) for one in self.machines.values() if one.host == host}

    def wanted(self) -> dict[str, Wanted]:
        """Return all providers that the drivers of both hosts have to publish, by uuid."""
        return {one.uuid: one for machine in self.machines.values() for one in machine.providers()}

    def _new(self) -> int:
        self._number += 1
        return self._number

    def _device_comes(self, machine: Machine) -> None:
        machine.devices[f"{machine.serial}-fpga-{self._new()}"] = Device(2)

    def _device_goes(self, machine: Machine) -> None:
        if machine.devices:
            del machine.devices[self._random.choice(sorted(machine.devices))]

    def _device_changes(self, machine: Machine) -> None:
        for name in sorted(machine.devices):
            machine.devices[name].total = self._random.randint(1, 4)

    def _device_is_cleaned(self, machine: Machine) -> None:
        for name in sorted(machine.devices):
            machine.devices[name].why = self._random.choice(("cleaning", ""))

    def _is_maintained(self, machine: Machine) -> None:
        machine.why = "" if machine.why else "maintenance"

    def _grows(self, machine: Machine) -> None:
        machine.cpus += 1

    def _is_renamed(self, machine: Machine) -> None:
        machine.name = f"{machine.serial}-{self._new()}"
        self.places[machine.name] = machine.serial

    def _is_reshaped(self, machine: Machine) -> None:
        machine.apart = True

    def _goes(self, machine: Machine) -> None:
        if len(self.machines) > _MACHINES - 2:
            self.gone[machine.serial] = self.machines.pop(machine.serial)

    def _comes_back(self, machine: Machine) -> None:
        for serial in sorted(self.gone):
            self.machines[serial] = replace(self.gone.pop(serial), changed_at=self.step)

    def _moves(self, machine: Machine) -> None:
        machine.host = HOSTS[1 - HOSTS.index(machine.host)]


_EVENTS: Final = (
    Yard._device_comes,
    Yard._device_goes,
    Yard._device_changes,
    Yard._device_is_cleaned,
    Yard._is_maintained,
    Yard._grows,
    Yard._is_renamed,
    Yard._is_reshaped,
    Yard._goes,
    Yard._comes_back,
    Yard._moves,
)


class YardDriver(ScriptedDriver):
    """A driver that publishes the machines of one host of a yard, with a change feed."""

    capabilities: ClassVar[Capabilities] = replace(
        ScriptedDriver.capabilities, change_feed=SUPPORTED, cleans_after_release=SUPPORTED
    )

    def __init__(self, host: str, yard: Yard) -> None:
        super().__init__()
        self.host = host
        self._yard = yard
        self._seen: dict[str, Machine] = {}

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            self._seen = self._yard.of(self.host)
        return list(self._seen)

    def get_available_resource(self, nodename: str) -> ComputeNode:
        uuid = self._seen[nodename].uuid
        return ComputeNode(host=self.host, hypervisor_hostname=nodename, uuid=uuid)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self._seen[nodename].edit(provider_tree, allocations)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        mark, machines = self._yard.step, self._yard.of(self.host)
        changed = {
            name: one
            for name, one in machines.items()
            if since is not None and one.changed_at > int(since)
        }
        self._seen |= changed
        return set(changed), str(mark)

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return self._yard.always_clean or self._yard.step % 2 == 0


def _uuid(serial: str) -> str:
    return str(uuid5(NAMESPACE_OID, serial))
