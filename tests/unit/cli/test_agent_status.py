"""``wharfinger agent status`` with a server that has a status, but no agent."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import inprocess
from tests.lab.agent_status import NOW, agent, instance, report, with_cycle
from tests.lab.program import Done, Program
from tests.lab.unix_sockets import bind
from wharfinger.agent import status_client
from wharfinger.agent.health_server import HealthServer
from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import AgentStatus, InstanceReport, State
from wharfinger.cli.agent_status import Age
from wharfinger.conf import AgentSection


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path)
    program.config.write_text(f"[DEFAULT]\nstate_path = {tmp_path}\n")
    return program


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command run at the time of the statuses."""
    monkeypatch.setattr("wharfinger.cli.agent_status.monotonic", lambda: NOW)


@contextmanager
def serving(program: Program, status: AgentStatus) -> Iterator[None]:
    path = program.directory / "agent.sock"
    with HealthServer(AgentSection(2, 60, 300, path), lambda: status):
        yield


def run(program: Program, *options: str) -> Done:
    return inprocess.run(program, "agent", "status", *options)


def shown(program: Program, status: AgentStatus) -> tuple[int, list[dict[str, object]], str]:
    with serving(program, status):
        done = run(program, "-f", "json")
    return done.code, done.json(), done.err


def test_status_as_json_has_a_row_for_each_instance(program: Program) -> None:
    code, rows, err = shown(program, agent(instance("metal"), instance("gpus")))

    assert (code, err) == (0, "")
    assert [row["Instance"] for row in rows] == ["metal", "gpus"]
    assert rows[0] == {
        "Instance": "metal",
        "State": "running",
        "Full Cycle": 100.0,
        "Drift Cycle": 30.0,
        "Poll": 1.0,
        "Providers": 30,
        "Reserved": 2,
        "Conflicts": 1,
        "Restarts": 0,
        "Errors": [],
    }


def test_status_as_table_shows_ages_in_words(program: Program) -> None:
    with serving(program, agent(instance(report=report(problems=("no memory", "no disk"))))):
        done = run(program)

    assert done.code == 0
    assert "| metal    | running | 100 s ago  | 30 s ago    | 1 s ago |" in done.out
    assert "| no memory |" in done.out
    assert "| no disk   |" in done.out


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "never"),
        (0.4, "0 s ago"),
        (119, "119 s ago"),
        (120, "2 min ago"),
        (7199, "120 min ago"),
        (7200, "2 h ago"),
        (200_000, "2 d ago"),
    ],
)
def test_age_has_a_suitable_unit(seconds: float | None, words: str) -> None:
    assert Age(seconds).human_readable() == words


def test_status_of_failure_exits_with_1_and_names_the_error(program: Program) -> None:
    looping = instance(state=State.CRASH_LOOP, last_end="signal SIGSEGV", restarts=9)
    code, rows, err = shown(program, agent(instance("good"), looping))

    assert (code, err) == (1, "")
    assert [row["Errors"] for row in rows] == [
        [],
        [
            "It ends soon after each start. It was started again 9 times. (signal SIGSEGV)",
        ],
    ]


def test_status_of_warning_exits_with_0_and_shows_the_drivers_text(program: Program) -> None:
    failing = with_cycle(instance(), CycleType.POLL, error="driver metal: no answer from rack-7")
    code, rows, _err = shown(program, agent(failing))

    assert code == 0
    assert rows[0]["Errors"] == ["The last poll failed. (driver metal: no answer from rack-7)"]


def test_status_of_instance_without_report_shows_no_ages(program: Program) -> None:
    starting = instance(
        state=State.STARTING, started_at=NOW, completed_at={}, report=InstanceReport()
    )
    code, rows, _err = shown(program, agent(starting))

    assert code == 0
    assert [rows[0][name] for name in ("Full Cycle", "Drift Cycle", "Poll")] == [None] * 3


def test_status_of_instance_started_again_shows_its_former_cycles(program: Program) -> None:
    again = instance(state=State.STARTING, restarts=1).with_report(InstanceReport())
    _code, rows, _err = shown(program, agent(again))

    assert [rows[0][name] for name in ("Full Cycle", "Drift Cycle", "Poll")] == [100.0, 30.0, 1.0]


def test_status_of_agent_with_problems_prints_them(program: Program) -> None:
    status = agent(is_stopping=True, refused_reload="no driver x", service_error="no database")
    code, rows, err = shown(program, status)

    assert (code, rows[0]["Errors"]) == (0, [])
    assert err.splitlines() == [
        "the agent stops",
        "the last new configuration was refused: no driver x",
        "the last report of the host's service failed: no database",
    ]


def test_status_escapes_control_characters(program: Program) -> None:
    with serving(program, agent(instance(report=report(problems=("\x1b[2Jgone",))))):
        done = run(program)

    assert "\\x1b[2Jgone" in done.out


def test_status_with_an_invalid_configuration_works(program: Program) -> None:
    text = f"{program.config.read_text()}enabled_drivers = ABC\n[unknown]\nx = 1\n"
    program.config.write_text(text)

    assert shown(program, agent())[0] == 0


# No answer.


def failed(done: Done, *told: str) -> None:
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err
    for text in told:
        assert text in done.err


def test_status_without_agent_fails_with_its_path(program: Program) -> None:
    failed(run(program), str(program.directory / "agent.sock"), "no agent answers", "Start the")


def test_status_without_state_directory_fails(program: Program, tmp_path: Path) -> None:
    program.config.write_text(f"[DEFAULT]\nstate_path = {tmp_path}/none\n")

    failed(run(program), "no agent answers")


def test_status_of_dead_agent_fails(program: Program) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        bind(dead, program.directory / "agent.sock")
    failed(run(program), "no agent answers: Connection refused")


def test_status_without_permission_fails(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("wharfinger.agent.listening_sockets.connect", refuse)
    failed(run(program), "this user may not connect", "member of its group")


@contextmanager
def answering(program: Program, answer: bytes | None) -> Iterator[None]:
    """Answer a request on the agent's socket with these bytes; with None, do not answer."""
    with socket.socket(socket.AF_UNIX) as listener:
        bind(listener, program.directory / "agent.sock")
        listener.listen()
        done = threading.Event()

        def serve() -> None:
            connection, _address = listener.accept()
            with connection:
                connection.recv(65536)
                if answer is None:
                    done.wait()
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def test_status_of_agent_that_does_not_answer_fails(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_client, "TIMEOUT", 0.1)
    with answering(program, None):
        failed(run(program), "did not answer for 0.1 s")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "the answer did not arrive"),
        (b"garbage\r\n\r\n", "the answer did not arrive"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "the answer is not understood"),
        (b"HTTP/1.1 500 X\r\n\r\n", "the answer is 500"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "the answer is not understood"),
        (b"HTTP/1.1 200 OK\r\n\r\n\xff", "the answer is not understood"),
    ],
)
def test_broken_answer_fails(program: Program, answer: bytes, told: str) -> None:
    with answering(program, answer):
        failed(run(program), told)
