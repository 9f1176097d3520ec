"""The configuration's sections, each read from a real file."""

import socket
from pathlib import Path
from textwrap import dedent

import pytest
from oslo_config import cfg

from wharfinger import conf
from wharfinger.conf import DefaultSection, InstanceSection, PlacementSection
from wharfinger.exceptions import ConfigurationError, ConfigurationFileError, WharfingerError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without configuration in it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    return home


def read(directory: Path, text: str) -> cfg.ConfigOpts:
    path = directory / "test.conf"
    path.write_text(dedent(text))
    return conf.parse([str(path)])


# Files.


def test_without_a_file_everything_has_a_default(home: Path) -> None:
    opts = conf.load([])
    default = DefaultSection.read(opts)
    assert default.enabled_drivers == ()
    assert default.host == socket.gethostname()
    assert default.state_path.is_absolute()
    placement = PlacementSection.read(opts)
    assert placement.embedded
    assert placement.embedded_database == default.state_path / "placement.sqlite"
    assert InstanceSection.read(opts, "gpus") == InstanceSection("gpus", "gpus", None, 60)


def test_a_file_in_the_home_directory_is_found(home: Path) -> None:
    (home / ".wharfinger").mkdir()
    (home / ".wharfinger" / "wharfinger.conf").write_text("[DEFAULT]\nhost = found\n")
    assert DefaultSection.read(conf.load()).host == "found"


def test_where_a_file_is_named_no_other_is_read(home: Path, tmp_path: Path) -> None:
    (home / "wharfinger.conf").write_text("[DEFAULT]\nhost = found\n")
    (home / "wharfinger.conf.d").mkdir()
    (home / "wharfinger.conf.d" / "a.conf").write_text("[DEFAULT]\nhost = found-too\n")
    assert DefaultSection.read(read(tmp_path, "")).host == socket.gethostname()


def test_the_last_of_several_files_wins_and_directories_come_after_files(tmp_path: Path) -> None:
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
def test_a_malformed_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationFileError, match=r"test\.conf") as caught:
        read(tmp_path, text)
    assert "--config-file" in caught.value.remedy


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=r"nothing\.conf"):
        conf.load([str(tmp_path / "nothing.conf")])


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    # A directory: root may read every file.
    with pytest.raises(ConfigurationFileError) as caught:
        conf.load([str(tmp_path)])
    assert str(tmp_path) in str(caught.value)


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "binary.conf"
    path.write_bytes(b"[DEFAULT]\nhost = \xff\xfe\n")
    with pytest.raises(ConfigurationFileError, match=r"binary\.conf"):
        conf.load([str(path)])


def test_a_missing_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationFileError, match=r"nothing\.d"):
        conf.load([], [str(tmp_path / "nothing.d")])


def test_two_configurations_know_nothing_of_each_other(tmp_path: Path) -> None:
    one, two = read(tmp_path, "[DEFAULT]\nhost = one"), read(tmp_path, "[DEFAULT]\nhost = two")
    assert (DefaultSection.read(one).host, DefaultSection.read(two).host) == ("one", "two")


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
def test_a_value_that_is_none_is_an_error_that_names_section_and_key(
    tmp_path: Path, text: str, section: str, key: str
) -> None:
    with pytest.raises(WharfingerError) as caught:
        opts = read(tmp_path, text)
        DefaultSection.read(opts)
        InstanceSection.read(opts, "gpus")
        PlacementSection.read(opts)
    assert section in str(caught.value)
    assert key in str(caught.value)


@pytest.mark.parametrize(
    "name", ["gpus", "g", "gpu-hosts_2", "a" * 64], ids=["word", "letter", "signs", "longest"]
)
def test_instance_names(tmp_path: Path, name: str) -> None:
    default = DefaultSection.read(read(tmp_path, f"[DEFAULT]\nenabled_drivers = {name}"))
    assert default.enabled_drivers == (name,)


@pytest.mark.parametrize("name", ["GPUs", "2gpus", "-gpus", "gpu.hosts", "gpu hosts", "a" * 65])
def test_a_bad_instance_name_is_an_error_that_says_what_would_be_right(
    tmp_path: Path, name: str
) -> None:
    opts = read(tmp_path, f"[DEFAULT]\nenabled_drivers = metal, {name}")
    with pytest.raises(ConfigurationError, match="cannot be the name of") as caught:
        DefaultSection.read(opts)
    error = caught.value
    assert (error.section, error.key) == ("DEFAULT", "enabled_drivers")
    assert error.value == f"metal, {name}"
    assert repr(name) in error.problem
    assert "lower-case" in error.remedy


@pytest.mark.parametrize("names", ["gpu-hosts, gpu_hosts", "gpus, gpus"])
def test_instances_that_would_have_the_same_trait_are_refused(tmp_path: Path, names: str) -> None:
    opts = read(tmp_path, f"[DEFAULT]\nenabled_drivers = {names}")
    with pytest.raises(ConfigurationError, match="one and the same trait") as caught:
        DefaultSection.read(opts)
    assert all(name in caught.value.problem for name in names.split(", "))


def test_a_host_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\[DEFAULT\] host = : the host has no name"):
        DefaultSection.read(read(tmp_path, "[DEFAULT]\nhost ="))


def test_a_state_path_may_be_in_the_home_directory(home: Path, tmp_path: Path) -> None:
    default = DefaultSection.read(read(tmp_path, "[DEFAULT]\nstate_path = ~/state"))
    assert default.state_path == home / "state"


def test_an_instance_section_names_its_driver_its_owner_and_its_delay(tmp_path: Path) -> None:
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


def test_two_instances_of_one_driver_each_have_their_own(tmp_path: Path) -> None:
    opts = read(tmp_path, "[one]\ndriver = libvirt\n[two]\ndriver = libvirt\nremoval_delay = 5\n")
    assert InstanceSection.read(opts, "one").removal_delay == 60
    assert InstanceSection.read(opts, "two").removal_delay == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("auth_type", "password"),
        ("auth_section", "keystone"),
        ("endpoint_override", "http://placement.example"),
    ],
)
def test_an_embedded_placement_and_a_service_contradict_each_other(
    tmp_path: Path, key: str, value: str
) -> None:
    opts = read(tmp_path, f"[placement]\n{key} = {value}")
    with pytest.raises(ConfigurationError) as caught:
        PlacementSection.read(opts)
    error = caught.value
    assert (error.section, error.key, error.value) == ("placement", key, value)
    assert "embedded = false" in error.remedy


def test_a_service_without_authentication_is_refused(tmp_path: Path) -> None:
    opts = read(tmp_path, "[placement]\nembedded = false")
    with pytest.raises(ConfigurationError, match="nothing says how to authenticate") as caught:
        PlacementSection.read(opts)
    assert caught.value.key == "auth_type"


def test_a_service_with_authentication_is_taken(tmp_path: Path) -> None:
    opts = read(tmp_path, "[placement]\nembedded = false\nauth_type = password")
    assert not PlacementSection.read(opts).embedded


def test_all_options_are_listed_for_the_sample_with_help() -> None:
    listed = dict(conf.list_opts())
    assert listed.keys() == {"DEFAULT", "placement", "<instance>"}
    assert {option.name for option in listed["DEFAULT"]} >= {"enabled_drivers", "host"}
    assert all(option.help for options in listed.values() for option in options)
