"""The driver class for libvirt."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError, ConfigurationError, ReshapeNeeded
from wharfinger.objects import ComputeNode, Migration, PciDevice, PciDeviceList
from wharfinger.providers import AnyInventory, ProviderData, ProviderTree, PublishingMode
from wharfinger.providers.inventory import check_inventories
from wharfinger_libvirt.config import HostSection, enabled_type_ids, section_of
from wharfinger_libvirt.connection import Connection
from wharfinger_libvirt.host_snapshot import HostSnapshot, take_snapshot
from wharfinger_libvirt.mdev import Share, is_enabled, shares
from wharfinger_libvirt.nodedev import NodeDevice, PciFunction
from wharfinger_libvirt.reshape import Move
from wharfinger_libvirt.time_limit import TimeLimit

#: The part of a device provider's name after "<node>_": libvirt's name of the device,
#: <subsystem>_<more>. Child providers of other programs have colons in their names: those of
#: Neutron ("<host>:OVS agent:br-x") and nova's PCI devices ("<node>_0000:84:00.0").
_DEVICE_NAME: Final = re.compile(r"[a-z][a-z0-9]*_\w+\Z", re.ASCII)


class LibvirtDriver(ComputeDriver):
    """Publishes one libvirt host, and a child provider for each device that gets an mdev type."""

    capabilities = Capabilities(
        nested_providers=SUPPORTED,
        reshape=SUPPORTED,
        change_feed=unsupported("libvirt's events need an open connection and an event loop"),
        programming=unsupported("vGPUs hold no images"),
        cleans_after_release=unsupported("an mdev is destroyed with its instance"),
    )
    default_owner = "OWNER_NOVA"
    object_versions = {
        "ComputeNode": "1.1",
        "Migration": "1.0",
        "PciDevice": "1.0",
        "PciDeviceList": "1.0",
    }

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self._config = HostSection.read(conf, name)
        self._limit = TimeLimit(name, self._config.timeout)
        self._snapshot: HostSnapshot | None = None
        self._shares: list[Share] = []
        self._overlaid: ProviderData | None = None

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> Iterable[str]:
        """Return the names of the sections for the enabled mdev types."""
        return [section_of(name, type_id) for type_id in enabled_type_ids(conf, name)]

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the name of the host. Raises BackendError and ConfigurationError."""
        if refresh or self._snapshot is None:
            return [self._node_name(self._refresh())]
        return [self._node_name(self._snapshot)]

    def node_is_available(self, nodename: str) -> bool:
        """Return whether the node has this name. Raises BackendError."""
        return nodename == self._limit.run("asking for the host's name", self._hostname)

    def _hostname(self) -> str:
        with Connection.open(self._config.connection_uri, self.name) as connection:
            return self._config.hypervisor_hostname or connection.hostname()

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        """Ask libvirt whether the device has an enabled mdev type. Raises BackendError."""
        return self._limit.run(f"asking for {name}", lambda: self._has_device(name))

    def _has_device(self, provider: str) -> bool:
        with Connection.open(self._config.connection_uri, self.name) as connection:
            node = self._config.hypervisor_hostname or connection.hostname()
            device_name = provider.removeprefix(f"{node}_")
            if device_name == provider:
                return False  # the host and its providers have another name now
            device = connection.device(device_name)
        return device is not None and is_enabled(device, self._config.mdev_types)

    def _refresh(self, *, with_domains: bool = False) -> HostSnapshot:
        uri = self._config.connection_uri
        snapshot = self._limit.run(
            "reading the host", lambda: take_snapshot(uri, self.name, with_domains=with_domains)
        )
        self._check_name(snapshot)
        self._check_reserved(snapshot)
        found = shares(snapshot.devices, self._config.mdev_types, self.name)
        self._check_device_names(found)
        self._shares = found
        self._snapshot = snapshot
        return snapshot

    def get_available_resource(self, nodename: str) -> ComputeNode:
        """Return the host's CPUs, memory and PCI devices."""
        snapshot = self._snapshot_of(nodename)
        return ComputeNode(
            host=self.host,
            hypervisor_hostname=nodename,
            vcpus=snapshot.cpus,
            memory_mb=snapshot.memory_mb,
            pci_stats=_pci_stats(snapshot.devices),
        )

    def get_inventory(self, nodename: str) -> dict[str, AnyInventory]:
        """Return the host's inventories of VCPU and MEMORY_MB; {} if publish_root is overlay."""
        snapshot = self._snapshot_of(nodename)
        config = self._config
        if config.publish_root is PublishingMode.OVERLAY:
            return {}
        figures = {
            "VCPU": {
                "total": snapshot.cpus,
                "max_unit": snapshot.cpus,
                "reserved": config.reserved_host_cpus,
                "allocation_ratio": config.cpu_allocation_ratio,
            },
            "MEMORY_MB": {
                "total": snapshot.memory_mb,
                "max_unit": snapshot.memory_mb,
                "reserved": config.reserved_host_memory_mb,
                "allocation_ratio": config.ram_allocation_ratio,
            },
        }
        return dict(check_inventories(nodename, figures))

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Publish a child provider for each device, and the root provider as publish_root says.

        Raises BackendError. Without ``allocations``, raises ReshapeNeeded if vGPUs have to move
        from the root provider.
        """
        self._snapshot_of(nodename)
        mode = provider_tree.set_publishing_mode(nodename, self._config.publish_root)
        moving = (
            self._classes_to_move(provider_tree, nodename) if mode is PublishingMode.OWN else []
        )
        if moving and allocations is None:
            raise ReshapeNeeded
        if moving:
            self._refresh(with_domains=True)
        is_own = mode is PublishingMode.OWN
        self._overlaid = None if is_own else provider_tree.data(nodename)
        if is_own:
            super().update_provider_tree(provider_tree, nodename)
        offered = self._set_devices(provider_tree, nodename)
        held: dict[str, int] = {}
        for resource_class in moving:
            move = self._move(resource_class, offered, provider_tree, nodename, migrations or ())
            held |= move.apply(allocations or {})
        for uuid, share in offered.items():
            self._publish(provider_tree, uuid, share, held.get(uuid, 0))
        # This also removes the children of nova's PCI devices from the tree, but not from
        # Placement: they are not ours.
        provider_tree.remove_unreported_children(nodename)

    def get_problems(self) -> list[str]:
        """Compare the root's uuid with nova-compute's uuid file; return any problem."""
        root, path = self._overlaid, self._config.nova_compute_id_file
        if root is None or root.generation is None or not path:
            return []
        try:
            expected = Path(path).read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return []  # nova-compute has its uuid in another place, or is too old for this file
        except (OSError, UnicodeDecodeError) as error:
            return [
                f"{path} was not read: {error}. Correct the file or its permissions for the user "
                "of this process, or set nova_compute_id_file to nothing."
            ]
        if expected == root.uuid:
            return []
        return [
            f"root provider {root.name} ({root.uuid}) is not that of this host's nova-compute "
            f"({expected}, in {path}), which cannot create its own: the name is taken. Run "
            f"`wharfinger provider detach PROVIDER` for each provider below the root (see "
            f"`wharfinger provider tree {root.name}`), and then `openstack resource provider "
            f"delete {root.uuid}`."
        ]

    def _classes_to_move(self, provider_tree: ProviderTree, nodename: str) -> list[str]:
        has = provider_tree.data(nodename).inventory.keys()
        return sorted(has & {mdev_type.resource_class for mdev_type in self._config.mdev_types})

    def _move(
        self,
        resource_class: str,
        offered: Mapping[str, Share],
        provider_tree: ProviderTree,
        nodename: str,
        migrations: Iterable[Migration],
    ) -> Move:
        return Move(
            driver=self.name,
            resource_class=resource_class,
            root_uuid=provider_tree.data(nodename).uuid,
            devices={
                uuid: share
                for uuid, share in offered.items()
                if share.mdev_type.resource_class == resource_class
            },
            host=self._snapshot_of(nodename),
            other_types=frozenset(
                mdev_type.type_id
                for mdev_type in self._config.mdev_types
                if mdev_type.resource_class != resource_class
            ),
            instances={one.uuid: one.instance_uuid for one in migrations},
        )

    def _set_devices(self, provider_tree: ProviderTree, nodename: str) -> dict[str, Share]:
        offered = {f"{nodename}_{share.device.name}": share for share in self._shares}
        for name in offered:
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
        return {provider_tree.data(name).uuid: share for name, share in offered.items()}

    def _publish(self, provider_tree: ProviderTree, uuid: str, share: Share, held: int = 0) -> None:
        # Placement has no inventory with total 0. A blocked device keeps its published inventory,
        # fully reserved. ``held`` is the amount that has just moved from the root to the device:
        # these allocations need an inventory.
        resource_class = share.mdev_type.resource_class
        provider_tree.update_traits(uuid, share.mdev_type.traits)
        if share.blocked:
            published = self._published_mdev_inventories(provider_tree, uuid)
            if held > published.get(resource_class, {}).get("total", 0):
                published[resource_class] = {"total": held, "max_unit": held}
            provider_tree.update_inventory(uuid, published)
            provider_tree.reserve(uuid, _reason(share))
        elif share.total:
            figures = {"total": share.total, "max_unit": share.total}
            provider_tree.update_inventory(uuid, {resource_class: figures})
        else:
            provider_tree.update_inventory(uuid, {})

    def _published_mdev_inventories(
        self, provider_tree: ProviderTree, uuid: str
    ) -> dict[str, dict[str, Any]]:
        classes = {mdev_type.resource_class for mdev_type in self._config.mdev_types}
        return {
            resource_class: record | {"reserved": 0}
            for resource_class, record in provider_tree.data(uuid).inventory.items()
            if resource_class in classes
        }

    def _snapshot_of(self, nodename: str) -> HostSnapshot:
        (name,) = self.get_available_nodes()
        if nodename != name or self._snapshot is None:
            raise BackendError(
                driver=self.name,
                operation=f"looking up node {nodename}",
                reason=f"this driver instance publishes only the node {name}",
            )
        return self._snapshot

    def _node_name(self, snapshot: HostSnapshot) -> str:
        return self._config.hypervisor_hostname or snapshot.hostname

    def _check_name(self, snapshot: HostSnapshot) -> None:
        before = self._snapshot and self._node_name(self._snapshot)
        now = self._node_name(snapshot)
        if before and now != before:
            raise BackendError(
                driver=self.name,
                operation="asking for the host's name",
                reason=f"the host's name was {before} and is now {now}. The driver does not "
                "publish a renamed host: restore the old name, or set hypervisor_hostname = "
                f"{before}",
            )

    def _check_device_names(self, found: Iterable[Share]) -> None:
        for share in found:
            if not _DEVICE_NAME.match(share.device.name):
                raise BackendError(
                    driver=self.name,
                    operation=f"reading device {share.device.name}",
                    reason="the device's name does not have libvirt's form <subsystem>_<more>, "
                    "with ASCII letters, digits and _. To exclude this device, list only other "
                    "devices in device_addresses. Until this is corrected, the driver "
                    "publishes nothing new",
                )

    def _check_reserved(self, snapshot: HostSnapshot) -> None:
        for key, reserved, total, unit in (
            ("reserved_host_cpus", self._config.reserved_host_cpus, snapshot.cpus, "CPUs"),
            (
                "reserved_host_memory_mb",
                self._config.reserved_host_memory_mb,
                snapshot.memory_mb,
                "MiB of memory",
            ),
        ):
            if reserved > total and self._config.publish_root is not PublishingMode.OVERLAY:
                raise ConfigurationError(
                    section=self.name,
                    key=key,
                    value=reserved,
                    problem=f"the host has only {total} {unit}.",
                    remedy="Set a smaller value.",
                )


def _pci_stats(devices: Iterable[NodeDevice]) -> PciDeviceList:
    kinds = Counter(_kind(device.pci) for device in devices if device.pci is not None)
    return PciDeviceList(
        objects=[
            PciDevice(vendor_id=vendor_id, product_id=product_id, numa_node=numa_node, count=count)
            for (vendor_id, product_id, numa_node), count in sorted(
                kinds.items(), key=lambda item: (*item[0][:2], item[0][2] is not None, item[0][2])
            )
        ]
    )


def _kind(pci: PciFunction) -> tuple[str, str, int | None]:
    return (pci.vendor_id, pci.product_id, pci.numa_node)


def _reason(share: Share) -> str:
    if share.occupants:
        return f"occupied by mdevs of {', '.join(share.occupants)}"
    return f"no mdev of type {share.mdev_type.type_id} can be created"
