"""A libvirt driver made from a configuration file, and what it publishes."""

from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent

from wharfinger.conf import parse
from wharfinger.providers import DesiredProvider, Provider, ProviderTree
from wharfinger_libvirt.driver import LibvirtDriver

INSTANCE = "gpus"


def make_driver(directory: Path, configuration: str) -> LibvirtDriver:
    """Make the driver of the instance ``gpus``; ``configuration`` is the file's text."""
    path = directory / "wharfinger.conf"
    path.write_text(dedent(configuration))
    return LibvirtDriver(parse([str(path)]), "service-host", INSTANCE)


def publish(
    driver: LibvirtDriver, live: Iterable[Provider] = (), *, refresh: bool = True
) -> dict[str, DesiredProvider]:
    """One cycle of a driver: what it makes of what Placement has, by provider name."""
    (node,) = driver.get_available_nodes(refresh=refresh)
    tree = ProviderTree.from_providers(live)
    if not tree.exists(node):
        tree.new_root(node)
    driver.update_provider_tree(tree, node)
    return {desired.provider.name: desired for desired in tree.desired()}


def totals(providers: dict[str, DesiredProvider]) -> dict[str, dict[str, int]]:
    """The totals of all children, by name and resource class."""
    return {
        name: {key: item.total for key, item in desired.provider.inventories.items()}
        for name, desired in providers.items()
        if desired.provider.parent_uuid is not None
    }
