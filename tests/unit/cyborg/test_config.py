"""Options of a driver instance's section, and errors of invalid options."""

from pathlib import Path
from textwrap import dedent

import pytest

from wharfinger.conf import load, parse
from wharfinger.exceptions import ConfigurationError, WharfingerError
from wharfinger.providers import PublishingMode
from wharfinger.reconcile import driver_instance_loader
from wharfinger_cyborg.config import OPTIONS, CyborgSection, list_opts

#: A configuration of a Cyborg without Keystone.
BARE = "[fpga]\ndriver = cyborg\nauth_type = none\nendpoint = http://127.0.0.1:6666/v2\n"
KEYSTONE = """\
auth_type = password
auth_url = https://keystone.example.org/v3
username = wharfinger
password = secret
user_domain_name = Default
system_scope = all
"""


def written(directory: Path, text: str) -> str:
    path = directory / "wharfinger.conf"
    path.write_text(f"[DEFAULT]\nenabled_drivers = fpga\n{dedent(text)}")
    return str(path)


def read(directory: Path, text: str) -> CyborgSection:
    return CyborgSection.read(parse([written(directory, text)]), "fpga")


def problems(directory: Path, text: str) -> list[WharfingerError]:
    """Return the errors that a check of the configuration reports."""
    _sections, found = driver_instance_loader.check(parse([written(directory, text)]))
    return found


def test_omitted_options_have_defaults(tmp_path: Path) -> None:
    section = read(tmp_path, BARE)
    assert section == CyborgSection("fpga", PublishingMode.OVERLAY, 900, "fpga")
    assert problems(tmp_path, BARE) == []


@pytest.mark.parametrize("publish", ["own", "overlay"])
def test_publish_selects_the_publisher(tmp_path: Path, publish: str) -> None:
    section = read(tmp_path, f"{BARE}publish = {publish}\nprogram_timeout = 7\n")
    assert (section.publish, section.program_timeout) == (PublishingMode(publish), 7)


@pytest.mark.parametrize("section", ["keystone-of-all", "placement"])
def test_credentials_may_be_in_another_section(tmp_path: Path, section: str) -> None:
    text = f"[fpga]\ndriver = cyborg\nauth_section = {section}\n[{section}]\n{KEYSTONE}"
    text += "embedded = false\n" if section == "placement" else "[placement]\nembedded = true\n"
    assert read(tmp_path, text).credentials == section
    assert problems(tmp_path, text) == []
    instance = driver_instance_loader.load(load([written(tmp_path, text)]), "fpga")
    assert list(instance.driver.config_sections(instance.driver.conf, "fpga")) == [section]


def test_instance_with_its_own_credentials_has_no_other_section(tmp_path: Path) -> None:
    instance = driver_instance_loader.load(load([written(tmp_path, BARE)]), "fpga")
    assert list(instance.driver.config_sections(instance.driver.conf, "fpga")) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("publish = both", "publish"),
        ("publish =", "publish"),
        ("program_timeout = 0", "program_timeout"),
        ("program_timeout = -1", "program_timeout"),
        ("program_timeout = long", "program_timeout"),
    ],
)
def test_invalid_value_is_reported_with_its_option(tmp_path: Path, line: str, told: str) -> None:
    [problem] = problems(tmp_path, f"{BARE}{line}\n")
    assert isinstance(problem, ConfigurationError)
    assert (problem.section, problem.key) == ("fpga", told)
    assert problem.remedy


def test_unknown_option_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, f"{BARE}program_time = 7\n")
    assert "Did you mean program_timeout" in str(problem)


@pytest.mark.parametrize("line", ["", "auth_type =\n"])
def test_missing_credentials_are_reported(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"[fpga]\ndriver = cyborg\n{line}")
    error = caught.value
    assert (error.section, error.key) == ("fpga", "auth_type")
    assert "authentication for Cyborg" in error.problem
    assert "none and endpoint" in error.remedy


def test_sample_has_all_options() -> None:
    [(_, options)] = list_opts()
    assert {option.name for option in OPTIONS} <= {option.name for option in options}
    assert {"auth_type", "auth_section"} <= {option.dest for option in options}
