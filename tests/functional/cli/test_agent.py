"""``wharfinger agent`` in a process: its start, output and end."""

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.functional.agent.drivers import install
from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess
from tests.lab.agent_process import TIMEOUT, Process, wait_until
from tests.lab.cycles import everything
from tests.lab.fleet_file import python_path
from tests.lab.placement import Requests
from tests.lab.program import PROGRAM, Program
from wharfinger.objects import OWNER_TAG_VERSION

#: Names of the providers after both instances have published.
NODES = {f"{name}-{number}" for name in ("one", "two") for number in range(5)}


class Acting(list[str]):
    """A list of requests that calls ``act`` when the first matching request is added."""

    def __init__(self, matches: Callable[[str], bool], act: Callable[[], object]) -> None:
        super().__init__()
        self._is_it = matches
        self._act = act
        self.done = threading.Event()

    def append(self, request: str) -> None:
        super().append(request)
        if not self.done.is_set() and self._is_it(request):
            self.done.set()
            self._act()


@pytest.fixture
def fleet(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program with two driver instances of five nodes each."""
    site = install(program.directory)
    monkeypatch.setenv("PYTHONPATH", python_path(site))
    monkeypatch.syspath_prepend(str(site))  # for commands that run in this process
    configure(program)
    return program


def configure(program: Program) -> None:
    """Replace the driver instances of the sample configuration by two others."""
    placement = program.config.read_text().partition("[placement]")[2].partition("[agent]")[0]
    program.config.write_text(
        "[DEFAULT]\nenabled_drivers = one, two\nhost = lab\nservice_down_time = 60\n"
        f"state_path = {program.directory}\n[placement]{placement}\n"
        "[agent]\npoll_interval = 0.1\n[two]\ndriver = fixed\n[one]\ndriver = fixed\n"
    )


def assert_nothing_to_do(program: Program) -> None:
    """Assert that everything is published and that another sync changes nothing."""
    synced = inprocess.run(program, "sync")
    assert (synced.code, synced.err) == (0, "")
    assert synced.out == "one: no change\ntwo: no change\n"
    assert everything().keys() == NODES


# A running agent.


def test_agent_without_verbose_logs_nothing_when_all_is_well(
    fleet: Program, requests: Requests
) -> None:
    published = Acting(lambda request: request.startswith("POST /reshaper"), lambda: None)
    requests.seen = published
    with Process(fleet) as agent:
        assert published.done.wait(TIMEOUT)
        done = agent.end()

    assert (done.code, done.out, done.err) == (0, "", "")


def test_agent_with_verbose_logs_its_start_writing_cycles_and_end(
    fleet: Program,
) -> None:
    with Process(fleet, "-v") as agent:
        agent.wait_for("one: 15 changes written", "two: 15 changes written")
        # Meanwhile a sync fails and names the agent's process, and a dry run works.
        synced = inprocess.run(fleet, "sync", "--driver", "one")
        dry = inprocess.run(fleet, "sync", "--driver", "one", "--dry-run")
        failed(synced, "is at work on driver instance one")
        assert (dry.code, dry.out) == (0, "one: no change\n")
        done = agent.end()

    assert (done.code, done.out) == (0, "")
    # The agent logs once that its user may not set many inventories in one request.
    told = "inventories are written with one request for each provider"
    lines = [line for line in done.err.splitlines() if not line.startswith(told)]
    assert (lines[0], lines[-1]) == (
        "the agent of host lab starts with driver instances: one, two",
        "the agent of host lab stops",
    )
    assert sorted(lines[1:-1]) == [
        "one: 15 changes written",
        "one: driver fixed publishes providers of owner OWNER_NOVA",
        "two: 15 changes written",
        "two: driver fixed publishes providers of owner OWNER_NOVA",
    ]
    assert_nothing_to_do(fleet)


def test_log_file_of_the_configuration_has_the_lines_with_their_request_id(
    fleet: Program,
) -> None:
    log = fleet.directory / "agent.log"
    fleet.config.write_text(
        fleet.config.read_text().replace("[DEFAULT]\n", f"[DEFAULT]\nlog_file = {log}\n")
    )
    with Process(fleet) as agent:
        deadline = time.monotonic() + TIMEOUT
        while not log.exists() or log.read_text().count("15 changes written") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        done = agent.end()

    assert (done.code, done.out, done.err) == (0, "", "")
    lines = log.read_text().splitlines()
    assert " [-] the agent of host lab stops" in lines[-1]
    ids = [line.partition(" [")[2].partition("]")[0] for line in lines if "changes written" in line]
    assert len(set(ids)) == 2
    assert all(one.startswith("req-") for one in ids)


def test_service_is_up_until_ctrl_c_ends_the_agent(fleet: Program) -> None:
    def services() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = shown(fleet, "service", "list")
        return listed

    text = fleet.config.read_text()
    fleet.config.write_text(text.replace("service_down_time = 60", "service_down_time = 3"))
    with Process(fleet, "-vv") as agent:
        agent.wait_for("one: 15 changes written", "two: 15 changes written")
        wait_until(lambda: [one["Version"] for one in services()] == [OWNER_TAG_VERSION], services)
        [service] = services()
        done = agent.end(signal.SIGINT)

    assert (done.code, done.out) == (0, "")
    assert "left behind" not in done.err
    assert (service["Host"], service["State"]) == ("lab", "up")
    assert (service["Version"], service["Gates"]) == (OWNER_TAG_VERSION, {"OWNER_NOVA": True})


# Starts.


def test_agent_with_an_invalid_configuration_does_not_start(fleet: Program) -> None:
    start = f"[DEFAULT]\nstate_path = {fleet.directory}\n"
    fleet.config.write_text(start)
    failed(inprocess.run(fleet, "agent"), "no driver instance is enabled")

    for wrong, told in {
        "[agent]\npoll_interval = 61": "[agent] drift_interval = 60: it is shorter",
        "[agent]\nfull_interval = soon": "[agent] full_interval = soon: ",
        "[agents]\n": "section [agents] is unknown. Did you mean [agent]?",
        "[placement]\nembedded = no": "[placement] auth_type = ",
        "[database]\nconnection = nonsense": "[database] connection = ***: this is not a URL",
    }.items():
        fleet.config.write_text(f"{start}enabled_drivers = one\n[one]\ndriver = fixed\n{wrong}\n")
        failed(inprocess.run(fleet, "agent"), told)


def test_agent_without_standard_streams_in_a_directory_with_modules_publishes(
    fleet: Program,
) -> None:
    """The wrapper closes the standard streams; its working directory has a file queue.py."""
    (fleet.directory / "queue.py").write_text("raise ImportError('a file of another program')")
    closed = ("/bin/sh", "-c", f'exec {PROGRAM} "$@" <&- >&- 2>&-', "sh")
    with Process(fleet, command=closed) as agent:
        wait_until(lambda: everything().keys() == NODES, everything)
        done = agent.end()

    assert done.code == 0


# Ends.


def test_agent_that_is_stopped_completes_a_cycle_that_writes(
    fleet: Program, requests: Requests
) -> None:
    """Each of the two instances has written either everything or nothing."""
    with Process(fleet, "-v") as agent:
        requests.seen = stopped = Acting(
            lambda request: request.endswith("/traits") and len(requests.writes) > 5,
            lambda: agent.process.send_signal(signal.SIGTERM),
        )
        done = agent.ended()

    assert stopped.done.is_set()
    assert (done.code, done.out) == (0, "")
    written = {name for name in ("one", "two") if f"{name}: 15 changes written" in done.err}
    assert written
    assert everything().keys() == {name for name in NODES if name[:3] in written}
    for name in written:
        assert inprocess.run(fleet, "sync", "--driver", name).out == f"{name}: no change\n"


def test_agent_with_the_embedded_placement_logs_no_requests(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with Process(program, "-v") as agent:
        agent.wait_for("gpus: 9 changes written")
        done = agent.end()

    assert (done.code, done.out) == (0, "")
    assert "GET /" not in done.err
