"""Install the lab's drivers for this process, as a package does by its entry points."""

import sys
from collections.abc import Mapping
from pathlib import Path

import fixtures


class Installed(fixtures.Fixture):
    """A distribution with these drivers by name, and with the options that it lists."""

    def __init__(self, directory: Path, drivers: Mapping[str, type]) -> None:
        super().__init__()
        self._directory = directory
        self._drivers = drivers

    def _setUp(self) -> None:
        distribution = self._directory / "lab-1.0.dist-info"
        distribution.mkdir(parents=True)
        (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1.0\n")
        drivers = [
            f"{name} = {kind.__module__}:{kind.__qualname__}"
            for name, kind in self._drivers.items()
        ]
        options = "lab = tests.lab.conformance.honest:list_opts"
        (distribution / "entry_points.txt").write_text(
            "\n".join(["[wharfinger.drivers]", *drivers, "[oslo.config.opts]", options, ""])
        )
        sys.path.append(str(self._directory))
        self.addCleanup(sys.path.remove, str(self._directory))
