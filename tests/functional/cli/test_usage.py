"""Exit codes and help of the process, commands for drivers, and unusable configurations."""

import sys
from pathlib import Path

import pytest

from tests.functional.cli.outcomes import change, failed, shown
from tests.lab import inprocess
from tests.lab.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_process_exits_with_the_code_of_its_command(program: Program) -> None:
    assert program.run("provider", "list", "--owner", "NOVA").code == 64
    done = program.run("sync", config=Path("/nowhere/wharfinger.conf"))
    failed(done, "/nowhere/wharfinger.conf")
    for arguments in (("--version",), ("sync", "--help")):
        done = program.run(*arguments)
        assert (done.code, done.err) == (0, "")
        assert "wharfinger" in done.out


@pytest.mark.parametrize("arguments", [(), ("--help",), ("help",), ("candidate", "list", "--help")])
def test_help_exits_with_0(program: Program, arguments: tuple[str, ...]) -> None:
    done = inprocess.run(program, *arguments)

    assert (done.code, done.err) == (0, "")
    assert "usage: " in done.out


def test_log_file_that_cannot_be_written_is_wrong_usage(program: Program) -> None:
    done = inprocess.run(program, "--log-file", "/nowhere/log", "driver", "list")

    assert done.code == 64
    told = "argument --log-file: '/nowhere/log' cannot be written: No such file or directory"
    assert told in done.err


def test_drivers_are_listed_and_checked(program: Program) -> None:
    row = next(row for row in shown(program, "driver", "list") if row["Driver"] == "libvirt")
    assert (row["Instances"], row["State"]) == ("gpus", "ready")

    for name in ("gpus", "libvirt"):
        assert "fits the contract" in shown(program, "driver", "check", name)[0]["Result"]

    unknown = inprocess.run(program, "driver", "check", "nonsense", "-f", "json")
    assert unknown.code == 1
    assert "libvirt" in unknown.json()[0]["Result"]

    change(program, "0000:c4:00.0", "not-an-address")
    checked = inprocess.run(program, "driver", "check", "gpus", "-f", "json")
    assert checked.code == 1
    [row] = checked.json()
    assert "[gpus:nvidia-232] device_addresses" in row["Result"]
    assert "not-an-address" in row["Result"]


@pytest.mark.parametrize(
    ("found", "replaced", "told"),
    [
        ("enabled_drivers = gpus", "enabled_drivers =", "no driver instance is enabled"),
        ("driver = libvirt", "driver = libvrt", "driver libvrt cannot be loaded: entry point"),
        ("driver = libvirt", "driver = libvirt\nowner = OWNER", "[gpus] owner = OWNER"),
        ("[gpus]", "[gpus", "configuration: "),
        ("= gpus", "= Gpus!", "cannot be the name of a driver instance"),
        ("= gpus", "= gpus, gpus", "the same instance trait"),
        (
            "[gpus]",
            "[placement]\nauth_type = password\n[gpus]",
            "[placement] auth_type = password: this option is for a Placement service",
        ),
        ("state_path = ", "state_path = relative/", "[DEFAULT] state_path = relative/"),
        ("state_path = ", "state_path = /tmp/what?/", "printable characters without ?, # and %"),
        ("nvidia-232]", "nvidia-999]", "does not read section [gpus:nvidia-999]"),
        ("[gpus]", "[placement]\nembedded = false\n[gpus]", "no auth_type is set"),
    ],
)
def test_wrong_configuration_fails_with_its_error(
    program: Program, found: str, replaced: str, told: str
) -> None:
    change(program, found, replaced)

    failed(inprocess.run(program, "sync"), told)


@pytest.mark.parametrize(
    "command",
    ["conformance rules", "conformance run libvirt", "conformance run libvirt --rule D1"],
)
def test_conformance_without_its_extra_names_the_package_to_install(
    program: Program, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)

    failed(inprocess.run(program, *command.split()), "pip install 'wharfinger[conformance]'")


def test_conformance_init_without_the_extra_prints_the_written_files(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.chdir(program.directory)

    done = inprocess.run(program, "conformance", "init", "shelf")

    assert (done.code, done.err) == (0, "")
    written = [str(file) for file in Path("wharfinger-shelf").rglob("*") if file.is_file()]
    assert sorted(done.out.splitlines()) == sorted(written)
    failed(inprocess.run(program, "conformance", "init", "shelf"), "wharfinger-shelf is not empty")
