"""Run cycles of a driver instance in two processes, which may have different releases.

The other process sends HTTP requests to the Placement of this one.
"""

from collections.abc import Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fixtures

from tests.lab.claiming import instance, noted, taken
from tests.lab.cycles import Publishing
from tests.lab.objects import Asking, asking, elsewhere
from tests.lab.placement import PlacementFixture, RecordingAdapter, adapter_to
from tests.lab.sqlite import WithoutSync
from wharfinger.driver import Allocations
from wharfinger.objects import ComputeNode, PciDevice, PciDeviceList
from wharfinger.providers import ProviderTree
from wharfinger.tracker import service_record
from wharfinger.tracker.instance_claims import Claims

OWNER = "OWNER_NOVA"


@dataclass(frozen=True)
class Machine:
    """An edit of a node's tree that can be sent to another process.

    ``own`` is the reserved amount of the VCPUs. With ``why``, the driver reserves the node with
    this reason. VGPUs are in a child.
    """

    vcpus: int = 8
    own: int = 0
    vgpus: int = 0
    why: str = ""

    def __call__(self, tree: ProviderTree, node: str, _allocations: Allocations | None) -> None:
        tree.update_inventory(node, {"VCPU": {"total": self.vcpus, "reserved": self.own}})
        child = f"{node}-gpu"
        if self.vgpus:
            if not tree.exists(child):
                tree.new_child(child, node)
            tree.update_inventory(child, {"VGPU": {"total": self.vgpus}})
        elif tree.exists(child):
            tree.remove(child)
        if self.why:
            tree.reserve(node, self.why)


@dataclass(frozen=True)
class Told:
    """The texts of a cycle's steps and problems."""

    steps: tuple[str, ...]
    problems: tuple[str, ...]


class Host:
    """The driver instance of a host, in the process that creates this object.

    With ``counts_devices``, its driver reports PCI devices, too.
    """

    def __init__(
        self,
        placement: PlacementFixture,
        state_path: Path,
        host: str,
        database: str | None,
        *,
        counts_devices: bool,
    ) -> None:
        self._stack = ExitStack()
        self.publishing = self._stack.enter_context(
            Publishing(placement, state_path, host=host, database=database)
        )
        if counts_devices:
            driver: Any = self.publishing.driver
            driver.get_available_resource = _with_devices

    def cycle(self, machines: Mapping[str, Machine] | None, cycle_type: str = "sync") -> Told:
        """Run a cycle with these machines, by default the last ones, and report the service."""
        publishing = self.publishing
        if machines is not None:
            publishing.driver.nodes = dict(machines)
        outcome = getattr(publishing.cycle, cycle_type)()
        service_record.report(
            publishing.context, publishing.host, {OWNER}, complete=not outcome.problems
        )
        return Told(
            tuple(f"{step.verb} {step.name}" for step in outcome.steps),
            tuple(map(str, outcome.problems)),
        )

    def claim(self, node: str, vcpus: int) -> str:
        """Create an instance with a claim on a node; return its uuid."""
        context = self.publishing.context
        one = instance(context, vcpus)
        Claims(context, self.publishing.host).instance_claim(one, node)
        return one.uuid

    def plan(self) -> Told:
        """Return the steps and problems of the plan of a new process, without applying it."""
        plan = self.publishing.restarted().plan()
        return Told(
            tuple(f"{step.verb} {step.name}" for step in plan.steps),
            tuple(map(str, plan.problems)),
        )

    def says(self) -> bool:
        """Return whether the ComputeNode rows have the used amounts of instances and moves."""
        return noted(self.publishing.context) == taken(self.publishing.context)

    def close(self) -> None:
        self._stack.close()


class Beside(fixtures.Fixture):
    """A Host in another process, which is the only one of the executor ``process``."""

    def __init__(
        self,
        process: ProcessPoolExecutor,
        url: str,
        state_path: Path,
        host: str,
        database: str | None = None,
    ) -> None:
        super().__init__()
        self._process = process
        self._begin = (url, state_path, host, database)

    def _setUp(self) -> None:
        way = asking()
        port = None if way is None else way.port
        self._process.submit(_begin, *self._begin, port).result()
        self.addCleanup(self.call, "close")

    def start(self, method: str, *arguments: Any) -> "Future[Any]":
        """Start a method of the Host in the other process, and return a future of its result."""
        return self._process.submit(_call, method, *arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the Host in the other process; return its result."""
        return self.start(method, *arguments).result()


class _PlacementOverHTTP(PlacementFixture):
    """A client in this process for the Placement that another process serves over HTTP."""

    def __init__(self, url: str) -> None:
        fixtures.Fixture.__init__(self)
        self._url = url

    def _setUp(self) -> None:
        self.adapter = RecordingAdapter(adapter_to(self._url))
        self.client = self.new_client()
        self.requests = self.adapter.requests


#: Only in the other process: its hosts, and the contexts to close with each of them.
_here: list[tuple[Host, ExitStack]] = []


def _begin(url: str, state_path: Path, host: str, database: str | None, port: int | None) -> None:
    stack = ExitStack()
    stack.enter_context(WithoutSync())
    stack.enter_context(
        fixtures.MonkeyPatch("tenacity.nap.time", SimpleNamespace(sleep=lambda _seconds: None))
    )
    stack.enter_context(nullcontext() if port is None else elsewhere(Asking(port)))
    placement = stack.enter_context(_PlacementOverHTTP(url))
    _here.append((Host(placement, state_path, host, database, counts_devices=False), stack))


def _call(method: str, *arguments: Any) -> Any:
    host, stack = _here[-1]
    result = getattr(host, method)(*arguments)
    if method == "close":
        _here.pop()
        stack.close()
    return result


def _with_devices(name: str) -> ComputeNode:
    return ComputeNode(
        hypervisor_hostname=name,
        pci_stats=PciDeviceList(
            objects=[PciDevice(vendor_id="10de", product_id="1eb8", numa_node=0, count=2)]
        ),
    )
