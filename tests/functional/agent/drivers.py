"""Two drivers for tests of the agent: one whose nodes a test changes, and one with fixed nodes."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree

#: Seconds to wait for an event, which usually takes some hundredths of a second.
TIMEOUT = 60.0


class Fleet:
    """The nodes of a FleetDriver by name, each with the reason why it is reserved (empty: free).

    ``acts`` has a function for some methods of the driver. The driver method calls this function
    first, and raises its exception.
    """

    def __init__(self, *nodes: str) -> None:
        self.nodes: dict[str, str] = dict.fromkeys(nodes, "")
        self.acts: dict[str, Callable[[], object]] = {}
        self._changes: list[str] = []
        self._calls: Counter[str] = Counter()
        self._called = threading.Condition()

    def change(self, name: str, reserved: str = "") -> None:
        """Set the reason why a node is reserved, and add the node to the change feed."""
        self.nodes[name] = reserved
        self._changes.append(name)

    def changed_since(self, mark: str | None) -> tuple[set[str], str]:
        """Return what the driver's ``changed_nodes`` returns: changed names and the next mark."""
        here = len(self._changes)
        return set(self._changes[here if mark is None else int(mark) : here]), str(here)

    def calls(self, name: str) -> int:
        """Return how often this method of the driver was called."""
        with self._called:
            return self._calls[name]

    def called(self, name: str) -> None:
        """Count a call of this method of the driver, and call its function in ``acts``."""
        with self._called:
            self._calls[name] += 1
            self._called.notify_all()
        self.acts.get(name, lambda: None)()

    def await_calls(self, name: str, more: int = 1) -> None:
        """Wait for this number of further calls of the driver's method."""
        with self._called:
            wanted = self._calls[name] + more
            assert self._called.wait_for(lambda: self._calls[name] >= wanted, TIMEOUT), name


#: Fleets by the name of their driver instance.
FLEETS: dict[str, Fleet] = {}


class FleetDriver(ComputeDriver):
    """A driver that reports the nodes of a Fleet in this process."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("nodes have no parts"),
        reshape=unsupported("nothing moves"),
        change_feed=SUPPORTED,
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("there is nothing to clean"),
    )
    default_owner: ClassVar[str] = "OWNER_NOVA"

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self._fleet = FLEETS[name]
        self._fleet.called("__init__")

    def init_host(self, service: Service) -> None:
        self._fleet.called("init_host")

    def cleanup_host(self) -> None:
        self._fleet.called("cleanup_host")

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        self._fleet.called("get_available_nodes")
        return list(self._fleet.nodes)

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self._fleet.called("update_provider_tree")
        provider_tree.update_inventory(nodename, {"CUSTOM_GOLD": {"total": 1}})
        if reason := self._fleet.nodes[nodename]:
            provider_tree.reserve(nodename, reason)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        self._fleet.called("changed_nodes")
        return self._fleet.changed_since(since)


class FixedDriver(ComputeDriver):
    """A driver with five nodes that never change."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("nodes have no parts"),
        reshape=unsupported("nothing moves"),
        change_feed=unsupported("nothing changes"),
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("there is nothing to clean"),
    )
    default_owner: ClassVar[str] = "OWNER_NOVA"

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return [f"{self.name}-{number}" for number in range(5)]

    def get_inventory(self, nodename: str) -> dict[str, dict[str, int]]:
        return {"CUSTOM_GOLD": {"total": 1}}


def install(directory: Path) -> Path:
    """Write a distribution with both drivers; return the directory for the import path."""
    site = directory / "site"
    information = site / "wharfinger_lab-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wharfinger-lab\nVersion: 1")
    (information / "entry_points.txt").write_text(
        f"[wharfinger.drivers]\nfleet = {__name__}:FleetDriver\nfixed = {__name__}:FixedDriver\n"
    )
    return site
