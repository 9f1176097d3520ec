"""Driver packages that importlib.metadata and stevedore find as installed."""

import os
import shutil
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest
import stevedore._cache
from stevedore import ExtensionManager

#: The module of a driver that meets the contract. The text of a test is inserted into the class
#: body.
_MODULE = """
from wharfinger.driver import SUPPORTED, Capabilities, Capability, ComputeDriver, unsupported


class Driver(ComputeDriver):
    default_owner = "CUSTOM_OWNER_ACME"
    capabilities = Capabilities(
        nested_providers=SUPPORTED,
        reshape=unsupported("nothing ever moves"),
        change_feed=unsupported("the backend has none"),
        programming=unsupported("nothing to program"),
        cleans_after_release=unsupported("nothing is cleaned"),
    )

    def get_available_nodes(self, refresh=False):
        return ["node"]

    def get_inventory(self, nodename):
        return {"CUSTOM_THING": {"total": 1}}
"""


class Packages:
    """Installs packages with entry points into a directory."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._site = directory / "site"
        self._site.mkdir()
        self._cache = directory / "cache"
        self._monkeypatch = monkeypatch
        monkeypatch.syspath_prepend(str(self._site))
        monkeypatch.setattr(sys, "modules", dict(sys.modules))
        self.as_in_a_new_process()

    def install(self, name: str, module: str, *, package: str | None = None) -> None:
        """Install a package with one module, and an entry point for the class Driver in it."""
        package = package or f"wharfinger-{name}"
        module_name = package.replace("-", "_")
        (self._site / f"{module_name}.py").write_text(module)
        self.register(package, f"{name} = {module_name}:Driver")
        self.as_in_a_new_process()

    def install_driver(self, name: str, body: str = "", *, package: str | None = None) -> None:
        """Install a correct driver, with ``body`` in its class."""
        self.install(name, _MODULE + indent(dedent(body), "    "), package=package)

    def register(self, package: str, entry_point: str, *, seconds: int = 0) -> None:
        """Write the package's metadata; the file time is ``seconds`` later than the first."""
        info = self._site / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        entry_points = info / "entry_points.txt"
        entry_points.write_text(f"[wharfinger.drivers]\n{entry_point}\n")
        # stevedore's cache compares times in steps of 128 s; this time begins such a step.
        for path in (entry_points, self._site):
            os.utime(path, (1_720_000_000, 1_720_000_000 + seconds))

    def uninstall(self, package: str) -> None:
        """Delete the package's metadata."""
        shutil.rmtree(self._site / f"{package.replace('-', '_')}-1.0.dist-info")

    def as_in_a_new_process(self) -> None:
        """Clear what stevedore keeps in memory, as in a new process."""
        cache = stevedore._cache.Cache(str(self._cache))
        # By default, stevedore writes no cache for a Python below /tmp, where tests may run.
        cache._disable_caching = False
        self._monkeypatch.setattr(stevedore._cache, "get_group_all", cache.get_group_all)
        self._monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
