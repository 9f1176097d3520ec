"""Checks whether the embedded Placement is installed, without importing it."""

import sys
from pathlib import Path

import pytest

from wharfinger.exceptions import ConfigurationError
from wharfinger.placement import embedded


@pytest.mark.parametrize(
    ("modules", "missing"),
    [
        (["placement"], "openstack-placement is not"),
        (["webob"], "WebOb is not"),
        (["placement", "webob"], "openstack-placement and WebOb are not"),
    ],
)
def test_check_installed_names_each_missing_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modules: list[str], missing: str
) -> None:
    for module in ("placement", "webob"):  # the check must find no installed module
        (tmp_path / f"{module}.py").touch()
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigurationError, match=f"{missing} installed") as raised:
        embedded.check_installed()

    assert (raised.value.section, raised.value.key) == ("placement", "embedded")


def test_check_installed_of_a_directory_without_a_package_names_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "placement").mkdir()
    monkeypatch.delitem(sys.modules, "placement", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    with pytest.raises(ConfigurationError, match="openstack-placement"):
        embedded.check_installed()


def test_check_installed_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("placement", "webob"):
        (tmp_path / f"{module}.py").write_text("raise AssertionError('this was imported')")
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    embedded.check_installed()
