"""Mutants that break the rules on object versions (WHF-21x)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tests.lab.conformance.honest import DevicesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.driver import Allocations
from wharfinger.objects import ComputeNode, Migration
from wharfinger.providers import ProviderTree


@mutant("WHF-211")
class SaysMoreThanDeclared(DevicesDriver):
    """Sets a field that the declared version of ComputeNode does not have."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.pci_stats = None
        return node


@mutant("WHF-211")
class ExpectsDestinations(DevicesDriver):
    """Raises if the destination of a migration is not known."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        self.racks = {str(one.dest_node).split("-")[1] for one in migrations or ()}
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)


@mutant("WHF-212")
class DeclaresNoVersions(DevicesDriver):
    """Declares no object_versions."""

    object_versions: ClassVar[Mapping[str, str]] = {}
