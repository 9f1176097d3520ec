"""Compute drivers for nova, for the tests of Wharfinger's nova driver.

nova has to be installed to import this module.
"""

from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

import nova.conf
from nova import exception
from nova.virt import driver, fake
from oslo_config import cfg

CONF: Final = nova.conf.CONF
CONF.register_opts([cfg.BoolOpt("has_numa", default=False)], group="lab")

AGGREGATE: Final = str(uuid5(NAMESPACE_DNS, "aggregate"))
MAGIC: Final = {"CUSTOM_MAGIC": {"total": 4, "max_unit": 4}}


class OldDriver(fake.SmallFakeDriver):  # type: ignore[misc]
    """A driver from before nova's Stein release, with get_inventory, not update_provider_tree."""

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """Return the figures without a uuid, since old drivers did not return one."""
        resource: dict[str, Any] = super().get_available_resource(nodename)
        del resource["uuid"]
        return resource

    def update_provider_tree(self, *arguments: Any, **options: Any) -> None:
        """Raise NotImplementedError, as nova's base class does."""
        raise NotImplementedError

    def get_inventory(self, nodename: str) -> dict[str, Any]:
        """Return the same inventory for each node."""
        return MAGIC


class EmptyDriver(driver.ComputeDriver):  # type: ignore[misc]
    """A driver that lists a node, and has no method that describes its inventory."""

    def init_host(self, host: str) -> None:
        """Keep the host name."""
        self._host = host

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the host name as the only node."""
        return [self._host]

    def get_available_resource(self, nodename: str) -> dict[str, Any]:
        """Return only a number of VCPUs."""
        return {"vcpus": 4}


class AwayDriver(EmptyDriver):
    """A driver whose backend does not answer."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Raise nova's error for an unavailable backend."""
        raise exception.VirtDriverNotReady


class CallingDriver(EmptyDriver):
    """A driver that calls nova-compute while it starts."""

    def init_host(self, host: str) -> None:
        """Call a method of nova-compute's virtapi."""
        self.virtapi.exit_wait_early([])


class NumaDriver(fake.MediumFakeDriver):  # type: ignore[misc]
    """Describes the trees of nova's functional test test_servers_provider_tree.

    With the option ``[lab] has_numa``, a reshape moves the node's inventories to two NUMA nodes and
    to a sharing provider for storage.
    """

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        """Describe the node in its old or its new layout."""
        root = provider_tree.data(nodename)
        if not CONF.lab.has_numa:
            super().update_provider_tree(provider_tree, nodename)
            return
        if root.inventory and allocations is None:
            raise exception.ReshapeNeeded
        if not provider_tree.exists("ssp"):
            provider_tree.new_root("ssp", _uuid("ssp"))
        provider_tree.update_traits("ssp", ["MISC_SHARES_VIA_AGGREGATE", "STORAGE_DISK_SSD"])
        provider_tree.update_aggregates("ssp", [AGGREGATE])
        provider_tree.update_inventory("ssp", {"DISK_GB": {"total": 500}})
        provider_tree.update_aggregates(nodename, [AGGREGATE])
        for number in (1, 2):
            numa = f"numa{number}"
            if not provider_tree.exists(numa):
                provider_tree.new_child(numa, root.uuid, uuid=_uuid(numa))
            provider_tree.update_inventory(
                numa,
                {
                    "VCPU": {"total": 10 * number, "max_unit": 2, "allocation_ratio": 10.0},
                    "MEMORY_MB": {"total": 1048576 * number, "reserved": 2048},
                },
            )
            function = f"pf{number}"
            if not provider_tree.exists(function):
                provider_tree.new_child(function, numa, uuid=_uuid(function))
            provider_tree.update_traits(function, [f"CUSTOM_PHYSNET_{number}"])
            provider_tree.update_inventory(function, {"SRIOV_NET_VF": {"total": number}})
        if allocations is not None:
            provider_tree.update_inventory(nodename, {})
            _move(allocations, root.uuid)


def _uuid(name: str) -> str:
    return str(uuid5(NAMESPACE_DNS, name))


def _move(allocations: Any, root: str) -> None:
    """Move the allocations of the root, as nova's test does.

    VCPU moves to one NUMA node, MEMORY_MB to the other, and DISK_GB to the storage.
    """
    places = {"VCPU": "numa1", "MEMORY_MB": "numa2", "DISK_GB": "ssp"}
    for consumer in allocations.values():
        held = consumer["allocations"]
        for resource_class, amount in held.pop(root, {"resources": {}})["resources"].items():
            place = _uuid(places[resource_class])
            held.setdefault(place, {"resources": {}})["resources"][resource_class] = amount
