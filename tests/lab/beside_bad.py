"""An agent with two driver instances: one driver behaves well, and the other may misbehave."""

import json
import os
import signal
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import fixtures

from tests.lab import inprocess
from tests.lab.agent_process import TIMEOUT, Process, wait_until
from tests.lab.bad_drivers import install
from tests.lab.cycles import everything
from tests.lab.fleet_file import Fleet, python_path
from tests.lab.program import Program
from wharfinger.agent import listening_sockets
from wharfinger.agent.status import InstanceStatus
from wharfinger.agent.status_client import read_status

GOOD: Final = "good"
BAD: Final = "bad"
#: The program wharfinger, but it waits less long for processes that do not end.
_IMPATIENT: Final = """
import sys
from wharfinger.agent import agent, instance_process
from wharfinger.cli.app import main
agent.PATIENCE = 4.0
instance_process.GRACE = 2.0
sys.exit(main())
"""


class BesideBad(fixtures.Fixture):
    """A running agent with a good and a bad driver instance, of which each publishes one node.

    The bad driver has the misbehaviour of that name in bad_drivers.py, while the file ``switch``
    exists. ``intervals`` has the seconds between polls, drift cycles and full cycles.
    """

    def __init__(
        self,
        directory: Path,
        url: str,
        misbehaviour: str,
        *,
        intervals: tuple[float, float, float] = (0.2, 1.0, 2.0),
        isolation: str = "process",
    ) -> None:
        super().__init__()
        self.program = Program(directory, url)
        self.switch = directory / "switch"
        self._misbehaviour = misbehaviour
        self._intervals = intervals
        self._isolation = isolation
        self._fleets = {name: Fleet(directory / f"{name}.json") for name in (GOOD, BAD)}

    def _setUp(self) -> None:
        directory = self.program.directory
        site = install(directory, self._misbehaviour, self.switch)
        self.useFixture(fixtures.EnvironmentVariable("PYTHONPATH", python_path(site)))
        for name in (GOOD, BAD):
            self.set_reserved(name, "")
        self._configure()
        self.agent = self.start()

    def start(self) -> Process:
        """Start an agent, and wait until Placement has the nodes of both instances."""
        agent = self.useFixture(
            Process(self.program, "-v", command=(sys.executable, "-c", _IMPATIENT))
        )
        agent.wait_for(f"{GOOD}: driver file publishes", f"{BAD}: driver bad publishes")
        for name in (GOOD, BAD):
            self.wait_for(name, reserved=False)
        return agent

    def set_reserved(self, name: str, reason: str) -> None:
        """Give the node of an instance a reason to be reserved; "" makes it free."""
        self._fleets[name].change(f"{name}-1", reason)

    def wait_for(self, name: str, *, reserved: bool) -> None:
        """Wait until the node of an instance is in Placement, and is reserved or free."""

        def figures() -> Any:
            provider = everything().get(f"{name}-1", {"inventories": {}})
            return provider["inventories"].get("CUSTOM_GOLD")

        wait_until(lambda: figures() == (1, int(reserved)), lambda: (figures(), self._log()))

    def publishes(self, name: str) -> None:
        """Check that an instance publishes: reserve and free its node, and wait for Placement."""
        self.set_reserved(name, "cleaning")
        self.wait_for(name, reserved=True)
        self.set_reserved(name, "")
        self.wait_for(name, reserved=False)

    def status(self, name: str) -> InstanceStatus:
        """Return the status of an instance, as the agent reports it on its socket."""
        found = read_status(self._socket).instances
        return next(one for one in found if one.name == name)

    def row(self, name: str) -> dict[str, Any]:
        """Return the row of an instance in the output of ``wharfinger agent status``."""
        done = inprocess.run(self.program, "agent", "status", "-f", "json")
        rows: list[dict[str, Any]] = done.json()
        return next(row for row in rows if row["Instance"] == name)

    def checks(self, name: str) -> dict[str, str]:
        """Return the status of each health check of an instance in the agent's ``GET /health``."""
        connection = HTTPConnection("localhost")
        connection.sock = listening_sockets.connect(self._socket, TIMEOUT)
        connection.request("GET", "/health")
        found: dict[str, list[dict[str, str]]] = json.load(connection.getresponse())["checks"]
        connection.close()
        return {
            check: one["status"]
            for check, results in found.items()
            for one in results
            if one.get("componentId") == name
        }

    def kill_instance(self, name: str) -> None:
        """Kill the process of an instance."""
        pid = self.status(name).pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)

    @property
    def _socket(self) -> Path:
        return self.program.directory / "agent.sock"

    def _log(self) -> list[str]:
        return self.agent.lines[-100:] if hasattr(self, "agent") else []

    def _configure(self) -> None:
        poll, drift, full = self._intervals
        directory, placement = self.program.directory, self.program.config.read_text()
        placement = placement.partition("[placement]")[2].partition("[agent]")[0]
        self.program.config.write_text(
            f"[DEFAULT]\nenabled_drivers = {GOOD}, {BAD}\nhost = lab\nservice_down_time = 3\n"
            f"state_path = {directory}\n[placement]{placement}\n"
            f"[agent]\nisolation = {self._isolation}\npoll_interval = {poll}\n"
            f"drift_interval = {drift}\nfull_interval = {full}\n"
            f"hang_timeout = 5\nmemory_limit = 400\n"
            f"[{GOOD}]\ndriver = file\npath = {directory}/{GOOD}.json\n"
            f"[{BAD}]\ndriver = bad\npath = {directory}/{BAD}.json\nswitch = {self.switch}\n"
            f"misbehaviour = {self._misbehaviour}\n"
        )
