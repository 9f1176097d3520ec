"""Memory, file descriptors and threads of the agent while it works for a long time.

An agent runs with three driver instances and a real Placement, in separate processes. Nodes are
reserved, released, added and removed all the time. The process of the first instance aborts now and
then. The configuration of the second changes now and then, and is wrong at times. The third is not
disturbed, so its process lives as long as the agent. Clients request each page of the health
socket, and some of them close the connection without reading the answer.

It prints a line for each minute and process: minutes, process, its id, MiB of resident memory,
descriptors and threads. At the end, it prints the first and last figures, the differences between
Placement and the backends, and the faults in the agent's log. No thresholds: a person compares. A
process with another id at the end was restarted.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Final

from tests.lab import fleet_file, placement_service
from tests.lab.fleet_file import Fleet
from tests.lab.placement import adapter_to
from wharfinger.agent import listening_sockets
from wharfinger.agent.status_client import read_status
from wharfinger.exceptions import WharfingerError
from wharfinger.placement.client import PlacementClient
from wharfinger_harnesses.daemons import PythonDaemon

CRASHING, CHANGING, QUIET = "crashing", "changing", "quiet"
NAMES: Final = (CRASHING, CHANGING, QUIET)
_MEBIBYTE: Final = 1024 * 1024
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: The longest wait, in seconds, until Placement has the last changes, and until the agent has
#: ended. An instance that has crashed often is restarted after 300.
_PATIENCE: Final = 360.0
#: Seconds between two lines for the same process.
_LOOK: Final = 60.0


_PLACEMENT: Final = """\
[api]
auth_strategy = noauth2

[placement_database]
connection = sqlite:///{directory}/placement.sqlite
sync_on_startup = true
"""


class Placement(PythonDaemon):
    """A Placement server on SQLite; ``url`` is its address."""

    url: str

    def _setUp(self) -> None:
        super()._setUp()
        text = _PLACEMENT.format(directory=self.directory)
        (self.directory / "placement.conf").write_text(text)
        self.start_program(Path(placement_service.__file__))
        self.url = f"http://127.0.0.1:{(self.directory / 'port').read_text()}"


@dataclass(frozen=True)
class Figures:
    """Figures of a process: MiB of resident memory, descriptors and threads."""

    pid: int
    memory: float
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Figures":
        """Read the figures of a process; raises OSError if it has ended."""
        directory = Path(f"/proc/{pid}")
        pages = int((directory / "statm").read_text().split()[1])
        return cls(
            pid,
            pages * _PAGE / _MEBIBYTE,
            len(os.listdir(directory / "fd")),  # noqa: PTH208 - only the number matters
            len(os.listdir(directory / "task")),  # noqa: PTH208
        )

    def __str__(self) -> str:
        return (
            f"{self.pid:>8} {self.memory:>8.1f} MiB {self.descriptors:>4} descriptors "
            f"{self.threads:>3} threads"
        )


class Soak:
    """An agent at work, and the events that disturb it."""

    def __init__(self, directory: Path, placement_url: str, nodes: int, every: float) -> None:
        self._directory: Final = directory
        self._url: Final = placement_url
        self._every: Final = every
        self._draw: Final = random.Random(1606)
        self.fleets: Final = {name: Fleet(directory / f"{name}.json") for name in NAMES}
        for name, fleet in self.fleets.items():
            fleet.nodes.update(dict.fromkeys((f"{name}-{n}" for n in range(nodes)), ""))
            fleet.save()
        self._socket: Final = directory / "state" / "agent.sock"
        self._reloads: int = 0
        self.write_configuration()

    def write_configuration(self, *, total: int = 1, wrong: bool = False) -> None:
        """Write the configuration; ``total`` is an option of the second instance.

        With ``wrong``, the configuration has an unknown option.
        """
        sections = "".join(
            f"[{name}]\ndriver = file\npath = {fleet.path}\nremoval_delay = 5\n"
            + (f"total = {total}\n" if name == CHANGING else "")
            for name, fleet in self.fleets.items()
        )
        self.config.write_text(
            f"[DEFAULT]\nenabled_drivers = {', '.join(NAMES)}\nhost = soak\n"
            f"state_path = {self._directory / 'state'}\nuse_stderr = true\n"
            f"log_file = {self._directory / 'agent.log'}\n"
            f"[placement]\nembedded = false\nauth_type = admin_token\nendpoint = {self._url}\n"
            f"token = admin\nendpoint_override = {self._url}\n"
            "[agent]\npoll_interval = 2\ndrift_interval = 10\nfull_interval = 30\n"
            + ("no_such_option = 1\n" if wrong else "")
            + sections
        )

    @property
    def config(self) -> Path:
        """Return the path of the configuration file."""
        return self._directory / "wharfinger.conf"

    @contextmanager
    def agent(self) -> Iterator["subprocess.Popen[bytes]"]:
        """Run the agent until the context ends."""
        site = fleet_file.install(self._directory)
        with (self._directory / "stderr").open("wb") as errors:
            command = (sys.executable, "-m", "wharfinger.cli.app")
            process = subprocess.Popen(
                [*command, "--config-file", str(self.config), "agent"],
                env={**os.environ, "PYTHONPATH": fleet_file.python_path(site)},
                stderr=errors,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(_PATIENCE)
            sys.stdout.write(f"the agent ended with {code}\n")

    def processes(self, agent: int) -> dict[str, int]:
        """Return the ids of the running processes, by name."""
        with suppress(WharfingerError):
            status = read_status(self._socket)
            return {
                "supervisor": agent,
                **{one.name: one.pid for one in status.instances if one.pid is not None},
            }
        return {"supervisor": agent}

    def disturb(self, agent: int, over: Event) -> None:
        """Change nodes, end a process, reload and send requests until the event ``over`` is set."""
        turn = 0
        while not over.wait(1.0):
            turn += 1
            self._change_nodes()
            self._ask()
            if turn % round(self._every) == 0 and self._has_published(CRASHING):
                self.fleets[CRASHING].end_process()
            if turn % round(self._every) == round(self._every / 2):
                self._reload(agent)

    def difference(self, client: PlacementClient) -> list[str]:
        """Return the differences between Placement and the backends."""
        found = {one.name: one.uuid for one in client.list_providers()}
        expected = {
            name: why for fleet in self.fleets.values() for name, why in fleet.nodes.items()
        }
        wrong = [f"{name} is missing" for name in expected.keys() - found.keys()]
        wrong += [f"{name} is left" for name in found.keys() - expected.keys()]
        for name in expected.keys() & found.keys():
            inventories = client.get_inventories(found[name]).inventories.values()
            if {one.is_fully_reserved for one in inventories} != {bool(expected[name])}:
                wrong.append(f"{name} should be {expected[name] or 'free'}")
        return sorted(wrong)

    def _has_published(self, name: str) -> bool:
        """Return whether the process of an instance has published its nodes since its start.

        Only then may it abort. Otherwise it could abort at each start and never publish its nodes.
        """
        with suppress(WharfingerError):
            instances = read_status(self._socket).instances
            return any(
                one.name == name and one.pid is not None and one.report.has_published
                for one in instances
            )
        return False

    def _change_nodes(self) -> None:
        fleet = self.fleets[self._draw.choice(NAMES)]
        name = self._draw.choice(list(fleet.nodes))
        # While the first instance waits for its restart, the removal of many nodes would be
        # refused.
        if fleet is not self.fleets[CRASHING] and self._draw.random() < 0.05:
            fleet.remove(name)
            fleet.change(f"{name.partition('.')[0]}.{self._draw.randrange(10**6)}")
        else:
            fleet.change(name, "" if fleet.nodes[name] else "cleaning")

    def _ask(self) -> None:
        with suppress(OSError):
            for path in (b"/health", b"/ready", b"/metrics", b"/status"):
                with listening_sockets.connect(self._socket, 5.0) as connection:
                    connection.sendall(b"GET " + path + b" HTTP/1.1\r\n\r\n")
                    while connection.recv(65536):
                        pass
            gone = listening_sockets.connect(self._socket, 1.0)
            gone.sendall(b"GET /metrics HTTP/1.1\r\n\r\n"[: self._draw.randrange(27)])
            gone.close()

    def _reload(self, agent: int) -> None:
        self._reloads += 1
        self.write_configuration(total=1 + self._reloads % 2, wrong=self._reloads % 3 == 0)
        with suppress(ProcessLookupError):
            os.kill(agent, signal.SIGHUP)


def watch(soak: Soak, agent: "subprocess.Popen[bytes]", minutes: float) -> None:
    """Print the figures of all processes each minute, and the first and last ones at the end."""
    first: dict[str, Figures] = {}
    last: dict[str, Figures] = {}
    begin = time.monotonic()
    look = begin + min(_LOOK, minutes * 60 / 2)  # in the first minute, the processes start
    while (now := time.monotonic()) < begin + minutes * 60 and agent.poll() is None:
        if now >= look:
            look += _LOOK
            for name, pid in soak.processes(agent.pid).items():
                with suppress(OSError):
                    last[name] = Figures.of(pid)
                    first.setdefault(name, last[name])
                    sys.stdout.write(f"{(now - begin) / 60:6.1f} {name:<12} {last[name]}\n")
            sys.stdout.flush()
        time.sleep(0.5)
    for name, figures in last.items():
        sys.stdout.write(f"begin  {name:<12} {first[name]}\nend    {name:<12} {figures}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--nodes", type=int, default=20, help="of each instance")
    parser.add_argument(
        "--every",
        type=float,
        default=90.0,
        help="seconds between two crashes, and between two reloads",
    )
    options = parser.parse_args()
    with TemporaryDirectory() as name, Placement() as placement:
        soak = Soak(Path(name), placement.url, options.nodes, options.every)
        with soak.agent() as agent:
            over = Event()
            disturbing = Thread(target=soak.disturb, args=(agent.pid, over))
            disturbing.start()
            try:
                watch(soak, agent, options.minutes)
            finally:
                over.set()
                disturbing.join()
            client = PlacementClient(adapter_to(placement.url))
            end = time.monotonic() + _PATIENCE
            while (wrong := soak.difference(client)) and time.monotonic() < end:
                time.sleep(1.0)
            sys.stdout.write(f"Placement differs in: {', '.join(wrong) or 'nothing'}\n")
        faults = [
            line
            for line in (Path(name) / "agent.log").read_text().splitlines()
            if "This is a fault" in line or "Traceback" in line
        ]
        sys.stdout.write(f"faults in the log: {len(faults)}\n" + "\n".join(faults[:20]) + "\n")


if __name__ == "__main__":
    main()
