"""Drivers for the agent: of a fleet that a test has in its hands, and of one in a process."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree

#: Seconds; what is awaited takes hundredths of one.
TIMEOUT = 60.0


class Fleet:
    """A backend: nodes by name, with the reason why each is reserved, and the changed names.

    ``acts`` has functions by the name of a driver method: the method calls its function first, and
    raises the function's exception.
    """

    def __init__(self, *nodes: str) -> None:
        self.nodes: dict[str, str] = dict.fromkeys(nodes, "")
        self.acts: dict[str, Callable[[], object]] = {}
        self._changes: list[str] = []
        self._calls: Counter[str] = Counter()
        self._called = threading.Condition()

    def change(self, name: str, reserved: str = "") -> None:
        """A node is reserved, or free again."""
        self.nodes[name] = reserved
        self._changes.append(name)

    def changed_since(self, mark: str | None) -> tuple[set[str], str]:
        """As a driver's ``changed_nodes``."""
        here = len(self._changes)
        return set(self._changes[here if mark is None else int(mark) : here]), str(here)

    def calls(self, name: str) -> int:
        """How often the driver was called."""
        with self._called:
            return self._calls[name]

    def called(self, name: str) -> None:
        """Note a call, and do what is to be done in it."""
        with self._called:
            self._calls[name] += 1
            self._called.notify_all()
        self.acts.get(name, lambda: None)()

    def await_calls(self, name: str, more: int = 1) -> None:
        """Wait until the driver was called so often more."""
        with self._called:
            wanted = self._calls[name] + more
            assert self._called.wait_for(lambda: self._calls[name] >= wanted, TIMEOUT), name


#: By the name of the instance.
FLEETS: dict[str, Fleet] = {}


class FleetDriver(ComputeDriver):
    """Of a fleet that is in this process."""

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
    """Driver of five nodes that never change."""

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
    """Write a distribution with both drivers; returns the directory for the import path."""
    site = directory / "site"
    information = site / "wharfinger_lab-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: wharfinger-lab\nVersion: 1")
    (information / "entry_points.txt").write_text(
        f"[wharfinger.drivers]\nfleet = {__name__}:FleetDriver\nfixed = {__name__}:FixedDriver\n"
    )
    return site
