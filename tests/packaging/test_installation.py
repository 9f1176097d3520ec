"""The wheels work where the sources are not."""

import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.packaging.distribution import Distribution

_IMPORT_ALL = """
import importlib, sys
for name in sys.argv[1:]:
    file = importlib.import_module(name).__file__
    assert file is None or file.startswith(sys.prefix), f"{name} is from {file}"
"""

_LOAD_ENTRY_POINTS = """
import sys
from importlib.metadata import distribution
for name in sys.argv[1:]:
    for entry_point in distribution(name).entry_points:
        entry_point.load()
"""


@pytest.fixture(scope="module")
def installed(distributions: list[Distribution], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin directory of an environment with the wheels in it.

    Their requirements are those of the environment that runs the tests. Of the
    editable installations there it sees nothing: path files work only where they are.
    """
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment)
    directory = environment / "bin"
    paths = {"base": str(environment), "platbase": str(environment)}
    (Path(sysconfig.get_path("purelib", "venv", paths)) / "requirements.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "python")]
    wheels = [str(distribution.wheel) for distribution in distributions]
    _run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", *wheels])
    return directory


def test_every_module_can_be_imported(installed: Path, distributions: list[Distribution]) -> None:
    for distribution in distributions:
        _run([str(installed / "python"), "-c", _IMPORT_ALL, *distribution.modules])


def test_every_entry_point_can_be_loaded(
    installed: Path, distributions: list[Distribution]
) -> None:
    names = [distribution.package for distribution in distributions]
    _run([str(installed / "python"), "-c", _LOAD_ENTRY_POINTS, *names])


def test_the_command_helps(installed: Path) -> None:
    assert "usage: wharfinger" in _run([str(installed / "wharfinger"), "--help"])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
