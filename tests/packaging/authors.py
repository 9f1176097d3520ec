"""A distribution of another author, which has a driver and no harness."""

from pathlib import Path
from typing import Final

NAME: Final = "acme-drivers"

_PROJECT: Final = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-drivers"
version = "3.1"

[project.entry-points]
"wharfinger.drivers" = { shelf = "acme_shelf:ShelfDriver" }

[tool.setuptools]
py-modules = ["acme_shelf"]
"""

_SHELF: Final = """
from oslo_config import cfg

from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.providers import Inventory

NONE = unsupported("a shelf has no such thing")


class ShelfDriver(ComputeDriver):
    capabilities = Capabilities(
        nested_providers=NONE, reshape=NONE, change_feed=NONE, programming=NONE,
        cleans_after_release=NONE,
    )
    default_owner = "CUSTOM_OWNER_ACME"

    def __init__(self, conf, host, name):
        super().__init__(conf, host, name)
        conf.register_opts([cfg.IntOpt("boxes", min=1)], name)

    def get_available_nodes(self, refresh=False):
        return [f"{self.host}-{self.name}"]

    def get_inventory(self, nodename):
        return {"CUSTOM_BOX": Inventory(total=self.conf[self.name].boxes)}
"""


def write(directory: Path) -> Path:
    """Write the sources of the distribution."""
    directory.mkdir()
    (directory / "pyproject.toml").write_text(_PROJECT)
    (directory / "acme_shelf.py").write_text(_SHELF)
    return directory
