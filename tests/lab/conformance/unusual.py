"""Drivers that do what few do, and that is right, with the rule that could take it for wrong."""

import threading
from collections.abc import Sequence

from tests.lab.conformance.honest import DevicesDriver, LabDriver, MachinesDriver
from wharfinger.driver import Allocations
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree


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


UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-211", LooksWhoLeaves),
    ("WHF-804", EndsItsThreadSoon),
]
