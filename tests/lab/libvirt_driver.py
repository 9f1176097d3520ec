"""Create a libvirt driver from a configuration text, and let it describe its providers."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

from wharfinger.conf import parse
from wharfinger.driver import Allocations
from wharfinger.exceptions import ReshapeNeeded
from wharfinger.objects import Migration
from wharfinger.providers import DesiredProvider, Provider, ProviderTree
from wharfinger_libvirt.driver import LibvirtDriver

INSTANCE = "gpus"


def make_driver(directory: Path, configuration: str, host: str = "service-host") -> LibvirtDriver:
    """Create the driver of the instance ``gpus`` from the text of a configuration file."""
    path = directory / "wharfinger.conf"
    path.write_text(dedent(configuration))
    return LibvirtDriver(parse([str(path)]), host, INSTANCE)


def domain_xml(uuid: str, *mdevs: str, kind: str = "test") -> str:
    """Return the XML of a domain with the mdevs of these uuids; ``kind`` is its hypervisor."""
    devices = "".join(
        "<hostdev mode='subsystem' type='mdev' model='vfio-pci'>"
        f"<source><address uuid='{mdev}'/></source></hostdev>"
        for mdev in mdevs
    )
    return (
        f"<domain type='{kind}'><name>instance-{uuid}</name><uuid>{uuid}</uuid>"
        "<memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type>hvm</type></os>"
        f"<devices>{devices}</devices></domain>"
    )


def publish(
    driver: LibvirtDriver, live: Iterable[Provider] = (), *, refresh: bool = True
) -> dict[str, DesiredProvider]:
    """Let a driver describe its node; return the described providers by name.

    ``live`` has the providers in Placement. With ``refresh``, the driver reads libvirt first.
    """
    (node,) = driver.get_available_nodes(refresh=refresh)
    tree = ProviderTree.from_providers(live)
    if not tree.exists(node):
        tree.new_root(node)
    driver.update_provider_tree(tree, node)
    return {desired.provider.name: desired for desired in tree.desired()}


def reshape(
    driver: LibvirtDriver,
    live: Iterable[Provider],
    allocations: Allocations,
    migrations: Sequence[Migration] = (),
) -> dict[str, DesiredProvider]:
    """Do as ``publish``, for a driver that raises ReshapeNeeded first and edits the allocations."""
    (node,) = driver.get_available_nodes(refresh=True)
    tree = ProviderTree.from_providers(live)
    before = [one.provider for one in tree.desired()]
    with pytest.raises(ReshapeNeeded):
        driver.update_provider_tree(tree, node, None, migrations)
    assert [one.provider for one in tree.desired()] == before
    driver.update_provider_tree(tree, node, allocations, migrations)
    return {desired.provider.name: desired for desired in tree.desired()}


def totals(providers: dict[str, DesiredProvider]) -> dict[str, dict[str, int]]:
    """Return the totals of each child provider, by name and resource class."""
    return {
        name: {key: item.total for key, item in desired.provider.inventories.items()}
        for name, desired in providers.items()
        if desired.provider.parent_uuid is not None
    }
