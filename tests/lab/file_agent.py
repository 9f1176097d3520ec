"""The agent in a process of its own, with driver instances whose backends are files."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import fixtures

from tests.lab import fleet_file
from tests.lab.agent_process import MARK, TIMEOUT, marked, wait_until
from tests.lab.cycles import HOST, make_state
from tests.lab.fleet_file import Fleet
from wharfinger.agent.status import AgentStatus
from wharfinger.agent.status_client import read_status
from wharfinger.exceptions import WharfingerError

#: The program wharfinger, but with short waits before a restart and for hanging processes.
_IMPATIENT: Final = """
import sys
from wharfinger.agent import agent, instance_process
from wharfinger.cli.app import main
agent.PATIENCE = 3.0
instance_process._FIRST_WAIT = instance_process._LONGEST_WAIT = 0.05
sys.exit(main())
"""


class AgentProcess(fixtures.Fixture):
    """An agent that a test starts. The clean-up of this fixture kills it if it still runs.

    ``nodes`` has the number of nodes of each instance of the file driver. ``fleets`` has the
    backends of these instances by name. ``drivers`` has the drivers of further instances by name.
    """

    process: "subprocess.Popen[bytes]"

    def __init__(
        self,
        directory: Path,
        placement_url: str,
        nodes: Mapping[str, int],
        drivers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.directory = directory
        self.state = directory / "state"
        self.config = directory / "wharfinger.conf"
        self._url = placement_url
        self._mark = str(uuid4())
        self._drivers = dict(drivers or {})
        self.fleets = {name: Fleet(directory / f"{name}.json") for name in nodes}
        for name, fleet in self.fleets.items():
            fleet.nodes.update(dict.fromkeys((f"{name}-{n}" for n in range(nodes[name])), ""))

    def _setUp(self) -> None:
        for fleet in self.fleets.values():
            fleet.save()
        self._site = fleet_file.install(self.directory)
        make_state(self.state)
        self.configure()
        self.addCleanup(self._end)

    def configure(self, *, agent: str = "", more: str = "", drivers: str = "") -> None:
        """Write the configuration, with more options of [agent], more sections and instances."""
        names = [*self.fleets, *self._drivers, *filter(None, [drivers])]
        sections = "".join(
            f"[{name}]\ndriver = file\npath = {fleet.path}\nremoval_delay = 0\n"
            for name, fleet in self.fleets.items()
        ) + "".join(f"[{name}]\ndriver = {driver}\n" for name, driver in self._drivers.items())
        self.config.write_text(
            f"[DEFAULT]\nenabled_drivers = {', '.join(names)}\nhost = {HOST}\n"
            f"state_path = {self.state}\nlog_file = {self.log}\n"
            f"[placement]\nembedded = false\nauth_type = admin_token\nendpoint = {self._url}\n"
            f"token = admin\nendpoint_override = {self._url}\n"
            "[agent]\npoll_interval = 0.1\ndrift_interval = 0.5\nfull_interval = 1\n"
            f"{agent}\n{sections}{more}"
        )

    @property
    def log(self) -> Path:
        """The path of the agent's log file."""
        return self.directory / "agent.log"

    def start(self, stderr: int | None = None) -> None:
        """Start the agent, with ``stderr`` as its standard error, by default a file."""
        path = fleet_file.python_path(self._site)
        with (self.directory / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _IMPATIENT, "--config-file", str(self.config), "agent"],
                env={**os.environ, "PYTHONPATH": path, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stderr=stderr or errors,
            )

    def end(self) -> int:
        """Send SIGTERM to the agent, wait for its end, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT)

    def kill(self) -> None:
        """Kill the agent, and wait some time for the end of all its processes."""
        self.process.kill()
        self.process.wait(TIMEOUT)
        with suppress(AssertionError):
            self.wait_until(lambda: not self.processes(), "")

    def reload(self) -> None:
        """Send SIGHUP to the agent, which then reloads its configuration."""
        self.process.send_signal(signal.SIGHUP)

    def status(self) -> AgentStatus | None:
        """Return the status of the agent; None while it does not answer."""
        try:
            return read_status(self.state / "agent.sock")
        except WharfingerError:
            return None

    def pids(self) -> dict[str, int]:
        """Return the process id of each running instance by name; {} while there is no answer."""
        assert self.process.poll() is None, "the agent has ended by itself"
        status = self.status()
        if status is None:
            return {}
        return {one.name: one.pid for one in status.instances if one.pid is not None}

    def processes(self) -> list[int]:
        """Return the ids of the agent and of all processes that it has started."""
        return marked(self._mark)

    def lines(self, part: str) -> list[str]:
        """Return the lines of the log that contain a text."""
        text = self.log.read_text() if self.log.exists() else ""
        return [line for line in text.splitlines() if part in line]

    def wait_for(self, part: str, count: int = 1) -> None:
        """Wait until the log has ``count`` lines that contain a text."""
        self.wait_until(lambda: len(self.lines(part)) >= count, part)

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; fail after a minute with the text ``what`` and the log."""
        wait_until(is_so, lambda: (what, self.lines("")))

    def _end(self) -> None:
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait()
        self.wait_until(lambda: not self.processes(), "end of all processes")
