"""A driver for one host, which a file describes. It was written for nova and then ported."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError, ReshapeNeeded
from wharfinger.objects import ComputeNode
from wharfinger.providers import ProviderTree

OPTIONS = [
    cfg.StrOpt("path", required=True, help="The file that describes the host."),
    cfg.FloatOpt("deadline", default=0.3, help="The timeout for reading the file, in seconds."),
]
UNITS = "PGPU"

#: Reads a file. The second argument is the timeout in seconds. Raises OSError.
Reader = Callable[[Path, float], str]


def read_directly(path: Path, deadline: float) -> str:
    """Return the text of a local file. Ignore ``deadline``: a local file is read at once."""
    return path.read_text()


#: The readers of harnesses, by the path of the file. ``read_directly`` reads all other files.
READERS: dict[str, Reader] = {}


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options, for generated sample configurations."""
    return [("host", OPTIONS)]


class HostDriver(ComputeDriver):
    """Publishes this host, and its devices as children with the uuids that are in the file."""

    default_owner: ClassVar[str] = "OWNER_NOVA"
    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=SUPPORTED,
        reshape=SUPPORTED,
        change_feed=unsupported("a file has no events"),
        programming=unsupported("the devices cannot be programmed"),
        cleans_after_release=unsupported("the devices have no memory"),
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts(OPTIONS, name)
        self.path = Path(conf[name].path)
        self.deadline: float = conf[name].deadline
        self.facts: dict[str, Any] = {"host": {}, "devices": {}, "instances": {}}

    # Reading the file.

    def load(self) -> dict[str, Any]:
        """Return the content of the file. Raise BackendError if the file cannot be read."""
        try:
            return self.parse(self.read_text())
        except (OSError, ValueError, KeyError) as error:
            raise BackendError(
                driver=self.name, operation=f"reading {self.path}", reason=repr(error)
            ) from error

    def read_text(self) -> str:
        reader = READERS.get(str(self.path), read_directly)
        return reader(self.path, self.deadline)

    def parse(self, text: str) -> dict[str, Any]:
        facts = json.loads(text)
        return {key: facts[key] for key in ("host", "devices", "instances")}

    def refresh(self) -> None:
        self.facts = self.load()

    # Publishing the host.

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            self.refresh()
        return [self.host]

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host=self.host, hypervisor_hostname=nodename)

    def update_provider_tree(  # type: ignore[override] # as nova's
        self, provider_tree: ProviderTree, nodename: str, allocations: Allocations | None = None
    ) -> None:
        if allocations is None and self.has_to_move(provider_tree, nodename):
            raise ReshapeNeeded
        self.describe_host(provider_tree, nodename)
        for address, device in self.facts["devices"].items():
            self.describe_device(provider_tree, nodename, address, device)
        self.forget(provider_tree, nodename)
        for consumer, held in (allocations or {}).items():
            self.move(provider_tree, nodename, consumer, held["allocations"])

    def describe_host(self, tree: ProviderTree, node: str) -> None:
        tree.update_inventory(node, self.host_inventory())
        tree.update_traits(node, self.facts["host"]["traits"])

    def host_inventory(self) -> Mapping[str, Any]:
        host = self.facts["host"]
        return {
            "VCPU": {"total": host["cpus"], "max_unit": host["cpus"], "allocation_ratio": 16.0},
            "MEMORY_MB": {"total": host["memory"], "reserved": 1024},
            "DISK_GB": {"total": 200, "min_unit": 2, "step_size": 2},
        }

    def describe_device(
        self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]
    ) -> None:
        name = self.device_name(node, address)
        if not tree.exists(name):
            tree.new_child(name, node, uuid=self.device_uuid(address, device))
        tree.update_inventory(name, self.device_inventory(address, device))
        tree.update_traits(name, self.device_traits(address, device))
        if device["state"] != "ok":
            self.reserve(tree, node, address, device)

    def device_name(self, node: str, address: str) -> str:
        return f"{node}_pci_{address}"

    def device_uuid(self, address: str, device: dict[str, Any]) -> str:
        uuid: str = device["uuid"]
        return uuid

    def device_inventory(self, address: str, device: dict[str, Any]) -> Mapping[str, Any]:
        units = self.units(address, device)
        return {UNITS: {"total": units, "max_unit": units}}

    def units(self, address: str, device: dict[str, Any]) -> int:
        units: int = device["units"]
        return units

    def device_traits(self, address: str, device: dict[str, Any]) -> Any:
        return device["traits"]

    def reserve(self, tree: ProviderTree, node: str, address: str, device: dict[str, Any]) -> None:
        tree.reserve(self.device_name(node, address), f"the device is {device['state']}")

    def forget(self, tree: ProviderTree, node: str) -> None:
        """Remove the devices that are no longer in the file from the tree."""
        there = {self.device_name(node, address) for address in self.facts["devices"]}
        for uuid in tree.get_provider_uuids(node):
            name = tree.data(uuid).name
            if name not in there and self.is_own(name, node):
                tree.remove(uuid)

    def is_own(self, name: str, node: str) -> bool:
        """Return whether a provider is a device. Providers below a device are not."""
        prefix = f"{node}_pci_"
        return name.startswith(prefix) and "_" not in name.removeprefix(prefix)

    # Reshaping from the old layout, which has all units on the host.

    def has_to_move(self, tree: ProviderTree, node: str) -> bool:
        return UNITS in tree.data(node).inventory

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        root = tree.data(node).uuid
        if held.get(root, {}).get("resources", {}).pop(UNITS, 0):
            for address, units in self.facts["instances"][consumer].items():
                device = tree.data(self.device_name(node, address)).uuid
                held[device] = {"resources": {UNITS: units}}
        if root in held and not held[root]["resources"]:
            del held[root]
