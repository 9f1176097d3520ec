"""SIGHUP to an agent in its own process, which checks the drivers in a further process."""

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.lab.cycles import everything
from tests.lab.file_agent import AgentProcess
from tests.lab.fleet_file import RESOURCE_CLASS
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import PROGRAM, run_command

pytestmark = pytest.mark.drawn(2, of="module")

Make = Callable[..., AgentProcess]


@pytest.fixture
def url(placement: PlacementFixture, placement_url: tuple[str, Requests]) -> str:
    return placement_url[0]


def totals() -> set[int]:
    """Return the totals that the nodes have in Placement."""
    return {
        one["inventories"][RESOURCE_CLASS][0] for one in everything().values() if one["inventories"]
    }


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("missing", "no_such_module"),
        ("ending", "has ended before the check was complete (exit code 0)"),
        ("none", "found none"),
    ],
)
def test_instance_killed_after_a_refused_reload_restarts_with_the_old_configuration(
    tmp_path: Path, url: str, driver: str, said: str
) -> None:
    with AgentProcess(tmp_path, url, {"one": 2}) as agent:
        agent.start()
        agent.wait_until(lambda: totals() == {1}, "publishing")
        pid = agent.pids()["one"]
        agent.configure(drivers="two", more=f"total = 2\n[two]\ndriver = {driver}\n")
        agent.reload()
        agent.wait_for("the new configuration was refused")
        os.kill(pid, signal.SIGKILL)
        agent.wait_until(lambda: agent.pids().get("one", pid) != pid, "another start")
        agent.wait_for("publishes providers of owner", 2)
        agent.fleets["one"].change("one-9")
        agent.wait_until(lambda: "one-9" in everything(), "the next node")

        [line] = agent.lines("refused")
        assert str(agent.config) in line
        assert said in line
        assert totals() <= {1}
        status = run_command(
            [PROGRAM, "--config-file", str(agent.config), "agent", "status"], tmp_path
        )
        assert "the last new configuration was refused" in status.err
        # The operator corrects the configuration.
        agent.configure(more="total = 2\n")
        agent.reload()
        agent.wait_until(lambda: totals() == {2}, "the new configuration")
        assert agent.lines(
            "the new configuration is used; driver instances started: one; stopped: one"
        )
        assert agent.end() == 0


def test_instance_that_cannot_be_created_names_its_configuration_file(
    tmp_path: Path, url: str
) -> None:
    with AgentProcess(tmp_path, url, {"one": 2}) as agent:
        agent.configure(more="colour = 1\n")
        agent.start()
        agent.wait_for("option colour of section [one] is unknown")

        assert str(agent.config) in agent.lines("colour")[0]
        assert agent.end() == 0


def test_hanging_instance_is_killed_before_the_changed_instance_starts(
    tmp_path: Path, url: str
) -> None:
    with AgentProcess(tmp_path, url, {"one": 2}) as agent:
        agent.start()
        agent.wait_until(lambda: totals() == {1}, "publishing")
        agent.fleets["one"].hold()
        agent.wait_until(
            lambda: (
                (status := agent.status())
                and status.instances[0].driver_call == "get_available_nodes"
            ),
            "listing",
        )
        agent.configure(more="total = 2\n")
        agent.reload()
        agent.wait_for("one: still at work 3 s after the request to stop")
        agent.fleets["one"].let_go()
        agent.wait_until(lambda: totals() == {2}, "the new configuration")

        assert not agent.lines("is at work on driver instance")
        assert agent.end() == 0


def test_instance_in_a_thread_uses_the_new_placement_after_a_reload(
    tmp_path: Path, url: str
) -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as other,
        AgentProcess(tmp_path, url, {"one": 2}) as agent,
    ):
        agent.configure(agent="isolation = thread")
        agent.start()
        agent.wait_until(lambda: totals() == {1}, "publishing")
        agent.configure(agent="isolation = thread")
        text = agent.config.read_text()
        address = f"http://127.0.0.1:{other.getsockname()[1]}"
        away = text.replace(url, address).replace("token = admin", "token = admin\ntimeout = 1")
        agent.config.write_text(away)
        agent.reload()
        other.settimeout(60)
        connection, _ = other.accept()
        connection.close()
        agent.config.write_text(text + "total = 2\n")
        agent.reload()
        agent.wait_until(lambda: totals() == {2}, "the new configuration")

        assert agent.end() == 0


def test_changed_instance_does_not_start_while_its_old_thread_hangs(
    tmp_path: Path, url: str
) -> None:
    with AgentProcess(tmp_path, url, {"one": 2}) as agent:
        agent.configure(agent="isolation = thread")
        agent.start()
        agent.wait_until(lambda: totals() == {1}, "publishing")
        agent.fleets["one"].hold()
        agent.wait_until(
            lambda: (
                (status := agent.status())
                and status.instances[0].driver_call == "get_available_nodes"
            ),
            "listing",
        )
        agent.configure(agent="isolation = thread", more="total = 2\n")
        agent.reload()
        agent.wait_for("one: still at work 3 s after")
        agent.fleets["one"].let_go()
        agent.wait_until(lambda: totals() == {2}, "the new configuration")

        assert not agent.lines("is at work on driver instance")
        assert agent.end() == 0


def test_check_that_is_killed_with_the_agent_leaves_no_process(tmp_path: Path, url: str) -> None:
    with AgentProcess(tmp_path, url, {"one": 2}) as agent:
        agent.start()
        agent.wait_until(agent.pids, "start")
        before = len(agent.processes())
        agent.configure(drivers="two", more="[two]\ndriver = hanging\n")
        agent.reload()
        agent.wait_until(lambda: len(agent.processes()) > before, "check")
        time.sleep(0.5)  # the check may be anywhere by then
        agent.kill()

        assert agent.processes() == []
