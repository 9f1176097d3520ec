"""Run every command of the program with a configuration that has a password in all URLs.

Tests check that no output contains the password.
"""

import io
import logging
import os
import signal
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from tests.lab.program import PROGRAM, SAMPLE, Done, run_command
from wharfinger.cli import upgrade_check
from wharfinger.cli.app import main

#: The password, as it is and as a URL has it. No output may contain a part of it.
PASSWORD: Final = "s3cr/et+w0rd@"
ENCODED: Final = "s3cr%2Fet%2Bw0rd%40"
_TRACES: Final = ("s3cr", "w0rd", b64encode(f"operator:{PASSWORD}".encode()).decode())
#: A command that does not run in this process, since it starts its own Placement and pytest.
_APART: Final = "conformance run"
#: A URL of a port on which no server listens.
DOWN: Final = f"http://operator:{ENCODED}@127.0.0.1:1"
#: The same URL for an option in which keystoneauth interprets "%".
_FILLED_IN: Final = DOWN.replace("%", "%%")
DATABASE_DOWN: Final = (
    f"postgresql+psycopg://operator:{ENCODED}@127.0.0.1:1/x?application_name={ENCODED}"
)
_UUID: Final = "7a6f4f6e-6b4c-4d0e-9b1a-3f1d2c5b8e70"
#: Arguments that commands require.
_ARGUMENTS: Final = {
    "candidate explain": ["--resource", "VCPU=1"],
    "candidate list": ["--device-profile", "some"],
    "conformance init": ["fleet", "--directory", os.devnull],
    "device program": [_UUID, "--image", _UUID],
    "device resolve": [_UUID, "--unchanged"],
    "driver check": ["ironic"],
    "flavor create": ["small", "--vcpus", "1"],
    "flavor delete": ["small"],
    "flavor show": ["small"],
    "instance claim": ["--flavor", "small"],
    "instance confirm": [_UUID],
    "instance migrate": [_UUID],
    "instance release": [_UUID],
    "instance repair": [_UUID],
    "instance resize": [_UUID, "--flavor", "small"],
    "instance revert": [_UUID],
    "instance show": [_UUID],
    "migration show": [_UUID],
    "node show": [_UUID],
    "provider adopt": [_UUID, "--instance", "gpus"],
    "provider detach": [_UUID],
    "provider release": [_UUID],
    "provider reserve": [_UUID, "--reason", "a test"],
    "provider show": [_UUID],
    "service delete": [_UUID],
    "service disable": [_UUID],
    "service enable": [_UUID],
    "service show": [_UUID],
}


def commands() -> list[list[str]]:
    """Return all commands of the program but "conformance run", with their required arguments."""
    names = sorted(one.name.replace("_", " ") for one in entry_points(group="wharfinger.cli"))
    return [[*name.split(), *_ARGUMENTS.get(name, ())] for name in names if name != _APART]


def with_password(url: str) -> str:
    """Return the URL with a user and the password in front of its host."""
    return url.replace("://", f"://operator:{ENCODED}@", 1)


def configure(directory: Path, placement: str, database: str | None = None) -> Path:
    """Write a configuration whose URLs have the password; Ironic and Cyborg do not answer."""
    (directory / "host.xml").write_bytes((SAMPLE / "host.xml").read_bytes())
    text = (SAMPLE / "wharfinger.conf").read_text().replace("@demo@", str(directory))
    text = text.replace("enabled_drivers = gpus", "enabled_drivers = gpus, metal, fpgas")
    text += (
        "\n[placement]\nembedded = false\nauth_type = admin_token\ntoken = admin\n"
        f"endpoint = {placement}\nendpoint_override = {placement.replace('%', '%%')}\n"
        f"[metal]\ndriver = ironic\nauth_type = none\nendpoint_override = {_FILLED_IN}\n"
        f"[fpgas]\ndriver = cyborg\nauth_type = none\nendpoint = {DOWN}\n"
        f"[accelerator]\nauth_type = password\nusername = us\npassword = {PASSWORD}\n"
        "project_name = us\nuser_domain_id = default\nproject_domain_id = default\n"
        f"auth_url = {DOWN}\n"
        # With threads, the problems of the instances are in the log of this process.
        "[agent]\nisolation = thread\n"
    )
    if database is not None:
        text += f"[database]\nconnection = {database}\n"
    config = directory / "wharfinger.conf"
    config.write_text(text)
    return config


def traces(done: Done) -> list[str]:
    """Return the lines of an output that contain a part of the password."""
    lines = (done.out + done.err).splitlines()
    return [line for line in lines if any(trace in line for trace in _TRACES)]


def run(config: Path, command: Sequence[str], *options: str) -> Done:
    """Run a command in this process; return its output, with the log file at the end of ``err``."""
    log = config.with_name("log")
    log.unlink(missing_ok=True)
    with _own_logging(), _captured() as (out, err):
        code = main(["--config-file", str(config), "--log-file", str(log), *options, *command])
    return Done(code, out.getvalue(), err.getvalue() + log.read_text())


def run_conformance(config: Path) -> Done:
    """Run the conformance kit with the Ironic driver in another process.

    Return its output, with the texts of its reports in ``out``.
    """
    reports = config.with_name("reports")
    command = [PROGRAM, *_APART.split(), "ironic", "--driver-config", str(config)]
    done = run_command([*command, "--report", str(reports), "--rule", "WHF-201"], config.parent)
    texts = [file.read_text() for file in reports.iterdir()]
    return Done(done.code, "\n".join([done.out, *texts]), done.err)


def run_status(config: Path) -> Done:
    """Run wharfinger-status in this process."""
    with _own_logging(), _captured() as (out, err):
        code = upgrade_check.main(["--config-file", str(config), "upgrade", "check"])
    return Done(code, out.getvalue(), err.getvalue())


@contextmanager
def _captured() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        yield out, err


class _StopsAgent(logging.Handler):
    """Log handler that sends SIGTERM to the agent in this process at its first warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._has_stopped = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._has_stopped:
            self._has_stopped = True
            os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _own_logging() -> Iterator[None]:
    """In the block, let the root logger be as in a new process, and end an agent at a warning."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {
        name: one.level
        for name, one in logging.root.manager.loggerDict.items()
        if isinstance(one, logging.Logger)
    }
    root.handlers[:] = []
    # Not at the root logger, whose handlers the agent replaces.
    agent, stops = logging.getLogger("wharfinger.agent"), _StopsAgent()
    agent.addHandler(stops)
    try:
        yield
    finally:
        agent.removeHandler(stops)
        for handler in root.handlers:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
