"""``wharfinger config``: values, their sources, and errors."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import inprocess
from tests.lab.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def shown(program: Program) -> dict[tuple[str, str], dict[str, Any]]:
    rows = inprocess.run(program, "config", "show", "-f", "json").json()
    return {(row["Section"], row["Option"]): row for row in rows}


def add(program: Program, text: str) -> None:
    program.config.write_text(program.config.read_text() + text)


def test_config_show_lists_every_value_with_its_source(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_GPUS__REMOVAL_DELAY", "7")

    values = shown(program)

    file = str(program.config)
    assert values["DEFAULT", "state_path"]["Source"] == file
    assert values["gpus", "enabled_mdev_types"]["Value"] == "nvidia-231, nvidia-232"
    assert values["gpus:nvidia-232", "device_addresses"]["Source"] == file
    assert values["placement", "connections"]["Source"] == "default"
    assert values["gpus", "removal_delay"]["Value"] == "7"
    assert values["gpus", "removal_delay"]["Source"] == "environment: OS_GPUS__REMOVAL_DELAY"


def test_config_validate_of_valid_configuration_starts_nothing(
    program: Program,
) -> None:
    valid = inprocess.run(program, "config", "validate")

    assert (valid.code, valid.err) == (0, "")
    assert "valid" in valid.out
    assert not list(program.directory.glob("*.sqlite"))


def test_config_validate_reports_all_errors_at_once(program: Program) -> None:
    add(
        program,
        "[placemnt]\nembedded = false\n[placement]\nconnections = 99\n"
        "[old]\ndriver = libvirt\n[gpus]\nremoval_dlay = 7\n",
    )

    invalid = inprocess.run(program, "config", "validate", "-f", "json")

    assert invalid.code == 1
    told = [row["Result"] for row in invalid.json()]
    assert len(told) == 3
    assert "[placement] connections = 99" in told[0]
    assert "from 1 to 10" in told[0]
    assert str(program.config) in told[0]
    assert "section [placemnt] is unknown. Did you mean [placement]?" in told[1]
    assert (
        "option removal_dlay of section [gpus] is unknown. Did you mean removal_delay?" in told[2]
    )
    assert inprocess.run(program, "config", "show").code == 1


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("[DEFAULT]\nstatepath = /tmp\n", "option statepath of section [DEFAULT]"),
        ("[placement]\nembeded = true\n", "option embeded of section [placement]"),
        ("[Placemnt]\n", "section [Placemnt]"),
        ("[default]\nhost = x\n", "section [default] is unknown. Did you mean [DEFAULT]?"),
        ("[gpus:nvidia-231]\ntrait = CUSTOM_X\n", "option trait of section [gpus:nvidia-231]"),
        ("[gpus:nvidia-23]\n", "does not read section [gpus:nvidia-23]"),
        ("[placement]\ntimeout = soon\n", "[placement] timeout = soon"),
        ("[gpus]\nremoval_delay = -1\n", "It takes a whole number, 0 or above."),
        ("[placement]\nembedded = perhaps\n", "It takes true or false."),
        ("[DEFAULT]\nhost = $hostt\n", "write $$ for the character"),
        (
            "[placement]\nembedded = false\nauth_type = pasword\n",
            "[placement] auth_type = pasword: keystoneauth has no plugin for this auth_type",
        ),
    ],
)
def test_invalid_configuration_is_refused_before_placement_starts(
    program: Program, more: str, told: str
) -> None:
    add(program, more)

    for command in ("sync", "config validate -f csv"):
        failed = inprocess.run(program, *command.split())
        assert failed.code == 1
        assert told in failed.out + failed.err
        assert "Traceback" not in failed.err
    assert not list(program.directory.glob("placement.sqlite"))


def test_request_filter_that_is_not_installed_fails_validation(
    program: Program,
) -> None:
    add(program, "[scheduling]\nrequest_filters = compute_status, ownr\n")

    told = inprocess.run(program, "config", "validate", "-f", "csv")

    assert told.code == 1
    assert "no installed packages have a filter 'ownr'" in told.out
    assert "Name one of the installed filters: compute_status, owner." in told.out
    assert inprocess.run(program, "config", "show").code == 1


def test_config_directory_lists_shows_and_checks_its_files(
    program: Program, tmp_path: Path
) -> None:
    directory = tmp_path / "more.d"
    directory.mkdir()
    (directory / "b.conf").write_text("[placement]\nconnections = 5\n")
    (directory / "a.conf").write_text("[placement]\nconnections = 4\n")
    files = [str(program.config), str(directory / "a.conf"), str(directory / "b.conf")]
    more = ("--config-dir", str(directory), "config")

    (valid,) = inprocess.run(program, *more, "validate", "-f", "json").json()
    rows = inprocess.run(program, *more, "show", "-f", "json").json()

    assert valid == {"Configuration": ", ".join(files), "Result": "valid"}
    (row,) = (row for row in rows if row["Option"] == "connections")
    assert (row["Value"], row["Source"]) == ("5", files[2])

    (directory / "a.conf").write_text("[gpus]\nremoval_dlay = 7\n[placemnt]\n")
    invalid = inprocess.run(program, *more, "validate", "-f", "json")

    assert invalid.code == 1
    told = [row["Result"] for row in invalid.json()]
    assert len(told) == 2
    assert "section [placemnt] is unknown" in told[0]
    assert f"{files[1]}: option removal_dlay of section [gpus] is unknown" in told[1]


@pytest.mark.parametrize("where", ["file", "environment"])
def test_section_with_credentials_is_masked_wherever_it_is_named(
    program: Program, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "environment":
        monkeypatch.setenv("OS_PLACEMENT__AUTH_SECTION", "keystone")
    add(program, "[placement]\nembedded = false\n")
    add(program, "auth_section = keystone\n" if where == "file" else "")
    add(program, "[keystone]\nauth_type = password\nauth_url = http://127.0.0.1:1\n")
    monkeypatch.setenv("OS_KEYSTONE__PASSWORD", "s3cret")

    valid = inprocess.run(program, "config", "validate")
    done = inprocess.run(program, "config", "show", "-f", "json")

    assert (valid.code, done.code) == (0, 0)
    assert "s3cret" not in done.out + done.err + valid.out + valid.err
    rows = {row["Option"]: row for row in done.json() if row["Section"] == "keystone"}
    assert rows["auth_url"]["Source"] == str(program.config)
    assert rows["password"]["Value"] == "***"
    assert rows["password"]["Source"] == "environment: OS_KEYSTONE__PASSWORD"
    assert "config_source" not in {row["Option"] for row in done.json()}
    add(program, "pasword = x\n")
    assert "Did you mean password?" in inprocess.run(program, "config", "validate").out


@pytest.mark.parametrize("command", ["sync --dry-run", "config validate", "config show"])
def test_malformed_line_is_never_printed(program: Program, command: str) -> None:
    number = len(program.config.read_text().splitlines()) + 1
    add(program, "password s3cret\n")

    failed = inprocess.run(program, *command.split())

    assert failed.code == 1
    assert "s3cret" not in failed.out + failed.err
    assert f"{program.config}:{number}" in failed.err


@pytest.mark.parametrize(
    ("module", "missing"),
    [("placement", "openstack-placement is"), ("webob", "WebOb is")],
)
def test_command_without_the_embedded_placement_installed_names_what_to_install(
    program: Program, monkeypatch: pytest.MonkeyPatch, module: str, missing: str
) -> None:
    monkeypatch.setitem(
        sys.modules, module, None
    )  # find_spec and import treat the module as not installed
    told = f"the embedded Placement cannot start: {missing} not installed"

    def check(command: str, *told: str) -> None:
        failed = inprocess.run(program, *command.split())
        assert failed.code == 1
        for part in ("pip install 'wharfinger[embedded]'", *told):
            assert part in failed.out + failed.err
        assert not list(program.directory.glob("*.sqlite"))

    for command in ("sync", "sync --dry-run", "agent", "provider list", "config validate -f json"):
        check(command, "[placement] embedded = true", told)
    check("driver check gpus -f json", "[placement] embedded = true", told)

    program.config.write_text("")  # the message is the same without a configuration
    for command in ("sync", "agent", "config validate -f json"):
        check(command)


@pytest.mark.parametrize("command", ["driver list", "driver check libvirt", "db version"])
def test_command_that_needs_no_placement_runs_without_the_embedded_placement(
    program: Program, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "placement", None)

    assert inprocess.run(program, *command.split()).code == 0
