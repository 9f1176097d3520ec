"""Mutants of versioned objects (WHF-21.)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tests.lab.conformance.honest import DevicesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.driver import Allocations
from wharfinger.objects import ComputeNode, Migration
from wharfinger.providers import ProviderTree


@mutant("WHF-211")
class SaysMoreThanDeclared(DevicesDriver):
    """It sets a field that the version which it declares has not."""

    def get_available_resource(self, nodename: str) -> ComputeNode:
        node = super().get_available_resource(nodename)
        node.pci_stats = None
        return node


@mutant("WHF-211")
class ExpectsDestinations(DevicesDriver):
    """It takes for granted that it is known where an instance goes."""

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
    """It does not say for which versions it was written."""

    object_versions: ClassVar[Mapping[str, str]] = {}
