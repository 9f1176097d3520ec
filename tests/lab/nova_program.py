"""The program wharfinger with the nova driver and the embedded Placement."""

import json
import os
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import fixtures
from sqlalchemy import create_engine

from tests.lab.cycles import everything
from tests.lab.program import PROGRAM, Done, run_command

HOST: Final = "nova-host"
INSTANCE: Final = "compute"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]


class NovaProgram(fixtures.Fixture):
    """The program wharfinger of one host, with the embedded Placement and its own nova.conf.

    ``nova_options`` has the lines of nova.conf. ``driver`` is the driver of Wharfinger, and
    ``options`` has the lines of its section.
    """

    def __init__(
        self,
        compute_driver: str = "",
        nova_options: str = "",
        *,
        driver: str = "nova",
        options: str = "",
    ) -> None:
        super().__init__()
        self._compute_driver = compute_driver
        self._nova_options = nova_options
        self._driver = driver
        self._options = options

    def _setUp(self) -> None:
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.nova_config = self.directory / "nova.conf"
        self.configure(self._nova_options)
        options = self._options
        if self._driver == "nova":
            options += f"\nnova_config = {self.nova_config}\n"
        if self._compute_driver:
            options += f"compute_driver = {self._compute_driver}\n"
        self.write(f"[{INSTANCE}]\ndriver = {self._driver}\nremoval_delay = 0\n{options}")

    def configure(self, nova_options: str) -> None:
        """Write nova.conf with these lines."""
        self.nova_config.write_text(f"[DEFAULT]\nstate_path = {self.directory}\n{nova_options}\n")

    def write(self, sections: str, enabled: str = INSTANCE) -> None:
        """Write wharfinger.conf with these sections and enabled driver instances."""
        (self.directory / "wharfinger.conf").write_text(
            f"[DEFAULT]\nenabled_drivers = {enabled}\nhost = {HOST}\n"
            f"state_path = {self.directory / 'state'}\n"
            f"[placement]\nembedded = true\n{sections}"
        )

    def run(self, *words: str) -> Done:
        """Run the program with these arguments; return its exit code and output."""
        config = str(self.directory / "wharfinger.conf")
        with patch.dict(os.environ, {"PYTHONPATH": str(_REPOSITORY)}):
            return run_command([PROGRAM, "--config-file", config, *words], self.directory)

    def do(self, *words: str) -> str:
        """Run the program, require that it succeeds, and return its output."""
        done = self.run(*words)
        assert done.code == 0, done
        return done.out

    def sync(self) -> str:
        """Run ``wharfinger sync``, require that it succeeds, and return its output."""
        return self.do("sync")

    def fails(self) -> str:
        """Run ``wharfinger sync``, require that it fails, and return its standard error."""
        done = self.run("sync")
        assert done.code == 1, done
        return done.err

    def show(self, *words: str) -> Any:
        """Run a command of the program with JSON output, and return the data."""
        return json.loads(self.do(*words, "-f", "json"))

    def published(self) -> dict[str, dict[str, Any]]:
        """Return all providers of the embedded Placement by name, as ``everything`` does."""
        engine = create_engine(f"sqlite:///{self.directory / 'state' / 'placement.sqlite'}")
        try:
            return everything(engine)
        finally:
            engine.dispose()
