"""A driver whose backend is a file, for agents in processes of their own.

A test or a benchmark changes the file while the agent runs. The driver has a change feed. Other
files beside it make the driver wait, or end its process.
"""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.objects import Migration
from wharfinger.providers import ProviderTree

_ROOT: Final = Path(__file__).resolve().parents[2]
RESOURCE_CLASS: Final = "CUSTOM_GOLD"
#: Suffixes of files beside that of the fleet. While .wait exists, a listing waits. With .end, a
#: listing removes this file and ends the process.
_WAIT: Final = ".wait"
_END: Final = ".end"
_STEP: Final = 0.02


@dataclass
class Fleet:
    """The backend: ``nodes`` has the reason of each node's reservation by name, "" for none."""

    path: Path
    nodes: dict[str, str] = field(default_factory=dict)
    _version: int = 0
    _changed: dict[str, int] = field(default_factory=dict)

    def change(self, name: str, reserved: str = "") -> None:
        """Add a node if it is new; set the reason of its reservation, "" for none."""
        self.nodes[name] = reserved
        self._note([name])

    def remove(self, name: str) -> None:
        """Remove a node."""
        del self.nodes[name]
        self._note([name])

    def save(self) -> None:
        """Write the file, with all nodes as changed."""
        self._note(self.nodes)

    def end_process(self) -> None:
        """Let the process of the driver end itself at its next listing."""
        self.path.with_suffix(_END).touch()

    def hold(self) -> None:
        """Let each listing of the driver wait until ``let_go``."""
        self.path.with_suffix(_WAIT).touch()

    def let_go(self) -> None:
        """Let waiting and later listings continue."""
        self.path.with_suffix(_WAIT).unlink(missing_ok=True)

    def _note(self, names: Iterable[str]) -> None:
        self._version += 1
        self._changed |= dict.fromkeys(names, self._version)
        content = {"version": self._version, "nodes": self.nodes, "changed": self._changed}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(content))
        new.replace(self.path)


class FileDriver(ComputeDriver):
    """The driver of a Fleet. Its option ``path`` names the file."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_providers=unsupported("nodes have no parts"),
        reshape=unsupported("nothing moves"),
        change_feed=SUPPORTED,
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("there is nothing to clean"),
    )
    default_owner: ClassVar[str] = "OWNER_NOVA"

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts(
            [cfg.StrOpt("path", required=True), cfg.IntOpt("total", default=1)], name
        )
        self._path = Path(conf[name].path)
        self._total = conf[name].total
        self._fleet: dict[str, Any] = {}

    @classmethod
    def config_sections(cls, conf: cfg.ConfigOpts, name: str) -> list[str]:
        conf.register_opts([cfg.StrOpt("note")], f"{name}:more")
        return [f"{name}:more"]

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if self._path.with_suffix(_END).exists():
            self._path.with_suffix(_END).unlink()
            os.abort()
        while self._path.with_suffix(_WAIT).exists():
            time.sleep(_STEP)
        self._fleet = json.loads(self._path.read_text())
        return list(self._fleet["nodes"])

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Iterable[Migration] | None = None,
    ) -> None:
        provider_tree.update_inventory(nodename, {RESOURCE_CLASS: {"total": self._total}})
        if reason := self._fleet["nodes"][nodename]:
            provider_tree.reserve(nodename, reason)

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        self._fleet = json.loads(self._path.read_text())
        version = self._fleet["version"]
        before = version if since is None else int(since)
        return {
            name
            for name, changed in self._fleet["changed"].items()
            if changed > before and name in self._fleet["nodes"]
        }, str(version)


def python_path(site: Path) -> str:
    """Return a PYTHONPATH with a directory of drivers and the tests before its present value."""
    paths = [str(site), str(_ROOT), os.environ.get("PYTHONPATH")]
    return os.pathsep.join(filter(None, paths))


def install(directory: Path, **more: str) -> Path:
    """Write entry points of drivers to a directory, and return it for PYTHONPATH.

    The drivers are ``file``, those in ``more``, and three that cannot be imported: ``missing``,
    ``ending`` (the import ends the process with 0) and ``hanging``.
    """
    site = directory / "site"
    information = site / "wharfinger_fleet_file-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: wharfinger-fleet-file\nVersion: 1\n"
    )
    (information / "entry_points.txt").write_text(
        f"[wharfinger.drivers]\nfile = {__name__}:FileDriver\n"
        "missing = tests.lab.no_such_module:Driver\nending = tests.lab.ending_at_import:Driver\n"
        "hanging = tests.lab.hanging_at_import:Driver\n"
        + "".join(f"{name} = {driver}\n" for name, driver in more.items())
    )
    return site
