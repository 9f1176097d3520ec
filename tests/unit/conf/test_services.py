"""Options of the sections [scheduling] and [accelerator], read from a real file."""

from pathlib import Path
from textwrap import dedent

import pytest

from wharfinger import conf
from wharfinger.conf import AcceleratorSection, PlacementSection, SchedulingSection
from wharfinger.exceptions import ConfigurationError


def read(directory: Path, text: str) -> conf.Options:
    path = directory / "test.conf"
    path.write_text(dedent(text))
    return conf.parse([str(path)])


def told(directory: Path, text: str) -> list[str]:
    """Return the errors of the configuration."""
    return [str(problem) for problem in conf.problems(read(directory, text))]


# [scheduling].


def test_scheduling_without_a_section_uses_both_filters(
    tmp_path: Path,
) -> None:
    section = SchedulingSection.read(read(tmp_path, ""))

    assert section == SchedulingSection(("compute_status", "owner"), False, 30)


def test_filters_are_in_the_configured_order(tmp_path: Path) -> None:
    opts = read(tmp_path, "[scheduling]\nrequest_filters = owner, mine ,compute_status\n")

    assert SchedulingSection.read(opts).request_filters == ("owner", "mine", "compute_status")


def test_list_of_filters_may_be_empty(tmp_path: Path) -> None:
    assert SchedulingSection.read(read(tmp_path, "[scheduling]\nrequest_filters =\n")) == (
        SchedulingSection((), False, 30)
    )


@pytest.mark.parametrize(("value", "allowed"), [("forbid", False), ("allow", True)])
def test_untagged_providers_are_forbidden_or_allowed(
    tmp_path: Path, value: str, allowed: bool
) -> None:
    opts = read(tmp_path, f"[scheduling]\nuntagged = {value}\ncache_time = 1\n")

    assert SchedulingSection.read(opts).allows_untagged is allowed
    assert SchedulingSection.read(opts).cache_time == 1


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("untagged", "perhaps", "Valid values are [forbid, allow]"),
        ("untagged", "Allow", "Valid values are [forbid, allow]"),
        ("untagged", "", "Valid values are [forbid, allow]"),
        ("cache_time", "0", "It takes a whole number, 1 or above."),
        ("cache_time", "-1", "It takes a whole number, 1 or above."),
        ("cache_time", "soon", "It takes a whole number, 1 or above."),
        ("cache_time", "1.5", "It takes a whole number, 1 or above."),
    ],
)
def test_invalid_scheduling_value_is_refused(
    tmp_path: Path, key: str, value: str, remedy: str
) -> None:
    opts = read(tmp_path, f"[scheduling]\n{key} = {value}\n")
    with pytest.raises(ConfigurationError) as caught:
        SchedulingSection.read(opts)
    error = caught.value
    assert (error.section, error.key, error.value) == ("scheduling", key, value)
    assert remedy in error.remedy
    assert [str(error)] == [str(problem) for problem in conf.problems(opts)]


def test_misspelt_option_and_misspelt_section_are_each_reported_with_the_right_name(
    tmp_path: Path,
) -> None:
    problems = told(
        tmp_path,
        """
        [scheduling]
        untaged = allow
        [accelerator]
        device_profile = /profiles.json
        [schedulling]
        [acelerator]
        """,
    )

    hints = ["untagged?", "device_profiles?", "[scheduling]?", "[accelerator]?"]
    assert len(problems) == len(hints)
    for hint in hints:
        assert sum(f"Did you mean {hint}" in problem for problem in problems) == 1, hint


@pytest.mark.parametrize("section", ["scheduling", "accelerator", "agent"])
def test_driver_instance_with_the_name_of_the_section_is_refused(
    tmp_path: Path, section: str
) -> None:
    [problem] = told(tmp_path, f"[DEFAULT]\nenabled_drivers = {section}\n")

    assert f"'{section}' cannot be the name of" in problem


# [accelerator].


def test_accelerator_without_a_section_has_no_device_profiles(tmp_path: Path) -> None:
    assert AcceleratorSection.read(read(tmp_path, "")) == AcceleratorSection(None, None)
    assert told(tmp_path, "") == []


def test_device_profiles_may_be_in_a_file(tmp_path: Path) -> None:
    opts = read(tmp_path, "[accelerator]\ndevice_profiles = /etc/profiles.json\n")

    assert AcceleratorSection.read(opts) == AcceleratorSection(Path("/etc/profiles.json"), None)


def test_profile_file_in_the_home_directory_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/user")
    opts = read(tmp_path, "[accelerator]\ndevice_profiles = ~/profiles.json\n")

    found = AcceleratorSection.read(opts).device_profiles
    assert found == Path("/home/user/profiles.json")


@pytest.mark.parametrize("value", ["profiles.json", "", "./profiles.json"])
def test_relative_profile_file_is_refused(tmp_path: Path, value: str) -> None:
    opts = read(tmp_path, f"[accelerator]\ndevice_profiles = {value}\n")
    with pytest.raises(ConfigurationError, match="it is not absolute") as it:
        AcceleratorSection.read(opts)
    assert (it.value.section, it.value.key, it.value.value) == (
        "accelerator",
        "device_profiles",
        value,
    )


CYBORG = """
[accelerator]
auth_type = password
auth_url = http://127.0.0.1:1
"""


def test_device_profiles_may_come_from_cyborg(tmp_path: Path) -> None:
    opts = read(tmp_path, CYBORG)

    assert AcceleratorSection.read(opts) == AcceleratorSection(None, "accelerator")
    assert (opts.accelerator.service_type, opts.accelerator.timeout) == ("accelerator", 30)
    assert conf.service_sections(opts, "accelerator") == ["accelerator"]
    assert told(tmp_path, CYBORG) == []


def test_profile_file_and_cyborg_together_are_refused(tmp_path: Path) -> None:
    opts = read(tmp_path, f"{CYBORG}device_profiles = /etc/profiles.json\n")
    with pytest.raises(ConfigurationError) as caught:
        AcceleratorSection.read(opts)
    error = caught.value
    assert (error.section, error.key) == ("accelerator", "device_profiles")
    assert error.value == "/etc/profiles.json"
    assert error.problem == (
        "both device_profiles (a file) and auth_type (Cyborg) are set, but device profiles have "
        "only one source."
    )
    assert error.remedy == "Remove device_profiles, or auth_type and auth_section."


def test_unknown_auth_type_is_an_error_with_the_known_ones(
    tmp_path: Path,
) -> None:
    opts = read(tmp_path, "[accelerator]\nauth_type = pasword\n")
    with pytest.raises(ConfigurationError, match="has no plugin for this auth_type") as caught:
        AcceleratorSection.read(opts)
    error = caught.value
    assert (error.section, error.key, error.value) == ("accelerator", "auth_type", "pasword")
    assert "none, " in error.remedy
    assert "password" in error.remedy


def test_invalid_authentication_option_is_reported(tmp_path: Path) -> None:
    [problem] = told(tmp_path, f"{CYBORG}timeout = soon\n")

    assert problem.startswith("[accelerator] timeout = soon: ")


#: A configuration in which Placement and Cyborg use the same credentials.
SHARED = """
[placement]
embedded = false
auth_section = keystone
[accelerator]
auth_section = keystone
[keystone]
auth_type = password
auth_url = http://127.0.0.1:1
{line}
"""


def test_shared_credentials_are_in_the_sections_of_both_services(tmp_path: Path) -> None:
    opts = read(tmp_path, SHARED.format(line=""))

    assert AcceleratorSection.read(opts) == AcceleratorSection(None, "keystone")
    assert PlacementSection.read(opts).credentials == "keystone"
    for service in ("placement", "accelerator"):
        assert conf.service_sections(opts, service) == [service, "keystone"]
    assert told(tmp_path, SHARED.format(line="")) == []


def test_error_in_shared_credentials_is_reported_once(tmp_path: Path) -> None:
    [problem] = told(tmp_path, SHARED.format(line="pasword = x"))

    assert "option pasword of section [keystone] is unknown. Did you mean password?" in problem


def test_credentials_section_of_one_service_is_known_beside_the_other(
    tmp_path: Path,
) -> None:
    text = """
    [accelerator]
    auth_section = keystone
    [keystone]
    auth_type = password
    auth_url = http://127.0.0.1:1
    """

    assert told(tmp_path, text) == []


@pytest.mark.parametrize("section", ["scheduling", "accelerator"])
def test_sample_has_each_option_with_help(section: str) -> None:
    listed = dict(conf.list_opts())[section]
    names = {option.dest for option in listed}

    assert (
        names
        >= {
            "scheduling": {"request_filters", "untagged", "cache_time"},
            "accelerator": {"device_profiles", "auth_type", "auth_url", "endpoint_override"},
        }[section]
    )
    assert all(option.help for option in listed)
