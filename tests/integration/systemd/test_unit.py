"""The unit of the agent, which systemd-analyze checks and a real systemd runs.

The commands of docs/how-to/running-the-agent.rst install and start it.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import systemd
from tests.lab.examples import blocks, check
from tests.lab.systemd import OUTPUT, UNITS, Systemd

REPOSITORY = Path(__file__).resolve().parents[3]
FILES = REPOSITORY / "etc" / "wharfinger"
NAME = "wharfinger-agent.service"
UNIT = FILES / "systemd" / NAME
PAGE = REPOSITORY / "docs" / "how-to" / "running-the-agent.rst"
#: An exposure level of 2.0; systemd-analyze expects tenths.
WORST_EXPOSURE = "20"
#: systemd before 253 logs this: it ignores the type of the unit, and uses the line before it.
WITHOUT_NOTIFY_RELOAD = re.compile(r".*Failed to parse service type, ignoring: notify-reload\n")

needs_systemd = pytest.mark.skipif(systemd.missing() is not None, reason=str(systemd.missing()))


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def lab() -> Iterator[Systemd]:
    """A systemd, and files as an installation in /opt/wharfinger has them."""
    with Systemd() as lab:
        program = lab.directory / "opt" / "wharfinger" / "bin" / "wharfinger"
        shutil.copytree(FILES, lab.directory / "opt" / "wharfinger" / "share" / "wharfinger")
        program.parent.mkdir()
        program.write_text(f"#!{lab.python}\nfrom wharfinger.cli.entry_point import main\nmain()\n")
        program.chmod(0o755)
        sample = FILES / "sample"
        shutil.copy(sample / "host.xml", lab.directory)
        configuration = lab.directory / "etc" / "wharfinger" / "wharfinger.conf"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(
            (sample / "wharfinger.conf")
            .read_text()
            .replace("@demo@", "/var/lib/wharfinger")
            .replace("test://$state_path/", f"test://{UNITS}/")
        )
        for name in ("etc", "opt"):
            assert lab.run("cp", "-r", f"{UNITS}/{name}/wharfinger", f"/{name}").returncode == 0
        yield lab


def start(lab: Systemd, *lines: str) -> None:
    """Install and start the unit as the page says, with a drop-in that has these lines."""
    environment = " ".join(f"{name}={value}" for name, value in lab.environment.items())
    path = lab.directory / f"{NAME}.d" / "test.conf"
    path.parent.mkdir()
    path.write_text(
        "\n".join(
            [
                "[Service]",
                f"Environment={environment}",
                f"StandardOutput=append:{OUTPUT}",
                *lines,
                "",
            ]
        )
    )
    [block] = [block for block in blocks(PAGE.read_text()) if block.run_by]
    for command, shown in block.commands:
        done = lab.run("bash", "-c", f"{command} 2>&1")
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{lab.output()}"
        check(command, shown, done.stdout)


def notifying(lab: Systemd) -> tuple[str, str]:
    """Return the lines that start the program that notifies systemd, in place of the agent."""
    return "ExecStart=", f"ExecStart={lab.python} -m tests.lab.notifying_program"


def begin_reload(lab: Systemd) -> None:
    if lab.show(NAME, "CanReload") == "yes":
        lab.systemctl("reload", "--no-block", NAME)
    else:  # systemd before 253
        lab.systemctl("kill", "--signal=HUP", "--kill-whom=main", NAME)


def test_unit_is_accepted_by_systemd_analyze(tmp_path: Path) -> None:
    unit = tmp_path / NAME
    unit.write_text(UNIT.read_text().replace("ExecStart=wharfinger", "ExecStart=true"))

    done = analyze("verify", "--man=no", str(unit))

    assert done.returncode == 0, done.stderr
    assert WITHOUT_NOTIFY_RELOAD.sub("", done.stderr) == ""


def test_unit_has_a_low_exposure_level() -> None:
    done = analyze("security", "--offline=true", f"--threshold={WORST_EXPOSURE}", str(UNIT))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Overall exposure level" in done.stdout


@needs_systemd
def test_program_that_notifies_is_ready_reloads_and_leaves_no_process(lab: Systemd) -> None:
    start(lab, *notifying(lab))

    assert lab.show(NAME, "ActiveState") == "active"
    assert lab.show(NAME, "StatusText").startswith("child ")

    begin_reload(lab)
    lab.wait_for(NAME, "ActiveState", "reloading")
    lab.systemctl("kill", "--signal=USR1", "--kill-whom=main", NAME)
    lab.wait_for(NAME, "ActiveState", "active")

    lab.systemctl("stop", NAME)
    assert lab.show(NAME, "Result") == "success"
    assert lab.show(NAME, "NRestarts") == "0"
    assert lab.run("pgrep", "sleep").stdout == ""


@needs_systemd
def test_program_that_hangs_is_restarted_by_the_watchdog(lab: Systemd) -> None:
    start(lab, *notifying(lab), "WatchdogSec=1", "RestartSec=100ms")

    lab.systemctl("kill", "--signal=USR2", "--kill-whom=main", NAME)

    lab.wait_for(NAME, "NRestarts", "1")
    lab.wait_for(NAME, "ActiveState", "active")


@needs_systemd
def test_agent_with_the_libvirt_driver_starts_reloads_and_stops_under_the_unit(
    lab: Systemd,
) -> None:
    start(lab)

    lab.wait_for_output("gpus: 9 changes written")
    status = lab.run("cat", f"/proc/{lab.show(NAME, 'MainPID')}/status").stdout
    found = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (found["NoNewPrivs"], found["Seccomp"], int(found["CapBnd"], 16)) == ("1", "2", 0)

    begin_reload(lab)
    lab.wait_for_output("the new configuration is used")
    lab.wait_for(NAME, "ActiveState", "active")

    lab.systemctl("stop", NAME)
    assert lab.show(NAME, "Result") == "success"
    assert lab.run("stat", "--format=%U %A", "/var/lib/wharfinger/wharfinger.sqlite").stdout == (
        "wharfinger -rw-------\n"
    )
