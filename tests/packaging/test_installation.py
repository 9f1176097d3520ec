"""The wheels work where the sources are not."""

from pathlib import Path

from tests.packaging.distribution import Distribution
from tests.packaging.environment import run

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


def test_every_module_can_be_imported(installed: Path, distributions: list[Distribution]) -> None:
    for distribution in distributions:
        run([str(installed / "python"), "-c", _IMPORT_ALL, *distribution.modules])


def test_every_entry_point_can_be_loaded(
    installed: Path, distributions: list[Distribution]
) -> None:
    names = [distribution.package for distribution in distributions]
    run([str(installed / "python"), "-c", _LOAD_ENTRY_POINTS, *names])


def test_the_command_helps(installed: Path) -> None:
    assert "usage: wharfinger" in run([str(installed / "wharfinger"), "--help"])
