"""Snapshots of the configuration: the instances that a new one changes, and refused changes."""

from pathlib import Path

import pytest

from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.exceptions import ConfigurationError, ConfigurationFileError, WharfingerError

BASE = """\
[DEFAULT]
enabled_drivers = metal, gpus
host = lab
[metal]
driver = ironic
[gpus]
driver = libvirt
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wharfinger.conf"


def snapshot(file: Path, text: str) -> Snapshot:
    file.write_text(text)
    return Snapshot([str(file)])


def test_snapshot_keeps_its_configuration_when_the_file_changes(file: Path) -> None:
    kept = snapshot(file, BASE)

    file.write_text("nonsense")

    assert kept.files == (str(file),)
    assert Snapshot([kept.path]).conf.host == "lab"
    assert [one.value for one in kept.conf.settings()][:2] == ["metal, gpus", "lab"]


def test_snapshot_of_several_files_has_the_last_value(file: Path, tmp_path: Path) -> None:
    directory = tmp_path / "conf.d"
    directory.mkdir()
    file.write_text(BASE.rstrip("\n"))
    (directory / "1.conf").write_text("[DEFAULT]\nhost = one")
    (directory / "2.conf").write_text("[DEFAULT]\nhost = two\n")

    kept = Snapshot([str(file)], [str(directory)])

    assert kept.conf.host == "two"
    assert len(kept.files) == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nonsense", ConfigurationFileError),
        (f"{BASE}[absent]\nx = 1", ConfigurationFileError),
        (f"{BASE}[agent]\npoll_interval = -1", ConfigurationError),
    ],
)
def test_snapshot_of_a_bad_configuration_raises(
    file: Path, text: str, error: type[WharfingerError]
) -> None:
    with pytest.raises(error):
        snapshot(file, text)


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (("", "# a comment\n"), []),
        (("metal, gpus", "gpus, metal"), []),
        (("driver = ironic", "driver = ironic\nowner = CUSTOM_OWNER_LAB"), ["metal"]),
        (("driver = libvirt", "driver = libvirt\n[gpus:a]\nx = 1"), ["gpus"]),
        (("driver = libvirt", "driver = libvirt\n[new]\ndriver = cyborg"), []),
        (("driver = libvirt", "driver = libvirt\n[agent]\npoll_interval = 1"), ["metal", "gpus"]),
    ],
)
def test_change_concerns_the_instances_that_may_read_it(
    file: Path, change: tuple[str, str], changed: list[str]
) -> None:
    before = snapshot(file, BASE)
    text = BASE.replace(*change, 1) if change[0] else change[1] + BASE

    after = snapshot(file, text)

    assert before.changed_instances(after, ["metal", "gpus"]) == changed


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("host = lab", "host = elsewhere"),
        ("host = lab", "host = lab\nstate_path = /elsewhere"),
        ("host = lab", "host = lab\n[agent]\nisolation = thread"),
    ],
)
def test_successor_that_needs_a_restart_is_refused_by_name(
    file: Path, line: str, named: str
) -> None:
    before = snapshot(file, BASE)
    after = snapshot(file, BASE.replace(line, named))
    option = named.rpartition("\n")[2].partition(" =")[0]

    with pytest.raises(WharfingerError, match=f"{option}.* changed.*Restart the agent"):
        before.check_successor(after)
    before.check_successor(snapshot(file, BASE))


def test_successor_without_instances_is_refused(file: Path) -> None:
    before = snapshot(file, BASE)
    after = snapshot(file, BASE.replace("enabled_drivers = metal, gpus\n", ""))

    with pytest.raises(WharfingerError, match="no driver instance is enabled"):
        before.check_successor(after)
