"""Drivers that follow all rules: devices below one node, and machines that are nodes.

Mutants are subclasses of them. Each unusual case has a method of its own, which a mutant overrides.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from oslo_config import cfg

from tests.lab.conformance.world import Refused, SessionOver, World
from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError, ProgrammingRefused, ReshapeNeeded
from wharfinger.objects import ComputeNode, Migration, Service
from wharfinger.providers import Inventory, ProviderTree
from wharfinger.providers.device_function_traits import function_trait

OPTIONS = [
    cfg.StrOpt("world", required=True, help="The name of the backend."),
    cfg.FloatOpt("timeout", default=0.2, help="The time-out of a request, in seconds."),
]
#: The resource class of a device.
UNITS = "FPGA"
#: The resource class of the devices' node, and the name of this node on the first host.
SLOTS = "SRIOV_NET_VF"
NODE = "lab"

Facts = Mapping[str, Any]
#: The allocations of a consumer, by the uuid of the provider.
Held = dict[str, dict[str, Any]]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options, for generated configuration samples."""
    return [("lab", OPTIONS)]


class LabDriver(ComputeDriver):
    """Base of both drivers, with a session of the backend and the facts about each device."""

    default_owner: ClassVar[str] = "OWNER_CYBORG"
    #: Whether the driver's harness has none of the optional methods.
    older: ClassVar[bool] = False
    object_versions: ClassVar[Mapping[str, str]] = {"ComputeNode": "1.0"}

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts(OPTIONS, name)
        self.world = World.found(conf[name].world)
        self.timeout: float | None = conf[name].timeout
        self.session: int | None = None
        self.devices: dict[str, Facts] = {}
        #: The names of devices that a mutant remembers.
        self.noted: set[str] = set()

    def init_host(self, service: Service) -> None:
        self.connect()

    # Requests.

    def connect(self) -> None:
        self.session = self.asked("connect")["session"]

    def ask(self, words: str) -> Any:
        """Send a request, and return the answer; connect again if the session is over."""
        try:
            return self.asked(words)
        except SessionOver:
            self.connect_again()
            return self.asked(words)

    def connect_again(self) -> None:
        self.connect()

    def asked(self, words: str) -> Any:
        """Send a request, and return the data of the answer.

        Raise BackendError, Refused or SessionOver.
        """
        try:
            answer = self.sent(words)
        except OSError as error:
            raise self.failed(words, error) from error
        try:
            found = json.loads(answer)
        except ValueError as error:
            return self.unreadable(words, answer, error)
        if isinstance(found, dict) and "error" in found:
            return self.refused(words, found)
        return found

    def sent(self, words: str) -> str:
        """Send a request, and return the text of the answer.

        Raise OSError, Refused or SessionOver.
        """
        return self.world.request(
            self.session, words, self.timeout, lambda late: self.came_late(words, late)
        )

    def came_late(self, words: str, answer: str) -> None:
        """Ignore an answer that comes after the time-out."""

    def refused(self, words: str, answer: Facts) -> Any:
        """Raise for an error answer of the backend. A mutant may return data in its place."""
        raise self.failed(words, RuntimeError(answer["error"]))

    def unreadable(self, words: str, answer: str, error: ValueError) -> Any:
        """Raise for an answer that is not JSON. A mutant may return data in its place."""
        raise self.failed(words, error) from error

    def failed(self, words: str, error: Exception) -> BackendError:
        """Return the error to raise for a failed request."""
        return BackendError(driver=self.name, operation=words, reason=str(error))

    # The snapshot.

    def refresh(self) -> None:
        try:
            self.read()
        except BackendError as error:
            self.not_refreshed(error)

    def not_refreshed(self, error: BackendError) -> None:
        """Raise the error of a failed listing. A mutant may ignore the error."""
        raise error

    def read(self) -> None:
        """Read all devices; keep the facts of before and raise if a request fails."""
        self.devices = self.read_devices(self.ask("list"))

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices: dict[str, Facts] = {}
        for name in names:
            try:
                devices[name] = self.ask(f"show {name}")
            except BackendError as error:
                self.not_read(name, error)
        return devices

    def not_read(self, name: str, error: BackendError) -> None:
        """Raise the error of reading one device. A mutant may leave the device out."""
        raise error

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host=self.host, hypervisor_hostname=nodename, vcpus=8)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        return (set(), str(self.ask("events")["last"])) if since is None else self.news(since)

    def news(self, since: str) -> tuple[set[str], str]:
        """Return the nodes that have changed since a mark, and the next mark."""
        events = self.ask(f"events {since}")
        changed = set(events["changed"])
        if changed:
            self.read()
        return self.changed(changed), str(events["last"])

    def changed(self, devices: set[str]) -> set[str]:
        """Return the nodes of changed devices."""
        raise NotImplementedError

    # Description of a device.

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        tree.update_inventory(name, self.inventory(name, facts))
        if facts["busy"]:
            self.reserve(tree, name)
        tree.update_traits(name, self.traits(name, facts))

    def inventory(self, name: str, facts: Facts) -> dict[str, Inventory]:
        units = facts["units"]
        return {UNITS: Inventory(total=units, max_unit=units, reserved=facts["reserved"])}

    def reserve(self, tree: ProviderTree, name: str) -> None:
        """Reserve a busy device with a reason."""
        tree.reserve(name, "it is busy")

    def traits(self, name: str, facts: Facts) -> set[str]:
        return {*facts["traits"]}


class MachinesDriver(LabDriver):
    """Publishes each device as a node.

    With ``reachable``, other processes reach the backend. With ``has_many``, the harness has two
    thousand machines.
    """

    reachable: ClassVar[bool] = False
    has_many: ClassVar[bool] = False

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("a machine is one provider"),
        reshape=unsupported("there is nothing that it could move to"),
        change_feed=SUPPORTED,
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("a machine keeps no data of its last user"),
    )

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            self.refresh()
        return [*self.devices]

    def changed(self, devices: set[str]) -> set[str]:
        return devices & self.devices.keys()

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self.describe(provider_tree, nodename, self.devices[nodename])


class DevicesDriver(LabDriver):
    """Publishes each device as a child of one node, and can program devices."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=SUPPORTED,
        reshape=SUPPORTED,
        change_feed=SUPPORTED,
        programming=SUPPORTED,
        cleans_after_release=SUPPORTED,
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        #: The name of the node that is the parent of all devices.
        self.node = self.world.prefix.rpartition("_")[0]
        #: The units that each consumer uses, by consumer and by device.
        self.uses: Mapping[str, Mapping[str, int]] = {}
        #: The devices' names, by their providers' uuids.
        self.names: dict[str, str] = {}

    def read(self) -> None:
        super().read()
        self.uses = self.ask("uses")

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            self.refresh()
        return [self.node]

    def changed(self, devices: set[str]) -> set[str]:
        return {self.node} if devices else set()

    # The tree.

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        if allocations is None and self.has_to_move(provider_tree, nodename):
            self.reshape_needed()
        self.describe_root(provider_tree, nodename)
        for name in self.gone(provider_tree, nodename):
            self.remove(provider_tree, name)
        for name, facts in self.devices.items():
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
            self.names[provider_tree.data(name).uuid] = name
            self.describe(provider_tree, name, facts)
        for consumer, its in (allocations or {}).items():
            self.move(provider_tree, nodename, consumer, its["allocations"])

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        tree.update_inventory(node, {SLOTS: {"total": 8, "max_unit": 8, "allocation_ratio": 4.0}})
        tree.update_traits(node, {"HW_ARCH_X86_64"})

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        """Return the names of the devices in the tree that the backend no longer has."""
        known = [tree.data(uuid).name for uuid in tree.get_provider_uuids(node)]
        prefix = self.world.prefix
        return [name for name in known if name.startswith(prefix) and name not in self.devices]

    def remove(self, tree: ProviderTree, name: str) -> None:
        tree.remove(name)

    def traits(self, name: str, facts: Facts) -> set[str]:
        function = facts["function"]
        functions = {function_trait(function)} if function else set()
        return super().traits(name, facts) | functions

    # Reshaping from the old layout, which has all units on the node.

    def has_to_move(self, tree: ProviderTree, node: str) -> bool:
        return UNITS in tree.data(node).inventory

    def reshape_needed(self) -> None:
        raise ReshapeNeeded

    def move(self, tree: ProviderTree, node: str, consumer: str, held: Held) -> None:
        root = tree.data(node).uuid
        if held.get(root, {}).get("resources", {}).pop(UNITS, 0):
            for device, units in self.uses[consumer].items():
                held[tree.data(device).uuid] = {"resources": {UNITS: units}}
        if not held[root]["resources"]:
            del held[root]

    # Programming and cleaning.

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        device = self.names.get(provider_uuid)
        try:
            self.ask(f"program {device} {image}")
        except Refused as error:
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason=str(error)
            ) from error

    def current_function(self, provider_uuid: str) -> str | None:
        function: str | None = self.ask(f"show {self.names[provider_uuid]}")["function"]
        return function

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        facts = self.devices.get(self.names.get(provider_uuid, ""), {})
        cleaned = facts.get("cleaned")
        return bool(
            cleaned and not facts["busy"] and datetime.fromisoformat(cleaned).astimezone() > since
        )
