"""Sections of the configuration, each read from a real file."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from wharfinger import conf
from wharfinger.conf import DefaultSection, InstanceSection, PlacementSection, logging_options
from wharfinger.exceptions import ConfigurationError, ConfigurationFileError, WharfingerError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without a configuration."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


def read(directory: Path, text: str) -> conf.Options:
    path = directory / "test.conf"
    path.write_text(dedent(text))
    return conf.parse([str(path)])


def source(opts: conf.Options, section: str, key: str) -> str:
    """Return the source that the program shows for an option's value."""
    (found,) = (value.source for value in opts.effective(section) if value.key == key)
    return found


# Files.


def test_configuration_without_a_file_has_defaults(home: Path) -> None:
    opts = conf.load([])
    default = DefaultSection.read(opts)
    assert default.enabled_drivers == ()
    assert default.host == socket.gethostname()
    assert default.state_path.is_absolute()
    placement = PlacementSection.read(opts)
    assert placement.embedded
    assert placement.embedded_database == default.state_path / "placement.sqlite"
    assert InstanceSection.read(opts, "gpus") == InstanceSection("gpus", "gpus", None, 60)


def test_file_in_the_home_directory_is_found(home: Path) -> None:
    (home / ".wharfinger").mkdir()
    (home / ".wharfinger" / "wharfinger.conf").write_text("[DEFAULT]\nhost = found\n")
    assert DefaultSection.read(conf.load()).host == "found"


def test_named_file_replaces_all_others(home: Path, tmp_path: Path) -> None:
    (home / "wharfinger.conf").write_text("[DEFAULT]\nhost = found\n")
    (home / "wharfinger.conf.d").mkdir()
    (home / "wharfinger.conf.d" / "a.conf").write_text("[DEFAULT]\nhost = found-too\n")
    assert DefaultSection.read(read(tmp_path, "")).host == socket.gethostname()


def test_last_of_several_files_wins_and_directories_follow_files(tmp_path: Path) -> None:
    paths = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.conf"
        path.write_text(f"[DEFAULT]\nhost = {name}\nstate_path = /{name}\n")
        paths.append(str(path))
    directory = tmp_path / "more.d"
    directory.mkdir()
    (directory / "a.conf").write_text("[DEFAULT]\nstate_path = /three\n")
    default = DefaultSection.read(conf.load(paths, [str(directory)]))
    assert (default.host, default.state_path) == ("two", Path("/three"))


@pytest.mark.parametrize(
    "text", ["host = x\n", "[DEFAULT\nhost = x\n", "[DEFAULT]\nnonsense\n"], ids=repr
)
def test_malformed_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationFileError, match=r"test\.conf") as caught:
        read(tmp_path, text)
    assert "--config-file" in caught.value.remedy


def test_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=r"nothing\.conf"):
        conf.load([str(tmp_path / "nothing.conf")])


def test_file_that_is_no_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "binary.conf"
    path.write_bytes(b"[DEFAULT]\nhost = \xff\xfe\n")
    with pytest.raises(ConfigurationFileError, match=r"binary\.conf"):
        conf.load([str(path)])


def test_found_file_that_is_no_text_is_an_error_that_names_it(home: Path) -> None:
    path = home / "wharfinger.conf"
    path.write_bytes(b"[DEFAULT]\nhost = \xff\xfe\n")
    with pytest.raises(ConfigurationFileError) as caught:
        conf.load()
    assert str(path) in str(caught.value)


def test_missing_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=r"nothing\.d"):
        conf.load([], [str(tmp_path / "nothing.d")])


#: A program that prints the errors of the configuration; endless files would exceed its memory.
LOADING = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
from wharfinger import conf
from wharfinger.exceptions import ConfigurationFileError
files, directories = sys.argv[1].split(), sys.argv[2].split()
for arguments in [([file],) for file in files] + [([], [name]) for name in directories] + [()]:
    try:
        conf.parse(*arguments)
    except ConfigurationFileError as error:
        print(error.problem)
"""


def test_file_that_is_no_regular_file_is_refused_by_name(home: Path, tmp_path: Path) -> None:
    fifo, found = tmp_path / "fifo.conf", home / "wharfinger.conf"
    for path in (fifo, found):
        os.mkfifo(path)
    files = [str(fifo), str(tmp_path), "/dev/zero"]
    done = subprocess.run(
        [sys.executable, "-c", LOADING, " ".join(files), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    # The files that are named, the file in the directory, and the file in the home directory.
    assert done.stdout.splitlines() == [
        f"{name} is not a regular file." for name in (*files, fifo, found)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "password s3cret",
        "password 's3cret'",
        """password "it's s3cret" """,
        ": s3cret",
        "[s3cret",
        "  s3cret",
    ],
)
def test_malformed_line_is_reported_by_file_and_number_without_its_text(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(ConfigurationFileError) as caught:
        read(tmp_path, f"{line}\n[placement]\n")
    assert "s3cret" not in str(caught.value)
    assert f"{tmp_path / 'test.conf'}:1" in str(caught.value)


# Directories.


@pytest.fixture
def directories(tmp_path: Path) -> list[Path]:
    """Two directories with two files each, created in reverse order of their names."""
    directories = [tmp_path / "one.d", tmp_path / "two.d"]
    for directory in directories:
        directory.mkdir()
        for name in ("b.conf", "a.conf"):
            (directory / name).write_text(f"[DEFAULT]\nhost = {directory.name}-{name}\n")
        (directory / "c.txt").write_text("not read")
    return directories


def test_files_of_directories_are_read_in_the_order_of_their_names(
    directories: list[Path],
) -> None:
    opts = conf.parse([], [str(directory) for directory in directories])
    files = [str(directory / name) for directory in directories for name in ("a.conf", "b.conf")]
    assert opts.files == files
    assert [setting.file for setting in opts.settings()] == files
    assert (DefaultSection.read(opts).host, source(opts, "DEFAULT", "host")) == (
        "two.d-b.conf",
        files[-1],
    )


@pytest.mark.parametrize("name", ["one.d/a.conf", "two.d/b.conf"])
def test_unknown_option_is_reported_for_every_file_of_every_directory(
    directories: list[Path], tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("[DEFAULT]\nhots = x\n[placement]\nembeded = true\n")
    opts = conf.parse([], [str(directory) for directory in directories])
    told = [str(problem) for problem in conf.problems(opts)]
    assert len(told) == 2
    assert all(str(tmp_path / name) in one for one in told)
    assert "option hots of section [DEFAULT] is unknown. Did you mean host?" in told[0]
    assert "option embeded of section [placement] is unknown. Did you mean embedded?" in told[1]


def test_invalid_value_in_a_directory_is_reported_with_its_file(directories: list[Path]) -> None:
    file = directories[0] / "b.conf"
    file.write_text("[placement]\nconnections = 99\n")
    with pytest.raises(ConfigurationError) as caught:
        conf.load([], [str(directory) for directory in directories])
    assert caught.value.value == "99"
    assert str(file) in caught.value.remedy


@pytest.mark.parametrize("place", [".", ".wharfinger"])
def test_found_directory_is_checked_as_well(home: Path, place: str) -> None:
    directory = home / place / "wharfinger.conf.d"
    directory.mkdir(parents=True)
    file = directory.resolve() / "a.conf"
    file.write_text("[DEFAULT]\nhost = found\nhots = x\n[placement]\nconnections = 99\n")
    opts = conf.parse()
    assert opts.files == [str(file)]
    assert source(opts, "DEFAULT", "host") == str(file)
    unknown, bad = conf.problems(opts)
    assert f"{file}: option hots" in str(unknown)
    assert isinstance(bad, ConfigurationError)
    assert (bad.key, bad.value) == ("connections", "99")
    assert f"It is set in {file}." in bad.remedy


# Values.


@pytest.mark.parametrize(
    ("text", "section", "key"),
    [
        ("[gpus]\nremoval_delay = soon", "gpus", "removal_delay"),
        ("[gpus]\nremoval_delay = -1", "gpus", "removal_delay"),
        ("[placement]\nembedded = perhaps", "placement", "embedded"),
        ("[DEFAULT]\nstate_path = $nothing/here", "DEFAULT", "state_path"),
    ],
)
def test_invalid_value_is_an_error_that_names_section_and_key(
    tmp_path: Path, text: str, section: str, key: str
) -> None:
    with pytest.raises(WharfingerError) as caught:
        opts = read(tmp_path, text)
        DefaultSection.read(opts)
        InstanceSection.read(opts, "gpus")
        PlacementSection.read(opts)
    assert section in str(caught.value)
    assert key in str(caught.value)


def test_two_configurations_in_one_process_keep_their_values(tmp_path: Path) -> None:
    one = read(tmp_path, "[DEFAULT]\nhost = one\n[gpus]\ndriver = libvirt\nremoval_delay = 5\n")
    two = read(tmp_path, "[DEFAULT]\nhost = two\n[gpus]\ndriver = libvirt\n")
    assert [DefaultSection.read(opts).host for opts in (one, two)] == ["one", "two"]
    assert [InstanceSection.read(opts, "gpus").removal_delay for opts in (one, two)] == [5, 60]


@pytest.mark.parametrize(
    "name", ["gpus", "g", "gpu-hosts_2", "a" * 64], ids=["word", "letter", "signs", "longest"]
)
def test_valid_instance_name_is_accepted(tmp_path: Path, name: str) -> None:
    default = DefaultSection.read(read(tmp_path, f"[DEFAULT]\nenabled_drivers = {name}"))
    assert default.enabled_drivers == (name,)


@pytest.mark.parametrize("name", ["GPUs", "2gpus", "-gpus", "gpu.hosts", "gpu hosts", "a" * 65])
def test_invalid_instance_name_is_an_error_with_the_valid_form(tmp_path: Path, name: str) -> None:
    opts = read(tmp_path, f"[DEFAULT]\nenabled_drivers = metal, {name}")
    with pytest.raises(ConfigurationError, match="cannot be the name of") as caught:
        DefaultSection.read(opts)
    error = caught.value
    assert (error.section, error.key) == ("DEFAULT", "enabled_drivers")
    assert error.value == f"metal, {name}"
    assert repr(name) in error.problem
    assert "lower-case" in error.remedy


@pytest.mark.parametrize("names", ["gpu-hosts, gpu_hosts", "gpus, gpus"])
def test_instances_with_the_same_trait_are_refused(tmp_path: Path, names: str) -> None:
    opts = read(tmp_path, f"[DEFAULT]\nenabled_drivers = {names}")
    with pytest.raises(ConfigurationError, match="the same instance trait") as caught:
        DefaultSection.read(opts)
    assert all(name in caught.value.problem for name in names.split(", "))


def test_host_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\[DEFAULT\] host = : it is empty"):
        DefaultSection.read(read(tmp_path, "[DEFAULT]\nhost ="))


def test_state_path_in_the_home_directory_is_expanded(home: Path, tmp_path: Path) -> None:
    default = DefaultSection.read(read(tmp_path, "[DEFAULT]\nstate_path = ~/state"))
    assert default.state_path == home / "state"


def test_instance_section_has_driver_owner_and_delay(tmp_path: Path) -> None:
    opts = read(
        tmp_path,
        """
        [gpus]
        driver = libvirt
        owner = CUSTOM_OWNER_ACME
        removal_delay = 0
        """,
    )
    assert InstanceSection.read(opts, "gpus") == InstanceSection(
        "gpus", "libvirt", "CUSTOM_OWNER_ACME", 0
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auth_type", "password"),
        ("auth_section", "keystone"),
        ("endpoint_override", "http://placement.example"),
    ],
)
def test_embedded_placement_with_options_of_a_service_is_refused(
    tmp_path: Path, key: str, value: str
) -> None:
    opts = read(tmp_path, f"[placement]\n{key} = {value}")
    with pytest.raises(ConfigurationError) as caught:
        PlacementSection.read(opts)
    error = caught.value
    assert (error.section, error.key, error.value) == ("placement", key, value)
    assert "embedded = false" in error.remedy


def test_placement_service_without_authentication_is_refused(tmp_path: Path) -> None:
    opts = read(tmp_path, "[placement]\nembedded = false")
    with pytest.raises(ConfigurationError, match="no auth_type is set") as caught:
        PlacementSection.read(opts)
    assert caught.value.key == "auth_type"


def test_placement_service_with_authentication_is_accepted(tmp_path: Path) -> None:
    opts = read(tmp_path, "[placement]\nembedded = false\nauth_type = password")
    assert not PlacementSection.read(opts).embedded


SERVICE = """
[placement]
embedded = false
{line}
[keystone]
auth_type = password
auth_url = http://127.0.0.1:1
{slip}
"""


@pytest.mark.parametrize("line", ["auth_section = keystone", ""], ids=["file", "environment"])
def test_credentials_section_is_checked_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    if not line:
        monkeypatch.setenv("OS_PLACEMENT__AUTH_SECTION", "keystone")
    good = read(tmp_path, SERVICE.format(line=line, slip=""))
    assert not list(conf.problems(good))
    assert conf.service_sections(good, "placement") == ["placement", "keystone"]
    assert source(good, "keystone", "auth_url") == str(tmp_path / "test.conf")
    bad = read(tmp_path, SERVICE.format(line=line, slip="pasword = x"))
    (slip,) = conf.problems(bad)
    assert "option pasword of section [keystone] is unknown. Did you mean password?" in str(slip)


def test_credentials_section_is_known_although_another_value_is_invalid(tmp_path: Path) -> None:
    opts = read(tmp_path, SERVICE.format(line="auth_section = keystone\nconnections = 99", slip=""))
    (told,) = conf.problems(opts)
    assert "connections = 99" in str(told)


def test_credentials_without_a_type_are_reported_for_their_section(
    tmp_path: Path,
) -> None:
    opts = read(tmp_path, "[placement]\nembedded = false\nauth_section = keystone\n[keystone]\n")
    with pytest.raises(ConfigurationError, match="no auth_type is set") as caught:
        PlacementSection.read(opts)
    assert (caught.value.section, caught.value.key) == ("keystone", "auth_type")


def test_section_name_in_another_case_is_accepted(tmp_path: Path) -> None:
    opts = read(tmp_path, "[Placement]\nconnections = 3\nconections = 4\n")
    (slip,) = conf.problems(opts)
    assert "option conections of section [Placement] is unknown. Did you mean connections?" in str(
        slip
    )
    assert PlacementSection.read(opts).connections == 3


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[DEFAULT]\nstate-path = /given\n", "state_path"),
        ("[placement]\nembedded-database = /given\n", "embedded_database"),
        ("[placement]\nregion-name = /given\n", "region_name"),
    ],
)
def test_option_name_with_dashes_is_read_or_reported(tmp_path: Path, text: str, key: str) -> None:
    opts = read(tmp_path, text)
    told = [str(problem) for problem in conf.problems(opts)]
    section = "DEFAULT" if "DEFAULT" in text else "placement"
    (value,) = (value.text for value in opts.effective(section) if value.key == key)
    assert value == "/given" or any(f"Did you mean {key}?" in one for one in told)


# The environment.


@pytest.mark.parametrize("key", ["connections", "connect_retries"], ids=["ours", "keystoneauths"])
def test_invalid_value_from_the_environment_is_reported_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    variable = f"OS_PLACEMENT__{key.upper()}"
    monkeypatch.setenv(variable, "many")
    opts = read(tmp_path, "[placement]\nconnections = 3\n")
    with pytest.raises(ConfigurationError) as caught:
        PlacementSection.read(opts)
    error = caught.value
    assert (error.section, error.key, error.value) == ("placement", key, "many")
    assert f"environment: {variable}" in error.remedy


def test_secret_from_the_environment_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_KEYSTONE__PASSWORD", "s3cret")
    monkeypatch.setenv("OS_KEYSTONE__USERNAME", "somebody")
    opts = read(tmp_path, SERVICE.format(line="auth_section = keystone", slip=""))
    assert not list(conf.problems(opts))
    shown = {value.key: value for value in opts.effective("keystone")}
    assert (shown["password"].text, shown["username"].text) == ("***", "somebody")
    assert shown["password"].source == "environment: OS_KEYSTONE__PASSWORD"


def test_only_our_options_are_shown(tmp_path: Path) -> None:
    shown = {value.key for value in read(tmp_path, "").effective("DEFAULT")}
    logged = {option.dest for option in logging_options.OPTIONS}
    assert shown - logged == {"enabled_drivers", "host", "service_down_time", "state_path"}


def test_sample_has_all_options_with_help() -> None:
    listed = dict(conf.list_opts())
    assert listed.keys() == {
        "DEFAULT",
        "accelerator",
        "agent",
        "database",
        "placement",
        "scheduling",
        "<instance>",
    }
    assert {option.name for option in listed["DEFAULT"]} >= {"enabled_drivers", "host"}
    assert all(option.help for options in listed.values() for option in options)
