"""The wheels work without the sources."""

from pathlib import Path

from tests.packaging.distribution import Distribution
from tests.packaging.environment import run

_LOAD_ALL = """
import importlib, sys
from importlib.metadata import distribution
names, modules = (part.split() for part in sys.argv[1:])
for name in modules:
    file = importlib.import_module(name).__file__
    assert file is None or file.startswith(sys.prefix), f"{name} is from {file}"
for name in names:
    for entry_point in distribution(name).entry_points:
        entry_point.load()
"""


def test_every_module_can_be_imported_and_every_entry_point_loaded(
    installed: Path, distributions: list[Distribution]
) -> None:
    names = [distribution.package for distribution in distributions]
    modules = [module for distribution in distributions for module in distribution.modules]
    run([installed / "python", "-c", _LOAD_ALL, " ".join(names), " ".join(modules)])
