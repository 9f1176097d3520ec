"""The plugin that each run of pytest loads. It loads the rest only if the kit is to run.

The kit's options do not disturb other runs.
"""

import warnings
from pathlib import Path
from typing import Final

import pytest

_KIT: Final = "wharfinger.conformance"
_DIRECTORY: Final = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load the kit's plugin if it is the kit that is to be run."""
    named = early_config.known_args_namespace.file_or_dir
    if any(map(_is_the_kit, named)):
        manager = early_config.pluginmanager
        with warnings.catch_warnings():
            # A driver's author cannot repair the deprecated calls of libraries.
            warnings.simplefilter("ignore", DeprecationWarning)
            manager.import_plugin("wharfinger.conformance.pytest_plugin")
        # They would leave a directory behind where this is run.
        for name in ("cacheprovider", "stepwise"):
            if manager.has_plugin(name):
                manager.unregister(name=name)


def _is_the_kit(named: str) -> bool:
    """Whether that is the kit, a module of it, or a test: by its name or by its path."""
    place = named.partition("::")[0]
    if place == _KIT or place.startswith(f"{_KIT}."):
        return True
    path = Path(place)
    return path.exists() and path.resolve().is_relative_to(_DIRECTORY)
