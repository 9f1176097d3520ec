"""Options of a driver instance's section, and errors of invalid options."""

from pathlib import Path
from textwrap import dedent

import pytest

from wharfinger.conf import load, parse
from wharfinger.exceptions import ConfigurationError, WharfingerError
from wharfinger.reconcile import driver_instance_loader
from wharfinger_ironic.config import OPTIONS, FleetSection, list_opts

#: A configuration of an Ironic without Keystone.
BARE = "[metal]\ndriver = ironic\nauth_type = none\nendpoint = http://127.0.0.1:6385\n"
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
    path.write_text(f"[DEFAULT]\nenabled_drivers = metal\n{dedent(text)}")
    return str(path)


def read(directory: Path, text: str) -> FleetSection:
    return FleetSection.read(parse([written(directory, text)]), "metal")


def problems(directory: Path, text: str) -> list[WharfingerError]:
    """Return the errors that a check of the configuration reports."""
    _sections, found = driver_instance_loader.check(parse([written(directory, text)]))
    return found


# Valid options.


def test_all_nodes_are_selected_by_default(tmp_path: Path) -> None:
    assert read(tmp_path, BARE) == FleetSection(
        name="metal",
        selected={},
        credentials="metal",
        microversion="1.61",
        needed_for="the requested fields of nodes",
        max_pages=10_000,
    )


#: By line of the configuration: the filter in the request to Ironic.
SELECTED = {
    "conductor_group = rack-1": ("conductor_group", "rack-1"),
    "conductor_group =": ("conductor_group", ""),
    "shard = a&b=c": ("shard", "a&b=c"),
    "node_owner = 6d4ad2": ("owner", "6d4ad2"),
    "resource_class = bare metal/gold": ("resource_class", "bare metal/gold"),
}


@pytest.mark.parametrize("line", SELECTED)
def test_option_selects_by_ironics_filter(tmp_path: Path, line: str) -> None:
    section = read(tmp_path, f"{BARE}{line}\n")
    assert section.selected == dict([SELECTED[line]])
    needed = (section.microversion, section.needed_for)
    if line.startswith("shard"):
        assert needed == ("1.82", "[metal] shard")
    else:
        assert needed == ("1.61", "the requested fields of nodes")


def test_all_options_may_be_given_at_once(tmp_path: Path) -> None:
    section = read(tmp_path, BARE + "".join(f"{line}\n" for line in SELECTED if line[-1] != "="))
    assert section.selected == dict(
        selected for line, selected in SELECTED.items() if line[-1] != "="
    )
    assert section.microversion == "1.82"


def test_value_may_contain_characters_that_oslo_config_expands(tmp_path: Path) -> None:
    assert read(tmp_path, f"{BARE}shard = $$1%x\n").selected == {"shard": "$1%x"}


def test_credentials_may_be_in_the_instances_section(tmp_path: Path) -> None:
    text = f"[metal]\ndriver = ironic\n{KEYSTONE}"
    assert read(tmp_path, text).credentials == "metal"
    assert problems(tmp_path, f"{text}[placement]\nembedded = true\n") == []


@pytest.mark.parametrize("section", ["keystone-of-all", "placement"])
def test_credentials_may_be_in_another_section(tmp_path: Path, section: str) -> None:
    text = f"[metal]\ndriver = ironic\nauth_section = {section}\n[{section}]\n{KEYSTONE}"
    text += "embedded = false\n" if section == "placement" else "[placement]\nembedded = true\n"
    assert read(tmp_path, text).credentials == section
    assert problems(tmp_path, text) == []
    instance = driver_instance_loader.load(load([written(tmp_path, text)]), "metal")
    assert list(instance.driver.config_sections(instance.driver.conf, "metal")) == [section]


def test_instance_with_its_own_credentials_has_no_other_section(tmp_path: Path) -> None:
    instance = driver_instance_loader.load(load([written(tmp_path, BARE)]), "metal")
    assert list(instance.driver.config_sections(instance.driver.conf, "metal")) == []


def test_two_instances_select_independently(tmp_path: Path) -> None:
    text = f"{BARE}shard = a\n{BARE.replace('metal', 'other')}conductor_group = x\n"
    conf = parse([written(tmp_path, text)])
    first, second = (FleetSection.read(conf, name) for name in ("metal", "other"))
    assert (first.selected, first.microversion) == ({"shard": "a"}, "1.82")
    assert (second.selected, second.microversion) == ({"conductor_group": "x"}, "1.61")


# Invalid options.


@pytest.mark.parametrize("key", ["shard", "node_owner", "resource_class"])
def test_empty_option_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"{BARE}{key} =\n")
    error = caught.value
    assert (error.section, error.key, error.value) == ("metal", key, "")
    assert "no node" in error.problem
    assert "remove the option" in error.remedy


@pytest.mark.parametrize("line", ["", "auth_type =\n"])
def test_missing_credentials_are_reported(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"[metal]\ndriver = ironic\n{line}")
    error = caught.value
    assert (error.section, error.key) == ("metal", "auth_type")
    assert "authentication for Ironic" in error.problem
    assert "none and endpoint" in error.remedy


@pytest.mark.parametrize("section", ["elsewhere", "placement"])
def test_missing_credentials_in_another_section_are_reported_there(
    tmp_path: Path, section: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"[metal]\ndriver = ironic\nauth_section = {section}\n[{section}]\n")
    assert (caught.value.section, caught.value.key) == (section, "auth_type")


def test_unknown_auth_type_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^\[metal\] auth_type = passwort: .* password"):
        read(tmp_path, BARE.replace("= none", "= passwort"))


#: By line of the configuration: words of its error.
UNKNOWN = {
    "conductor_groups = a": "conductor_group?",
    "owner_of_nodes = a": "option owner_of_nodes of section [metal] is unknown",
    "peer_list = a": "is unknown",
    "partition_key = a": "is unknown",
    "timeout = 0": "[metal] timeout",
    "timeout = soon": "[metal] timeout",
    "cafile = /nowhere": "this file does not exist",
    "endpoint_override = http://ironic/%(tenant)s": "%%",
    "shard = $nowhere": "[metal] shard",
}


@pytest.mark.parametrize("line", UNKNOWN)
def test_error_is_reported_by_the_check_and_at_the_start(tmp_path: Path, line: str) -> None:
    found = problems(tmp_path, f"{BARE}{line}\n[placement]\nembedded = true\n")
    assert len(found) == 1
    assert UNKNOWN[line] in str(found[0])
    with pytest.raises(WharfingerError) as caught:
        driver_instance_loader.load(load([written(tmp_path, f"{BARE}{line}\n")]), "metal")
    assert str(caught.value) == str(found[0])


def test_unknown_option_of_another_section_is_reported(tmp_path: Path) -> None:
    text = (
        f"[metal]\ndriver = ironic\nauth_section = elsewhere\n[elsewhere]\n{KEYSTONE}usrname = x\n"
    )
    found = problems(tmp_path, f"{text}[placement]\nembedded = true\n")
    assert [one for one in found if "usrname" in str(one) and "[elsewhere]" in str(one)] == found
    assert len(found) == 1


def test_password_is_never_shown(tmp_path: Path) -> None:
    text = f"[metal]\ndriver = ironic\n{KEYSTONE}".replace("secret", "$ecret")
    found = problems(tmp_path, f"{text}[placement]\nembedded = true\n")
    assert len(found) == 1
    assert "ecret" not in str(found[0])


# The sample.


def test_sample_has_every_option_with_help() -> None:
    ((section, options),) = list_opts()
    assert section == "<instance with driver = ironic>"
    assert {option.dest for option in OPTIONS} < {option.dest for option in options}
    assert {"auth_type", "auth_section", "endpoint_override"} <= {one.dest for one in options}
    assert all(option.help for option in options)
