"""Mutants that describe an unchanged backend differently (WHF-3xx)."""

import threading
from typing import ClassVar
from uuid import uuid4

from tests.lab.conformance.honest import DevicesDriver, Facts, LabDriver, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode, Service
from wharfinger.providers import ProviderTree


@mutant("WHF-301")
class CountsItsLooks(DevicesDriver):
    """Adds a trait with the number of the description to its node."""

    looks = 0

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        self.looks += 1
        tree.add_traits(node, f"CUSTOM_LAB_LOOK_{self.looks}")


@mutant("WHF-301")
class AddsAndForgets(DevicesDriver):
    """Adds a trait in every second description: only if Placement does not have it."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        marked = "CUSTOM_LAB_MARK" in tree.data(node).traits
        super().describe_root(tree, node)
        if not marked:
            tree.add_traits(node, "CUSTOM_LAB_MARK")


@mutant("WHF-302")
class HasAnotherUuid(DevicesDriver):
    """Gives its node a random uuid."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.uuid = str(uuid4())

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = self.uuid
        return node


@mutant("WHF-303")
class SaysItsSession(DevicesDriver):
    """Adds a trait with the number of its session to its node."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        tree.add_traits(node, f"CUSTOM_LAB_SESSION_{self.session}")


class OfOneThread(LabDriver):
    """Base of drivers that raise in another thread than that in which they were connected."""

    def init_host(self, service: Service) -> None:
        self.thread = threading.current_thread()
        super().init_host(service)

    def asked(self, words: str) -> object:
        if threading.current_thread() is not self.thread:
            raise RuntimeError("the connection was made in another thread")
        return super().asked(words)


@mutant("WHF-304")
class DevicesOfOneThread(OfOneThread, DevicesDriver):
    """Works only in the thread in which it was connected."""


@mutant("WHF-304")
class RemembersByThread(MachinesDriver):
    """Keeps the result of a listing only for the thread of that listing."""

    def __init__(self, *arguments: object) -> None:
        self._local = threading.local()
        super().__init__(*arguments)  # type: ignore[arg-type]

    @property
    def devices(self) -> dict[str, Facts]:
        return getattr(self._local, "devices", {})

    @devices.setter
    def devices(self, devices: dict[str, Facts]) -> None:
        self._local.devices = devices


@mutant("WHF-305")
class MarksByHash(MachinesDriver):
    """Adds a trait that depends on the hash seed of the process."""

    reachable: ClassVar[bool] = True

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | {f"CUSTOM_LAB_MARK_{hash(name) % 1000}"}
