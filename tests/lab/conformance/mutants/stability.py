"""Mutants of what stays as it is (WHF-3..)."""

import threading
from typing import ClassVar
from uuid import uuid4

from tests.lab.conformance.honest import DevicesDriver, Facts, LabDriver, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import ComputeNode, Service
from wharfinger.providers import ProviderTree


@mutant("WHF-301")
class CountsItsLooks(DevicesDriver):
    """Its description of a node depends on the number of calls."""

    looks = 0

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        self.looks += 1
        tree.add_traits(node, f"CUSTOM_LAB_LOOK_{self.looks}")


@mutant("WHF-301")
class AddsAndForgets(DevicesDriver):
    """It finds its own mark in Placement, and takes that for what was there before."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        marked = "CUSTOM_LAB_MARK" in tree.data(node).traits
        super().describe_root(tree, node)
        if not marked:
            tree.add_traits(node, "CUSTOM_LAB_MARK")


@mutant("WHF-302")
class HasAnotherUuid(DevicesDriver):
    """Its node has a uuid that is made each time."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.uuid = str(uuid4())

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.uuid = self.uuid
        return node


@mutant("WHF-303")
class SaysItsSession(DevicesDriver):
    """Its description of a node depends on the session."""

    def describe_root(self, tree: ProviderTree, node: str) -> None:
        super().describe_root(tree, node)
        tree.add_traits(node, f"CUSTOM_LAB_SESSION_{self.session}")


class OfOneThread(LabDriver):
    """Its connection is for the thread that made it."""

    def init_host(self, service: Service) -> None:
        self.thread = threading.current_thread()
        super().init_host(service)

    def asked(self, words: str) -> object:
        if threading.current_thread() is not self.thread:
            raise RuntimeError("the connection was made in another thread")
        return super().asked(words)


@mutant("WHF-304")
class DevicesOfOneThread(OfOneThread, DevicesDriver):
    """It can be asked in the thread alone in which it was connected."""


@mutant("WHF-304")
class RemembersByThread(MachinesDriver):
    """It keeps its snapshot for the thread that has taken it."""

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
    """It marks machines by the hashes of their names."""

    reachable: ClassVar[bool] = True

    def traits(self, name: str, facts: Facts) -> set[str]:
        return super().traits(name, facts) | {f"CUSTOM_LAB_MARK_{hash(name) % 1000}"}
