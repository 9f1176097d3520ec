"""tools/demo waits for events, for minutes, and stops if their process has ended."""

import re
import subprocess
from pathlib import Path

DEMO = (Path(__file__).resolve().parents[2] / "tools" / "demo").read_text()


def wait(directory: Path, background: str, look: str) -> subprocess.CompletedProcess[str]:
    """Run the demo's own ``wait_until`` on a background process and a command."""
    function = re.search(r"^patience=.*?^}$", DEMO, re.DOTALL | re.MULTILINE)
    assert function is not None
    script = f'set -eu; demo=.\n{function[0]}\n{background} & wait_until $! "a sign" {look}'
    return subprocess.run(
        ["bash", "-c", script], cwd=directory, capture_output=True, text=True, check=False
    )


def test_wait_until_an_event_shows_its_name(tmp_path: Path) -> None:
    done = wait(tmp_path, "touch sign", "test -e sign")

    assert done.returncode == 0
    assert "Waiting for a sign ..." in done.stdout


def test_wait_until_an_event_of_an_ended_process_fails_with_the_last_output(
    tmp_path: Path,
) -> None:
    done = wait(tmp_path, "true", "cat sign")

    assert done.returncode == 1
    assert "which causes it, has ended" in done.stderr
    assert "cat: sign: No such file" in done.stderr


def test_every_wait_of_the_demo_may_last_minutes() -> None:
    patience = re.search(r"^patience=(\d+)$", DEMO, re.MULTILINE)

    assert patience is not None
    assert int(patience[1]) >= 300
    assert not re.findall(r"(?:--wait|--power-timeout) \d+", DEMO)
