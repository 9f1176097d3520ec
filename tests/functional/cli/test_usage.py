"""Exit codes, help, and configuration that cannot be used."""

from pathlib import Path

import pytest

from tests.lab import inprocess
from tests.lab.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sync", "--nonsense"),
        ("sync", "-f", "xml"),
        ("provider", "show"),
        ("provider", "nonsense"),
        ("nonsense",),
        ("--nonsense",),
        ("driver", "check"),
        ("provider", "list", "--owner", "NOVA"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_64(program: Program, arguments: tuple[str, ...]) -> None:
    assert program.run(*arguments).code == 64


@pytest.mark.parametrize("arguments", [(), ("--help",), ("sync", "--help"), ("--version",)])
def test_help_exits_with_0(program: Program, arguments: tuple[str, ...]) -> None:
    done = program.run(*arguments)

    assert done.code == 0
    assert "wharfinger" in done.out
    assert done.err == ""


def test_the_drivers_are_listed_with_their_instances(program: Program) -> None:
    listed = program.run("driver", "list", "-f", "json").json()

    row = next(row for row in listed if row["Driver"] == "libvirt")
    assert row["Instances"] == "gpus"
    assert row["State"] == "ready"


@pytest.mark.parametrize("name", ["gpus", "libvirt"])
def test_a_driver_that_fits_is_checked(program: Program, name: str) -> None:
    checked = program.run("driver", "check", name)

    assert checked.code == 0
    assert "fits the contract" in checked.out


def test_a_driver_that_is_not_there_fails_its_check(program: Program) -> None:
    checked = program.run("driver", "check", "nonsense", "-f", "json")

    assert checked.code == 1
    assert "libvirt" in checked.json()[0]["Result"]


def test_an_instance_with_wrong_configuration_fails_its_check(program: Program) -> None:
    text = program.config.read_text()
    program.config.write_text(text.replace("0000:c4:00.0", "not-an-address"))

    checked = inprocess.run(program, "driver", "check", "gpus", "-f", "json")

    assert checked.code == 1
    [row] = checked.json()
    assert "[gpus:nvidia-232] device_addresses" in row["Result"]
    assert "not-an-address" in row["Result"]


@pytest.mark.parametrize(
    ("found", "replaced", "told"),
    [
        ("enabled_drivers = gpus", "enabled_drivers =", "no driver instance is enabled"),
        ("driver = libvirt", "driver = libvrt", "driver libvrt: entry point"),
        ("driver = libvirt", "driver = libvirt\nowner = OWNER", "[gpus] owner = OWNER"),
        ("[gpus]", "[gpus", "configuration: "),
        ("= gpus", "= Gpus!", "cannot be the name of a driver instance"),
        ("= gpus", "= gpus, gpus", "one and the same trait"),
        ("driver = libvirt", "driver = libvirt\nremoval_delay = soon", "removal_delay"),
        (
            "[gpus]",
            "[placement]\nauth_type = password\n[gpus]",
            "[placement] auth_type = password: this leads to a service, but embedded = true",
        ),
        ("state_path = ", "state_path = relative/", "[DEFAULT] state_path = relative/"),
        ("state_path = ", "state_path = /tmp/what?/", "a path with ?, # or %"),
        ("nvidia-232]", "nvidia-999]", "has no use for section [gpus:nvidia-999]"),
        (
            "[gpus]",
            "[placement]\nembedded = false\n[gpus]",
            "nothing says how to authenticate",
        ),
    ],
)
def test_wrong_configuration_is_told_in_one_line(
    program: Program, found: str, replaced: str, told: str
) -> None:
    program.config.write_text(program.config.read_text().replace(found, replaced, 1))

    failed = inprocess.run(program, "sync")

    assert failed.code == 1
    assert told in failed.err
    assert "Traceback" not in failed.err


def test_a_configuration_file_that_is_not_there_is_named(program: Program) -> None:
    failed = program.run("sync", config=Path("/nowhere/wharfinger.conf"))

    assert failed.code == 1
    assert "/nowhere/wharfinger.conf" in failed.err
