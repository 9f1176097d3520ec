"""An agent whose log is not read: its standard error is a full pipe."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.cycles import everything
from tests.lab.file_agent import AgentProcess
from tests.lab.placement import PlacementFixture, Requests


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def fill(writer: int) -> None:
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"\n" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)


def test_agent_whose_log_is_not_read_starts_instances_again_and_counts_lost_lines(
    tmp_path: Path,
    placement: PlacementFixture,
    placement_url: tuple[str, Requests],
    pipe: tuple[int, int],
) -> None:
    reader, writer = pipe
    fill(writer)
    with AgentProcess(tmp_path, placement_url[0], {"one": 1}) as agent:
        text = agent.config.read_text()
        agent.config.write_text(text.replace(f"log_file = {agent.log}", "use_stderr = true"))
        agent.start(writer)
        agent.wait_until(lambda: "one" in agent.pids(), "start of the instance")
        pid = agent.pids()["one"]
        os.kill(pid, signal.SIGKILL)
        agent.wait_until(lambda: agent.pids().get("one", pid) != pid, "next start")
        agent.fleets["one"].change("one-new")
        agent.wait_until(lambda: "one-new" in everything(), "new node")
        log = os.read(reader, 2**20)
        agent.reload()  # the agent logs the reload
        while b"lines of the log were dropped: nothing read them\n" not in log:
            log += os.read(reader, 2**20)
        assert agent.end() == 0
