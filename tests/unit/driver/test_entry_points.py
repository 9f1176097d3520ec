"""Entry points are read again only after a package has changed."""

from importlib import metadata
from typing import Any

import pytest

from tests.unit.driver.packages import Packages
from wharfinger.driver.entry_points import entry_points
from wharfinger.driver.loader import NAMESPACE


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the groups for which the metadata of all packages are read."""
    read, groups = metadata.entry_points, list[str]()

    def noted(group: str) -> Any:
        groups.append(group)
        return read(group=group)

    monkeypatch.setattr(metadata, "entry_points", noted)
    return groups


def names() -> set[str]:
    return {one.name for one in entry_points(group=NAMESPACE)}


def test_unchanged_metadata_are_read_once(packages: Packages, reads: list[str]) -> None:
    packages.install_driver("acme")
    assert names() == names() >= {"acme"}
    assert reads == [NAMESPACE]


def test_each_group_is_read(packages: Packages, reads: list[str]) -> None:
    packages.install_driver("acme")
    assert entry_points(group="wharfinger.request_filters") != entry_points(group=NAMESPACE)
    assert reads == ["wharfinger.request_filters", NAMESPACE]


def test_added_and_removed_packages_are_seen(packages: Packages) -> None:
    packages.install_driver("acme")
    assert names() >= {"acme"}
    packages.register("wharfinger-beta", "beta = wharfinger_beta:Driver", seconds=1)
    assert names() >= {"acme", "beta"}
    packages.uninstall("wharfinger-acme")
    assert "acme" not in names() >= {"beta"}


def test_changed_entry_point_in_an_unchanged_directory_is_seen(
    packages: Packages,
) -> None:
    packages.install_driver("acme")
    assert names() >= {"acme"}
    packages.register("wharfinger-acme", "acme-two = wharfinger_acme:Driver")
    assert "acme" not in names() >= {"acme-two"}


def test_missing_directory_has_no_packages(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.install_driver("acme")
    monkeypatch.syspath_prepend("/nowhere")
    assert names() >= {"acme"}
