"""Drivers that do what few do, and that is right, with the rule that could take it for wrong."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tests.lab.conformance.honest import SLOTS, DevicesDriver, Facts, LabDriver, MachinesDriver
from tests.lab.conformance.mutants.identity import PublishesItsHost
from wharfinger.driver import SUPPORTED, Allocations, Capabilities
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import Inventory, ProviderTree

#: Of a pool and the node that uses it.
_AGGREGATE = "2c2c5c0e-8d8e-4c62-8a3f-1de5a1d40b3c"


class EndsItsThreadSoon(DevicesDriver):
    """It has a thread that comes to its end a moment after it has been told to."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.over = threading.Event()
        threading.Thread(target=self.watch, name="watching", daemon=True).start()

    def watch(self) -> None:
        self.over.wait()
        threading.Event().wait(0.2)

    def cleanup_host(self) -> None:
        self.over.set()


class LooksWhoLeaves(MachinesDriver):
    """It looks which of the moves leave a node, and what they take."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        ends = [(one.source_compute, one.source_node) for one in migrations or ()]
        assert all(end == (self.host, nodename) for end in ends)
        self.leaving = sum(one.old_flavor.vcpus for one in migrations or ())
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)


class CountsOnItsNode(DevicesDriver):
    """Its node has as many slots as there are devices, and a trait of that."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        units = sum(facts["units"] for facts in self.devices.values())
        tree.update_inventory(node, {SLOTS: Inventory(total=units)})
        tree.add_traits(node, f"CUSTOM_LAB_OF_{len(self.devices)}")


class SharesAPool(DevicesDriver):
    """What all devices have is in a pool, which is shared."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        pool = f"{node}-pool"
        if not tree.exists(pool):
            tree.new_root(pool)
        units = sum(facts["units"] for facts in self.devices.values())
        tree.update_inventory(pool, {"DISK_GB": Inventory(total=units)})
        tree.update_traits(pool, {"MISC_SHARES_VIA_AGGREGATE"})
        for one in (pool, node):
            tree.update_aggregates(one, {_AGGREGATE})


class HasFunctionsBeside(DevicesDriver):
    """A device has a function beside it, below the node."""

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        node = tree.data(name).parent_uuid
        assert node is not None
        beside = name.replace("device", "function")
        if not tree.exists(beside):
            tree.new_child(beside, node)
        tree.update_inventory(beside, {"CUSTOM_LAB_FUNCTION": Inventory(total=1)})

    def remove(self, tree: ProviderTree, name: str) -> None:
        super().remove(tree, name)
        tree.remove(name.replace("device", "function"))


class HasPartsBelowNodes(MachinesDriver):
    """Each machine has two parts below it, one below the other, told as plain mappings."""

    capabilities: ClassVar[Capabilities] = replace(
        MachinesDriver.capabilities, nested_providers=SUPPORTED
    )

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        above = name
        for kind in ("CUSTOM_LAB_CELL", "CUSTOM_LAB_CORE"):
            part = f"{above}_part"
            if not tree.exists(part):
                tree.new_child(part, above)
            tree.update_inventory(part, {kind: {"total": facts["units"], "step_size": 2}})
            if facts["busy"]:
                self.reserve(tree, part)
            above = part


class ForgetsItsFunctionWhileBusy(DevicesDriver):
    """What a device holds is not known while it is programmed."""

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, {**facts, "function": None} if facts["busy"] else facts)


class DedicatesCpus(MachinesDriver):
    """The object of a node has all its CPUs, of which the tree has some as dedicated."""

    default_owner: ClassVar[str] = "OWNER_NOVA"

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        cpus = {"VCPU": Inventory(total=6), "PCPU": Inventory(total=2)}
        return super().inventory(name, facts) | cpus


class HasTheUuidOfItsHardware(PublishesItsHost):
    """Its host has the uuid of the hardware, whatever the host is called."""

    older: ClassVar[bool] = True

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        if nodename == self.host:
            node.uuid = self.world.uuid
        return node


UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-202", DedicatesCpus),
    ("WHF-211", LooksWhoLeaves),
    ("WHF-311", HasTheUuidOfItsHardware),
    ("WHF-311", SharesAPool),
    ("WHF-313", CountsOnItsNode),
    ("WHF-313", HasPartsBelowNodes),
    ("WHF-313", SharesAPool),
    ("WHF-314", HasPartsBelowNodes),
    ("WHF-401", CountsOnItsNode),
    ("WHF-401", HasFunctionsBeside),
    ("WHF-402", HasPartsBelowNodes),
    ("WHF-401", SharesAPool),
    ("WHF-404", CountsOnItsNode),
    ("WHF-404", HasFunctionsBeside),
    ("WHF-404", HasPartsBelowNodes),
    ("WHF-404", SharesAPool),
    ("WHF-541", ForgetsItsFunctionWhileBusy),
    ("WHF-541", HasPartsBelowNodes),
    ("WHF-804", EndsItsThreadSoon),
]
