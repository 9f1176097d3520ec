"""Commands start fast: they import only what they need, and run without garbage collection."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.cycles import make_state

_STARTED = """
import gc, sys
before = gc.get_threshold()
from wharfinger.cli.entry_point import main
sys.argv = ["wharfinger", *sys.argv[1:]]
try:
    main()
finally:
    if gc.get_freeze_count():
        print("frozen", file=sys.stderr)
    print(gc.get_threshold() == before, *sys.modules, sep="\\n", file=sys.stderr)
"""


def imported_by(*arguments: str) -> set[str]:
    """Run a command in a process; return the names of the modules that it has imported.

    The set also has "True" if Python's garbage collector is on, or "False" if it is off; and
    "frozen" if the collector skips the imported modules when the process ends.
    """
    done = subprocess.run(
        [sys.executable, "-c", _STARTED, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines())


@pytest.fixture
def configuration(tmp_path: Path) -> str:
    file = tmp_path / "wharfinger.conf"
    file.write_text(f"[DEFAULT]\nstate_path = {tmp_path}\n")
    return f"--config-file={file}"


def test_version_imports_no_command() -> None:
    names = imported_by("--version")
    assert "wharfinger.cli.entry_point" in names
    assert not names & {"cliff", "stevedore", "oslo_config", "wharfinger.cli.app"}


def test_service_list_imports_no_client_and_no_migrations(
    configuration: str, tmp_path: Path
) -> None:
    make_state(tmp_path)
    names = imported_by(configuration, "service", "list")
    assert {"sqlalchemy", "wharfinger.cli.service", "False", "frozen"} <= names
    assert not names & {"alembic", "keystoneauth1", "requests", "rich", "wharfinger.cli.sync"}


def test_provider_list_imports_no_objects(configuration: str) -> None:
    names = imported_by(configuration, "provider", "list")
    assert {"placement", "keystoneauth1"} <= names
    assert not names & {"rich", "wharfinger.objects", "wharfinger.cli.service"}


def test_agent_keeps_the_garbage_collector_on(configuration: str) -> None:
    names = imported_by(configuration, "agent")  # no instance is configured
    assert {"wharfinger.cli.agent", "True"} <= names
