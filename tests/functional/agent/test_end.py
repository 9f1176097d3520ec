"""SIGTERM at any moment: the agent exits with 0 and leaves no process behind.

The agent names the instances for which it waits. These tests wait 3 seconds, not 25, for an
instance that hangs.
"""

import os
import signal
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.lab.cycles import everything
from tests.lab.drawing import Draw
from tests.lab.file_agent import AgentProcess
from tests.lab.fleet_file import RESOURCE_CLASS
from tests.lab.placement import PlacementFixture, Requests
from wharfinger.cli.agent import _Signals
from wharfinger.db.database import FILE_NAME

NODES = 4
#: Marks tests that start an agent; the seed draws two of them.
starting = pytest.mark.drawn(2, of="module")


@pytest.fixture
def url(placement: PlacementFixture, placement_url: tuple[str, Requests]) -> str:
    return placement_url[0]


@contextmanager
def running(
    directory: Path, url: str, nodes: int = NODES, drivers: dict[str, str] | None = None
) -> Iterator[AgentProcess]:
    with AgentProcess(directory, url, {"one": nodes} if nodes else {}, drivers) as agent:
        agent.start()
        yield agent


def assert_ends(agent: AgentProcess) -> None:
    """Send SIGTERM; assert that the agent exits with 0, without a process or traceback left."""
    assert agent.end() == 0
    agent.wait_until(lambda: not agent.processes(), "end of all processes")
    assert "Traceback" not in (agent.directory / "stderr").read_text()
    assert not agent.lines("Traceback")


def reserved() -> dict[str, int]:
    """Return the reserved amount of each node."""
    return {name: one["inventories"][RESOURCE_CLASS][1] for name, one in everything().items()}


@starting
def test_agent_stopped_while_drivers_are_imported_ends(tmp_path: Path, url: str) -> None:
    with running(tmp_path, url, 0, {"hanging": "hanging"}) as agent:
        agent.wait_until(agent.pids, "start of the instance")
        agent.wait_until(
            lambda: (status := agent.status()) and status.instances[0].driver_call == "import",
            "import",
        )
        assert_ends(agent)
        assert agent.lines(
            "the agent waits at most 3 s for the end of driver instances: hanging (no cycle, "
            "driver call import)"
        )
        assert agent.lines("hanging: still at work 3 s after the request to stop")


@starting
def test_agent_stopped_while_an_instance_waits_for_its_restart_ends(
    tmp_path: Path, url: str
) -> None:
    with running(tmp_path, url, 0, {"ending": "ending"}) as agent:
        agent.wait_for("ending: its process has ended", 3)
        assert_ends(agent)
        assert not agent.lines("still at work")


@starting
def test_agent_stopped_while_it_reloads_ends_the_check(tmp_path: Path, url: str) -> None:
    with running(tmp_path, url) as agent:
        agent.wait_for("changes written")
        before = len(agent.processes())
        agent.configure(drivers="two", more="[two]\ndriver = hanging\n")
        agent.reload()
        agent.wait_until(lambda: len(agent.processes()) > before, "check of the configuration")
        assert_ends(agent)
        assert not agent.lines("refused")


@starting
@pytest.mark.parametrize("moment", ["at once", "in a listing"])
def test_agent_stopped_in_a_cycle_completes_it(tmp_path: Path, url: str, moment: str) -> None:
    with running(tmp_path, url) as agent:
        agent.wait_for("changes written")
        agent.fleets["one"].hold()
        agent.fleets["one"].nodes["one-0"] = "cleaning"
        agent.fleets["one"].save()
        agent.wait_until(
            lambda: (
                (status := agent.status())
                and status.instances[0].driver_call == "get_available_nodes"
            ),
            "listing",
        )
        if moment == "at once":
            agent.process.send_signal(signal.SIGTERM)
            agent.wait_for("stops")
            agent.fleets["one"].let_go()
        assert_ends(agent)
        if moment == "at once":
            assert reserved()["one-0"] == 1
        else:
            assert agent.lines(
                "the agent waits at most 3 s for the end of driver instances: one (full cycle, "
                "driver call get_available"
            )


@starting
def test_agent_stopped_at_any_write_leaves_a_state_that_the_next_agent_completes(
    tmp_path: Path, url: str, placement_url: tuple[str, Requests], draw: Draw
) -> None:
    requests = placement_url[1]
    with AgentProcess(tmp_path, url, {"one": NODES}) as agent:
        for turn, number in enumerate(draw(range(1, 25), 2)):
            for name in agent.fleets["one"].nodes:
                agent.fleets["one"].change(name, "" if turn % 2 else "cleaning")
            last = len(requests.writes) + number
            agent.start()
            agent.wait_until(partial(_has_come_to, agent, requests, last), "writes")
            assert_ends(agent)
        agent.start()
        agent.wait_until(partial(_is_idle, agent), "all is published")
        assert_ends(agent)


def _has_come_to(agent: AgentProcess, requests: Requests, last: int) -> bool:
    return len(requests.writes) >= last or _is_idle(agent)


def _is_idle(agent: AgentProcess) -> bool:
    """Return whether the agent has started and has published everything."""
    return agent.status() is not None and _published(agent)


def _published(agent: AgentProcess) -> bool:
    found = {name: one["inventories"].get(RESOURCE_CLASS) for name, one in everything().items()}
    return found == {
        name: (1, 1 if reason else 0) for name, reason in agent.fleets["one"].nodes.items()
    }


@starting
def test_agent_stopped_while_the_database_is_locked_ends(tmp_path: Path, url: str) -> None:
    with running(tmp_path, url) as agent:
        agent.wait_for("changes written")
        with closing(sqlite3.connect(agent.state / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            agent.fleets["one"].change("one-0", "cleaning")
            agent.wait_until(
                lambda: (status := agent.status()) and status.instances[0].report.cycle, "cycle"
            )
            assert_ends(agent)
        assert agent.process.returncode == 0


@starting
def test_agent_stopped_while_placement_hangs_ends(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with running(tmp_path, url) as agent:
            connection, _ = silent.accept()
            with closing(connection):
                assert_ends(agent)
            assert agent.lines("one: still at work 3 s after the request to stop")


@starting
def test_instance_paused_by_sigstop_is_killed_at_the_end_of_the_agent(
    tmp_path: Path, url: str
) -> None:
    with running(tmp_path, url) as agent:
        agent.wait_for("changes written")
        os.kill(agent.pids()["one"], signal.SIGSTOP)
        assert_ends(agent)
        assert agent.lines("one: still at work 3 s after the request to stop")


# Signals before the agent exists.


def test_signals_before_the_agent_exists_end_the_process_or_are_kept_until_it_does() -> None:
    class Reloaded:
        count = 0

        def reload(self) -> None:
            self.count += 1

    signals, agent = _Signals(), Reloaded()
    with signals.handled():
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGCHLD)
        signals.give_to(agent)  # type: ignore[arg-type]
        assert agent.count == 1
        signal.raise_signal(signal.SIGHUP)
    assert agent.count == 2
    assert ended.value.code == 0
