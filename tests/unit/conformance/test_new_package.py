"""The package for a new driver: its names, and that it overwrites no file."""

import ast
import tomllib
from pathlib import Path

import pytest

from wharfinger.conformance import new_package
from wharfinger.exceptions import WharfingerError

GROUPS = ("wharfinger.drivers", "wharfinger.conformance_harness", "oslo.config.opts")


@pytest.mark.parametrize(
    ("name", "module", "kind"),
    [
        ("shelf", "shelf", "Shelf"),
        ("my-rack_2", "my_rack_2", "MyRack2"),
        ("class", "class", "Class"),
        ("x" * 64, "x" * 64, "X" + 63 * "x"),
    ],
)
def test_package_has_its_name_in_modules_classes_and_entry_points(
    name: str, module: str, kind: str
) -> None:
    texts = new_package.render(name)

    assert "fleet" not in " ".join([*texts, *texts.values()]).lower()
    project = tomllib.loads(texts["pyproject.toml"])
    package = f"wharfinger_{module}"
    assert project["project"]["name"] == f"wharfinger-{name}"
    assert project["tool"]["setuptools"]["packages"] == [package]
    found = {group: project["project"]["entry-points"][group] for group in GROUPS}
    assert found == {
        "wharfinger.drivers": {name: f"{package}.driver:{kind}Driver"},
        "wharfinger.conformance_harness": {name: f"{package}.harness:{kind}Harness"},
        "oslo.config.opts": {name: f"{package}.driver:list_opts"},
    }
    for group in GROUPS:
        file, _, target = found[group][name].partition(":")
        body = ast.parse(texts[f"{file.replace('.', '/')}.py"]).body
        assert target in [getattr(one, "name", None) for one in body]
    assert f"CUSTOM_OWNER_{module.upper()}" in texts[f"{package}/driver.py"]


@pytest.mark.parametrize(
    "name",
    ["", "Shelf", "2shelf", "-shelf", "shelf-", "a--b", "a b", "a.b", "x" * 65, "é", "placement"],
)
def test_name_that_no_instance_or_module_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a driver: use"):
        new_package.check_name(name)


def test_write_into_missing_directory_writes_each_file(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "new"

    files = new_package.write("shelf", directory)

    assert {str(one.relative_to(directory)): one.read_text() for one in files} == (
        new_package.render("shelf")
    )
    assert sorted(files) == sorted(one for one in directory.rglob("*") if one.is_file())


@pytest.mark.parametrize("there", ["pyproject.toml", ".git"])
def test_write_into_directory_with_file_writes_nothing(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")

    with pytest.raises(
        WharfingerError, match=r"is not empty, and nothing was written.*--directory"
    ):
        new_package.write("shelf", tmp_path)

    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [(there, "mine")]


def test_write_over_file_names_it_and_leaves_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")

    with pytest.raises(WharfingerError, match=f"{file}: Not a directory.*--directory"):
        new_package.write("shelf", file)

    assert file.read_text() == "mine"


def test_write_of_installed_package_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(
        WharfingerError, match=r"wharfinger_libvirt is installed already.*another name"
    ):
        new_package.write("libvirt", tmp_path / "new")

    assert not (tmp_path / "new").exists()
